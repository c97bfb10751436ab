"""Processes that are killed, stopped or simply end are noticed by the other side."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from federatedscope_ggeur.engines.sites.transport import (
    ConnectionLost,
    Envelope,
    Link,
    TransportSettings,
)

pytest.importorskip("grpc", reason="the transport needs grpcio")

PATIENCE = 300.0
SETTINGS = TransportSettings(2**20, join_deadline=PATIENCE)
CLIENT = """
import sys
from federatedscope_ggeur.engines.sites.transport import *
settings = TransportSettings(2**20, keepalive=0.5)
link = Link(sys.argv[1], 1, Envelope("join_in"), settings)
"""
HUB = """
from federatedscope_ggeur.engines.sites.transport import *
hub = Hub("127.0.0.1", 0, 2, TransportSettings(2**20))
print(hub.port, flush=True)
"""


@contextmanager
def process(program: str, *arguments: str):
    command = [sys.executable, "-c", program, *arguments]
    one = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield one
    finally:
        one.kill()
        one.wait(PATIENCE)
        one.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize("sign", ["SIGKILL", "SIGSTOP"])
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_client_that_vanishes_is_gone_and_may_come_back(make_hub, joined, sign):
    hub = make_hub(keepalive=0.5)
    program = CLIENT + "link.receive()"
    with process(program, f"127.0.0.1:{hub.port}") as client:
        assert hub.receive(PATIENCE).envelope.kind == "join_in"
        client.send_signal(getattr(signal, sign))
        gone = hub.receive(PATIENCE)
        assert (gone.number, gone.envelope) == (1, None)
        assert "broke off" in gone.reason
        joined(hub, 1)


def test_a_server_that_is_killed_is_noticed():
    with process(HUB + "hub.receive(); hub.receive()") as server:
        address = f"127.0.0.1:{server.stdout.readline().strip()}"
        with Link(address, 1, Envelope("join_in"), SETTINGS) as link:
            server.kill()
            with pytest.raises(ConnectionLost, match=address):
                link.receive(PATIENCE)
            with pytest.raises(ConnectionLost, match=address):
                link.send(Envelope("statistics"))


def test_a_client_need_not_close_its_link(make_hub):
    hub = make_hub()
    with process(CLIENT, f"127.0.0.1:{hub.port}") as client:
        assert client.wait(PATIENCE) == 0
        assert hub.receive(PATIENCE).envelope.kind == "join_in"
        assert hub.receive(PATIENCE).envelope is None


def test_a_server_need_not_close_its_hub():
    with process(HUB + "hub.receive(); hub.receive()") as server:
        address = f"127.0.0.1:{server.stdout.readline().strip()}"
        with Link(address, 1, Envelope("join_in"), SETTINGS) as link:
            link.send(Envelope("statistics"))
            assert server.wait(PATIENCE) == 0
            with pytest.raises(ConnectionLost):
                link.receive(PATIENCE)
