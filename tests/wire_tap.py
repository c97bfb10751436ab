"""A way to a server on which everything that goes there is kept."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable

Wrap = Callable[[socket.socket], socket.socket]


def as_it_is(one: socket.socket) -> socket.socket:
    return one


def recording(
    port: int, near: Wrap = as_it_is, far: Wrap = as_it_is
) -> tuple[int, bytearray]:
    """The port of the way to `port`, and what it has heard.

    `near` and `far` take TLS away on the side of the client and of the server.
    """
    heard, door = bytearray(), socket.create_server(("127.0.0.1", 0))

    def carry(source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        try:
            while data := source.recv(65536):
                kept += data
                target.sendall(data)
        except OSError:
            pass
        finally:
            target.close()

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
            for pair in ((*ends, heard), (*ends[::-1], bytearray())):
                threading.Thread(target=carry, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return door.getsockname()[1], heard
