"""A user's own parts inside FederatedScope (FS), as docs/plugins.md has them.

FS builds its config before it reads a file, so the keys of a user's parts must be there
by then. What the parts do is shown by running the page.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from documented import ROOT, blocks
from own_process import OF_FS, in_turn
from safetensors.torch import load_file

#: A method, a network and an exchange; FS does not know heads, the others need files.
PARTS = ("half_way", "tiny_cnn", "classes_held")
ON_FS = ("--engine", "federatedscope")


@pytest.fixture(scope="module")
def ran(federatedscope, tmp_path_factory):
    """Status and output of each command, and the folder of runs.

    They are made in another folder than that of the YAML files.
    """
    folder = tmp_path_factory.mktemp("parts")
    (folder / "elsewhere").mkdir()
    for block in blocks():
        if block.file.name == "plugins.md" and block.file_name:
            (folder / block.file_name).write_text(block.text)
    calls = {}
    for part in PARTS:
        run = ("--cfg", str(folder / f"{part}.yaml"), "outdir", str(folder / "exp"))
        calls[part] = (*run, "expname", part)
        calls[f"{part} on FS"] = (*ON_FS, *run, "expname", f"{part} on FS")
    run = ("--cfg", str(folder / "half_way.yaml"), "ggeur.half_way.share", "-1.0")
    calls["wrong"] = (*ON_FS, *run)
    commands = [("-m", "federatedscope_ggeur", *words) for words in calls.values()]
    ends = in_turn(commands, folder / "elsewhere", first=OF_FS)
    return dict(zip(calls, ends)), folder / "exp"


def outcome(left: Path) -> dict:
    results = json.loads((left / "results.json").read_text())
    head = load_file(left / "head.safetensors")
    return {
        "accuracy": results["final"]["accuracy"],
        "exchanges": results["round0"]["exchanges"],
        "head": {name: tensor.tolist() for name, tensor in head.items()},
    }


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_it_runs_on_fs_as_on_the_embedded_engine(ran, part):
    ends, exp = ran
    for name in (part, f"{part} on FS"):
        status, said = ends[name]
        assert status == 0, said
    assert outcome(exp / part) == outcome(exp / f"{part} on FS")


@pytest.mark.slow
def test_its_keys_are_checked(ran):
    status, said = ran[0]["wrong"]
    assert status == 1
    assert "ggeur.half_way.share: must" in said


def test_no_file_of_the_package_knows_them():
    for file in (ROOT / "federatedscope_ggeur").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert not any(name in text for name in ("tiny_cnn", "classes_held")), file
