"""A user's own parts: where they are sought, what is said of those that fail."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from own_process import program

from federatedscope_ggeur import FederatedClassifier
from federatedscope_ggeur.cfg_ggeur import all_keys, describe_keys
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.plugins import (
    _installed,
    load_plugins,
    load_plugins_of,
    told_of,
)
from federatedscope_ggeur.engines.run import run
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS
from federatedscope_ggeur.reporting import Results
from federatedscope_ggeur.reporting.results import _versions

TOY = """
from federatedscope_ggeur.methods import LocalHooks, Method, register_method
from federatedscope_ggeur.settings import Key, not_negative


@register_method("toy")
class Toy(Method):
    meaning = "pulls the weights to zero"
    SETTINGS = (Key("strength", 0.1, "Weight of the pull.", not_negative),)

    def __init__(self, strength):
        self.strength = strength

    def local(self, context):
        def pull(params, gradient):
            gradient.add_(params, alpha=self.strength)

        return LocalHooks(add_correction=pull)
"""


@pytest.fixture(autouse=True)
def _forget(monkeypatch, tmp_path):
    """Forgets the modules that a test writes and loads."""
    for registry in (METHODS, AUGMENTATIONS):
        monkeypatch.setattr(registry, "_parts", dict(registry))
    yield
    _installed.cache_clear()
    _versions.cache_clear()
    for name, module in list(sys.modules.items()):
        # Only those: numpy and its like cannot be loaded twice.
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def cfg(tmp_path, quickstart) -> Path:
    """The quickstart, with the module toy beside it."""
    (tmp_path / "toy.py").write_text(TOY)
    path = tmp_path / "toy.yaml"
    path.write_text(quickstart.read_text())
    return path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path.parent


class TestBesideTheFile:
    TOY = ("ggeur.plugins", "['toy']", "ggeur.base_method", "toy")

    @pytest.mark.slow
    def test_a_method_runs_with_its_own_setting(self, cfg):
        rounds = ("federate.total_round_num", "2")
        found = [
            run(load_config(cfg, [*self.TOY, *rounds, *more]))
            for more in ((), ("ggeur.toy.strength", "5"), ("ggeur.toy.strength", "0"))
        ]
        losses = [results.rounds[-1].loss for results in found]
        plain = run(load_config(cfg, rounds))
        assert losses[2] == plain.rounds[-1].loss
        assert len(set(losses)) == 3
        again = Results.from_json(found[1].to_json())
        assert again.config["ggeur"]["toy"] == {"strength": 5.0}

    def test_the_file_may_name_it_and_its_setting(self, cfg):
        text = cfg.read_text().replace(
            "\nggeur:\n", "\nggeur:\n  plugins: [toy]\n  toy:\n    strength: 0.25\n"
        )
        cfg.write_text(text)
        loaded = load_config(cfg, ["ggeur.base_method", "toy"])
        assert (loaded.ggeur.plugins, loaded.ggeur.toy.strength) == (["toy"], 0.25)
        with pytest.raises(ConfigError, match=r"ggeur\.toy\.strength: must lie in 0"):
            load_config(cfg, ["ggeur.toy.strength", "-1"])

    def test_its_keys_are_described(self, cfg):
        load_config(cfg, self.TOY)
        text = describe_keys()
        assert "      toy: pulls the weights to zero\n" in text
        assert "ggeur.toy.strength = 0.1\n    Weight of the pull." in text

    def test_it_comes_before_sys_path(self, tmp_path, monkeypatch):
        first = write(tmp_path / "here" / "toy.py", TOY)
        other = write(tmp_path / "there" / "toy.py", "raise RuntimeError")
        monkeypatch.syspath_prepend(other)
        load_plugins(["toy"], first)
        assert sys.modules["toy"].__file__ == str(first / "toy.py")

    def test_twice_is_once_and_the_folder_does_not_stay_on_sys_path(self, cfg):
        path = list(sys.path)
        load_config(cfg, self.TOY)
        method = METHODS["toy"]
        loaded = load_config(cfg, self.TOY)
        assert METHODS["toy"] is method
        assert load_config(loaded) == loaded
        assert sys.path == path

    def test_without_it_its_name_and_keys_are_unknown(self, cfg):
        said = (
            r"base_method: must be one of .*'toy'; .*name its module in ggeur\.plugins"
        )
        with pytest.raises(ConfigError, match=said):
            load_config(cfg, ["ggeur.base_method", "toy"])
        with pytest.raises(ConfigError, match=r"toy\.strength: the embedded engine"):
            load_config(cfg, ["ggeur.toy.strength", "1"])


def test_a_package_on_sys_path(tmp_path, monkeypatch):
    package = write(tmp_path / "mine" / "__init__.py", "")
    write(package / "parts.py", TOY)
    monkeypatch.syspath_prepend(tmp_path)
    load_plugins(["mine.parts"])
    assert METHODS["toy"].__module__ == "mine.parts"


class TestWhatFails:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("\nx = 1 / 0\n", r"line 2: ZeroDivisionError: division by zero"),
            ("def f(:\n", r"line 1: SyntaxError"),
            ("import nosuchmodule\n", r"line 1: ModuleNotFoundError: .*nosuchmodule"),
            ("import sys\nsys.exit(3)\n", r"line 2: SystemExit: 3"),
            (TOY.replace('"toy"', '"fedavg"'), r"'fedavg' is already registered"),
            (TOY.replace('"toy"', '"steps"'), r"ggeur\.steps: .*another name"),
        ],
    )
    def test_it_is_named_with_its_line(self, tmp_path, text, said):
        write(tmp_path / "broken.py", text)
        with pytest.raises(ConfigError, match=rf"ggeur\.plugins: .*'broken'.*{said}"):
            load_plugins(["broken"], tmp_path)

    def test_it_may_be_mended(self, tmp_path):
        write(tmp_path / "mended.py", f"{TOY}\n1 / 0\n")
        with pytest.raises(ConfigError, match="ZeroDivisionError"):
            load_plugins(["mended"], tmp_path)
        write(tmp_path / "mended.py", TOY)
        load_plugins(["mended"], tmp_path)
        assert METHODS["toy"] is sys.modules["mended"].Toy

    @pytest.mark.parametrize("name", ["nosuchmodule", "nosuch.module", "toy.inner"])
    def test_where_it_was_sought_is_said(self, cfg, name):
        said = rf"ggeur\.plugins: .*'{name}' in '{cfg.parent}' or where Python finds"
        with pytest.raises(ConfigError, match=said):
            load_config(cfg, ["ggeur.plugins", f"['{name}']"])
        with pytest.raises(ConfigError, match=rf"'{name}' where Python finds modules"):
            load_plugins([name])

    def test_another_file_of_its_name_is_refused(self, tmp_path):
        for folder in ("one", "two"):
            write(tmp_path / folder / "toy.py", TOY)
        load_plugins(["toy"], tmp_path / "one")
        with pytest.raises(ConfigError, match=r"'toy' is .*two.*one.*rename"):
            load_plugins(["toy"], tmp_path / "two")
        with pytest.raises(ConfigError, match="no module 'toy'"):
            load_plugins(["toy"], tmp_path)

    def test_what_is_no_list_of_names(self, cfg):
        for value in ("toy", "[1]", "['toy.py']"):
            with pytest.raises(ConfigError) as caught:
                load_config(cfg, ["ggeur.plugins", value, "ggeur.base_method", "toy"])
            said = "ggeur.plugins: must be a list of module names without .py, such as"
            assert str(caught.value).startswith(said)
            assert "base_method" not in str(caught.value)


class TestEntryPoints:
    def install(self, folder: Path, module: str) -> None:
        info = folder / "toys-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n"
        )
        points = f"[federatedscope_ggeur.plugins]\nmine = {module}\n"
        (info / "entry_points.txt").write_text(points)
        _installed.cache_clear()
        _versions.cache_clear()

    def test_an_installed_package_s_are_loaded(
        self, cfg, quickstart, tmp_path, monkeypatch
    ):
        self.install(tmp_path, "toy")
        monkeypatch.syspath_prepend(tmp_path)
        assert load_config(quickstart).ggeur.toy.strength == 0.1
        assert "toy.strength" in {key.name for key in all_keys()}

    def test_the_classifier_knows_their_methods(self, cfg, tmp_path, monkeypatch):
        self.install(tmp_path, "toy")
        monkeypatch.syspath_prepend(tmp_path)
        X, y = np.eye(12).repeat(2, axis=0), np.arange(24) % 2
        one = FederatedClassifier("toy", {"federate.total_round_num": 1}).fit(X, y)
        assert one.results_.config["ggeur"]["base_method"] == "toy"

    @pytest.mark.slow
    def test_a_run_says_which_packages_had_some(self, cfg, tmp_path, monkeypatch):
        self.install(tmp_path, "toy")
        monkeypatch.syspath_prepend(tmp_path)
        words = ("ggeur.base_method", "toy", "federate.total_round_num", "1")
        results = run(load_config(cfg, words))
        assert results.versions["toys"] == "1.0"
        again = Results.from_json(results.to_json())
        assert again.versions == results.versions

    def test_a_broken_one_is_named(self, tmp_path, monkeypatch):
        self.install(tmp_path, "nosuchmodule")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(ConfigError, match=r"entry point 'mine' of .*nosuchmodule"):
            load_plugins()


class TestCommandLineOfFederatedScope:
    @pytest.mark.parametrize("form", [["--cfg", "{}"], ["--cfg={}"]])
    def test_the_settings_behind_the_file_hold(self, cfg, form):
        words = [word.format(cfg) for word in form]
        load_plugins_of([*words, "seed", "1", "ggeur.plugins", "['toy']"])
        assert "toy" in METHODS

    def test_the_file_names_it(self, cfg):
        cfg.write_text("ggeur: {plugins: [toy]}")
        load_plugins_of(["--client_cfg", "x", "--cfg", str(cfg), "ggeur.plugins", "[]"])
        assert "toy" not in METHODS
        load_plugins_of(["--cfg", str(cfg), "ggeur.use", "True"])
        assert "toy" in METHODS

    @pytest.mark.parametrize(
        "words",
        [
            [],
            ["--cfg"],
            ["--cfg", "nosuch.yaml"],
            ["--cfg", __file__],
            ["-x", "y"],
            ["--help"],
            ["ggeur.plugins"],
            ["ggeur.plugins", "toy"],
        ],
    )
    def test_what_it_will_refuse_itself_names_none(self, words):
        load_plugins_of(words)


class TestAnErrorInAPlugin:
    """An exception in a user's own line: that line is shown, and no traceback."""

    BROKEN = TOY.replace("gradient.add_(params, ", "gradient.add_(params[:3], ")
    WORDS = (*TestBesideTheFile.TOY, "federate.total_round_num", "1")

    def words(self, cfg) -> list[str]:
        (cfg.parent / "toy.py").write_text(self.BROKEN)
        folder = str(cfg.parent / "exp")
        return ["--cfg", str(cfg), *self.WORDS, "outdir", folder, "expname", "one"]

    @pytest.mark.slow
    def test_on_the_command_line(self, cfg, ggeur):
        shown = ggeur(*self.words(cfg), status=1).err
        error = shown[shown.index("error: ") :].splitlines()
        number = 1 + self.BROKEN.splitlines().index(
            "            gradient.add_(params[:3], alpha=self.strength)"
        )
        assert error[0] == f"error: {cfg.parent / 'toy.py'}, line {number}, in pull:"
        assert error[1] == "    gradient.add_(params[:3], alpha=self.strength)"
        assert error[2].startswith("RuntimeError: The size of tensor a (3250) must")
        assert re.search(r"This line belongs to the plugin 'toy[.a-z]*'; fix", error[2])
        assert len(error) == 3
        assert "Traceback" not in shown
        log = (cfg.parent / "exp" / "one" / "log.txt").read_text()
        assert "Traceback" in log
        assert "in pull" in log

    def test_of_a_package(self, tmp_path, monkeypatch):
        package = write(tmp_path / "mine" / "__init__.py", "")
        write(package / "parts.py", "def fail():\n    return {}['x']\n")
        monkeypatch.syspath_prepend(tmp_path)
        load_plugins(["mine"])
        parts = importlib.import_module("mine.parts")
        with pytest.raises(KeyError) as caught:
            parts.fail()
        assert "parts.py, line 2, in fail" in str(told_of(caught.value))

    def test_another_error_is_not_its(self, cfg):
        load_config(cfg, TestBesideTheFile.TOY)
        with pytest.raises(ZeroDivisionError) as caught:
            1 / 0  # noqa: B018
        assert told_of(caught.value) is None

    @pytest.mark.slow
    def test_in_a_study(self, cfg):
        self.words(cfg)
        (cfg.parent / "study.yaml").write_text(
            "base: toy.yaml\n"
            "seeds: [0]\n"
            "axes:\n"
            "  method:\n"
            "    toy: {ggeur.plugins: ['toy'], ggeur.base_method: toy}\n"
            "  data:\n"
            "    digits: {federate.total_round_num: 1}\n"
        )
        done = program("study", "study.yaml", cwd=cfg.parent)
        assert done.returncode == 1
        assert "in pull:" in done.stdout + done.stderr
        assert "a bug" not in done.stdout + done.stderr

    @pytest.mark.slow
    @pytest.mark.usefixtures("federatedscope")
    def test_in_federatedscope(self, cfg):
        done = program("--engine", "federatedscope", *self.words(cfg), cwd=cfg.parent)
        assert done.returncode == 1
        assert "in pull:\n    gradient.add_(params[:3]" in done.stderr
        assert "Traceback" not in done.stderr
