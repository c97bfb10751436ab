"""A file with all that is common, and roles on the command line: no splitter is asked
of who divides nothing, and nothing is checked before the command line is read."""

from __future__ import annotations

import pytest
import yaml
from processes import free_port
from standalone import as_before, merged

from federatedscope_ggeur.cfg_ggeur.yaml_file import literal
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines.fs.config import check
from federatedscope_ggeur.errors import ConfigError


@pytest.fixture
def common(quickstart, words, tmp_path):
    """Write what all processes share, with some settings more, or less (None)."""

    def write(**changes):
        content = yaml.safe_load(quickstart.read_text(encoding="utf-8"))
        settings = {
            **dict(zip(words[::2], map(literal, words[1::2]))),
            "federate.client_num": 3,
            "federate.mode": "distributed",
            "distribute.use": True,
            "distribute.server_host": "127.0.0.1",
            "distribute.server_port": free_port(),
            "data.splitter": None,
            "data.splitter_args": None,
            **{key.replace("__", "."): value for key, value in changes.items()},
        }
        for key, value in settings.items():
            *path, name = key.split(".")
            node = content
            for part in path:
                node = node.setdefault(part, {})
            node.pop(name, None)
            if value is not None:
                node[name] = value
        file = tmp_path / "common.yaml"
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
        return file

    return write


OWN = [
    "distribute.data_idx", "-1", "ggeur.domain", "art", "ggeur.client_number", "1"
]  # fmt: skip


SERVER = ["distribute.role", "server"]


@pytest.mark.parametrize(
    ("role", "refused"),
    [
        (SERVER, ""),
        (OWN, ""),
        ([*SERVER, "federate.make_global_eval", "True"], "splitter"),
        ([*SERVER, "ggeur.unseen_domains", "['art']"], "splitter"),
        (["distribute.data_idx", "2"], "splitter"),
        ([*SERVER, "data.splitter", "diagonal"], "splitter"),
        ([*SERVER, "federate.client_num", "0"], "client_num"),
        (["federate.mode", "standalone"], "splitter"),
        (["federate.mode", "standalone", "federate.client_num", "0"], ""),
    ],
    ids=str,
)
def test_a_splitter_is_asked_of_who_divides_rows(federatedscope, common, role, refused):
    with as_before():
        if not refused:
            check(merged(common(), role))
            return
        with pytest.raises((ConfigError, AssertionError), match=refused):
            check(merged(common(), role))


def test_the_embedded_engine_says_which_one_it_is(common, capsys):
    assert main(["--cfg", str(common())]) == 1
    said = capsys.readouterr().err
    assert "federate.mode: must be standalone without --engine federatedscope" in said
    assert "distribute." not in said
    assert "splitter" not in said
