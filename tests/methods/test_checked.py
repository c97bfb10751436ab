"""What the hooks of a user's own method return is checked, and told where it is wrong.

Every case is a run: the checks stand where the package calls the hooks.
"""

from __future__ import annotations

import pytest
import torch

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import run
from federatedscope_ggeur.errors import PluginError
from federatedscope_ggeur.methods import (
    AUGMENTATIONS,
    METHODS,
    LocalHooks,
    Method,
    TensorSpec,
    register_augmentation,
    register_method,
    weighted_mean,
)

SHORT = ["federate.total_round_num", 2]


@pytest.fixture(autouse=True)
def _unregistered_afterwards(monkeypatch):
    for registry in (METHODS, AUGMENTATIONS):
        monkeypatch.setattr(registry, "_parts", dict(registry))


def own(**hooks) -> type[Method]:
    """A method of this file, which is no part of the package, with these hooks."""
    return type("Own", (Method,), {"__module__": __name__, **hooks})


def run_of(quickstart, key="ggeur.base_method"):
    return run(load_config(quickstart, [key, "own", *SHORT]))


def local(**hooks):
    return lambda self, context: LocalHooks(**hooks)


DECLARED = {"upload_shapes": lambda self, model: {"n": TensorSpec((4,))}}
WEIGHTS = r"must return weights of shape \(3250,\) and dtype torch\.float32"
WRONG = {
    "step returns the weights alone": (
        {"step": lambda self, p, u, s, c: p},
        r"step .* must return \(weights, state\), but returned a tensor of shape",
    ),
    "step cuts": (
        {"step": lambda self, p, u, s, c: (p[:-1], s)},
        rf"step .*{WEIGHTS}, but returned a tensor of shape \(3249,\)",
    ),
    "step in float64": (
        {"step": lambda self, p, u, s, c: (p.double(), s)},
        rf"step .*{WEIGHTS}, but returned .* torch\.float64",
    ),
    "step keeps a number": (
        {"step": lambda self, p, u, s, c: (p, {"v": 3})},
        "step .* tensors to keep as state, but 'v' in it is an int",
    ),
    "download of a number": (
        {"download": lambda self, state: {"v": 3}},
        "download .* must return a dict of tensors, but 'v' in it is an int",
    ),
    "no state": (
        {"initial_state": lambda self, params, context: None},
        "initial_state .* must return a dict of tensors, but returned None",
    ),
    "scored weights": (
        {"scored_params": lambda self, params, state: params[:-1]},
        f"scored_params .*{WEIGHTS}",
    ),
    "own weights": (
        {"eval_params": lambda self, context: context.weights[:-1]},
        f"eval_params .*{WEIGHTS}",
    ),
    "figures are tensors": (
        {"figures": lambda self, state: {"a": torch.ones(3)}},
        "figures .* must return a dict of numbers, but returned a tensor",
    ),
    "local returns nothing": (
        {"local": lambda self, context: None},
        "local .* must return LocalHooks, but returned None",
    ),
    "start": (
        {"local": lambda self, c: LocalHooks(start=c.weights[:-1])},
        r"local .* must return a start of shape \(3250,\)",
    ),
    "transform cuts": (
        {"local": local(transform=lambda x, y: x[:, :-1])},
        r"transform .* features of shape \(16, 324\), but returned .*\(16, 323\)",
    ),
    "a loss for each row": (
        {"local": local(loss_term=lambda model, batch: batch.logits.sum(dim=1))},
        r"loss_term .* must return one number.* shape \(16,\).*mean over the batch",
    ),
    "a loss of another kind": (
        {"local": local(objective=lambda model, x, y: 3.0)},
        "objective .* must return one number.* but returned a float",
    ),
    "a correction of the weights alone": (
        {"local": local(add_correction=lambda params: None)},
        r"add_correction .* function of \(params, gradient\), but takes \(params\)",
    ),
    "a move of other length": (
        {"local": local(perturb=lambda params, gradient: gradient[:-1])},
        r"perturb .* must return a move of the weights of shape \(3250,\)",
    ),
    "an upload alone": (
        {"local": local(finish=lambda outcome: {})},
        r"finish .* must return \(tensors to send, tensors to keep\), but .*a dict",
    ),
    "a shape in place of a TensorSpec": (
        {"upload_shapes": lambda self, model: {"n": (4,)}},
        "upload_shapes .* must return a dict of TensorSpec, but returned a tuple",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_used_is_named(case, quickstart):
    hooks, said = WRONG[case]
    register_method("own")(own(**hooks))
    with pytest.raises(PluginError) as caught:
        run_of(quickstart)
    caught.match(said)
    caught.match(r"of the method 'own' \(.*test_checked\.py, line \d+\)")
    assert len(str(caught.value).splitlines()) == 1


def test_an_augmentation_is_checked_too(quickstart):
    register_augmentation("own")(own(local=lambda self, context: None))
    with pytest.raises(PluginError, match="must return LocalHooks"):
        run_of(quickstart, "ggeur.augmentation")


def test_what_a_base_of_its_own_defines_is_checked(quickstart):
    base = own(step=lambda self, p, u, s, c: p)
    register_method("own")(type("Sub", (base,), {"__module__": __name__}))
    with pytest.raises(PluginError, match="step of the method 'own'"):
        run_of(quickstart)


@pytest.mark.slow
def test_checks_change_no_number(quickstart):
    def finish(outcome):
        return {"n": torch.ones(4)}, {"last": outcome.weights.clone()}

    register_method("own")(
        own(
            **DECLARED,
            local=local(
                transform=lambda x, y: x.clone(),
                add_correction=lambda params, gradient: None,
                finish=finish,
            ),
            step=lambda self, p, u, s, c: (weighted_mean(p, u), s),
            scored_params=lambda self, params, state: params,
        )
    )
    mine, plain = run_of(quickstart), run(load_config(quickstart, SHORT))
    assert [r.accuracy for r in mine.rounds] == [r.accuracy for r in plain.rounds]
    assert [r.loss for r in mine.rounds] == [r.loss for r in plain.rounds]
