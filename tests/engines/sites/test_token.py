"""``ggeur token``."""

from __future__ import annotations

import os

import pytest

from federatedscope_ggeur.cli import main


def test_token_makes_a_secret_once_and_a_token_for_each_client(tmp_path, capsys):
    pytest.importorskip("grpc")
    secret = tmp_path / "secret.txt"
    assert main(["token", str(secret), "3"]) == 0
    first = capsys.readouterr()
    assert first.out.startswith("3:")
    assert str(secret) in first.err
    assert secret.stat().st_mode & 0o077 == 0
    assert main(["token", str(secret), "3"]) == 0
    again = capsys.readouterr()
    assert (again.out, again.err) == (first.out, "")
    assert main(["token", str(secret), "4"]) == 0
    assert capsys.readouterr().out != first.out
    assert main(["token", str(tmp_path / "nowhere" / "secret"), "1"]) == 1
    assert "nowhere" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["token", str(secret), "0"])


def test_a_token_goes_into_a_new_file_that_only_its_owner_can_read(tmp_path, capsys):
    pytest.importorskip("grpc")
    secret, out = str(tmp_path / "secret.txt"), tmp_path / "token.txt"
    before = os.umask(0)
    try:
        assert main(["token", secret, "3", "--out", str(out)]) == 0
    finally:
        os.umask(before)
    assert capsys.readouterr().out == f"client 3's token is in {out}\n"
    assert out.stat().st_mode & 0o777 == 0o600
    assert main(["token", secret, "3"]) == 0
    assert out.read_text() == capsys.readouterr().out
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    for taken in (out, link, tmp_path):
        assert main(["token", secret, "4", "--out", str(taken)]) == 1
        assert f"'{taken}' exists" in capsys.readouterr().err
    assert out.read_text().startswith("3:")
    assert not (tmp_path / "elsewhere").exists()
    new = str(tmp_path / "new_secret")
    assert main(["token", new, "4", "--out", str(tmp_path / "no" / "token")]) == 1
    assert "--out: cannot write" in capsys.readouterr().err
    assert main(["token", secret, "4", "--out", ""]) == 1
