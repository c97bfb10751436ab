"""Which guarantee a run with secure sums gives, and what it says at its start."""

import numpy as np
import private_words
import pytest

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.start_notes import privacy_of
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.extras.secure_sums.exchange import SumsExchange
from federatedscope_ggeur.federation.advice import withheld_note
from federatedscope_ggeur.reporting import privacy_line, results_table

SUMS = ["ggeur.privacy.secure_sums", "statistics"]
OTHERS = ["ggeur.geometry", "pooled", "ggeur.prototypes", "others"]
TRUST = "ggeur.privacy.secure_sums_"


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


def test_they_are_a_remedy_where_a_threshold_withholds_much():
    note = withheld_note(np.array([[4, 4], [4, 120]]), 5)
    assert "of 4 rows; ggeur.privacy.secure_sums; or training on all rows" in note


@pytest.mark.slow
def test_sums_say_at_their_start_that_one_client_can_spoil_them(config):
    going = Run(config(*private_words.SUMS, *OTHERS))
    said = SumsExchange.UNSCREENED
    assert f"note: {said}" in going.describe()
    results = going.follow(lambda record: None)
    assert said in results.notes
    assert results.screening.blind_to == [said]
    assert all(found.about != "statistics" for found in results.screening.findings)
    assert f"screening: {said}" in results_table(results).splitlines()
    assert "One client can spoil the sum" in said
