"""``ggeur compare``: real runs in the terminal, and wrong words."""

from __future__ import annotations

import pytest
from own_process import python
from written_runs import made, noisy, write

from federatedscope_ggeur.cli import main

NO_TORCH = """\
import sys
from federatedscope_ggeur.cli import main
status = main(["compare", sys.argv[1]])
assert "torch" not in sys.modules
sys.exit(status)
"""


@pytest.fixture
def shown(capsys):
    """What a call prints, with the status."""

    def call(*words):
        status = main(["compare", *map(str, words)])
        return status, *capsys.readouterr()

    return call


@pytest.mark.slow
def test_it_writes_nothing_and_needs_no_torch(tmp_path):
    write(tmp_path / "a", made(noisy(0.5, 1), 1))
    before = sorted(tmp_path.rglob("*"))
    done = python("-c", NO_TORCH, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "AVG" in done.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_the_first_run_named_is_the_baseline(tmp_path, shown):
    for name in "ab":
        write(tmp_path / name, made(noisy(0.5, 1), 1, {"name": name}))
    _, out, _ = shown(tmp_path / "b", tmp_path / "a")
    assert "Differences to name b, seed by seed" in out
    _, out, _ = shown(tmp_path / "b", tmp_path / "a", "--baseline", "name a")
    assert "Differences to name a, seed by seed" in out


def test_a_users_mistakes_are_named(tmp_path, shown):
    status, out, err = shown(tmp_path / "nowhere")
    assert (status, out) == (1, "")
    assert err.endswith("is neither a folder nor a file results.json\n")
    write(tmp_path / "a", made(noisy(0.5, 1), 1))
    (tmp_path / "a" / "results.json").write_text("{}")
    assert shown(tmp_path)[2].startswith("error: these results cannot be read")
    with pytest.raises(SystemExit) as stopped:
        shown()
    assert stopped.value.code == 2
