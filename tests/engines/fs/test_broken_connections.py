"""A network that is gone for seconds costs time, not the run."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time

import pytest
from processes import check_same_head

pytestmark = pytest.mark.slow


class Cable:
    """A port on loopback that leads to another one, and can be pulled out."""

    def __init__(self, port: int):
        self._to, self._ends, self._is_in = port, [], True
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def pull_out(self) -> None:
        """End all connections; new ones are closed at once."""
        self._is_in = False
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def plug_in(self) -> None:
        self._is_in = True

    def close(self) -> None:
        self.pull_out()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if not self._is_in:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._to))
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    pump = threading.Thread(target=_pump, args=(one, other))
                    pump.daemon = True
                    pump.start()


def _pump(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    for end in (one, other):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def run(fleet):
    """Start a server and clients 1 to 4, client 3 behind a cable."""
    cables = []

    def start(*settings, actions=()):
        one = fleet("ggeur.deadline.return", 60, *settings)
        server = one.server()
        server.wait_for("listening on")
        cables.append(Cable(one.port))
        clients = {k: one.client(k) for k in (1, 2, 4)}
        behind = ["distribute.server_port", cables[0].port]
        clients[3] = one.client(3, *behind, actions=dict(actions))
        return server, clients, cables[0]

    yield start
    for cable in cables:
        cable.close()


@pytest.mark.parametrize(
    ("occasion", "method"), [("train 2", "scaffold"), ("evaluate 2", "fedavg")]
)
def test_a_cut_of_seconds_changes_nothing(run, embedded, occasion, method):
    """No quorum is set: all clients are needed. What the client did is not done twice,
    also where it keeps a state."""
    settings = ("ggeur.base_method", method)
    server, clients, cable = run(*settings, actions={occasion: "hold"})
    clients[3].wait_for(f"asked {occasion}", "trace")
    cable.pull_out()
    server.wait_for("waiting 60 s for client 3 to come back")
    clients[3].open_gate()
    time.sleep(5)
    cable.plug_in()
    check_same_head(server, list(clients.values()), embedded(*settings))


def test_a_stop_of_half_a_minute_is_no_loss(run, embedded):
    server, clients, _ = run(actions={"train 2": "hold"})
    clients[3].wait_for("asked train 2", "trace")
    os.kill(clients[3].pid, signal.SIGSTOP)
    time.sleep(30)
    os.kill(clients[3].pid, signal.SIGCONT)
    clients[3].open_gate()
    check_same_head(server, list(clients.values()), embedded())
    assert "is gone" not in server.output
