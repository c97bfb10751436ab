"""A program that opens calls to a hub, says nothing, and opens each again when it
ends: silent_streams.py <port> <calls>. Prints "open" once all have begun."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress

import grpc

METHOD = "/federatedscope_ggeur.Transport/Join"


def main(port: str, streams: str) -> None:
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    method = channel.stream_stream(METHOD)
    for _ in range(int(streams)):
        threading.Thread(target=keep_open, args=(method,), daemon=True).start()
    print("open", flush=True)
    sys.stdin.read()


def keep_open(method) -> None:
    while True:
        call = method(iter(threading.Event().wait, None))
        with suppress(grpc.RpcError):
            list(call)


if __name__ == "__main__":
    main(*sys.argv[1:])
