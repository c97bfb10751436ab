"""The command `audit`: its table, its file, its exit status."""

import json

import pytest
from own_process import PATIENCE

from federatedscope_ggeur.cli import main

SMALL = ["federate.client_num", "6", "ggeur.step1_size", "20", "ggeur.step2_size", "5"]
SMALL += ["data.splitter", "lds", "data.splitter_args", "[{'alpha': 0.1}]"]
SUMS = ["ggeur.privacy.secure_sums", "statistics", "ggeur.closed_form", "lda"]
SUMS += ["ggeur.privacy.secure_sums_radius", "40"]
SUMS += ["ggeur.privacy.secure_sums_max_rows", "4096"]
SUMS += ["ggeur.privacy.secure_sums_fraction_bits", "38"]


@pytest.fixture
def audit(quickstart, embeddings_folder, tmp_path, capsys):
    """Exit status, what is printed, and audit.json if there is one."""

    def go(*words):
        base = ["audit", "--cfg", str(quickstart), "--seconds", str(PATIENCE), "--out"]
        base += [str(tmp_path / "out"), "data.type", "embeddings@ggeur"]
        base += ["data.root", str(embeddings_folder), *SMALL]
        status = main([*base, *map(str, words)])
        said = capsys.readouterr()
        files = sorted((tmp_path / "out").glob("**/audit.json"))
        content = json.loads(files[-1].read_text()) if files else None
        return status, said.out + said.err, content

    return go


def test_the_default_fails_and_says_by_what(audit):
    status, said, content = audit()
    assert status == 3
    assert "level rows: FAILED (" in said
    assert "no proof" in said
    assert content["passed"] is False
    failed = [f["attack"] for f in content["findings"] if f["passed"] is False]
    assert "A7" in failed
    assert len(content["findings"]) == 18
    assert "one lying client, level rows: undecided (not tried: A11)" in said
    assert content["verdicts"]["lying"]["outcome"] == "undecided"
    assert content["claims"] == []


@pytest.mark.slow
def test_sums_pass_for_rows_and_fail_for_members(audit):
    status, said, content = audit(*SUMS)
    assert (status, content["passed"]) == (0, True)
    assert "level rows: passed" in said
    assert "no proof" in said
    status, said, content = audit(*SUMS, "--level", "membership")
    assert (status, content["passed"]) == (3, False)
    assert "level membership: FAILED (by A10)" in said


SKEWED = ["data.splitter_args", "[{'alpha': 0.3}]", "federate.client_num", "3"]


@pytest.mark.slow
def test_sums_promise_nothing_against_one_client_that_lies(audit):
    status, said, content = audit(*SUMS, *SKEWED)
    assert status == 0
    assert "curious parties, each by itself, level rows: passed" in said
    assert "one lying client, level rows: FAILED (by A11)" in said
    assert content["claims"] == ["a curious server", "curious clients"]
    assert "claims to resist a curious server and curious clients" in said
    status, _, content = audit(*SUMS, *SKEWED, "--adversary", "lying")
    assert (status, content["passed"]) == (3, False)


def test_what_was_not_tried_is_no_pass(audit):
    status, _, content = audit("--adversary", "lying")
    assert (status, content["passed"]) == (2, None)


def test_of_one_client(audit):
    status, _, content = audit("--self", "2")
    attacks = [finding["attack"] for finding in content["findings"]]
    assert attacks == ["A1", "A1b", "A2", "A4", "A7"]
    assert status in (0, 3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--self", "9"], "there is no client 9"),
        (["--self", "1", *SUMS], "a single client sends nothing readable"),
        (["data.root", "/nowhere"], "/nowhere"),
        (["ggeur.no_such_key", "1"], "no such key"),
    ],
)
def test_what_cannot_be_run_is_another_status(audit, words, said):
    status, told, _ = audit(*words)
    assert status == 2
    assert said in told
