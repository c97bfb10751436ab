"""Which guarantee a run gives, from its settings."""

import pytest

from federatedscope_ggeur.cfg_ggeur.start_notes import privacy_of
from federatedscope_ggeur.engines.run import run
from federatedscope_ggeur.reporting import privacy_line, results_table


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
