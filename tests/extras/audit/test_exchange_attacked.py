"""What the audit says of a plugin's exchange."""

import pytest
from exchange_plugin import NAMED, write_plugin

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.extras.audit.answers import audit_run
from federatedscope_ggeur.extras.audit.transcript import recorded, truth_of


@pytest.mark.usefixtures("forget_exchange")
def test_it_is_named_with_what_it_reveals(quickstart, tmp_path):
    path = write_plugin(tmp_path, quickstart)
    settings = [*NAMED, "federate.total_round_num", 1, "outdir", str(tmp_path)]
    run = Run(load_config(path, settings))
    findings = audit_run(recorded(run), truth_of(run), attacks=["A12"])
    assert {found.level for found in findings} == {"rows", "membership"}
    told = "how many classes each client holds"
    for found in findings:
        assert (found.passed, found.tried) == (None, False)
        assert f"classes_held of a plugin reveals {told}" in found.note
