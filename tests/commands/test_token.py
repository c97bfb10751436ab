"""``federatedscope-ggeur token``."""

from __future__ import annotations

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
