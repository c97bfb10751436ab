"""Runs that leave the better of a head in closed form and the trained one."""

import pytest
import torch
from safetensors.torch import load

from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.reporting import numbers, results_table

pytestmark = pytest.mark.slow

BEST = ["ggeur.init", "closed_form", "ggeur.keep", "best"]
IID = ["data.splitter", "iid", "data.splitter_args", [], "federate.client_num", 6]
FEW = ["ggeur.privacy.min_samples", 3]
VALIDATED = ["data.splits", [0.5, 0.2, 0.3], "eval.split", ["test", "val"]]
KINDS = {
    "auto": ["ggeur.closed_form", "auto"],
    "lda": ["ggeur.closed_form", "lda", "ggeur.lda.shrinkage", 0.3],
    "ridge": ["ggeur.closed_form", "ridge"],
}


def follow(settings):
    going = Run(settings)
    return going.follow(lambda record: None), going.history.head_bytes()


def state(head):
    """The head's weights and biases, of a mixture or of a linear head."""
    tensors = load(head)
    names = [
        next(n for n in tensors if n.endswith(part)) for part in ("weight", "bias")
    ]
    return [tensors[name] for name in names]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("validated", [False, True])
def test_the_head_that_is_left_is_one_of_the_two(config, kind, validated):
    common = [*IID, *FEW, *(VALIDATED if validated else [])]
    results, head = follow(config(*KINDS[kind], *BEST, *common))
    kept = results.final.kept
    alone, solved = follow(config(*KINDS[kind], *common))
    assert results.closed_form.accuracy == alone.final.accuracy
    assert kept.by == ("validation" if validated else kept.by)
    if kept.head == "closed_form":
        assert results.final.head == "closed_form"
        assert results.final.accuracy == alone.final.accuracy
        for tensor, same in zip(state(head), state(solved)):
            assert torch.equal(tensor, same)
    elif validated:
        assert kept.trained > kept.closed_form
        assert results.final.head == "trained"
    else:
        assert results.round0.closed_form.details["withheld_share"] > 0.02
        assert (kept.by, results.final.head) == ("withheld", "trained")
    # What was scored before it was left is what is scored afterwards.
    model = results.model
    assert sum(p.numel() for p in model.parameters()) == sum(
        t.numel() for t in load(head).values()
    )


def test_the_trained_head_is_that_of_a_run_that_keeps_it(config):
    """From the same start, where the best kind is a linear one."""
    settings = [*KINDS["ridge"], "ggeur.init", "closed_form", *IID, *FEW]
    best, trained = (
        run(config(*settings, "ggeur.keep", keep)) for keep in ("best", "trained")
    )
    assert [r.accuracy for r in best.rounds] == [r.accuracy for r in trained.rounds]
    assert trained.final.kept is None


def test_the_mixture_may_be_left_while_a_linear_head_is_trained(config):
    """Both are scored and left as mixtures: a linear one has a component a class."""
    settings = config(*KINDS["auto"], *BEST, *IID, *FEW)
    results, head = follow(settings)
    details = results.round0.closed_form.details
    assert details["start"]["closed_form"] in {"lda", "ridge", "ncm", "fedcof"}
    kinds = {c["closed_form"] for c in details["candidates"]}
    assert kinds == {"lda", "mixture", "ridge", "ncm", "fedcof"}
    assert set(load(head)) == {"weight", "bias", "classes", "scale"}
    assert len(results.rounds) == 3
    assert "kept: the head" in results_table(results)


def test_where_labels_and_domains_are_confounded_training_has_the_last_word(config):
    """As lds divides the digits; training then starts where plain training does."""
    settings = config(*KINDS["auto"], *BEST, *FEW)
    results = run(settings)
    assert results.final.kept.by == "confounded"
    assert results.final.head == "trained"
    assert results.round0.closed_form.details["start"] == {"closed_form": "none"}
    plain = run(config("ggeur.space", "raw"))
    same = run(config(*KINDS["lda"], *BEST, "ggeur.space", "raw"))
    assert same.final.kept.by == "confounded"
    assert [r.accuracy for r in same.rounds] == [r.accuracy for r in plain.rounds]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("server", [False, True])
def test_a_stopped_run_goes_on_to_the_same_head(config, tmp_path, kind, server):
    settings = [*KINDS[kind], *BEST, *IID, *FEW, "federate.make_global_eval", server]
    whole, head = follow(config(*settings))
    place = ["federate.save_to", tmp_path / "point"]
    run(config(*settings, "federate.total_round_num", 1, *place))
    restore = ["federate.restore_from", tmp_path / "point"]
    resumed, same = follow(config(*settings, *restore))
    assert same == head
    assert resumed.final.kept == whole.final.kept
    assert resumed.final.accuracy == whole.final.accuracy


def test_the_order_of_clients_does_not_matter(config):
    settings = config(*KINDS["auto"], *BEST, *IID, *FEW)
    backwards = run(settings, order=lambda numbers: sorted(numbers, reverse=True))
    assert numbers(run(settings)) == numbers(backwards)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (["ggeur.keep", "best"], "ggeur.keep"),
        ([*KINDS["lda"], "ggeur.keep", "best"], "ggeur.keep"),
        ([*KINDS["lda"], *BEST, "ggeur.calibrate", "ccvr"], "ggeur.keep"),
        (["ggeur.keep", "both"], "ggeur.keep"),
    ],
)
def test_settings_that_leave_no_choice_are_refused(config, settings, key):
    with pytest.raises(ConfigError, match=key):
        run(config(*settings))
