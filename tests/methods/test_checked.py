"""What the hooks of a user's own method return is checked, and told where it is wrong.

Every case is a run: the checks stand where the package calls the hooks.
"""

import math

import pytest
import torch

from federatedscope_ggeur import methods
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import run
from federatedscope_ggeur.errors import GGEURError, PluginError
from federatedscope_ggeur.reporting import Results

SHORT = ["federate.total_round_num", 2]


@pytest.fixture(autouse=True)
def _unregistered_afterwards(monkeypatch):
    for registry in (methods.METHODS, methods.AUGMENTATIONS):
        monkeypatch.setattr(registry, "_parts", dict(registry))


def own(**hooks) -> type[methods.Method]:
    """A method of this file, which is no part of the package, with these hooks."""
    return type("Own", (methods.Method,), {"__module__": __name__, **hooks})


def run_of(quickstart, key="ggeur.base_method"):
    return run(load_config(quickstart, [key, "own", *SHORT]))


def local(**hooks):
    return lambda self, context: methods.LocalHooks(**hooks)


DECLARED = {"upload_shapes": lambda self, model: {"n": methods.TensorSpec((4,))}}
WEIGHTS = r"must return weights of shape \(3250,\) and dtype torch\.float32"
#: Hooks that give something else than they must, and what is said of it.
WRONG = [
    ({"step": lambda self, p, u, s, c: p}, r"step .* must return \(weights, state\)"),
    ({"step": lambda self, p, u, s, c: [p, s]}, "step .*, but returned a list"),
    ({"step": lambda self, p, u, s, c: (p[:-1], s)}, rf"step .*{WEIGHTS}.*\(3249,\)"),
    ({"step": lambda self, p, u, s, c: (p.double(), s)}, rf"step .*{WEIGHTS}.*float64"),
    ({"step": lambda self, p, u, s, c: (p, {"v": 3})}, "step .*'v' in it is an int"),
    ({"download": lambda self, state: {"v": 3}}, "download .*'v' in it is an int"),
    ({"initial_state": lambda self, p, c: None}, "initial_state .*returned None"),
    ({"scored_params": lambda self, p, s: p[:-1]}, f"scored_params .*{WEIGHTS}"),
    ({"eval_params": lambda self, c: c.weights[:-1]}, f"eval_params .*{WEIGHTS}"),
    ({"figures": lambda self, s: {"a": torch.ones(3)}}, "figures .* dict of numbers"),
    ({"local": lambda self, c: None}, "local .* must return LocalHooks"),
    (
        {"local": lambda self, c: methods.LocalHooks(start=c.weights[:-1])},
        "local .* a start",
    ),
    ({"local": local(transform=lambda x, y: x[:, :-1])}, r"transform .*\(16, 323\)"),
    ({"local": local(loss_term=lambda m, b: b.logits.sum(1))}, "loss_term .*mean over"),
    ({"local": local(objective=lambda m, x, y: 3.0)}, "objective .*returned a float"),
    ({"local": local(add_correction=lambda p: 0)}, r"add_correction .*takes \(p\)"),
    ({"local": local(perturb=lambda p, g: g[:-1])}, "perturb .*return a move of the"),
    ({"local": local(finish=lambda outcome: {})}, "finish .*to keep.*, but .*a dict"),
    ({"upload_shapes": lambda self, model: {"n": (4,)}}, "upload_shapes .*TensorSpec"),
    (
        {"upload_shapes": lambda self, m: {"n": methods.TensorSpec((4,), torch.bool)}},
        r"upload_shapes .*of \(torch\.int64.*but declares torch\.bool",
    ),
    (
        {"step": lambda self, p, u, s, c: (p, {"v": torch.ones(2).half()})},
        r"step .*'v': expected one of \(torch\.int64, .*got torch\.float16",
    ),
    ({"initial_state": lambda self, p, c: {"v": p > 0}}, "initial_state .*torch.bool"),
    (
        {"download": lambda self, s: {"v": torch.full((2,), torch.nan)}},
        "download .*'v': contains NaN",
    ),
    (
        {"aggregate_init": lambda self, uploads: {"v": torch.full((2,), torch.nan)}},
        "aggregate_init .*'v': contains NaN",
    ),
    (
        {"init_upload": lambda self, x, y, c: {"v": torch.ones(2)}},
        "init_upload .*what init_upload_shapes declares",
    ),
    (
        {"local": local(finish=lambda outcome: ({}, {"v": torch.ones(2) > 0}))},
        "finish .*'v': expected .*torch.bool",
    ),
    (
        {"local": local(finish=lambda outcome: ({"v": torch.ones(2)}, {}))},
        r"finish .*what upload_shapes declares: expected the tensors \[\], got \['v'",
    ),
    (
        {**DECLARED, "local": local(finish=lambda outcome: ({"n": torch.ones(3)}, {}))},
        r"finish .*'n' \(upload_shapes declares it\): expected shape \(4\)",
    ),
    (
        {"local": local(objective=lambda m, x, y: torch.tensor(1.0))},
        "objective .*with a gradient",
    ),
]


@pytest.mark.parametrize(("hooks", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_cannot_be_used_is_named(hooks, said, quickstart):
    methods.register_method("own")(own(**hooks))
    with pytest.raises(PluginError) as caught:
        run_of(quickstart)
    caught.match(said)
    caught.match(r"of the method 'own' \(.*test_checked\.py, line \d+\)")
    assert len(str(caught.value).splitlines()) == 1


def test_an_augmentation_is_checked_too(quickstart):
    methods.register_augmentation("own")(own(local=lambda self, context: None))
    with pytest.raises(PluginError, match="must return LocalHooks"):
        run_of(quickstart, "ggeur.augmentation")


def test_what_a_base_of_its_own_defines_is_checked(quickstart):
    base = own(step=lambda self, p, u, s, c: p)
    methods.register_method("own")(type("Sub", (base,), {"__module__": __name__}))
    with pytest.raises(PluginError, match="step of the method 'own'"):
        run_of(quickstart)


def test_batched_hooks_are_checked_too(config):
    def finish(outcome):
        return {}, {"v": torch.ones(2) > 0}

    def local_batched(self, contexts):
        return methods.base.BatchedHooks(finish=[finish] * len(contexts))

    hooks = {"local": local(finish=finish), "local_batched": local_batched}
    methods.register_method("own")(own(**hooks))
    batched = ["ggeur.base_method", "own", "ggeur.batched", "always"]
    with pytest.raises(PluginError, match=r"finish of the method 'own'.*torch\.bool"):
        run(config(*batched, *SHORT))


@pytest.mark.parametrize(
    "hooks",
    [
        {"step": lambda self, p, u, s, c: (p * torch.nan, s)},
        {"local": local(finish=lambda o: ({}, {"v": torch.full((2,), torch.nan)}))},
        {"local": local(loss_term=lambda m, b: b.logits.sum() * torch.nan)},
    ],
    ids=["step", "finish", "loss_term"],
)
def test_where_numbers_are_not_finite_the_plugin_is_named_too(hooks, quickstart):
    methods.register_method("own")(own(**hooks))
    with pytest.raises(GGEURError, match=r"lower .* or look .* 'own'"):
        run_of(quickstart)


def test_a_figure_that_does_not_exist_is_null(quickstart):
    methods.register_method("own")(own(figures=lambda self, s: {"a": math.nan, "b": 1}))
    results = Results.from_json(run_of(quickstart).to_json())
    assert results.rounds[0].details == {"a": None, "b": 1}


@pytest.mark.slow
def test_checks_change_no_number(quickstart):
    def finish(outcome):
        return {"n": torch.ones(4)}, {"last": outcome.weights.clone()}

    methods.register_method("own")(
        own(
            **DECLARED,
            local=local(
                transform=lambda x, y: x.clone(),
                add_correction=lambda params, gradient: None,
                finish=finish,
            ),
            step=lambda self, p, u, s, c: (methods.weighted_mean(p, u), s),
            scored_params=lambda self, params, state: params,
        )
    )
    mine, plain = run_of(quickstart), run(load_config(quickstart, SHORT))
    assert [r.accuracy for r in mine.rounds] == [r.accuracy for r in plain.rounds]
    assert [r.loss for r in mine.rounds] == [r.loss for r in plain.rounds]
