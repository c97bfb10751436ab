"""Flower's app, by its own objects in this process: who joins, who is refused, and what
its folder holds. Whole runs are in `contract/`; one by Flower's simulation is here.
"""

import hashlib
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from exchange_plugin import NAME, NAMED, write_plugin
from flower_nodes import App, Nodes
from own_process import PATIENCE, ROOT
from private_words import LDA, NOISE

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines.sites.leading import FAILED, FINISH, JOIN
from federatedscope_ggeur.engines.sites.site_folder import ResumedSite
from federatedscope_ggeur.engines.sites.transport import Envelope, make_token
from federatedscope_ggeur.errors import ConfigError, GGEURError, MessageError
from federatedscope_ggeur.extras.differential_privacy.ledger import (
    ledger_path,
    read_ledger,
)
from federatedscope_ggeur.extras.differential_privacy.uploads import ReleaseRequest
from federatedscope_ggeur.federation.course.client_handler import ClientStore
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast
from federatedscope_ggeur.federation.wire.handshake import Join
from federatedscope_ggeur.federation.wire.schema import Declared
from federatedscope_ggeur.reporting import read_results

ONE_SHOT = (
    "ggeur.closed_form", "lda",
    "data.splitter", "iid",
    "data.splitter_args", "[]",
)  # fmt: skip


@pytest.fixture
def app(flower_here, quick, config, tmp_path):
    """Make the app of a run of three clients."""

    def make(*settings) -> App:
        cfg = config(*ONE_SHOT, "outdir", tmp_path / "exp", *settings)
        return App(tmp_path / "app", cfg, tmp_path)

    return make


@pytest.fixture
def quick(monkeypatch):
    """The server asks again at once."""
    from federatedscope_ggeur.engines.flower import server

    for name in ("_PULL", "_LOOK", "_AGAIN", "_LAST_FAILED"):
        monkeypatch.setattr(server, name, 0.01)


def three(app: App) -> Nodes:
    return Nodes(
        app, {k: {"partition-id": k - 1, "num-partitions": 3} for k in (1, 2, 3)}
    )


@pytest.mark.slow
def test_who_cannot_join_is_told_why_and_the_run_needs_no_more(app, quick, tmp_path):
    """A fourth SuperNode, and one of a user who forgot to name the site's file."""
    one = app()
    nodes = three(one)
    nodes.configs.update({4: {"partition-id": 3}, 5: {}})
    assert one.run(nodes) is None
    (log,) = tmp_path.glob("exp/*/log.txt")
    said = log.read_text()
    assert "SuperNode 4: its site does not join: " in said
    assert "distribute.data_idx: must lie in 1..3" in said
    assert "no --node-config 'site=\"/path/to/site.yaml\"'" in said


@pytest.mark.slow
def test_a_reply_that_is_no_answer_bars_its_client_alone(app, quick, tmp_path):
    from flwr.app import Message, RecordDict

    from federatedscope_ggeur.engines.flower.records import content_of
    from federatedscope_ggeur.engines.sites.transport import Envelope

    one = app("ggeur.quorum", 2)
    nodes, asked = three(one), []

    def lies(message):
        asked.append(message)
        if len(asked) == 1:
            return None
        long = content_of([Envelope("statistics", 0, (bytes(10**7),))])
        return Message(long if len(asked) == 2 else RecordDict(), reply_to=message)

    nodes.spoil[3] = lies
    assert one.run(nodes) is None
    (log,) = tmp_path.glob("exp/*/log.txt")
    assert "bytes are more than the limit of" in log.read_text()
    assert sorted(read_results(log.parent).round0.clients) == [1, 2]


@pytest.mark.slow
def test_an_error_of_flower_ends_the_connection_and_the_site_joins_again(
    app, quick, tmp_path
):
    from flwr.app import Error, Message

    from federatedscope_ggeur.engines.flower.records import envelopes_of

    one = app("ggeur.deadline.return", 60)
    nodes, failures = three(one), []

    def fails_once(message):
        kinds = [one.kind for one in envelopes_of(message.content, "it", 10**9)]
        if failures or kinds == ["join_in"]:
            return None
        failures.append(message)
        return Message(Error(8, "ClientApp stopped\nresponding"), reply_to=message)

    nodes.spoil[2] = fails_once
    error = one.run(nodes)
    (log,) = tmp_path.glob("exp/*/log.txt")
    said = "client 2 is gone: Flower: ClientApp stopped responding (8)"
    assert said in log.read_text()
    assert error is not None or failures  # below the quorum of all


@pytest.fixture
def real(flower_here, quick, embeddings_folder, tmp_path):
    """An app of real sites, and nodes with a file each, as `certificates` makes."""
    pytest.importorskip("cryptography")
    own = {"closed_form": "lda", "agreed": {"class_names": [str(c) for c in range(12)]}}
    settings = {"data": {"type": "embeddings@ggeur"}, "ggeur": own}
    plan = {"engine": "flower", "server": ["localhost"], "sites": ["art", "photo"]}
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump({**plan, "settings": settings}))
    assert main(["certificates", str(path), "--out", str(tmp_path)]) == 0
    nodes = {}
    for number, name in enumerate(plan["sites"], 1):
        site = tmp_path / name
        (site / "data").mkdir()
        shutil.copy(embeddings_folder / f"{name}.npz", site / "data")
        nodes[number] = {"site": str(site / "site.yaml"), "partition-id": 7}
    server = tmp_path / "server"
    cfg = load_config(server / "server.yaml", on_fs=True)
    app = App(tmp_path / "app", cfg, server)
    return app, Nodes(app, nodes)


@pytest.mark.slow
def test_at_real_sites_the_sites_own_file_alone_names_data_and_settings(real, tmp_path):
    app, nodes = real
    app.config["settings"] = (
        "ggeur.share_results True ggeur.deadline.join 5"  # the server's alone
    )
    assert app.run(nodes) is None
    for name in ("art", "photo"):
        left = read_results(tmp_path / name / "runs" / "federation")
        assert (left.status, left.domains) == ("finished", [name])
        assert left.config["ggeur"]["share_results"] is False
    assert (tmp_path / "server" / "runs" / "federation" / "head.safetensors").exists()


def test_a_forged_token_and_a_number_that_is_taken_are_refused(real, quick, tmp_path):
    app, nodes = real
    (tmp_path / "photo" / "token").write_text(make_token(b"another secret!!", 2))
    nodes.configs[3] = nodes.configs[1]
    app.config["settings"] = "ggeur.deadline.join 0.5"
    assert app.run(nodes) is not None
    said = (tmp_path / "server" / "runs" / "federation" / "log.txt").read_text()
    assert "SuperNode 2: " in said
    assert "was not made from this server's" in said
    assert "client 1 has joined already" in said
    told = (tmp_path / "photo" / "runs" / "federation" / "log.txt").read_text()
    assert "the server says: " in told


def test_an_app_folder_is_made_once_and_holds_no_plugin(
    flower, quickstart, forget_exchange, tmp_path, monkeypatch, ggeur
):
    monkeypatch.chdir(tmp_path)
    path = write_plugin(tmp_path, quickstart)
    folder, words = tmp_path / "app", ["--cfg", str(path), *NAMED]
    server = ["federate.mode", "distributed", "distribute.role", "server"]
    assert "flwr run" in ggeur("flower-app", folder, *words, *server).out
    files = {p.name: p.read_text() for p in folder.rglob("*") if p.is_file()}
    assert not any("ClassesHeld" in text for text in files.values())
    assert [name for name, text in files.items() if NAME in text] == ["settings.py"]
    assert {Path(name).suffix for name in files} == {
        ".py",
        ".toml",
    }  # all that 1.21 sends
    # Without it, flwr 1.42 does not take the number of SuperNodes over.
    assert 'default = "local-simulation"' in files["pyproject.toml"]
    assert "is not empty" in ggeur("flower-app", folder, *words, *server, status=1).err
    client = [*server[:-1], "client", "distribute.data_idx", "1"]
    said = ggeur("flower-app", tmp_path / "other", *words, *client, status=1).err
    assert "distribute.role: must be server" in said


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
def test_flwr_run_in_simulation_ends_with_the_embedded_head(
    flower, quickstart, tmp_path
):
    pytest.importorskip("ray", reason="Flower's simulation needs flwr[simulation]")
    words = ["--cfg", str(quickstart), "federate.total_round_num", "2"]
    assert main([*words, "outdir", str(tmp_path / "here"), "--quiet"]) == 0
    app = tmp_path / "app"
    assert main(["flower-app", str(app), *words, "outdir", str(tmp_path / "exp")]) == 0
    beside = Path(sys.executable).parent
    environ = {
        **os.environ,
        "FLWR_HOME": str(tmp_path / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PATH": os.pathsep.join([str(beside), os.environ["PATH"]]),
    }
    command = [
        shutil.which("flwr", path=environ["PATH"]),
        "run",
        ".",
        "local-simulation",
    ]
    done = subprocess.run(
        [*command, "--stream"], cwd=app, env=environ, timeout=PATIENCE, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    (wanted,) = tmp_path.glob("here/*/head.safetensors")
    left = list(tmp_path.glob("exp/**/head.safetensors"))
    assert len(left) == 5, done.stdout
    assert {sha256(path) for path in left} == {sha256(wanted)}


# A site whose process ends after each answer: what it remembers, and for whom.


SITE = [
    "federate.mode", "distributed",
    "distribute.role", "client",
    "distribute.data_idx", "2",
]  # fmt: skip
CHARGED = (*LDA, *NOISE, "ggeur.privacy.dp.ledger", "spent")


@pytest.fixture
def ask(config, tmp_path):
    """Ask site 2 messages of a run, each time as a new process would."""

    def once(*asked: Envelope, run: str = "1", settings=LDA) -> list[Envelope]:
        cfg = load_config(config(), [*SITE, *map(str, settings)], on_fs=True)
        return ResumedSite(cfg, tmp_path / "site", run, "test").answer(asked)

    return once


def join(goes_on: int = 0) -> Envelope:
    return Envelope(JOIN, goes_on)


def head(value: float) -> Envelope:
    return Envelope(
        "evaluate", 0, (Broadcast(0, torch.full((12 * 17,), value)).to_bytes(),)
    )


def test_what_is_answered_once_is_answered_once_by_all_its_processes(ask):
    ask(join())
    first = ask(head(0.0))
    assert [one.kind for one in first] == ["metrics"]
    assert ask(head(0.0)) == first
    with pytest.raises(MessageError, match="has only one"):
        ask(head(1.0))


@pytest.mark.parametrize("said", ["{", "[]", "{}"])
def test_a_broken_file_of_its_run_is_named(said, ask, tmp_path):
    ask(join())
    (tmp_path / "site" / "private" / "run.json").write_text(said)
    with pytest.raises(ConfigError, match=r"run\.json' cannot be used"):
        ask(head(0.0))


def test_it_answers_the_run_that_it_has_joined(ask, tmp_path):
    with pytest.raises(MessageError, match="has not joined this run"):
        ask(Envelope("statistics_request"))
    ask(join())
    with pytest.raises(MessageError, match="has not joined this run"):
        ask(Envelope("statistics_request"), run="2")
    store = ClientStore(tmp_path / "site" / "private" / "state", 2)
    kept = {3: {"control": torch.ones(2)}}
    store.save(kept)
    ask(join(goes_on=1), run="2")
    assert store.load().keys() == kept.keys()
    ask(join(), run="3")
    assert store.load() == {}


def test_only_its_owner_can_read_what_it_remembers(ask, tmp_path):
    ask(join())
    ask(head(0.0))
    private = tmp_path / "site" / "private"
    paths = [private, *private.rglob("*")]
    assert len(paths) >= 4
    assert not [path for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_it_keeps_its_last_model_when_the_run_fails(ask, tmp_path):
    ask(join())
    ask(head(0.0))
    assert ask(Envelope(FAILED, 0, (b"the disk is full",))) == []
    assert (tmp_path / "site" / "head.safetensors").exists()
    said = (tmp_path / "site" / "log.txt").read_text()
    assert "the server says: the disk is full" in said


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("rows", ()), ("os.system", ()), ("sum_counts_request", ()),
        ("statistics_request", (b"more",)), ("model_para", (b"no head",)),
        (FINISH, (b"no head",)),
    ],
)  # fmt: skip
def test_what_its_own_file_does_not_allow_is_refused(ask, kind, parts):
    ask(join())
    with pytest.raises(MessageError):
        ask(Envelope(kind, 0, parts))
    assert ask(Envelope("statistics_request"))[0].kind == "statistics"


def moments(session: bytes = b"s" * 16) -> Envelope:
    zeros = torch.zeros(16, dtype=torch.float64)
    request = ReleaseRequest(session, "moments", zeros)
    return Envelope("release_moments_request", 0, (request.to_bytes(),))


def test_a_release_is_charged_once_and_repeated_byte_by_byte(ask, tmp_path):
    (joined,) = ask(join(), settings=CHARGED)
    assert Join.from_bytes(joined.parts[0], sender="it").declared == Declared()
    first = ask(moments(), settings=CHARGED)
    assert first[0].kind == "released_moments"
    assert ask(moments(), settings=CHARGED) == first
    with pytest.raises(GGEURError, match="epsilon_total"):
        ask(moments(b"t" * 16), settings=CHARGED)
    with pytest.raises(MessageError, match="do not allow"):
        ask(Envelope("statistics_request"), settings=CHARGED)
    ledger = ledger_path(str(tmp_path / "site" / "private" / "spent"), 2)
    spent, _ = read_ledger(ledger)
    assert [entry.session for entry in spent.entries] == [(b"s" * 16).hex()]


def test_a_folder_that_cannot_be_used_is_named(ask, tmp_path):
    (tmp_path / "site").write_text("a file")
    with pytest.raises(ConfigError, match="cannot make the folder"):
        ask(join())
