"""Commands that end at once: what they read, print and refuse."""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from argcomplete import shellcode
from own_process import PATIENCE, program
from pictures import write_images

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.commands import add_options
from federatedscope_ggeur.data.cache import Parts
from federatedscope_ggeur.data.encoders import ENCODERS, register_encoder

# ``ggeur --cfg FILE``: what is read of the command line.


def test_settings_of_single_clients_need_federatedscope(ggeur):
    command = ["--cfg", "ggeur_quickstart.yaml", "--client_cfg", "clients.yaml"]
    error = ggeur(*command, status=1).err
    assert error.startswith("error: --client_cfg: ")
    assert "--engine federatedscope" in error


@pytest.mark.parametrize(
    "words",
    [
        "--log-level loud",
        "--quiet --log-level info",
        "seed 1 --log-level",
        "seed 1 --loud",
    ],
)
def test_wrong_options_are_wrong_usage_wherever_they_stand(capsys, words):
    with pytest.raises(SystemExit) as caught:
        main(["--cfg", "ggeur_quickstart.yaml", *words.split()])
    assert caught.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("ggeur:")


@pytest.mark.slow
def test_a_value_that_looks_like_an_option_is_a_value(ggeur, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["--cfg", "ggeur_quickstart.yaml", "expname", "--quiet", "--dry-run"]
    assert "bytes" in ggeur(*command).out
    assert not list(tmp_path.iterdir())


# ``ggeur --cfg FILE --dry-run``.


@pytest.fixture
def dry_run(config, tmp_path, ggeur):
    """Dry runs of a small config with settings added; gives what is printed."""

    def go(*settings) -> str:
        path = tmp_path / "small.yaml"
        path.write_text(config("outdir", tmp_path / "exp").dump())
        before = sorted(tmp_path.rglob("*"))
        said = ggeur("--cfg", path, "--dry-run", *settings).out
        assert sorted(tmp_path.rglob("*")) == before
        return said

    return go


def test_it_says_rows_bytes_memory_and_time(dry_run):
    said = dry_run()
    for line in (
        r"^client 1 \(art\): \d+ rows of \d+ classes to train on$",
        "ggeur.privacy.min_samples 5 withholds ",
        *(f"^  {phase} +" for phase in ["statistics", "geometry", "prototypes"]),
        *(f"^  {phase} +" for phase in ["prepare", "train", "evaluate"]),
        r"^the run, 3 rounds, 3 scored +\S+ k?B +\S+ k?B$",
        "of ggeur.memory_limit 1 GB, sets stay in memory",
        r"^time: about .* a mini-batch\)$",
    ):
        assert re.search(line, said, re.M), line


def test_many_clients_are_said_in_short(dry_run):
    said = dry_run("federate.client_num", 30, "ggeur.steps", "[]")
    line = r"^rows of a client: \d+ \(client \d+\) to \d+ \(client \d+\), median \d+$"
    assert re.search(line, said, re.M)
    assert "client 1 (" not in said.replace("(client 1)", "")


FRESH = ["ggeur.noise", "fresh", "ggeur.privacy.min_samples", 1]
EVEN = ["data.splitter", "iid", "data.splitter_args", "[]"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["ggeur.memory_limit", 100], "sets beyond this limit are drawn anew"),
        (FRESH, "sets are drawn anew in every round"),
        (["ggeur.closed_form", "lda"], "the run, 0 rounds"),
        (["ggeur.closed_form", "auto", *EVEN], "of it .* s trying heads on left-out"),
    ],
)
def test_what_becomes_of_the_sets_and_how_long_heads_are_tried(dry_run, settings, said):
    assert re.search(said, dry_run(*settings), re.M)


@pytest.fixture
def settings(tmp_path) -> list[str]:
    """Of a run on images that need no weights."""
    words = {
        "data.type": "image_folder@ggeur",
        "data.root": write_images(tmp_path / "tree", per_class=12),
        "ggeur.encoder.name": "hog",
        "ggeur.encoder.batch_size": 2,
        "ggeur.encoder.cache": tmp_path / "cache",
        "ggeur.encoder.num_workers": 1,
        "federate.client_num": 2,
        "federate.total_round_num": 1,
    }
    return [str(part) for pair in words.items() for part in pair]


@pytest.fixture
def arguments(quickstart, settings) -> list[str]:
    return ["embed", "--cfg", str(quickstart), *settings]


class TestImages:
    def test_those_that_are_not_embedded_are_counted(
        self, dry_run, settings, arguments, ggeur
    ):
        said = dry_run(*settings)
        assert said.startswith("72 of 72 images are not in the cache ")
        assert "the run," not in said
        ggeur(*arguments)
        assert "the run, 1 rounds" in dry_run(*settings)

    def test_no_weights_are_fetched(self, dry_run, settings, monkeypatch):
        name = "dry_run_far_away"
        monkeypatch.setattr(ENCODERS, "_parts", dict(ENCODERS))

        def make(chosen, device):
            raise AssertionError("weights are fetched")

        register_encoder(name, stamp=lambda chosen: {"weights": None})(make)
        said = dry_run(*settings, "ggeur.encoder.name", name)
        assert said.startswith("72 of 72 images are not in the cache ")
        assert "a dry run downloads nothing" in said


# ``ggeur configs``.


def test_configs_lists_and_copies(tmp_path, ggeur):
    assert "ggeur_quickstart.yaml" in ggeur("configs").out
    assert main(["configs", str(tmp_path / "mine")]) == 0
    copied = tmp_path / "mine" / "ggeur_quickstart.yaml"
    assert copied.is_file()
    copied.write_text("changed")
    assert "ggeur_quickstart.yaml" in ggeur("configs", tmp_path / "mine", status=1).err
    assert copied.read_text() == "changed"


@pytest.mark.parametrize("below", ["", "mine"])
def test_configs_into_what_is_no_folder(tmp_path, ggeur, below):
    target = tmp_path / "taken"
    target.write_text("kept")
    error = ggeur("configs", target / below, status=1).err
    assert error.startswith("error: ")
    assert str(target) in error
    assert target.read_text() == "kept"


# ``ggeur keys``.


MODULE = """\
from federatedscope_ggeur import register_method
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.settings import Key, positive

@register_method("of_my_own")
class OfMyOwn(Method):
    meaning = source = "mine"
    SETTINGS = (Key("rate", 0.25, "How fast it goes.", positive),)
"""


def test_words_search_names_and_meanings(ggeur):
    by_name = ggeur("keys", "min_samples").out
    assert by_name.startswith("ggeur.privacy.min_samples = 5\n    ")
    both = ggeur("keys", "SHRINKAGE", "leave-one-out").out
    names = [line for line in both.splitlines() if line.startswith("ggeur")]
    assert "ggeur.lda.shrinkage = -1" in names
    assert len(names) < 10
    for line in names:
        assert line in ggeur("keys", line.split()[0]).out


def test_a_word_that_no_key_has(ggeur):
    (line,) = ggeur("keys", "min_sample_number", status=1).err.splitlines()
    assert "no key contains 'min_sample_number'; near it are " in line
    assert "ggeur.privacy.min_samples" in line


def test_a_config_is_read_first(ggeur):
    for words in ([], ["--cfg", "ggeur_quickstart.yaml", "seed", "3"]):
        assert "ggeur.privacy.min_samples = 5\n" in ggeur("keys", *words).out
    said = ggeur("keys", "--cfg", "nowhere.yaml", status=1).err
    assert "'nowhere.yaml' does not exist" in said


@pytest.mark.slow
def test_the_keys_of_plugins_are_listed_even_if_the_config_is_wrong(tmp_path):
    (tmp_path / "my_methods.py").write_text(MODULE)
    (tmp_path / "my.yaml").write_text("ggeur: {plugins: [my_methods], nosuch: 1}\n")
    done = program("keys", "--cfg", "my.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ggeur.of_my_own.rate = 0.25\n    How fast it goes.\n" in done.stdout


# ``ggeur doctor``: its report, and that nothing broken stops it.


ROOT = Path(__file__).parents[2]


def test_it_says_what_is_there_and_how_to_get_what_is_missing(ggeur, monkeypatch):
    shown = ggeur("doctor").out
    assert "torch: " in shown
    assert "weights for images: open_clip ViT-B-16, openai: " in shown
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    shown = ggeur("doctor", status=1).out
    assert "MISSING matplotlib" in shown
    assert "pip install matplotlib" in shown


def test_it_says_what_two_builds_that_do_not_fit_need(ggeur, monkeypatch):
    class Broken:
        """An import of it fails as that of a torchvision for another torch."""

        def find_spec(self, name, path=None, target=None):
            if name == "torchvision":
                raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    shown = ggeur("doctor", status=1).out
    assert "MISSING torchvision: is installed but broken" in shown
    assert "must come from the same release and build" in shown


def test_the_first_lines_come_before_torch(tmp_path):
    (tmp_path / "torch.py").write_text("import time\ntime.sleep(10_000)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "federatedscope_ggeur", "doctor"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        # A pipe: what is read here has been flushed.
        assert process.stdout.readline().startswith("federatedscope_ggeur ")
        assert process.stdout.readline().startswith("Python ")
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("error", ["ImportError", "OSError"])
def test_a_torch_that_does_not_work_is_named(tmp_path, error):
    (tmp_path / "torch.py").write_text(f"raise {error}('no such library')\n")
    done = program("doctor", cwd=tmp_path)
    assert done.returncode == 1
    assert "MISSING torch: " in done.stdout
    assert "no such library" in done.stdout
    assert "accelerator: unknown without torch" in done.stdout
    assert not done.stderr


# ``ggeur embed``.


@pytest.mark.slow
def test_it_says_what_it_made_and_where(arguments, ggeur, tmp_path):
    shown = ggeur(*arguments)
    encoder, count, *files = shown.out.splitlines()
    assert encoder.startswith("encoder: hog of 64 x 64, id ")
    assert count.startswith("72 images, D = 1764, 0.5 MB: 72 embedded now, in ")
    assert count.endswith(" images/s)")
    assert len(files) == 2
    assert all(Path(file).is_relative_to(tmp_path / "cache") for file in files)
    assert all(Path(file).is_file() for file in files)
    assert "embedding 36 images of day (train)" in shown.err
    assert "all were in the cache already" in ggeur(*arguments).out


@pytest.mark.slow
def test_a_client_of_a_distributed_run_embeds_before_it(arguments, ggeur):
    own = ["federate.mode", "distributed", "data.splitter", "''"]
    assert "72 images" in ggeur(*arguments, *own, "data.splitter_args", "[]").out


@pytest.mark.slow
def test_after_ctrl_c_the_next_call_goes_on(arguments, monkeypatch, ggeur):
    """How the files go on: tests/data/cache/test_embedding_cache.py."""
    made, add = [], Parts.add

    def add_nine(parts, features):
        add(parts, features)
        made.append(features)
        if len(made) == 9:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Parts, "add", add_nine)
        errors = ggeur(*arguments, status=130).err
    assert "interrupted; finished embeddings stay" in errors
    assert "Traceback" not in errors
    assert "54 embedded now" in ggeur(*arguments).out


# What Tab offers, in a real bash.


ASK = """\
set -e
{register}
COMP_LINE={line}; COMP_POINT=${{#COMP_LINE}}; COMP_TYPE=9; COMPREPLY=()
_python_argcomplete ggeur
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.slow
def test_commands_and_options_are_completed(tmp_path):
    """The words that a real bash gets for a line, by the documented command."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    program = tmp_path / "bin" / "ggeur"
    program.parent.mkdir()
    main_of = "import sys; from federatedscope_ggeur.cli import main; sys.exit(main())"
    program.write_text(f"#!{sys.executable}\n{main_of}\n")
    program.chmod(0o755)
    docs = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    names = re.search(r"^eval \"\$\(register-\S+ (.*)\)", docs, re.MULTILINE)[1]
    made = shellcode(names.split(), shell="bash")
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"

    def ask(line: str) -> list[str]:
        done = subprocess.run(
            [bash, "-c", ASK.format(register=made, line=shlex.quote(line))],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        return done.stdout.splitlines()

    (tmp_path / "my config.yaml").touch()
    assert ask("ggeur doc") == ["doctor "]
    assert ask("ggeur --dry") == ["--dry-run "]
    assert ask("ggeur --cfg my") == ["my\\ config.yaml "]
    assert ask("ggeur predict --fl") == ["--flag-below "]
    assert ask("ggeur predict --labels n") == ["names "]


def test_a_table_of_options_is_wrong_by_name():
    parser = argparse.ArgumentParser()
    with pytest.raises(TypeError, match="the table has no tpo"):
        add_options(parser, "--top N: how many", tpo={"type": int})
    with pytest.raises(ValueError, match="the entry 'top N' of a table has no ': '"):
        add_options(parser, "top N")
