"""Heads in closed form that rows left out choose, by whole runs."""

import pytest
import torch
from safetensors.torch import load

from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.reporting import Results, numbers, results_table

OPEN = ("lda", "mixture", "ridge", "fedcof", "auto")
#: By lds labels and domains would be confounded.
IID = ["data.splitter", "iid", "data.splitter_args", []]
SIX = [*IID, "federate.client_num", 6, "ggeur.privacy.min_samples", 3]


def follow(config):
    going = Run(config)
    return going.follow(lambda record: None), load(going.history.head_bytes())


@pytest.mark.slow
@pytest.mark.parametrize("kind", OPEN)
def test_the_choice_is_that_of_setting_it(config, kind):
    # A mixture has its temperature beside the weights, a linear head in them.
    plain = [*SIX, "ggeur.temperature", "none"]
    results, head = follow(config("ggeur.closed_form", kind, *plain))
    details = results.round0.closed_form.details
    assert details["chosen_by"] == "leave_one_out"
    best = max(c["hits"] for c in details["candidates"])
    taken = details.get("closed_form", kind)
    tuned = CLOSED_FORMS[taken].TUNED
    if kind != "auto":
        assert best in [
            c["hits"] for c in details["candidates"] if c[tuned] == details[tuned]
        ]
    fixed = [f"ggeur.{taken}.{tuned}", details[tuned]] if tuned else []
    expected, same = follow(config("ggeur.closed_form", taken, *fixed, *plain))
    if "classifier.weight" in same:
        same = {
            "weight": same["classifier.weight"],
            "bias": same["classifier.bias"],
        }
    if "classifier.weight" in head:
        head = {
            "weight": head["classifier.weight"],
            "bias": head["classifier.bias"],
        }
    for name, tensor in same.items():
        assert torch.equal(head[name], tensor)
    assert results.final.accuracy == expected.final.accuracy


def test_the_hits_of_a_run_are_kept_and_not_printed(config, tmp_path):
    results = run(config("ggeur.closed_form", "auto", *SIX))
    again = Results.from_json(results.to_json())
    details = again.round0.closed_form.details
    assert details["candidates"] == results.round0.closed_form.details["candidates"]
    assert len(details["candidates"]) == 84
    table = results_table(results)
    assert "closed form auto" in table
    assert "'hits'" not in table


@pytest.mark.slow
@pytest.mark.parametrize("kind", OPEN)
def test_the_order_of_clients_does_not_matter(config, kind):
    settings = config("ggeur.closed_form", kind, *SIX)
    backwards = run(settings, order=lambda numbers: sorted(numbers, reverse=True))
    assert numbers(run(settings)) == numbers(backwards)


@pytest.mark.parametrize("steps", [[], [1, 2]])
def test_training_starts_at_the_best_linear_head(config, steps):
    settings = ["ggeur.closed_form", "auto", "ggeur.init", "closed_form", *SIX]
    results = run(config(*settings, "ggeur.steps", steps))
    details = results.round0.closed_form.details
    kinds = {c["closed_form"] for c in details["candidates"]}
    assert kinds == {"lda", "ridge", "ncm", "fedcof"}
    assert details["closed_form"] in kinds
    assert len(results.rounds) == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", OPEN)
def test_a_stopped_run_goes_on_with_what_was_chosen(config, tmp_path, kind):
    settings = ["ggeur.closed_form", kind, *SIX]
    if CLOSED_FORMS[kind].trainable:
        settings += ["ggeur.init", "closed_form"]
    whole = run(config(*settings))
    place = ["federate.save_to", tmp_path / "point"]
    run(config(*settings, "federate.total_round_num", 1, *place))
    resumed = run(config(*settings, "federate.restore_from", tmp_path / "point"))
    assert resumed.round0.closed_form.details == whole.round0.closed_form.details
    assert resumed.final.accuracy == whole.final.accuracy


def test_confounded_labels_and_domains_are_noted(config):
    results = run(config("ggeur.closed_form", "lda", *SIX[4:]))
    details = results.round0.closed_form.details
    assert details["shrinkage"] == 0.3
    assert details["shrinkage_rule"] == details["chosen_by"] == "default"
    assert details["confounded_share"] > 0.5
    assert details["note"] in results.notes


def test_ledoit_and_wolfs_rule_is_there_still(config):
    results = run(
        config("ggeur.closed_form", "lda", "ggeur.lda.rule", "ledoit_wolf", *SIX)
    )
    details = results.round0.closed_form.details
    assert details["shrinkage_rule"] == "ledoit-wolf (gaussian)"
    assert "candidates" not in details


@pytest.mark.parametrize("kind", ["ridge", "auto"])
def test_alpha_does_not_go_with_a_strength(config, kind):
    settings = ["ggeur.ridge.alpha", 1.0, "ggeur.ridge.strength", 0.1]
    with pytest.raises(ConfigError, match=r"ggeur\.ridge\.alpha: cannot go with"):
        config("ggeur.closed_form", kind, *settings)
    assert config("ggeur.closed_form", "lda", *settings)


def test_auto_has_no_alpha(config):
    with pytest.raises(ConfigError, match=r"ggeur\.ridge\.alpha: must be -1 with"):
        config("ggeur.closed_form", "auto", "ggeur.ridge.alpha", 1.0)
