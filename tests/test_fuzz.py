"""Every key takes a value or says what is wrong with it: no traceback, no hang."""

from __future__ import annotations

import threading

import pytest

from federatedscope_ggeur.cfg_ggeur.fs_keys import fs_keys
from federatedscope_ggeur.cfg_ggeur.keys import all_keys
from federatedscope_ggeur.cli import main

VALUES = (
    "-1", "0", "1e308", "nan", "''", "[]", "{}", "None", "x" * 20_000, "no_such_choice",
)  # fmt: skip
OURS, FS = [f"ggeur.{key.name}" for key in all_keys()], [k.name for k in fs_keys()]
KEYS = sorted({*OURS, *FS})
#: Beyond these a value has been taken for something that never ends.
PATIENCE = 20.0
LONGEST_MESSAGE = 1500


@pytest.fixture
def try_one(quickstart, embeddings_folder, tmp_path, monkeypatch, capsys):
    """Run the command line with one setting; its status and what it said of errors."""
    monkeypatch.chdir(tmp_path)
    base = [
        "--cfg", str(quickstart),
        "data.type", "embeddings@ggeur",
        "data.root", str(embeddings_folder),
        "data.splitter_args", "[{'alpha': 1.0}]",
        "federate.client_num", "3",
        "federate.total_round_num", "1",
        "ggeur.step1_size", "8",
        "ggeur.step2_size", "4",
        "verbose", "0",
    ]  # fmt: skip

    def run(key: str, value: str) -> tuple[int, str]:
        found: list[int | BaseException] = []

        def work() -> None:
            try:
                found.append(main([*base, key, value]))
            except SystemExit as ended:
                found.append(ended.code)
            except BaseException as error:
                found.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert found, f"{key} {value:.20}: still at it after {PATIENCE:g} s"
        said = capsys.readouterr().err
        if isinstance(found[0], BaseException):
            raise AssertionError(f"{key} {value:.20}: a traceback") from found[0]
        return found[0], said

    return run


def check(key: str, value: str, status: int, said: str) -> None:
    what = f"{key} {value:.20}: {status}, {said[:300]}"
    assert status in (0, 1, 2), what
    assert "Traceback" not in said, what
    assert len(said) < LONGEST_MESSAGE, what
    if status:
        assert "error: " in said, what


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_every_key_with_every_value(try_one, part):
    for key in KEYS[part::8]:
        for value in VALUES:
            check(key, value, *try_one(key, value))


@pytest.mark.slow
def test_some_keys_with_every_value(try_one):
    for key in KEYS[::37]:
        for value in VALUES:
            check(key, value, *try_one(key, value))
