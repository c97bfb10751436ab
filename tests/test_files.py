"""One file, written whole or not at all."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from federatedscope_ggeur import files
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.files import write_atomically


@pytest.mark.parametrize(
    ("data", "raw"), [(b"\x00\r\n", b"\x00\r\n"), ("ä\n", b"\xc3\xa4\n"), ("", b"")]
)
def test_writes_and_replaces_exactly_these_bytes(tmp_path, data, raw):
    path = tmp_path / "file"
    path.write_text("before")
    write_atomically(path, data)
    assert path.read_bytes() == raw
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step):
    def fail(*_):
        raise OSError("disk full")

    path = tmp_path / "file"
    path.write_text("before")
    monkeypatch.setattr(files.os, step, fail)
    with pytest.raises(ConfigError, match=rf"{re.escape(str(path))}.*disk full"):
        write_atomically(path, "after")
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
def test_a_private_file_is_so_before_it_has_its_name(tmp_path, monkeypatch):
    seen = []
    replace = os.replace

    def look(source, target):
        seen.append(stat.S_IMODE(os.stat(source).st_mode))
        replace(source, target)

    monkeypatch.setattr(os, "replace", look)
    write_atomically(tmp_path / "secret", b"x", mode=0o600)
    assert seen == [0o600]


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
def test_file_is_as_readable_as_any_other(tmp_path):
    (tmp_path / "plain").write_text("")
    write_atomically(tmp_path / "atomic", "")
    modes = {stat.S_IMODE(os.stat(tmp_path / n).st_mode) for n in ("plain", "atomic")}
    assert len(modes) == 1


@pytest.mark.skipif(os.name != "posix", reason="devices are files on POSIX")
def test_a_pipe_and_a_device_are_written_to_and_stay(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(tmp_path / "pipe", b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    (tmp_path / "link").symlink_to("/dev/null")
    write_atomically(tmp_path / "link", "nowhere")
    assert (tmp_path / "link").is_symlink()


def test_standard_output_is_written_to_where_it_is_a_file(tmp_path):
    program = (
        "from federatedscope_ggeur.files import write_atomically\n"
        "write_atomically('/dev/stdout', 'text')"
    )
    with open(tmp_path / "out", "wb") as out:
        subprocess.run([sys.executable, "-c", program], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "text"
    assert Path("/dev/stdout").is_symlink()
