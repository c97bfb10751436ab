"""Processes that do a study's jobs in parallel.

If a process is killed, only its current job is interrupted, and that job starts again.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Literal

from federatedscope_ggeur.machine import end_processes, start_method

if TYPE_CHECKING:
    from .jobs import Job

#: How many times a job may start again after its process was killed.
MOST_KILLS = 2
#: The variable that says which GPUs a process sees.
VISIBLE = "CUDA_VISIBLE_DEVICES"
_STOP_SECONDS = 30.0


@dataclass(frozen=True)
class JobEvent:
    """A change in the state of a job.

    Attributes
    ----------
    kind : {"rounds", "done", "failed", "killed"}
        "killed" means that the job's process was killed, and that the job will start
        again.
    job : Job
    done, total : int
        For "rounds", the number of finished rounds and of all rounds.
    score : float or None
        For "rounds", the last AVG; for "done", the AVG of the run.
    problem : str
        For "failed" and "killed", what went wrong.
    """

    kind: Literal["rounds", "done", "failed", "killed"]
    job: Job
    done: int = 0
    total: int = 0
    score: float | None = None
    problem: str = ""


class JobWorkers:
    """A few processes, each of which does one job at a time.

    Use it in a ``with`` block: all processes end with the block, whatever ends it. A
    process that is in a run writes a checkpoint before it ends.

    Parameters
    ----------
    count : int
        The number of processes.
    """

    def __init__(self, count: int):
        # Forking is safe only before torch is imported and while there is one thread.
        is_fresh = "torch" not in sys.modules and threading.active_count() == 1
        start = start_method() if is_fresh else "spawn"
        if start == "fork":
            import federatedscope_ggeur.extras.studies.jobs  # noqa: F401 (once, for all)
        self._all = [_Worker(start) for _ in range(count)]

    def resize(self, count: int) -> None:
        """Change the number of processes; call this before any job starts."""
        surplus, self._all = self._all[count:], self._all[:count]
        _end(surplus)
        self._all += [_Worker() for _ in range(count - len(self._all))]

    def share_gpus(self, gpus: Sequence[str]) -> None:
        """Have one process for each GPU, which sees this GPU alone.

        `gpus` are their names in ``CUDA_VISIBLE_DEVICES``. Call this before any job
        starts.
        """
        self.resize(len(gpus))
        for worker, gpu in zip(self._all, gpus):
            worker.gpu = gpu

    def __enter__(self) -> JobWorkers:
        return self

    def __exit__(self, *exception) -> None:
        _end(self._all)

    def do(self, jobs: Iterable[Job], tell: Callable[[JobEvent], object]) -> None:
        """Do all jobs, started in the given order, and call `tell` with every event."""
        ahead: list[Job] = list(jobs)
        kills: Counter[str] = Counter()
        happened: list[JobEvent] = []
        while ahead or any(worker.job for worker in self._all):
            # `tell` takes time, so all processes get their jobs first.
            self._give_out(ahead)
            for event in happened:
                tell(event)
            at_work = [worker for worker in self._all if worker.job]
            wait([one for w in at_work for one in (w.pipe, w.process.sentinel)])
            happened = [event for w in self._all for event in w.events()]
            for i, event in enumerate(happened):
                if event.kind == "killed":
                    kills[event.job.name] += 1
                    if kills[event.job.name] <= MOST_KILLS:
                        ahead.insert(0, event.job)
                    else:
                        happened[i] = replace(event, kind="failed")
        for event in happened:
            tell(event)

    def _give_out(self, ahead: list[Job]) -> None:
        """Give a job from `ahead` to each process that has none."""
        for i, worker in enumerate(self._all):
            if worker.job is None and ahead:
                if not worker.process.is_alive():
                    self._all[i] = _Worker(gpu=worker.gpu)
                self._all[i].start(ahead.pop(0))


class _Worker:
    """A worker process, as the process that gives out jobs sees it."""

    def __init__(self, start: str = "spawn", gpu: str | None = None):
        self.gpu = gpu
        context = multiprocessing.get_context(start)
        self.pipe, theirs = context.Pipe()
        # The stubs know `Process` only for contexts with a name.
        made = context.Process(target=work, args=(theirs,))  # type: ignore[attr-defined]
        self.process: BaseProcess = made
        self.process.start()
        theirs.close()
        self.job: Job | None = None

    def start(self, job: Job) -> None:
        self.job = job
        # If the process is dead, `events` will find that.
        with contextlib.suppress(OSError):
            self.pipe.send((job, self.gpu))

    def events(self) -> Iterator[JobEvent]:
        """Yield the events of the current job since the last call."""
        job, alive = self.job, self.process.is_alive()
        if job is None:
            return
        with contextlib.suppress(EOFError, OSError):
            while self.job is not None and self.pipe.poll():
                kind, *said = self.pipe.recv()
                if kind == "rounds":
                    yield JobEvent("rounds", job, *said)
                else:
                    self.job, (score, problem) = None, said
                    yield JobEvent(kind, job, score=score, problem=problem)
        if self.job is not None and not alive:
            self.job = None
            self.process.join()
            yield JobEvent("killed", job, problem=_ending(self.process.exitcode))


def _end(workers: Sequence[_Worker]) -> None:
    end_processes([worker.process for worker in workers], _STOP_SECONDS)
    for worker in workers:
        worker.pipe.close()


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        why = "; out of memory?" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{why}"
    return f"its process ended with status {code}"


def work(pipe: Connection) -> None:
    """The main loop of a worker process.

    It receives jobs from `pipe`, does them, and sends their progress and outcomes back.
    """
    with contextlib.suppress(KeyboardInterrupt, EOFError, OSError):
        # Ctrl-C reaches all processes of a terminal; the parent process ends this one.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        from federatedscope_ggeur.progress import no_progress

        from .jobs import Runner

        runner = Runner()
        with no_progress():
            while True:
                job, gpu = pipe.recv()
                if gpu is not None:  # torch looks for GPUs when a run first asks
                    os.environ[VISIBLE] = gpu
                pipe.send(_outcome(runner, job, pipe))


def _outcome(runner, job: Job, pipe: Connection) -> tuple[str, float | None, str]:
    """Do a job and return how it ended.

    Returns
    -------
    kind : {"done", "failed"}
        The kind of the event that ends the job.
    score : float or None
        The run's AVG.
    problem : str
        Why the job failed; else "".
    """
    from federatedscope_ggeur.cfg_ggeur.plugins import told_of
    from federatedscope_ggeur.errors import GGEURError

    try:
        score = runner.do(job, lambda *said: pipe.send(("rounds", *said)))
    except GGEURError as error:
        return "failed", None, str(error)
    except MemoryError:
        return "failed", None, "there is not enough memory"
    except Exception as error:
        told = told_of(error) or f"{type(error).__name__}: {error} (a bug; see log.txt)"
        return "failed", None, str(told)
    return "done", score, ""


def _end_with_parent() -> None:
    """End this process as soon as its parent process ends.

    Otherwise it could still write into folders in which a new study goes on.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
