"""The program of the fork server: imports everything once, then forks workers.

It reads requests from its standard input, a JSON object each line, and answers each
with a line on its standard output.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import sys
import traceback

from forks import end
from processes import OUTPUT


def main() -> None:
    """Read requests, a line each: fork a worker, or say how one ended."""
    requests, replies = sys.stdin, os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import_everything()
    running = set()
    for line in requests:
        request = json.loads(line)
        if "pid" in request:
            answer = _status(request["pid"])
            running -= {request["pid"]} if answer is not None else set()
        else:
            answer = os.fork()
            if not answer:
                end(_work_or_trace(**request))
            running.add(answer)
        print(json.dumps(answer), file=replies, flush=True)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _work_or_trace(**request) -> int:
    try:
        return work(**request)
    except BaseException:
        traceback.print_exc()
        return 1


def _status(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def import_everything() -> None:
    """All that a worker imports; nothing of gRPC is made, which no fork survives."""
    from federatedscope_ggeur.engines.fs import register
    from federatedscope_ggeur.engines.fs.install import find, importable_package

    package = find()
    if importable_package() is None:
        sys.path.insert(0, str(package.parent))
    register()
    runpy.run_path(str(package / "main.py"))
    import grpc  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import torch

    import federatedscope_ggeur.cli  # noqa: F401
    from federatedscope_ggeur.reporting import plots

    # Nobody looks at pictures of these runs.
    plots.draw_curve = lambda results, path: path.touch()

    # The first optimiser of a process imports a third of torch.
    torch.optim.SGD([torch.zeros(1)], lr=0.1)
    gc.freeze()


def work(folder: str, words: list[str], place: str) -> int:
    """Be a worker: run the command in its `folder`, or in the `place` that is named;
    the exit status."""
    os.chdir(folder)
    sys.argv = ["ggeur", *words]
    output = os.open(OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(place or folder)
    from federatedscope_ggeur.cli import main as command

    return command(words)


if __name__ == "__main__":
    main()
    end(0)
