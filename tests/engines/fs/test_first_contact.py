"""A file with all that is common, and roles on the command line: no splitter is asked
of who divides nothing, and nothing is checked before the command line is read."""

from __future__ import annotations

import shutil

import pytest
import yaml
from processes import Worker, check_same_head, free_port
from programs import Call, run_programs
from standalone import as_before, merged

from federatedscope_ggeur.cfg_ggeur.yaml_file import literal
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines.fs.config import check
from federatedscope_ggeur.errors import ConfigError

DOMAINS = ("art", "photo", "sketch")


@pytest.fixture
def common(quickstart, words, tmp_path):
    """Write what all processes share, with some settings more, or less (None)."""
    port = free_port()

    def write(**changes):
        content = yaml.safe_load(quickstart.read_text(encoding="utf-8"))
        settings = dict(zip(words[::2], map(literal, words[1::2])))
        settings.update(
            {
                "federate.client_num": 3,
                "federate.mode": "distributed",
                "distribute.use": True,
                "distribute.server_host": "127.0.0.1",
                "distribute.server_port": port,
                "data.splitter": None,
                "data.splitter_args": None,
                "ggeur.deadline.join": 30,
            }
        )
        settings.update({key.replace("__", "."): v for key, v in changes.items()})
        for key, value in settings.items():
            *path, name = key.split(".")
            node = content
            for part in path:
                node = node.setdefault(part, {})
            if value is None:
                node.pop(name, None)
            else:
                node[name] = value
        file = tmp_path / "common.yaml"
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
        return file

    return write


@pytest.fixture
def own(embeddings_folder, tmp_path):
    """The words of client k, which has data of its own."""

    def words(number: int) -> list[str]:
        root = tmp_path / "own" / DOMAINS[number - 1]
        root.mkdir(parents=True, exist_ok=True)
        shutil.copy(embeddings_folder / f"{DOMAINS[number - 1]}.npz", root)
        return [
            "distribute.data_idx", "-1",
            "data.root", str(root),
            "ggeur.domain", DOMAINS[number - 1],
            "ggeur.client_number", str(number),
        ]  # fmt: skip

    return words


@pytest.mark.slow
def test_who_one_is_stands_on_the_command_line_alone(
    fork_server, common, own, embedded, tmp_path
):
    start = ["--cfg", str(common(federate__client_num=None))]
    start += ["federate.client_num", "3", "distribute.role"]
    folder = tmp_path / "workers"
    folder.mkdir()
    server = Worker(fork_server, folder / "server", [*start, "server"], {})
    clients = [
        Worker(fork_server, folder / f"{k}", [*start, "client", *own(k)], {})
        for k in (1, 2, 3)
    ]
    whole = ["data.splitter", "iid", "data.splitter_args", "[]"]
    try:
        expected = embedded("federate.client_num", 3, *whole)
        check_same_head(server, clients, expected)
    finally:
        for worker in (server, *clients):
            worker.kill()


@pytest.mark.slow
def test_federatedscope_s_own_main(enabled, common, own, tmp_path):
    file = ["--cfg", str(common(federate__client_num=None)), "federate.client_num", "3"]
    file += ["ggeur.deadline.join", "1", "distribute.role"]
    calls = {
        (*file, "server"): "error: joining: 0 of 3 clients have joined within 1 s",
        (*file, "'client'", *own(1)): "client 1 could not join the server at 127.0.0.1",
        # What is wrong in the end is said in one list.
        (*file, "sever", "ggeur.steps", "[9]"): "distribute.role: must be server or",
        (*file, "'client'"): "ggeur.client_number: must be set with distribute.role",
    }
    found = run_programs(enabled, tmp_path, [Call("main.py", w) for w in calls], 200)
    for (status, output), line in zip(found, calls.values()):
        assert status == 1
        assert line in output
        assert "Traceback" not in output
        assert "splitter" not in output.rpartition("error: ")[2]


@pytest.mark.parametrize(
    ("role", "refused"),
    [
        (["distribute.role", "server"], ""),
        (
            ["distribute.role", "server", "federate.make_global_eval", "True"],
            "splitter",
        ),
        (["distribute.role", "server", "ggeur.unseen_domains", "['art']"], "splitter"),
        (["distribute.data_idx", "2"], "splitter"),
        (["distribute.role", "server", "data.splitter", "diagonal"], "splitter"),
        (["distribute.role", "server", "federate.client_num", "0"], "client_num"),
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


def test_a_client_with_its_own_data(federatedscope, common, own):
    with as_before():
        cfg = merged(common(), own(2))
        check(cfg)
        assert cfg.data.splitter == ""


def test_the_embedded_engine_says_which_one_it_is(common, capsys):
    assert main(["--cfg", str(common())]) == 1
    said = capsys.readouterr().err
    assert "federate.mode: must be standalone without --engine federatedscope" in said
    assert "distribute." not in said
    assert "splitter" not in said
