"""A site over streams that starts again answers no more than one that ran through."""

from __future__ import annotations

import pytest
import torch

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.sites import connected
from federatedscope_ggeur.engines.sites.leading import FINISH
from federatedscope_ggeur.engines.sites.site_folder import Site
from federatedscope_ggeur.engines.sites.transport import ConnectionLost, Envelope
from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation.course.coordinator import Ending
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast


class Server:
    """In place of the stream: it asks, and then is lost."""

    def __init__(self, asked: list[Envelope]):
        self.asked, self.answers = asked, []

    def __call__(self, *address) -> Server:
        return self

    def join(self, number, envelope) -> None:
        """Every site may join."""

    def receive(self) -> Envelope:
        if not self.asked:
            raise GGEURError("the process is killed here")
        return self.asked.pop(0)

    def send(self, envelope) -> None:
        self.answers.append(envelope.kind)

    def close(self) -> None:
        """There is nothing to close."""


@pytest.fixture
def site(config, tmp_path, monkeypatch):
    """Start the site anew, and ask it to score heads that name these classes absent."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "site.yaml"
    path.write_text(config("outdir", "runs", "expname", "it").dump())
    own = "federate.mode", "distributed", "distribute.data_idx", "1"
    own += "distribute.server_host", "localhost", "distribute.server_port", "1"
    cfg = load_config(path, own, on_fs=True)
    model = Site(cfg).handler().client.scored_model
    size = sum(p.numel() for p in model.state_dict().values())
    head = Broadcast(1, torch.zeros(size))

    def envelope(kind, *parts) -> Envelope:
        sent = (p if isinstance(p, bytes) else p.to_bytes() for p in parts)
        return Envelope(kind, 1, tuple(sent))

    def start(*absent, finished=False, **options) -> list[str]:
        questions = [
            a if isinstance(a, bytes) else Broadcast(1, head.params, absent=a)
            for a in absent
        ]
        asked = [envelope("evaluate", question) for question in questions]
        if finished:
            asked.append(envelope(FINISH, head, Ending("trained", None)))
        server = Server(asked)
        monkeypatch.setattr(connected, "SiteLink", server)
        try:
            connected.take_part(cfg, **options)
        except (GGEURError, ConnectionLost) as error:
            if "killed" not in str(error):
                server.answers.append(str(error))
        return server.answers

    return start


def test_what_it_was_asked_outlives_its_process(site, tmp_path):
    assert site((1, 2)) == ["metrics"]
    assert site((1, 2), ()) == ["metrics", "metrics"]
    failed, why = site((3,))
    assert failed == "failed"
    assert "rows of other classes were told apart before" in why
    (kept,) = (tmp_path / "runs" / "it" / "private").iterdir()
    assert oct(kept.stat().st_mode)[-3:] == "700"
    requests = list(kept.glob("*.request"))
    assert {oct(path.stat().st_mode)[-3:] for path in requests} == {"600"}


def test_a_request_that_is_refused_takes_no_other_s_place(site):
    for _ in range(2):
        assert site(b"no broadcast")[0] == "failed"
    assert site((1, 2)) == ["metrics"]
    assert site(b"another one")[0] == "failed"
    assert "rows of other classes were told apart before" in site((3,))[1]
    assert site((1, 2)) == ["metrics"]


def test_a_request_that_is_refused_as_its_connection_breaks(site, monkeypatch):
    """The same process joins again and goes on; what it answers then is kept, too."""
    send = Server.send

    def broken(self, envelope) -> None:
        if envelope.kind == "failed":
            raise ConnectionLost("the stream broke")
        send(self, envelope)

    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(Server, "send", broken)
    assert site(b"no broadcast", (1, 2)) == ["metrics"]
    monkeypatch.setattr(Server, "send", send)
    assert "rows of other classes were told apart before" in site((3,))[1]


def test_another_run_is_another_one(site):
    assert site((1, 2)) == ["metrics"]
    assert site((3,), new_run=True) == ["metrics"]
    assert site((3,), finished=True) == ["metrics"]
    assert site((4,)) == ["metrics"]


def test_what_it_was_asked_is_not_forgotten_before_it_has_joined(site, monkeypatch):
    def refuse(self, *join) -> None:
        raise GGEURError("client 1 has joined already")

    assert site((1, 2)) == ["metrics"]
    with monkeypatch.context() as patched:
        patched.setattr(Server, "join", refuse)
        assert site((3,), new_run=True) == ["client 1 has joined already"]
    assert "rows of other classes were told apart before" in site((3,))[1]


def test_a_second_process_of_a_site_is_refused(site, monkeypatch):
    said = []
    receive = Server.receive

    def while_another_one_starts(self) -> Envelope:
        monkeypatch.setattr(Server, "receive", receive)
        said.extend(site((3,), new_run=True))
        return receive(self)

    monkeypatch.setattr(Server, "receive", while_another_one_starts)
    assert site((1, 2)) == ["metrics"]
    assert "another process of client 1 is at work" in said[0]
    assert "rows of other classes were told apart before" in site((3,))[1]


@pytest.mark.parametrize("data", [b"", b"rubbish", b"0" * 99])
def test_a_broken_file_of_what_it_was_asked_is_named(data, site, tmp_path):
    assert site((1, 2)) == ["metrics"]
    (kept,) = tmp_path.rglob("*.request")
    kept.write_bytes(data)
    (said,) = site((1, 2))
    assert kept.name in said
    assert "--new-run" in said
    assert site((3,), new_run=True) == ["metrics"]
