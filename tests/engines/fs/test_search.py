"""What of FederatedScope's (FS's) search for hyperparameters can be done."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from standalone import merged, set_up

from federatedscope_ggeur.engines.fs import search
from federatedscope_ggeur.engines.fs.config import check, problems
from federatedscope_ggeur.errors import ConfigError

EXTRA = "pip install 'federatedscope-ggeur[hpo]'"


@pytest.fixture
def in_hpo(search_file, monkeypatch):
    """As in FS's hpo.py, whose packages are all there."""
    import federatedscope

    program = Path(federatedscope.__file__).with_name("hpo.py")
    monkeypatch.setattr(sys, "argv", [str(program), "--cfg", str(search_file)])
    monkeypatch.setattr(search, "missing_package", lambda name, extra: "")
    assert search.is_search()


GOOD = ["hpo.ss", "space.yaml", "hpo.sha.budgets", "[2, 8]"]
WRONG = {
    ("hpo.ss", "''"): "hpo.ss: must name the YAML file of the search space, got ''",
    ("hpo.scheduler", "pbt"): "hpo.scheduler: must be one of sha, rs, hb,",
    ("hpo.scheduler", "wrap_sha"): "hpo.scheduler: wrap_sha wraps FedEx",
    ("hpo.sha.budgets", "[]"): "hpo.sha.budgets: must be the fewest and the most",
    ("hpo.sha.budgets", "[0, 2]"): "hpo.sha.budgets: must be the fewest and the most",
    ("hpo.sha.elim_rate", "1"): "hpo.sha.elim_rate: must be 2 or more, got 1",
    ("hpo.init_cand_num", "1"): "hpo.init_cand_num: must be 2 or more, got 1",
    ("hpo.metric", "val_loss"): "hpo.metric: no trial has 'val_loss'",
    ("hpo.metric", "server_global_eval.best"): "hpo.metric: no trial has 'server_",
    ("eval.split", "['test']"): "hpo.metric: no trial has 'client_summarized_weighted",
    ("eval.report", "['avg']"): "hpo.metric: no trial has 'client_summarized_weighted",
    ("federate.make_global_eval", "True"): "hpo.metric: no trial has 'client_summar",
    ("federate.mode", "distributed"): "federate.mode: hpo.py searches in standalone",
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_what_no_search_can_do(search_file, in_hpo, words):
    found = "\n".join(problems(merged(search_file, [*GOOD, *words])))
    assert f"  {WRONG[words]}" in found


def test_main_py_does_not_search(search_file):
    found = "\n".join(problems(merged(search_file, ["hpo.scheduler", "pbt"])))
    assert "hpo.scheduler" not in found


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["hpo.scheduler", "hb", "hpo.sha.budgets", "[3, 3]"],
        ["hpo.metric", "client_best_individual.val_acc"],
        ["hpo.metric", "server_global_eval.val_loss"],
        [
            *("federate.make_global_eval", "True"),
            *("hpo.metric", "server_global_eval.val_avg_loss"),
        ],
    ],
    ids=" ".join,
)
def test_what_a_search_can_do(search_file, in_hpo, words):
    check(merged(search_file, [*GOOD, *words]))


@pytest.mark.parametrize(
    ("scheduler", "missing", "wanted"),
    [
        ("sha", "ConfigSpace", "hpo.ss: needs the package ConfigSpace, which is not"),
        ("rs", "hpbandster", "hpo.scheduler: rs needs the package hpbandster, which"),
        ("sha", "hpbandster", ""),
        ("bo_gp", "smac", "hpo.scheduler: bo_gp needs the package smac below"),
    ],
)
def test_a_missing_package_is_named(
    search_file, monkeypatch, scheduler, missing, wanted
):
    for name in ("ConfigSpace", "hpbandster"):
        # Found is what is loaded, and not found what None stands for.
        monkeypatch.setitem(sys.modules, name, None if name == missing else json)
    monkeypatch.setitem(sys.modules, "smac", None)
    cfg = merged(search_file, [*GOOD, "hpo.scheduler", scheduler])
    if not wanted:
        check(cfg)
        return
    with pytest.raises(ConfigError) as error:
        check(cfg)
    _, found = str(error.value).splitlines()
    assert found.startswith(f"  {wanted}")
    assert (EXTRA in found) == (missing != "smac")


def test_without_a_search_space_no_package_is_asked_for(search_file, monkeypatch):
    for name in ("ConfigSpace", "hpbandster"):
        monkeypatch.setitem(sys.modules, name, None)
    check(merged(search_file, ["hpo.scheduler", "sha", "hpo.ss", ""]))


def test_only_fs_s_own_program_is_a_search(search_file, monkeypatch, tmp_path):
    for program in ("", "main.py", str(tmp_path / "hpo.py")):
        monkeypatch.setattr(sys, "argv", [program])
        assert not search.is_search()


@pytest.mark.parametrize("name", ["fedex", "fts", "pfedhpo"])
def test_a_search_within_a_run_is_refused_with_the_reason(search_file, name):
    words = [f"hpo.{name}.use", "True", "federate.use_diff", str(name != "pfedhpo")]
    reason = rf"hpo\.{name}\.use: must be False: FS would replace the plugin's workers"
    with pytest.raises(ConfigError, match=reason):
        set_up(search_file, words)
