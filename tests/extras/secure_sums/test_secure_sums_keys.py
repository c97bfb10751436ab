"""Settings of secure sums: what cannot go with them is refused by name."""

import sys

import numpy as np
import pytest
from private_words import LDA, OTHERS
from private_words import SUMS as SUMS_THAT_RUN

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.method_settings import agreed_settings
from federatedscope_ggeur.cfg_ggeur.run_settings import run_settings
from federatedscope_ggeur.cfg_ggeur.start_notes import privacy_of
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.secure_sums.exchange import SumsExchange
from federatedscope_ggeur.extras.secure_sums.settings import SumSettings
from federatedscope_ggeur.federation.advice import withheld_note
from federatedscope_ggeur.reporting import privacy_line, results_table

SUMS = ["ggeur.privacy.secure_sums", "statistics"]
OWN = "ggeur.privacy.secure_sums_"
CONFIRM = [f"{OWN}confirm", True]
CONFIRMED = [*CONFIRM, "federate.mode", "distributed"]
SIGNED = [f"{OWN}trust", "keys.txt", f"{OWN}signing_key", "{client}.pem"]


def test_what_is_said_to_go_with_them_goes(config):
    for settings in (
        LDA,
        ["ggeur.closed_form", "ridge"],
        ["ggeur.closed_form", "ncm"],
        OTHERS,
        [*LDA, "ggeur.init", "closed_form", "ggeur.steps", []],
        [*OTHERS, "ggeur.base_method", "scaffold"],
        [*OTHERS, "ggeur.statistics", "summed"],
    ):
        assert config(*SUMS, *settings).ggeur.privacy.secure_sums == "statistics"


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (["ggeur.closed_form", "mixture"], "closed_form"),
        (["ggeur.closed_form", "auto"], "closed_form"),
        ([*LDA, "ggeur.statistics", "compressed"], "statistics"),
        ([*LDA, *OTHERS, "ggeur.init", "closed_form", "ggeur.keep", "best"], "keep"),
        ([*OTHERS, "ggeur.calibrate", "ccvr"], "calibrate"),
        ([*OTHERS, "ggeur.screen", "refuse"], "screen"),
        (["ggeur.prototypes", "others"], "geometry"),
        (["ggeur.geometry", "pooled"], "prototypes"),
        (["ggeur.geometry", "pooled", "ggeur.prototypes", "client"], "prototypes"),
        ([*OTHERS, "ggeur.base_method", "fedproto"], "base_method"),
        ([*OTHERS, "ggeur.base_method", "fpl"], "base_method"),
        ([*OTHERS, "ggeur.base_method", "centralised"], "base_method"),
        ([*LDA, "ggeur.augmentation", "fedmix"], "augmentation"),
        ([*LDA, "ggeur.augmentation", "fedgen"], "augmentation"),
        ([*LDA, "ggeur.augmentation", "fedfa"], "augmentation"),
        (["ggeur.steps", []], "privacy.secure_sums"),
        ([*OTHERS, "ggeur.weight", "statistics"], "weight: cannot be statistics"),
        ([*LDA, "ggeur.personal.head", "means"], "privacy.secure_sums: must be none"),
        ([*LDA, f"{OWN}radius", 1e12], "privacy.secure_sums_fraction_bits"),
        ([*LDA, f"{OWN}min_clients", 2], "privacy.secure_sums_min_clients"),
        ([*LDA, f"{OWN}trust", "file"], "privacy.secure_sums_signing_key"),
        (
            [*LDA, *CONFIRM],
            "privacy.secure_sums_confirm: must be False without federate.mode",
        ),
        (
            [*LDA, *CONFIRM, *SIGNED],
            "privacy.secure_sums_confirm: must be False with a file",
        ),
    ],
    ids=str,
)
def test_all_else_is_refused_by_name(config, settings, key):
    with pytest.raises(ConfigError) as error:
        config(*SUMS, *settings)
    assert f"\n  ggeur.{key}" in str(error.value)


@pytest.mark.parametrize(
    ("key", "value"), [("federate.client_num", 2), ("eval.split", "['test', 'train']")]
)
def test_keys_of_federatedscope_are_refused_too(config, key, value):
    with pytest.raises(ConfigError, match=f"\n  {key}"):
        config(*SUMS, *LDA, key, value)


def test_to_compare_keys_takes_secure_sums_and_distributed_mode(config, quickstart):
    with pytest.raises(ConfigError, match="secure_sums_confirm: must be False"):
        config(*CONFIRM)
    assert load_config(quickstart, [*SUMS, *LDA, *CONFIRMED], on_fs=True)


def test_the_advice_on_precision_fits(config):
    radius = [f"{OWN}radius", 1e12, f"{OWN}max_rows", 16384]
    with pytest.raises(ConfigError, match="set it to 31"):
        config(*SUMS, *LDA, *radius)
    config(*SUMS, *LDA, *radius, f"{OWN}fraction_bits", 31)


def test_the_extra_is_named_where_its_package_is_missing(config, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigError, match=r"pip install 'federatedscope-ggeur\[priv"):
        config(*SUMS, *LDA)
    config(*LDA)


def test_all_sides_must_have_them_alike_and_without_them_nothing_is_new(config):
    plain = agreed_settings(config())
    assert not [name for name in plain if "privacy" in name or "prototypes" in name]
    sums = agreed_settings(config(*SUMS, *OTHERS))
    more = sums.keys() - plain.keys()
    own = ("min_clients", "radius", "max_rows", "fraction_bits", "trust", "confirm")
    others = {SUMS[0], "ggeur.privacy.min_samples", "ggeur.prototypes"}
    assert more == {OWN + name for name in own} | others


def test_a_file_of_keys_may_have_another_name_on_each_side(config):
    key = f"{OWN}signing_key", "key.pem", f"{OWN}trust"
    one, other = (
        agreed_settings(config(*SUMS, *LDA, *key, name)) for name in ("one", "other")
    )
    assert one == other
    assert one != agreed_settings(config(*SUMS, *LDA))


def test_stages_are_as_many_as_are_needed(config):
    def stages(*settings):
        made = run_settings(config(*SUMS, *settings), 12, 16, 3)
        return made.role.of(SumSettings).stages

    assert stages(*LDA) == ("counts", "means", "pooled")
    assert stages("ggeur.closed_form", "ncm") == ("counts", "means")
    start = ["ggeur.closed_form", "ncm", "ggeur.init", "closed_form", "ggeur.steps", []]
    assert stages(*start, "ggeur.space", "standard") == ("counts", "means", "pooled")
    assert stages(*start, "ggeur.space", "raw") == ("counts", "means")


def test_the_store_is_for_distributed_mode(quickstart):
    cfg = load_config(quickstart, [*SUMS, *LDA])
    assert run_settings(cfg, 10, 16, 5).role.of(SumSettings).store == ""


# Which guarantee a run with secure sums gives, and what it says at its start.


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
    ("settings", "more"),
    [([], ""), (CONFIRMED, ", compared by people"), (SIGNED, "")],
    ids=["server", "confirm", "file"],
)
def test_sums_say_whose_word_is_taken_for_the_keys(quickstart, settings, more):
    found = privacy_of(load_config(quickstart, [*SUMS, *LDA, *settings], on_fs=True))
    by_server = "keys through the server"
    keys = "keys signed by the clients" if settings is SIGNED else by_server + more
    assert found.keys == keys
    assert f"privacy: sums; {keys}; of the statistics of round 0" in privacy_line(found)
    unsafe = "a server that makes up keys can read what each client adds"
    assert (unsafe in privacy_line(found)) == (keys == by_server)
    assert privacy_of(load_config(quickstart)).keys == ""


def test_a_head_by_sums_alone_has_no_rounds_that_escape(config):
    found = privacy_of(config(*SUMS, *LDA))
    assert not any("escape" in warning for warning in found.warnings)
    assert found.server_sees == [
        "counts, means and one scatter over all clients",
        "each client's scores: rows, hits and the sum of their losses",
    ]
    by_server = config(*SUMS, *LDA, "federate.make_global_eval", True)
    assert len(privacy_of(by_server).server_sees) == 1


def test_they_are_a_remedy_where_a_threshold_withholds_much():
    note = withheld_note(np.array([[4, 4], [4, 120]]), 5)
    assert "of 4 rows; ggeur.privacy.secure_sums; or training on all rows" in note


def test_sums_say_at_their_start_that_one_client_can_spoil_them(config):
    going = Run(config(*SUMS_THAT_RUN, *OTHERS))
    said = SumsExchange.UNSCREENED
    assert f"note: {said}" in going.describe()
    results = going.follow(lambda record: None)
    assert said in results.notes
    assert results.screening.blind_to == [said]
    assert all(found.about != "statistics" for found in results.screening.findings)
    assert f"screening: {said}" in results_table(results).splitlines()
    assert "One client can spoil the sum" in said
