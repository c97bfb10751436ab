"""One server and all clients of a config on this machine, each its own process.

    python scripts/run_distributed.py --cfg FILE [--port P] [KEY VALUE ...]

For trying a distributed run out before it goes to several machines: every process gets
the same file and KEY VALUE pairs, and its own role, number and run folder
(``<outdir>/<expname>_server``, ``<outdir>/<expname>_client_1``, ...). The server's
output is shown; what the clients say stands in their folders' exp_print.log. The exit
status is the server's. Needs FederatedScope (docs/federatedscope.md).
"""

from __future__ import annotations

import argparse
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import yaml


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cfg", required=True, metavar="FILE")
    parser.add_argument("--port", type=int, help="of the server; default: any free one")
    parser.add_argument("settings", nargs=argparse.REMAINDER, metavar="KEY VALUE")
    options = parser.parse_args()
    try:
        client_num, expname = read(options.cfg, options.settings)
    except (OSError, ValueError, yaml.YAMLError) as error:
        parser.error(f"{options.cfg}: {error}")
    port = options.port or free_port()
    shared = [
        *options.settings,
        "federate.mode", "distributed",
        "distribute.use", "True",
        "distribute.server_host", "127.0.0.1",
        "distribute.server_port", str(port),
    ]  # fmt: skip
    start = [
        sys.executable, "-m", "federatedscope_ggeur", "--engine", "federatedscope",
        "--cfg", options.cfg, *shared,
    ]  # fmt: skip
    roles = {"server": ["distribute.role", "server", "distribute.data_idx", "0"]}
    for number in range(1, client_num + 1):
        roles[f"client_{number}"] = [
            "distribute.role", "client", "distribute.data_idx", str(number),
        ]  # fmt: skip
    processes: dict[str, subprocess.Popen] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name, role in roles.items():
                command = [*start, *role, "expname", f"{expname}_{name}"]
                output = None
                if name != "server":
                    output = open(Path(folder, name), "wb")  # noqa: SIM115
                # In a session of its own: Ctrl-C reaches it through `stop`, once.
                processes[name] = subprocess.Popen(
                    command, stdout=output, stderr=output, start_new_session=True
                )
            return wait_for(processes, Path(folder))
        except KeyboardInterrupt:
            return 130
        finally:
            stop(processes.values())


def read(cfg: str, settings: list[str]) -> tuple[int, str]:
    """The number of clients and the run's name; ValueError where they are not said."""
    if len(settings) % 2:
        raise ValueError(f"behind it, {settings[-1]!r} has no value")
    content = yaml.safe_load(Path(cfg).read_text(encoding="utf-8"))
    content = content if isinstance(content, dict) else {}
    given = dict(zip(settings[::2], settings[1::2]))
    named = (content.get("federate") or {}).get("client_num")
    client_num = given.get("federate.client_num", named)
    if client_num is None:
        raise ValueError("federate.client_num is not set")
    return int(client_num), given.get("expname", content.get("expname") or "ggeur")


def wait_for(processes: dict[str, subprocess.Popen], outputs: Path) -> int:
    """The server's exit status; a client that ends badly is shown at once."""
    running = dict(processes)
    patience = 60.0  # s, for the clients without the server, or the server without them
    while running and patience > 0:
        for name, process in list(running.items()):
            status = process.poll()
            if status is None:
                continue
            del running[name]
            if status and name != "server":
                said = (outputs / name).read_text(errors="replace").splitlines()
                print(f"{name} ended with status {status}:", *said[-5:], sep="\n  ")
        time.sleep(0.1)
        if "server" not in running or list(running) == ["server"]:
            patience -= 0.1
    for name in running:
        print(f"{name} is still running; it is stopped now", flush=True)
    return 1 if "server" in running else processes["server"].returncode


def stop(processes: Iterable[subprocess.Popen]) -> None:
    """End what still runs; it has 15 s to write its files."""
    for process in processes:
        process.terminate()
    until = time.monotonic() + 15
    for process in processes:
        try:
            process.wait(max(0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):  # not every system has both
            signal.signal(getattr(signal, name), signal.default_int_handler)
    sys.exit(main())
