"""What a run says at its start: in its description and in its results."""

import numpy as np
import pytest

from federatedscope_ggeur import methods
from federatedscope_ggeur.cfg_ggeur.start_notes import privacy_of
from federatedscope_ggeur.data import FederatedData
from federatedscope_ggeur.engines.run import Run, run
from federatedscope_ggeur.reporting import privacy_line, results_table


def notes(config, *settings):
    return Run(config(*settings)).history.results().notes


def test_a_run_of_the_quickstart_needs_no_note(quickstart):
    from federatedscope_ggeur.cfg_ggeur.load import load_config

    run = Run(load_config(quickstart))
    assert run.notes == []
    assert any("5 withholds none of 40 (client, class)" in s for s in run.describe())


def test_what_is_withheld_is_said_where_statistics_are_asked_for(config):
    thin = ["federate.client_num", 12, "ggeur.privacy.min_samples", 30]
    (note,) = [n for n in notes(config, *thin) if "withholds" in n]
    assert note.startswith("ggeur.privacy.min_samples 30 withholds ")
    said = [line for line in Run(config(*thin)).describe() if "withholds" in line]
    assert said == [f"note: {note}"]
    plain = [*thin, "ggeur.steps", "[]"]
    assert not any("withholds" in n for n in Run(config(*plain)).describe())
    assert any(
        "withholds" in n for n in notes(config, *plain, "ggeur.calibrate", "ccvr")
    )


def test_a_run_that_may_stop_early_says_so(config):
    validated = ["data.splits", "[0.6, 0.2, 0.2]", "eval.split", "['val', 'test']"]
    validated += ["federate.total_round_num", 40]
    stops = [n for n in notes(config, *validated) if "early_stop" in n]
    assert stops == []  # the shared settings of tests run all rounds
    found = notes(config, *validated, "early_stop.patience", 5)
    (note,) = [n for n in found if "early_stop" in n]
    assert "ends the run once 5 evaluated rounds in a row" in note
    assert note.endswith("early_stop.patience 0 runs all rounds")
    late = [*validated, "early_stop.patience", 40]
    assert not any("ends the run once" in n for n in notes(config, *late))


def test_early_stop_is_no_matter_where_no_rows_are_for_validation(config):
    """Arrays have the rows for validation that they say, whatever data.splits says."""
    rows, labels, place = np.eye(4)[np.arange(80) % 4], np.arange(80) % 4, np.arange(80)
    for validation, said in (
        (place % 5 == 1, "ends the run once"),
        (None, "does no"),
    ):
        data = FederatedData.from_arrays(
            rows, labels, place % 3, test=place % 5 == 0, validation=validation
        )
        stop = {"early_stop.patience": 1, "eval.split": ["test", "val"]}
        results = run({**stop, "federate.total_round_num": 2}, data)
        (note,) = [n for n in results.notes if "early_stop" in n]
        assert said in note
    assert note.startswith("there is no val_loss (the data has no rows for validation)")


def test_step_2_without_sources_stands_in_the_results(config):
    unseen = ["ggeur.unseen_domains", "['art', 'photo']"]
    found = notes(config, *unseen)
    assert sum(
        n.startswith("step 2 adds nothing because there is only one domain")
        for n in found
    )
    assert not any("step 2" in n for n in notes(config, *unseen, "ggeur.steps", "[1]"))
    assert not any("step 2" in n for n in notes(config))
    pooled = notes(config, "ggeur.base_method", "centralised")
    assert "step 2 adds nothing because one client holds all rows" in pooled


def test_a_rate_that_cannot_fit_a_linear_head_in_raw_space_is_said(config):
    def said(*settings):
        small = "train.optimizer.lr 1e-06 is too small"
        return any(note.startswith(small) for note in notes(config, *settings))

    rate = ["train.optimizer.lr", "1e-6"]
    assert said(*rate)
    assert not said()
    assert not said(*rate, "ggeur.space", "standard")
    assert not said(*rate, "ggeur.mlp_hidden_dim", 4)
    assert not said(*rate, "ggeur.closed_form", "lda")
    starts = ["ggeur.closed_form", "auto", "ggeur.init", "closed_form"]
    assert said(*rate, *starts, "ggeur.keep", "best")
    # It trains an MLP.
    assert not said(*rate, *starts, "ggeur.keep", "average")


def test_clients_that_are_only_scored_do_not_count(config):
    run = Run(config("federate.client_num", 6, "federate.unseen_clients_rate", 0.4))
    assert len(run.engine.server.unseen) == 2
    assert list(run.held.numbers) == run.engine.server.participants


# Which guarantee a run gives, from its settings.


def test_a_threshold_is_no_guarantee(config):
    found = privacy_of(config())
    assert (found.guarantee, found.covers, found.warnings) == ("none", [], [])
    assert found.against == []
    assert found.server_sees[0] == "each client's class statistics"
    assert "class means of others" in found.clients_see
    assert "no guarantee; a min-count threshold of 5 on each client" in (
        privacy_line(found)
    )
    said = privacy_line(privacy_of(config("data.transform", "['lift']")))
    assert "threshold of 5 on each client; the threshold does not protect rows" in said
    assert "can be solved for" in said


@pytest.mark.parametrize(
    ("content", "told"),
    [("summed", ", and one scatter"), ("class", ", and a scatter for each class")],
)
def test_clients_see_what_is_merged_for_left_out_rows(config, content, told):
    auto = config("ggeur.closed_form", "auto", "ggeur.statistics", content)
    found = privacy_of(auto).clients_see
    assert f"counts and means of the classes of each domain or client{told}" in found


def test_what_a_method_sends_and_what_comes_down_is_seen(config):
    for key, name, up, down in (
        ("base_method", "fedproto", "of fedproto: class means", "of fedproto: global"),
        ("augmentation", "fedmix", "of fedmix: in round", "of fedmix: all clients'"),
    ):
        found = privacy_of(config(f"ggeur.{key}", name))
        assert any(one.startswith(up) for one in found.server_sees)
        assert any(one.startswith(down) for one in found.clients_see)


@pytest.mark.parametrize("registry", [methods.METHODS, methods.AUGMENTATIONS])
def test_a_plugin_that_does_not_say_what_travels(config, registry, monkeypatch):
    monkeypatch.setattr(registry, "_parts", dict(registry))
    hooks = {
        "upload_shapes": lambda self, model: {"row": methods.TensorSpec((4,))},
        "download": lambda self, state: {},
    }
    part = type("Silent", (methods.Method,), {"__module__": __name__, **hooks})
    registry.add("silent", part)
    found = privacy_of(config(f"ggeur.{registry.field}", "silent"))
    assert "of silent: its plugin does not say what" in found.server_sees
    assert "of silent: its plugin does not say what" in found.clients_see


def test_no_weights_are_seen_where_each_client_trains_its_own(config):
    found = privacy_of(config("ggeur.base_method", "local", "ggeur.steps", []))
    assert "each client's updates" not in found.server_sees
    assert found.clients_see == []


SEEN = {
    "hits": (["ggeur.closed_form", "auto"], "each client's hits of heads on rows"),
    "losses": (["ggeur.closed_form", "lda"], "each client's log-losses of heads"),
    "space": (["ggeur.space", "standard"], "count, mean and variances of each client"),
    "calibration": (["ggeur.calibrate", "ccvr"], "statistics of the last layer's inpu"),
}


@pytest.mark.parametrize(("settings", "said"), SEEN.values(), ids=SEEN)
def test_what_an_exchange_asks_is_seen(config, settings, said):
    def seen(*settings) -> bool:
        found = privacy_of(config("ggeur.space", "raw", *settings)).server_sees
        return any(one.startswith(said) for one in found)

    assert not seen()
    assert seen(*settings)


def test_a_run_says_it_in_its_results_and_below_its_table(config):
    results = run(config("federate.total_round_num", 1))
    assert results.privacy == privacy_of(config())
    assert privacy_line(results.privacy) in results_table(results).splitlines()
