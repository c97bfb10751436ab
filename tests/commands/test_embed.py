"""``ggeur embed``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from own_process import PATIENCE
from pictures import write_images

from federatedscope_ggeur.cli import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def arguments(quickstart, tmp_path) -> list[str]:
    tree = write_images(tmp_path / "tree", per_class=12)
    settings = {
        "data.type": "image_folder@ggeur",
        "data.root": tree,
        "ggeur.encoder.name": "hog",
        "ggeur.encoder.batch_size": 2,
        "ggeur.encoder.cache": tmp_path / "cache",
        "ggeur.encoder.num_workers": 1,
    }
    words = [str(part) for pair in settings.items() for part in pair]
    return ["embed", "--cfg", str(quickstart), *words]


@pytest.mark.slow
def test_it_says_what_it_made_and_where(arguments, capsys, tmp_path):
    assert main(arguments) == 0
    shown = capsys.readouterr()
    encoder, count, *files = shown.out.splitlines()
    assert encoder.startswith("encoder: hog of 64 x 64, id ")
    assert count.startswith("72 images, D = 1764, 0.5 MB: 72 embedded now, in ")
    assert count.endswith(" images/s)")
    assert len(files) == 2
    assert all(Path(file).is_relative_to(tmp_path / "cache") for file in files)
    assert all(Path(file).is_file() for file in files)
    assert "embedding 36 images of day (train)" in shown.err
    assert main(arguments) == 0
    assert "all were in the cache already" in capsys.readouterr().out


@pytest.mark.slow
def test_a_client_of_a_distributed_run_embeds_before_it(arguments, capsys):
    own = ["federate.mode", "distributed", "data.splitter", "''"]
    assert main([*arguments, *own, "data.splitter_args", "[]"]) == 0
    assert "72 images" in capsys.readouterr().out


def test_embeddings_need_none(quickstart, capsys):
    assert main(["embed", "--cfg", str(quickstart)]) == 1
    assert "holds embeddings already" in capsys.readouterr().err


HELD = """
import signal, sys, time
from pathlib import Path
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.data import images
from federatedscope_ggeur.data.cache import Parts
from federatedscope_ggeur.data.images import layout

read, add = layout.IMAGE_READERS["image_folder"], Parts.add
gate, *words = sys.argv[1:]

def held(root):
    found = read(root)
    load = found.domains[0].train.load
    def wait(row):
        while row >= 20 and not Path(gate).exists():
            time.sleep(0.01)
        return load(row)
    object.__setattr__(found.domains[0].train, "load", wait)
    return found

def told(parts, features):
    add(parts, features)
    print("made", flush=True)

def opened(*how):
    # Before the interrupt, which may have to wait for the thread that loads.
    Path(gate).touch()
    signal.default_int_handler(*how)

vars(held).update(vars(read))
layout.IMAGE_READERS._parts["image_folder"] = held
Parts.add = told
signal.signal(signal.SIGINT, opened)
sys.exit(main(words))
"""


@pytest.mark.slow
def test_after_ctrl_c_the_next_call_goes_on(arguments, tmp_path, capsys):
    """Of ten batches the last one waits for the next, which is held back."""
    program = tmp_path / "held.py"
    program.write_text(HELD)
    process = subprocess.Popen(
        [sys.executable, str(program), str(tmp_path / "gate"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert [process.stdout.readline() for _ in range(9)] == ["made\n"] * 9
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "interrupted; finished embeddings stay" in errors
    assert "Traceback" not in errors
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert "18 of 36 images are in the cache" in shown.err
    assert "72 images, D = 1764, 0.5 MB: 54 embedded now" in shown.out
