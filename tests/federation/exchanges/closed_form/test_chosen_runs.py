"""Runs that leave the better one of two heads.

By what a head is chosen is said by test_choice.py.
"""

import pytest
import torch
from safetensors.torch import load

from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.reporting import Kept, results_table

START = ["ggeur.init", "closed_form"]
BEST = [*START, "ggeur.keep", "best"]
#: By lds labels and domains would be confounded.
IID = ["data.splitter", "iid", "data.splitter_args", [], "federate.client_num", 6]
FEW = ["ggeur.privacy.min_samples", 3]
#: Nobody sends most of the classes.
ABSENT = [*IID, "ggeur.privacy.min_samples", 6]
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


def assert_equal(one, other):
    assert all(torch.equal(*pair) for pair in zip(state(one), state(other)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "validated"), [("lda", True), ("ridge", False), ("auto", True)]
)
def test_the_head_that_is_left_is_one_of_the_two(config, kind, validated):
    common = [*IID, *FEW, *VALIDATED] if validated else ABSENT
    results, head = follow(config(*KINDS[kind], *BEST, *common))
    kept = results.final.kept
    alone, solved = follow(config(*KINDS[kind], *common))
    assert results.closed_form.accuracy == alone.final.accuracy
    if kept.head == "closed_form":
        assert results.final.head == "closed_form"
        assert results.final.accuracy == alone.final.accuracy
        assert_equal(head, solved)
    else:
        assert results.final.head == "trained"
        if validated:
            assert kept.by == "validation"
            assert kept.trained > kept.closed_form
        else:
            assert kept.by == "absent"
    if not validated:
        assert results.round0.closed_form.details["absent_rows"] > 0
        absent = results.final.probabilities.absent
        assert absent.classes == results.round0.closed_form.details["left_out"]
    # What was scored before it was left is what is scored afterwards.
    assert sum(p.numel() for p in results.model.parameters()) == sum(
        t.numel() for t in load(head).values()
    )


@pytest.mark.slow
def test_the_head_that_is_left_may_be_the_mean_of_both(config):
    average = [*KINDS["auto"], *START, "ggeur.keep", "average", *IID, *FEW]
    results = run(config(*average))
    assert results.final.kept == Kept("average", "withheld", None, None)
    assert results.final.calibrated_by is None
    assert "kept: the mean of the probabilities of both heads" in results_table(results)
    rows = torch.randn(20, results.model.in_features)
    parts = [results.model.one_shot, results.model.trained]
    mean = torch.stack([part(rows).softmax(dim=1) for part in parts]).mean(dim=0)
    torch.testing.assert_close(results.model(rows).softmax(dim=1), mean)


@pytest.mark.slow
def test_the_mixture_may_be_left_while_a_linear_head_is_trained(config):
    """Both are scored and left as mixtures: a linear one has a component a class."""
    results, head = follow(config(*KINDS["auto"], *BEST, *IID, *FEW, *VALIDATED))
    details = results.round0.closed_form.details
    assert details["start"]["closed_form"] == "lda"
    kinds = {c["closed_form"] for c in details["candidates"]}
    assert kinds == {"lda", "mixture"}
    assert set(load(head)) == {"weight", "bias", "classes", "scale"}
    assert len(results.rounds) == 3
    assert "kept: the head" in results_table(results)


@pytest.mark.slow
def test_where_labels_and_domains_are_confounded_training_has_the_last_word(config):
    """As lds divides the digits; training then starts where plain training does."""
    results = run(config(*KINDS["auto"], *BEST, *FEW))
    details = results.round0.closed_form.details
    assert (results.final.kept.by, results.final.head) == ("confounded", "trained")
    assert details["start"] == {"closed_form": "none"}
    assert details["confounded_share"] > 0.5
    assert details["note"] in results.notes
    plain = run(config("ggeur.space", "raw"))
    same = run(config(*KINDS["lda"], *BEST, "ggeur.space", "raw"))
    assert same.final.kept.by == "confounded"
    assert [r.accuracy for r in same.rounds] == [r.accuracy for r in plain.rounds]
