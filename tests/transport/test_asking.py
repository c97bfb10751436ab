"""A client asks before it joins: who is answered, and what a server must not do."""

from __future__ import annotations

import socket

import pytest

from federatedscope_ggeur.transport import (
    Refused,
    Security,
    TransportSettings,
    make_token,
)
from federatedscope_ggeur.transport.asking import ask_server, reach_problem

SECRET = "0123456789abcdef"


def settings(token: str = "") -> TransportSettings:
    return TransportSettings(2**20, security=Security(join_token=token))


def address(hub) -> str:
    return f"127.0.0.1:{hub.port}"


@pytest.fixture
def guarded(make_hub, tmp_path):
    """A hub with tokens, and what writes one into a file."""
    (tmp_path / "secret").write_text(SECRET)
    hub = make_hub(security=Security(join_secret=str(tmp_path / "secret")))
    hub.facts = lambda number, is_taken: f"{number} {is_taken}".encode()

    def token(number: int, secret: str = SECRET) -> str:
        path = tmp_path / f"token{number}"
        path.write_text(make_token(secret.encode(), number))
        return str(path)

    return hub, token


def test_who_asks_takes_no_place(hub, join):
    hub.facts = lambda number, is_taken: f"{number} {is_taken}".encode()
    for _ in range(3):
        assert ask_server(address(hub), 2, settings()) == b"2 False"
    assert hub.receive(0.2) is None
    assert hub.connected() == set()
    join(hub, 2)
    assert ask_server(address(hub), 2, settings()) == b"2 True"
    assert hub.connected() == {2}


def test_with_tokens_only_the_right_one_is_answered(guarded):
    hub, token = guarded
    asked = []
    hub.facts = lambda number, is_taken: asked.append(number) or b"known"
    for wrong in ("", token(3), token(2, "another secret!!")):
        with pytest.raises(Refused, match="client 2 sent"):
            ask_server(address(hub), 2, settings(wrong))
    assert asked == []
    assert ask_server(address(hub), 2, settings(token(2))) == b"known"


def test_the_standard_health_service_says_serving(guarded):
    grpc = pytest.importorskip("grpc")
    hub, _ = guarded
    with grpc.insecure_channel(address(hub)) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=5.0) == b"\x08\x01"  # the status SERVING
        hub.close(grace=1.0)
        with pytest.raises(grpc.RpcError):
            check(b"", timeout=1.0)


def test_a_closed_port_and_an_unknown_host_are_told_apart():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "nothing listens there" in reach_problem(f"127.0.0.1:{port}")
    assert "no such host" in reach_problem("no-such-host.invalid:1")
