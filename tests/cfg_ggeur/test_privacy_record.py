"""Which guarantee a run gives, from its settings."""

import pytest

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.privacy_record import privacy_of
from federatedscope_ggeur.engines.run import run
from federatedscope_ggeur.reporting import privacy_line, results_table

SUMS = ["ggeur.privacy.secure_sums", "statistics"]
OTHERS = ["ggeur.geometry", "pooled", "ggeur.prototypes", "others"]


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


def test_sums_cover_round_0_and_say_what_escapes(config):
    found = privacy_of(config(*SUMS, *OTHERS))
    assert (found.guarantee, found.threshold_on) == ("sums", "sum")
    assert found.covers == ["the statistics of round 0"]
    assert found.against == ["a curious server", "curious clients"]
    said = privacy_line(found)
    assert "against a curious server and curious clients only" in said
    assert "a client that lies about its rows can learn those of others" in said
    assert "training rounds escape the masks" in said
    assert "each client's aggregation weight escapes" in said
    assert "rows of each class over all clients" in found.clients_see


TRUST = "ggeur.privacy.secure_sums_"


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ([], "keys through the server"),
        (
            [f"{TRUST}confirm", True, "federate.mode", "distributed"],
            "keys through the server, compared by people",
        ),
        (
            [f"{TRUST}trust", "keys.txt", f"{TRUST}signing_key", "{client}.pem"],
            "keys signed by the clients",
        ),
    ],
    ids=["server", "confirm", "file"],
)
def test_sums_say_whose_word_is_taken_for_the_keys(quickstart, settings, keys):
    words = [*SUMS, "ggeur.closed_form", "lda", *settings]
    found = privacy_of(load_config(quickstart, words, on_fs=True))
    assert found.keys == keys
    assert f"privacy: sums; {keys}; of the statistics of round 0" in privacy_line(found)
    unsafe = "a server that makes up keys can read what each client adds"
    assert (unsafe in privacy_line(found)) == (keys == "keys through the server")
    assert privacy_of(load_config(quickstart)).keys == ""


def test_a_head_by_sums_alone_has_no_rounds_that_escape(config):
    found = privacy_of(config(*SUMS, "ggeur.closed_form", "lda"))
    assert not any("escape" in warning for warning in found.warnings)
    assert found.server_sees == [
        "counts, means and one scatter over all clients",
        "each client's scores: rows, hits and the sum of their losses",
    ]
    by_server = [*SUMS, "ggeur.closed_form", "lda", "federate.make_global_eval", True]
    assert len(privacy_of(config(*by_server)).server_sees) == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["ggeur.base_method", "fedproto"], "of fedproto: class means"),
        (["ggeur.augmentation", "fedmix"], "of fedmix: "),
    ],
)
def test_what_a_method_sends_is_seen(config, settings, said):
    assert any(
        one.startswith(said) for one in privacy_of(config(*settings)).server_sees
    )


def test_a_run_says_it_in_its_results_and_below_its_table(config):
    results = run(config("federate.total_round_num", 1))
    assert results.privacy == privacy_of(config())
    assert privacy_line(results.privacy) in results_table(results).splitlines()
