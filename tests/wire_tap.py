"""A way to a server on which everything that goes there is kept."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterable

Wrap = Callable[[socket.socket], socket.socket]


def as_it_is(one: socket.socket) -> socket.socket:
    return one


def _readable(ends: Iterable[socket.socket]) -> list[socket.socket]:
    """Those from which something can be read; waits for it."""
    held = [one for one in ends if isinstance(one, ssl.SSLSocket) and one.pending()]
    return held or select.select(list(ends), [], [])[0]


def recording(
    port: int, near: Wrap = as_it_is, far: Wrap = as_it_is
) -> tuple[int, bytearray]:
    """The port of the way to `port`, and what it has heard.

    `near` and `far` take TLS away on the side of the client and of the server.
    """
    heard, door = bytearray(), socket.create_server(("127.0.0.1", 0))

    def carry(client: socket.socket, server: socket.socket) -> None:
        # In one thread: two may not read and write one TLS connection at a time.
        others = {client: server, server: client}
        try:
            while True:
                for source in _readable(others):
                    source.settimeout(0.0)
                    try:
                        data = source.recv(65536)
                    except (BlockingIOError, ssl.SSLWantReadError):
                        continue  # what came was TLS's own
                    if not data:
                        return
                    if source is client:
                        heard.extend(data)
                    others[source].settimeout(None)
                    others[source].sendall(data)
        except OSError:
            pass
        finally:
            client.close()
            server.close()

    def accept() -> None:
        while True:
            try:
                one, _ = door.accept()
            except OSError:
                return
            try:
                ends = near(one), far(socket.create_connection(("127.0.0.1", port)))
            except (OSError, ssl.SSLError):
                one.close()
                continue
            threading.Thread(target=carry, args=ends, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return door.getsockname()[1], heard
