"""FederatedScope's (FS's) hpo.py with the plugin enabled, and what it makes of a trial.

The searches need hpbandster and ConfigSpace: pip install 'federatedscope-ggeur[hpo]'.
"""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from own_process import ROOT
from programs import Call, run_programs
from safetensors.torch import load, load_file
from standalone import SEARCH, merged, outcome, set_up

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.fs import search
from federatedscope_ggeur.engines.fs.config import check, problems
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.reporting import Results

SPACE = """\
train.optimizer.lr: {type: float, lower: 0.01, upper: 0.5, log: True}
ggeur.step1_size: {type: int, lower: 10, upper: 40}
ggeur.scale: {type: cate, choices: [covariance, eigenvalue]}
"""
DIVERGES = "train.optimizer.lr: {type: cate, choices: [0.05, 1000000000.0]}"
#: Space, scheduler and settings. "docs" has those of the page, but fewer trials.
SEARCHES = {
    "sha": (SPACE, "sha", ()),
    "diverges": (DIVERGES, "sha", ("train.local_update_steps", "20")),
    "docs": ("", "sha", ("hpo.init_cand_num", "4", "hpo.sha.budgets", "[1, 2]")),
}

#: Space, settings, and the beginning of each line of the error.
WRONG = {
    "no such key": (
        "ggeur.stepz: {type: int, lower: 1, upper: 2}\n",
        (),
        ["ggeur.stepz: there is no such key; did you mean ggeur.steps? (hpo.ss)"],
    ),
    "out of range": (
        "train.optimizer.lr: {type: float, lower: -1.0, upper: 1.0}\n"
        "ggeur.scale: {type: cate, choices: [covariance, big]}\n"
        "ggeur.step1_size: {type: cate, choices: [few]}\n"
        "seed: {type: int, lower: 1, upper: 9}\n",
        (),
        [
            "ggeur.scale: must be one of",
            "ggeur.step1_size: expected float, got str 'few'",
            "seed: hpo.py can only search over keys in a section",
            "train.optimizer.lr: must lie in 0",
        ],
    ),
    "in need of quotes": (
        SPACE,
        ("hpo.metric", "client_summarized_avg.val_loss"),
        ["FederatedScope takes words that begin with 'client' for settings of one"],
    ),
}
NO_ROWS = ("data.splits", "[0.8, 0.0, 0.2]")

needs_packages = pytest.mark.skipif(
    not all(map(find_spec, ("hpbandster", "ConfigSpace"))),
    reason="FederatedScope's hpo.py needs hpbandster and ConfigSpace: "
    "pip install 'federatedscope-ggeur[hpo]'",
)


# One trial, as the data function settles it


class TestTrial:
    def settled(self, search_file, *settings):
        from federatedscope_ggeur.engines.fs.trials import settle_trial

        cfg = merged(search_file, ["outdir", "exp", *settings])
        settle_trial(cfg)
        return cfg

    def kept(self, search_file, path: str) -> None:
        """A checkpoint after two rounds."""
        Run(load_config(search_file, ["federate.save_to", path])).follow(
            lambda record: None
        )

    def test_each_has_a_folder_of_its_own(self, search_file):
        folders = [self.settled(search_file).outdir for _ in range(3)]
        assert folders == [f"exp/trial_00{number}" for number in (1, 2, 3)]
        assert all(Path(folder).is_dir() for folder in folders)

    @pytest.mark.parametrize(
        ("save_to", "restore_from", "rounds"),
        [
            ("work/a.pth", "work/a.pth", 2 + 4),  # as sha goes on
            ("work/a.pth", "", 4),
            ("work/b.pth", "work/a.pth", 4),
            ("other/a.pth", "other/a.pth", 4),
        ],
    )
    def test_rounds_are_counted_from_where_it_goes_on(
        self, search_file, save_to, restore_from, rounds
    ):
        if restore_from:
            self.kept(search_file, restore_from)
        words = ["federate.save_to", save_to, "federate.restore_from", restore_from]
        cfg = self.settled(search_file, *words, "federate.total_round_num", "4")
        assert cfg.federate.total_round_num == rounds
        assert cfg.eval.freq == (1 if rounds == 4 else rounds)
        assert cfg.early_stop.patience == 0 or rounds == 4

    def test_one_that_left_nothing_counts_as_failed(self, search_file):
        both = ["federate.save_to", "work/a.pth", "federate.restore_from", "work/a.pth"]
        with pytest.raises(GGEURError, match=r"its checkpoint 'work/a.pth' is missing"):
            self.settled(search_file, *both)


# hpo.py


def documented() -> dict[str, str]:
    """The files in the docs, by name."""
    text = (ROOT / "docs" / "federatedscope.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(# (\w+\.yaml)\n.*?)^```$", text, re.M | re.S)
    return {name: block for block, name in blocks}


@pytest.fixture(scope="module")
def ends(enabled, tmp_path_factory):
    """Exit status, output and folder of each search, and of what cannot be searched."""
    folder = tmp_path_factory.mktemp("searches")
    (folder / "quickstart.yaml").write_text(SEARCH)
    (folder / "space.yaml").write_text(SPACE)
    (folder / "list.yaml").write_text("[1, 2]")
    cfg = ("--cfg", "quickstart.yaml")
    calls = {}
    for name, (space, scheduler, settings) in SEARCHES.items():
        file = ("--cfg", "search.yaml") if name == "docs" else cfg
        if name == "docs":
            for path, text in documented().items():
                (folder / path).write_text(text)
        else:
            (folder / f"{name}.yaml").write_text(space)
            settings = (*settings, "hpo.ss", f"{name}.yaml")
        places = ("outdir", name, "expname", "search")
        places += ("hpo.working_folder", f"{name}/work")
        words = (*file, "hpo.scheduler", scheduler, *places, *settings)
        calls[name] = Call("hpo.py", words)
    for name, (space, settings, _) in WRONG.items():
        path = f"{name.replace(' ', '_')}.yaml"
        (folder / path).write_text(space)
        calls[name] = Call("hpo.py", (*cfg, "hpo.ss", path, *settings))
    calls["no rows"] = Call("hpo.py", (*cfg, *NO_ROWS))
    calls["no space"] = Call("hpo.py", (*cfg, "hpo.ss", "list.yaml"))
    ends = run_programs(enabled, folder, list(calls.values()), seconds=1200)
    return {name: (*end, folder / name) for name, end in zip(calls, ends)}


def table(folder: Path) -> list[dict]:
    """FS's own table of what it found, the best first."""
    with (folder / "work" / "results.csv").open() as lines:
        return list(csv.DictReader(lines))


def trials(folder: Path) -> list[Path]:
    return sorted((folder / "search").glob("trial_*"))


def results_in(trial: Path) -> Results:
    return Results.from_json((trial / "results.json").read_text())


def same_run(trial: Path, file: Path):
    """The same settings on the embedded engine, never stopped."""
    cfg = yaml.safe_load((trial / "config.yaml").read_text())
    chosen = {
        "federate.total_round_num": len(results_in(trial).rounds),
        "train.optimizer.lr": cfg["train"]["optimizer"]["lr"],
        **{f"ggeur.{name}": cfg["ggeur"][name] for name in ("step1_size", "scale")},
        "eval.freq": 2,
        "early_stop.patience": 0,
    }
    run = Run(load_config(file, chosen))
    return run, run.follow(lambda record: None)


@needs_packages
@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
def test_it_works_to_the_end(ends, name):
    status, output, folder = ends[name]
    assert status == 0, output[-3000:]
    assert "Traceback" not in output
    found = [float(row["performance"]) for row in table(folder)]
    assert found == sorted(found)
    scored = [
        record.metrics["val_loss"]
        for trial in trials(folder)
        if (trial / "results.json").exists()
        for record in results_in(trial).rounds
        if record.metrics
    ]
    for loss in found:
        assert loss == math.inf or any(math.isclose(loss, one) for one in scored)


@needs_packages
@pytest.mark.slow
def test_sha_means_more_rounds(ends, search_file):
    """4 trials of 2 rounds, and the better half of them for 4 more; each as if it had
    never been stopped, with an evaluation where it was and at its end."""
    _, _, folder = ends["sha"]
    rounds = {trial: results_in(trial).rounds for trial in trials(folder)}
    assert sorted(map(len, rounds.values())) == [2] * 4 + [6] * 2
    assert len(table(folder)) == 2
    for trial, records in rounds.items():
        if len(records) == 6:
            assert [r.round for r in records if r.metrics] == [2, 6]
            run, uninterrupted = same_run(trial, search_file)
            head = load(run.history.head_bytes())
            assert all(
                tensor.equal(head[key])
                for key, tensor in load_file(trial / "head.safetensors").items()
            )
            scores = outcome(uninterrupted)["rounds"][-1]["accuracy"]
            assert outcome(results_in(trial))["rounds"][-1]["accuracy"] == scores


@needs_packages
@pytest.mark.slow
def test_a_trial_that_diverges_is_the_worst(ends):
    _, output, folder = ends["diverges"]
    assert "this trial counts as the worst: client 1, round 1: training div" in output
    statuses = {
        results_in(t).status for t in trials(folder) if (t / "results.json").exists()
    }
    assert "finished" in statuses
    assert table(folder)[0]["train.optimizer.lr"] == "0.05"


def lines_of(ends, name) -> list[str]:
    status, output, _ = ends[name]
    assert status == 1, output[-3000:]
    assert "Traceback" not in output
    return output[output.index("error: ") :].splitlines()


@needs_packages
@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_what_would_fail_every_trial_is_told_before_the_first(ends, name):
    first, *lines = lines_of(ends, name)
    wanted = WRONG[name][2]
    assert first == "error: wrong settings:"
    assert len(lines) == len(wanted), lines
    for line, beginning in zip(lines, wanted):
        assert line.startswith(f"  {beginning}")


@needs_packages
@pytest.mark.slow
def test_so_is_what_the_data_and_the_file_lack(ends):
    (line,) = lines_of(ends, "no rows")
    assert line.startswith("error: hpo.metric: is client_summarized_weighted_avg.val_l")
    (line,) = lines_of(ends, "no space")
    assert line.startswith("error: hpo.ss: 'list.yaml' is not a search space (")


# What of FederatedScope's (FS's) search for hyperparameters can be done.


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
WRONG_SEARCHES = {
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


@pytest.mark.parametrize("words", WRONG_SEARCHES, ids=" ".join)
def test_what_no_search_can_do(search_file, in_hpo, words):
    found = "\n".join(problems(merged(search_file, [*GOOD, *words])))
    assert f"  {WRONG_SEARCHES[words]}" in found


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
