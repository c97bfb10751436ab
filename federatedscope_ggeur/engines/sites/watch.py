"""Reports the progress of a distributed run in the log and in a status file."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from federatedscope_ggeur.errors import ConfigError, listed
from federatedscope_ggeur.files import read_regular, write_atomically
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.progress import duration_text
from federatedscope_ggeur.reporting.lines import percent
from federatedscope_ggeur.reporting.run_files import METRICS_PROM, STATUS_FILE

if TYPE_CHECKING:  # `ggeur healthy` reads the file often, and needs no torch
    from federatedscope_ggeur.federation.course.history import History
    from federatedscope_ggeur.federation.course.membership import Membership
    from federatedscope_ggeur.reporting import RoundRecord

logger = get_logger(__name__)

#: Seconds between two lines about the same wait, and between two versions of the file.
PAUSE = 30.0
STATES = ("running", "finished", "interrupted", "failed")
#: What Prometheus is told, and what it means.
_METRICS = {
    "state": "1 for the present state of the process, 0 for the others.",
    "updated": "When this was written, in seconds since 1970.",
    "waiting": "Seconds for which the process has done or awaited the same.",
    "rounds": "Rounds of the run.",
    "rounds_done": "Rounds that are over.",
    "seconds_left": "Estimated seconds of all rounds to come.",
    "clients": "Clients that the server knows of.",
    "clients_here": "Clients with a connection.",
}
_LISTED = 8
_RECENT = 5  # rounds that the time left is judged by


class Watch:
    """Logs every half a minute what a process is doing, and writes two files.

    ``status.json`` is for people and monitors. ``status.prom`` has its numbers for
    Prometheus.

    Parameters
    ----------
    folder : path
        The run's folder. The file is written only while this folder exists.
    role : str
        The role of the process, such as "server".
    describe : callable () -> mapping
        Returns the content of the file beside `state` and times. Its ``"doing"`` is
        logged, with how long it has not changed. It is called in a separate thread.
    pause : float
        Seconds between two reports.

    Attributes
    ----------
    describe : callable
        It may be replaced while the process is running.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        role: str,
        describe: Callable[[], Mapping[str, Any]],
        pause: float = PAUSE,
    ):
        self._folder, self._role = Path(folder), role
        self.describe, self._pause = describe, pause
        self._began = self._since = time.time()
        self._doing = self._error = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def close(self, state: str, error: str = "") -> None:
        """End the reports; `state` is finished, interrupted or failed."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self._error = error
            self._write(state)

    def _run(self) -> None:
        self._write("running")
        while not self._ended.wait(self._pause):
            seconds = self._write("running")
            if self._doing and seconds >= self._pause:
                logger.info("%s, since %s", self._doing, duration_text(seconds))

    def _write(self, state: str) -> float:
        """Write the file; returns for how many seconds "doing" has not changed."""
        said: Mapping[str, Any] = {}
        with suppress(RuntimeError):  # a dict that the run changes while it is read
            said = self.describe()
        now, doing = time.time(), str(said.get("doing", self._doing))
        if doing != self._doing:
            self._doing, self._since = doing, now
        content = {
            "role": self._role,
            "state": state,
            "pid": os.getpid(),
            "began": _when(self._began),
            "updated": _when(now),
            "seconds": round(now - self._since, 1),
            **said,
        }
        if state != "running":
            content["doing"] = ""
        if self._error:
            content["error"] = self._error
        if self._folder.is_dir():
            texts = {
                STATUS_FILE: json.dumps(content, indent=2) + "\n",
                METRICS_PROM: metrics_text(content, self._folder, now),
            }
            try:
                for name, text in texts.items():
                    write_atomically(self._folder / name, text)
            except ConfigError as error:  # a full disk must not end the run
                if state == "running":
                    logger.warning("%s", error)
                else:
                    for name, text in texts.items():
                        _write_over(self._folder / name, text)
        return now - self._since


def _write_over(path: Path, text: str) -> None:
    """Write over a file, on a full disk: its own place is there already."""
    try:
        with path.open("r+b") as file:
            file.write(text.encode())
            file.truncate()
    except OSError as error:
        logger.warning("cannot write '%s': %s", path, error)


def metrics_text(content: Mapping[str, Any], folder: Path, updated: float) -> str:
    """The content of ``status.json`` in the text format of Prometheus.

    Parameters
    ----------
    content : mapping
    folder : Path
        The run's folder, which is a label of each line.
    updated : float
        Seconds since 1970.
    """
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    place, role = str(folder.absolute()), str(content["role"])
    own = f'folder="{place.translate(escapes)}",role="{role.translate(escapes)}"'
    facts = {**content, "updated": updated, "waiting": content["seconds"]}
    clients = content.get("clients")
    if clients is not None:
        facts["clients"] = len(clients)
        facts["clients_here"] = sum(how == "here" for how in clients.values())
    lines = []
    for name, meaning in _METRICS.items():
        values = {own: facts.get(name)}
        if name == "state":
            values = {f'{own},state="{s}"': int(s == facts[name]) for s in STATES}
        said = [f"ggeur_{name}{{{k}}} {v}" for k, v in values.items() if v is not None]
        if said:
            about = f"# HELP ggeur_{name} {meaning}\n# TYPE ggeur_{name} gauge"
            lines += [about, *said]
    return "\n".join(lines) + "\n"


def read_status(folder: str | os.PathLike) -> dict[str, Any]:
    """Read the ``status.json`` in a folder; empty if there is none."""
    try:
        return dict(json.loads(read_regular(Path(folder, STATUS_FILE))))
    except (OSError, ValueError, TypeError):
        return {}


def is_fresh(folder: str | os.PathLike) -> bool:
    """Whether a run in this folder is still running, by its ``status.json``."""
    try:
        age = time.time() - Path(folder, STATUS_FILE).stat().st_mtime
    except OSError:
        return False
    return read_status(folder).get("state") == "running" and age < 3 * PAUSE


def waits_for(what: str, missing: Sequence[int], of: int) -> str:
    """A text that names the clients for which a process waits; "" without any."""
    if not missing:
        return ""
    some = listed([str(number) for number in missing], _LISTED)
    return f"waiting for {what} of {len(missing)} of {of} clients: {some}"


def seconds_left(rounds: Sequence[RoundRecord], total: int) -> float:
    """The estimated seconds of all rounds to come, from the last rounds."""
    recent = [record.seconds for record in rounds[-_RECENT:]]
    left = max(0, total - len(rounds))
    return left * sum(recent) / len(recent) if recent else 0.0


def round_line(rounds: Sequence[RoundRecord], total: int) -> str:
    """A line of text about the round that has just finished."""
    last = rounds[-1]
    score = "" if last.avg is None else f", AVG {percent(last.avg)}%"
    left = seconds_left(rounds, total)
    more = f"; about {duration_text(left)} left" if left else ""
    return (
        f"round {last.round} of {total} is over, {duration_text(last.seconds)}"
        f"{score}{more}"
    )


def _when(seconds: float) -> str:
    when = datetime.fromtimestamp(seconds, timezone.utc)
    return when.isoformat(timespec="seconds")


@contextmanager
def closing(watch: Watch) -> Iterator[Watch]:
    """A context that closes `watch` at its end with the right state."""
    try:
        yield watch
    except KeyboardInterrupt:
        watch.close("interrupted")
        raise
    except BaseException as error:
        watch.close("failed", str(error))
        raise
    watch.close("finished")


def server_status(members: Membership, driver, history: History | None) -> dict:
    """The content of a server's status file.

    It comes from the members, from the `Driver` and, once the course has begun, from
    the history.
    """
    clients = members.standing()
    status: dict[str, Any] = {"doing": "", "clients": clients}
    if not members.started:
        missing = [int(k) for k, how in clients.items() if how != "here"]
        status["doing"] = waits_for("the joining", missing, len(clients))
    elif driver.waiting is not None:
        name, number, missing = driver.waiting
        what = f"{name.replace('_', ' ')} (round {number})"
        status["doing"] = waits_for(what, missing, len(clients))
    if history is not None:
        total = history.total
        left = seconds_left(history.rounds, total)
        done = {"rounds": total, "rounds_done": len(history.rounds)}
        status.update(**done, seconds_left=round(left, 1))
    return status
