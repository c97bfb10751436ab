"""What a comparison says of runs: findings of screening, and bytes of pooled rows."""

import pytest

from federatedscope_ggeur.engines.run import run
from federatedscope_ggeur.extras.studies.comparison import Comparison, Measure
from federatedscope_ggeur.reporting import Finding, Screening, write_run


def test_findings_of_screening_are_below_every_table(make_results, tmp_path):
    found = Finding(3, "statistics", "the mean of its class 1 is far", 0, 1, False)
    blind = "single clients cannot be screened"
    write_run(tmp_path, make_results(screening=Screening([found], [blind])))
    compared = Comparison.of(tmp_path)
    for text in (compared.to_text(), compared.to_markdown(), compared.to_html()):
        assert "screening: client 3" in text
        assert blind in " ".join(text.split())
    assert "screening: client 3" in compared.to_latex()


@pytest.mark.slow
def test_pooled_rows_count_as_bytes_of_their_clients(config, tmp_path):
    six = ["federate.client_num", 6, "data.splits", [0.6, 0.2, 0.2], "ggeur.steps", []]
    for method in ("centralised", "fedavg"):
        results = run(config(*six, "ggeur.base_method", method))
        (tmp_path / method).mkdir()
        write_run(tmp_path / method, results)
        if method == "centralised":
            pooled = results
    (table,) = Comparison.of(tmp_path).tables
    sent = {
        next(iter(row.runs.values())).results.config["ggeur"]["base_method"]: next(
            iter(row.numbers(Measure("bytes_up")).values())
        )
        for row in table.rows.values()
    }
    assert sent["centralised"] == pooled.final.bytes_up / 6
