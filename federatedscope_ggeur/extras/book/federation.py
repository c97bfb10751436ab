"""A federation with a book: clients join, leave and are forgotten."""

from __future__ import annotations

import copy
import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, timezone
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from federatedscope_ggeur.data import Expected, Given
from federatedscope_ggeur.data.labels import checked_names
from federatedscope_ggeur.data.rows import NOT_KNOWN
from federatedscope_ggeur.errors import ConfigError, DataError, StatisticsError, listed
from federatedscope_ggeur.federation.exchanges.closed_form.keys import ClosedFormKeys
from federatedscope_ggeur.federation.exchanges.statistics.keys import StatisticsKeys
from federatedscope_ggeur.files import write_folder
from federatedscope_ggeur.machine import torch_threads
from federatedscope_ggeur.models import (
    CLOSED_FORMS,
    ClosedForm,
    build_closed_form,
    head_bytes,
)
from federatedscope_ggeur.models.closed_forms import Solved
from federatedscope_ggeur.reporting import HEAD_FILE, RESULTS_FILE, Results

from .chain import (
    SIGNATURE,
    BookEntry,
    ChainLink,
    canonical,
    check_chain,
    check_signed,
    entry_name,
    new_key,
    present,
    public_of,
    signed,
)
from .folder import JOURNAL, STAGED, Folder, RunPlaces
from .grid import USUAL_EXPONENT, Grid, GridStatistics

_FORMAT = 2
_BOOK, _CHAIN, _KEY = "book.json", "chain.json", "key"
#: Notes on each change that forgets rows.
FORGOTTEN = "the rows are forgotten in this book"
SUBTRACTED = (
    "these rows were subtracted from the client's statistics. Sums cannot show whether "
    "they held these rows, so the book cannot check it: name only rows that the client "
    "has sent"
)
NOT_RECALLED = (
    "copies of earlier heads elsewhere cannot be recalled, such as those that `ggeur "
    "head` wrote and those at the clients, and a disk or a backup may keep deleted "
    "blocks"
)
NOT_CALIBRATED = "the head is not calibrated, because no client was asked to score it"
#: Changes that remove earlier heads, too.
_ERASING = ("forget", "withdraw")
_MEANWHILE = "a client was forgotten or has withdrawn rows while the run went on"
_AGAIN = "run it again with those who are left"


@dataclass(frozen=True)
class Change:
    """A change of the book, and the run folder that it wrote.

    Attributes
    ----------
    link : ChainLink
    folder : str
        The run folder with the new head and its results; "" if no client is left.
    said : tuple of str
        Notes for the user.
    """

    link: ChainLink
    folder: str
    said: tuple[str, ...]


class Federation:
    """A book's clients, and the heads of any set of them.

    `create` makes a book and `load` opens one. Each change goes to the folder at once;
    a killed process leaves either the old state or the new one.

    Attributes
    ----------
    clients : list of int
        The clients in the book now, ascending.
    domains : dict from int to str
        The domain of each client.
    class_names : list of str
    links : list of ChainLink
        All changes so far.

    Notes
    -----
    The head depends only on sums of whole numbers over the clients in the book. So it
    equals, to the bit, the head of a federation that never had the other clients.
    """

    def __init__(self, folder: str | os.PathLike):
        self._folder = Folder(folder)
        self._folder.reading(self._read)

    @classmethod
    def load(cls, folder: str | os.PathLike) -> Federation:
        """Open the book in `folder`; nothing is written.

        Raises
        ------
        ConfigError
            There is no book in the folder, or a change of it was interrupted.
        DataError
            A file of the book is damaged, or somebody rewrote the chain.
        """
        if not Folder(folder).path.is_dir():
            raise ConfigError(f"'{os.fspath(folder)}' holds no book")
        return cls(folder)

    @classmethod
    def finish(cls, folder: str | os.PathLike) -> tuple[Federation, list[str]]:
        """Open the book in `folder` after finishing an interrupted change.

        Returns
        -------
        Federation
        list of str
            What was done, a line each.

        Raises
        ------
        ConfigError, DataError
            As `load`; or the change names files outside the folder.
        """
        if not Folder(folder).path.is_dir():
            raise ConfigError(f"'{os.fspath(folder)}' holds no book")
        said: list[str] = []

        def clear() -> None:
            book = cls.__new__(cls)
            book._folder = Folder(folder)
            book._read()
            said.extend(book._clear())

        if Folder(folder).finish(clear):
            return cls(folder), ["the interrupted change is finished", *said]
        return cls(folder), ["no change was interrupted"]

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike,
        class_names: Sequence[str],
        dim: int,
        config: Mapping[str, Any],
        *,
        exponents: Sequence[int] = (),
        min_samples: int | None = None,
        encoder: str = "arrays",
        given: Given = NOT_KNOWN,
        joining: Iterable[tuple[int, str, GridStatistics]] = (),
        run: RunPlaces | None = None,
    ) -> Federation:
        """Begin a book in a new or empty folder.

        Parameters
        ----------
        folder : path
        class_names : sequence of str
        dim : int
            The dimension of the embeddings.
        config : mapping
            The settings of the run, as nested dicts; ``config["ggeur"]["closed_form"]``
            names the head: ``lda``, ``ridge`` or ``ncm``.
        exponents : sequence of int
            The exponents of the public grid (see `Grid`); by default -32 for each
            dimension.
        min_samples : int, optional
            The min-count threshold: of each class, a client has no rows in the book, or
            at least this many. By default the threshold in `config`, or 5.
        encoder : str
        given : Given
            How the rows are given, and the transform that all rows pass: a label is the
            name of its class, or a position in `class_names`. By default both are
            tried.
        joining : iterable of (client number, domain, GridStatistics)
            The clients that are in the book from the start.
        run : RunPlaces, optional
            Where the run that begins the book writes. Forgetting deletes there.

        Raises
        ------
        ConfigError
            The folder is not empty, or a book cannot make this kind of head. Or
            `min_samples` is not the threshold in `config`.
        """
        held, own = Folder(folder), config["ggeur"]
        _check_form(own["closed_form"])
        written = own.get("privacy", {}).get("min_samples", min_samples)
        if min_samples not in (None, written):
            raise ConfigError(
                f"min_samples: is {min_samples}, but ggeur.privacy.min_samples in "
                f"config is {written}; change one of the two"
            )
        least = StatisticsKeys.min_samples if written is None else int(written)
        about = {
            "format": _FORMAT,
            "exponents": list(exponents) or [USUAL_EXPONENT] * dim,
            "class_names": list(checked_names(class_names, "class_names")),
            "min_samples": least,
            "encoder": encoder,
            "given": replace(given, dim=given.dim or dim).plain(),
            "config": dict(config),
            # Books without this entry are older: their heads have no temperature.
            "temperature": own.get("temperature", ClosedFormKeys.temperature),
            "runs": [],
        }
        key = new_key()
        with held.opened():
            check_empty(held.path)
            made = cls.__new__(cls)
            made._folder, made._about, made._key = held, about, key
            made.links, made._entries = [], {}
            entries, made.links = made._first(joining)
            files = {entry.name: entry.to_bytes() for entry in entries}
            if run is not None:
                about = made._with_run(run, made.links[-1])
            held.change({**files, _KEY: key, **made._state(made.links, about)})
            made._read()
        return made

    @classmethod
    def of_run(cls, folder: str | os.PathLike, run: RunPlaces) -> Federation | None:
        """The book that a run has begun; None if it has not come so far.

        A beginning that was interrupted is finished.

        Raises
        ------
        ConfigError
            The folder has other files.
        """
        path = Path(folder)
        names = set(os.listdir(path)) if path.is_dir() else set()
        if not {JOURNAL, _BOOK} & names:
            if any(not name.startswith(".") for name in names - {STAGED}):
                check_empty(path)
            return None
        book = cls.finish(path)[0] if JOURNAL in names else cls.load(path)
        if run not in book._places():
            check_empty(path)
        return book

    def _first(self, joining: Iterable) -> tuple[list[BookEntry], list[ChainLink]]:
        """The entries and links of a new book."""
        now, start = _now(), public_of(self._key)
        links = [ChainLink(0, "begin", None, now, (), "", start)]
        entries = []
        for client, domain, statistics in joining:
            self._check_joining(client, statistics)
            entry = BookEntry(len(links), client, domain, now, statistics)
            before = links[-1].hash
            links.append(
                ChainLink(len(links), "join", client, now, (), entry.commitment, before)
            )
            entries.append(entry)
        return entries, links

    # who is there

    @property
    def path(self) -> Path:
        """The folder of the book."""
        return self._folder.path

    @property
    def clients(self) -> list[int]:
        return sorted({entry.client for entry in self._entries.values()})

    @property
    def domains(self) -> dict[int, str]:
        return {entry.client: entry.domain for entry in self._entries.values()}

    @property
    def class_names(self) -> list[str]:
        return list(self._about["class_names"])

    @property
    def expected(self) -> Expected:
        """What the book's head expects of rows."""
        given = Given.of_plain(self._about.get("given", {}))
        names, encoder = tuple(self.class_names), self._about["encoder"]
        return Expected(names, encoder, given)

    @property
    def grid(self) -> Grid:
        return Grid(tuple(self._about["exponents"]))

    @property
    def min_samples(self) -> int:
        """The min-count threshold for each client and class."""
        return self._about["min_samples"]

    @property
    def config(self) -> dict[str, Any]:
        """The settings from `create`."""
        return self._about["config"]

    @property
    def num_threads(self) -> int:
        """The number of torch threads in the run that began the book."""
        return int(self.config["ggeur"].get("num_threads", 1))

    @property
    def form(self) -> ClosedForm:
        """The head's kind and strength."""
        settings = self.config["ggeur"]
        return build_closed_form(settings["closed_form"], settings)

    # heads

    def total(self, clients: Iterable[int] | None = None) -> GridStatistics:
        """Merged statistics of all clients, or of `clients`.

        Raises
        ------
        ConfigError
            A client is not in the book.
        """
        return self._sum_of(self._part(clients))

    def _part(self, clients: Iterable[int] | None) -> dict[int, BookEntry]:
        """The entries of all clients, or of `clients`."""
        numbers = set(self.clients if clients is None else clients)
        if absent := sorted(numbers - set(self.clients)):
            what = listed([f"client {k}" for k in absent], 5)
            raise ConfigError(f"not in the book: {what}; its clients: {self.clients}")
        return {n: e for n, e in self._entries.items() if e.client in numbers}

    def head(self, clients: Iterable[int] | None = None) -> Solved:
        """The head of all clients, or of `clients`, with a temperature by totals.

        Heads of the kind ``ncm`` have none, nor have those of books that were begun
        without temperatures.

        Raises
        ------
        ConfigError, StatisticsError
            A client is not in the book, or the head cannot be computed.
        """
        # The number of threads changes the rounding of decompositions.
        with torch_threads(self.num_threads):
            form, statistics = self.form, self.total(clients).statistics()
            solved = form.solve(statistics)
            if self._about.get("temperature", "none") == "none":
                return solved
            temperature = form.temperature_of(solved, statistics)
        if temperature is None:
            return solved
        solved.model.cool(temperature)
        told = {"temperature": temperature, "temperature_by": "totals"}
        return replace(solved, report={**solved.report, **told})

    def rows(self, rows: Any, labels: Any = None, how: str = "") -> GridStatistics:
        """Grid statistics of rows, without classes of fewer rows than `min_samples`.

        Parameters
        ----------
        rows : `data.Rows` with labels, or anything that `data.Rows.of` reads
        labels : array of shape [n], if `rows` has none
            See `Expected.numbers`, also for `how`.

        Raises
        ------
        DataError
            The rows have a fault, or a label is of no class.
        """
        held = self.expected.labelled(rows, labels, how)
        return self.statistics_of(*held)

    def statistics_of(self, features: Tensor, codes: Tensor) -> GridStatistics:
        """As `rows`, of transformed rows with class numbers, from this book's run."""
        counts = torch.bincount(codes, minlength=len(self.class_names))
        kept = counts[codes] >= self.min_samples
        return self._grid_statistics(features[kept], codes[kept])

    def _grid_statistics(self, features: Tensor, codes: Tensor) -> GridStatistics:
        return GridStatistics.of_rows(features, codes, len(self.class_names), self.grid)

    def write_head(
        self, folder: str | os.PathLike, clients: Iterable[int] | None = None
    ) -> list[int]:
        """Write the head of some clients into a new folder; returns these clients.

        The book stays as it is, and does not know of this folder. So if it later
        forgets one of these clients, delete the folder.

        Raises
        ------
        ConfigError
            The folder exists already, or a client is not in the book.
        """
        path = Path(folder)
        if os.path.lexists(path):
            raise ConfigError(f"'{folder}' exists already; name a new folder")
        part = self._with_entries(self._part(clients))
        solved = part.head()
        files = part._run_files(solved, self.links[-1], _said_of(solved))
        try:
            write_folder(path, files)
        except OSError as error:
            raise ConfigError(
                f"cannot make the folder '{path}': {error.strerror}"
            ) from error
        return part.clients

    # changes

    def join(
        self,
        client: int,
        rows: Any,
        labels: Any = None,
        domain: str = "",
        how: str = "",
    ) -> Change:
        """Add rows of a client; see `rows`. Raises the errors of `rows` and `take`.

        The domain is by default that of the client, or "all".
        """
        domain = domain or self.domains.get(client, "all")
        return self.take(client, self.rows(rows, labels, how), domain)

    def take(self, client: int, statistics: GridStatistics, domain: str) -> Change:
        """Add statistics of a client.

        Raises
        ------
        ConfigError
            The number is below 1. Or the book has the same statistics already, or has
            the client with another domain.
        StatisticsError
            The statistics are on another grid, a class has too few rows, or no rows can
            have such statistics.
        """
        with self._changing():
            self._check_joining(client, statistics)
            if domain != self.domains.get(client, domain):
                raise ConfigError(
                    f"client {client} is of domain {self.domains[client]}, not {domain}"
                )
            return self._change("join", client, (statistics, domain, _now()))

    def leave(self, client: int) -> Change:
        """Remove a client. Heads made with it stay; `forget` deletes them, too."""
        with self._changing():
            return self._change("leave", client, gone=self._of(client))

    def forget(self, client: int) -> Change:
        """Remove a client and every head made with it, also after it has left."""
        with self._changing():
            ever = self._ever(client)
            gone = [n for n in ever if n in self._entries]
            return self._change("forget", client, gone=gone, erased=ever)

    def withdraw(
        self, client: int, rows: Any, labels: Any = None, how: str = ""
    ) -> Change:
        """Remove rows of a client, as if it had never sent them; see `rows`.

        It raises the errors of `rows` and `give_back`.
        """
        held = self.expected.labelled(rows, labels, how)
        return self.give_back(client, self._grid_statistics(*held))

    def give_back(self, client: int, rows: GridStatistics) -> Change:
        """Subtract the statistics `rows` from those of a client.

        Sums cannot show whether the client has sent just these rows.

        Raises
        ------
        ConfigError
            The change would remove or leave too few rows of a class. Then old and new
            statistics together would reveal single rows.
        StatisticsError
            The client cannot have had these rows.
        """
        with self._changing():
            gone = self._of(client)
            held = self._sum_of(gone)
            self._check_kind(client, rows)
            check_withdrawal(held, rows, self.min_samples, self.class_names)
            left, domain = held - rows, self.domains[client]
            for part in (left, rows):
                check_possible(part)
            since = min(self._entries[n].since for n in gone)
            new = (left, domain, since) if left.classes else None
            return self._change("withdraw", client, new, gone, erased=gone)

    def window(self, days: float) -> Change:
        """Remove entries added more than `days` days ago. Earlier heads stay."""
        with self._changing():
            first = _text_of(datetime.now(timezone.utc) - timedelta(days=days))
            gone = [n for n, entry in self._entries.items() if entry.since < first]
            return self._change("window", None, gone=gone)

    def add_classes(self, names: Sequence[str]) -> Change:
        """Add new classes, which have no rows yet.

        Raises
        ------
        ConfigError
            A name is empty, or the book has it already.
        """
        with self._changing():
            known = [*self.class_names, *names]
            if not names or "" in names or len(set(known)) < len(known):
                raise ConfigError(
                    "give each new class a name that is not empty and not in the book"
                )
            return self._change("classes", None, class_names=known)

    def note_run(self, run: RunPlaces) -> None:
        """Record where the run that began this book writes. Forgetting deletes there.

        Call `keep_run` once the files are written.

        Raises
        ------
        ConfigError
            One of the first clients was forgotten, or has withdrawn rows.
        """
        with self._changing():
            first = list(takewhile(self._is_of_the_start, self.links))
            whose, later = {link.who for link in first}, self.links[len(first) :]
            if any(n.kind in _ERASING and n.who in whose for n in later):
                run.clear()
                raise ConfigError(f"{_MEANWHILE}, so it leaves no files; {_AGAIN}")
            self._note(run, first[-1])

    def begin_run(self, run: RunPlaces) -> None:
        """Record where a run writes that begins with the clients of this object.

        Call `keep_run` once the files are written.

        Raises
        ------
        ConfigError
            The book has changed since this object read it.
        """
        end = self.links[-1]
        with self._changing():
            if self.links[-1] != end:
                raise ConfigError("another process has changed the book; begin again")
            self._note(run, end)

    def keep_run(self, run: RunPlaces) -> None:
        """Check that all clients of a recorded run may stay in the files it has left.

        Raises
        ------
        ConfigError
            One was forgotten or has withdrawn rows meanwhile. The files are removed.
        """
        with self._changing():
            if run not in self._places():
                run.clear()
                raise ConfigError(f"{_MEANWHILE}, so its files were removed; {_AGAIN}")

    def run_in(self, folder: str | os.PathLike) -> RunPlaces | None:
        """Where a recorded run writes whose folder is `folder`; None without one."""
        path = RunPlaces.of(folder).path
        return next((run for run in self._places() if run.path == path), None)

    def rename_run(self, run: RunPlaces, path: str | os.PathLike) -> None:
        """Rename the folder of a recorded run to `path`.

        Wherever the process is interrupted, forgetting finds the files.

        Raises
        ------
        ConfigError
            As `keep_run`; or the folder cannot be renamed.
        """
        self.keep_run(run)
        new = RunPlaces.of(path, run.saved)
        with self._changing():
            (known,) = (r for r in self._about["runs"] if RunPlaces.of_plain(r) == run)
            run.mark(self._mark, name_to_be=os.path.basename(new.path))
            others = [r for r in self._about["runs"] if r != known]
            renamed = {**known, **asdict(new)}
            for runs in ([*others, known, renamed], [*others, renamed]):
                about = {**self._about, "runs": runs}
                self._folder.change(self._state(self.links, about))
                self._about = about
                if known in runs:
                    os.rename(run.path, new.path)

    # what is proven

    def receipt(self, client: int) -> dict[str, Any]:
        """A client's receipt: the last link of the chain, signed.

        Raises
        ------
        ConfigError
            The client was never in the book.
        """
        self._ever(client)
        return self._receipt(client, self.links[-1])

    def first_receipts(self) -> dict[int, dict[str, Any]]:
        """The receipts of the clients with which the book began."""
        first = list(takewhile(self._is_of_the_start, self.links))
        return {n.who: self._receipt(n.who, first[-1]) for n in first if n.who}

    def _receipt(self, client: int, end: ChainLink) -> dict[str, Any]:
        known = {"book": self.links[0].hash, "client": client, "link": end.number}
        return signed({"kind": "receipt", **known, "hash": end.hash}, self._key)

    def certificate(self) -> dict[str, Any]:
        """The signed chain, and the hash of the head of all clients in the book."""
        known = {
            "kind": "certificate",
            "links": [asdict(link) for link in self.links],
            "head_sha256": self._sha256(self._head_file(self.head())),
            "versions": Results.begun(**self._results_known()).versions,
        }
        return signed(known, self._key)

    def check_certificate(self, certificate: Mapping[str, Any]) -> None:
        """Compute the head again and compare it with the certificate's.

        Raises
        ------
        DataError
            The certificate belongs to another book, another state of this book, or
            another head.
        """
        if certificate["public_key"] != public_of(self._key):
            raise DataError("the certificate belongs to another book")
        if certificate["links"] != json.loads(
            json.dumps(list(map(asdict, self.links)))
        ):
            raise DataError("the book has changed since the certificate was made")
        if certificate["head_sha256"] != self._sha256(self._head_file(self.head())):
            raise DataError(
                "the certificate's head was not made from the entries in the book"
            )

    # within

    def _read(self) -> None:
        names = {name: self._folder.read(name) for name in (_BOOK, _CHAIN, _KEY)}
        where = self._folder.path
        try:
            about, chain = json.loads(names[_BOOK]), json.loads(names[_CHAIN])
            if about["format"] != _FORMAT:
                raise ValueError(
                    f"its format is {about['format']!r:.20}, and this release opens "
                    f"{_FORMAT}; use the release that wrote it, or begin a new book"
                )
            public = public_of(names[_KEY])
            for what, value in (("the chain", chain), (_BOOK, about)):
                check_signed(value, f"{what} of '{where}'")
                if value["public_key"] != public:
                    raise DataError(f"{what} of '{where}' was signed by another key")
            about = {k: v for k, v in about.items() if k not in SIGNATURE}
            _check_about(about)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"the book '{where}' cannot be read: {error}") from error
        self._about, self._key = about, names[_KEY]
        self.links: list[ChainLink] = check_chain(chain["links"], public)
        before = getattr(self, "_entries", {})
        here = present(self.links)
        self._entries: dict[int, BookEntry] = {
            n: self._entry(n, link, before) for n, link in here.items()
        }

    def _entry(
        self, number: int, link: ChainLink, known: Mapping[int, BookEntry]
    ) -> BookEntry:
        size = len(self.class_names)
        if number in known:
            return known[number].padded(size)
        name = entry_name(number)
        entry = BookEntry.of_bytes(self._folder.read(name), size, self.grid, name)
        if entry.commitment != link.commitment or entry.client != link.who:
            raise DataError(f"'{name}' is not the entry that the chain names")
        return entry

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._folder.opened():
            self._read()  # another process may have changed it
            self._about.pop("doomed", None)  # of the last change, which is over
            yield

    def _note(self, run: RunPlaces, link: ChainLink) -> None:
        """Record where a run writes that was made with the entries at `link`."""
        about = self._with_run(run, link)
        self._folder.change(self._state(self.links, about))
        self._about = about

    def _with_run(self, run: RunPlaces, link: ChainLink) -> dict[str, Any]:
        """What is known of the book, with a run, which is marked."""
        run.mark(self._mark)
        known = [r for r in self._about["runs"] if RunPlaces.of_plain(r) != run]
        runs = [*known, {**asdict(run), "link": link.number}]
        return {**self._about, "runs": runs}

    def _places(self) -> list[RunPlaces]:
        return [RunPlaces.of_plain(run) for run in self._about["runs"]]

    def _mark(self, name: str) -> bytes:
        """The mark of a run's folder or file called `name`."""
        about = canonical(["run", self.links[0].hash, name])
        return hmac.new(self._key, about, "sha256").hexdigest().encode()

    def _clear(self) -> list[str]:
        """Delete what runs have written that the last change forgets.

        It returns a line for what stays.
        """
        said = []
        doomed = [RunPlaces.of_plain(run) for run in self._about.get("doomed", [])]
        for run in doomed:
            if run.is_marked(self._mark):
                # The folder of a later run may lie in that of the first.
                left = [p for p in run.clear() if p not in {d.path for d in doomed}]
                said += [f"left alone: {path}" for path in left]
            elif run.exists:
                said.append(
                    f"left alone, since it has no mark of this book: {run}; delete "
                    "there what the run has written"
                )
        return said

    def _is_of_the_start(self, link: ChainLink) -> bool:
        """Whether `create` made the link."""
        return link.kind in ("begin", "join") and link.when == self.links[0].when

    def _of(self, client: int) -> list[int]:
        """The numbers of a client's entries."""
        own = [n for n, entry in self._entries.items() if entry.client == client]
        if not own:
            raise ConfigError(
                f"client {client} is not in the book; its clients: {self.clients}"
            )
        return own

    def _ever(self, client: int) -> list[int]:
        """The numbers of all entries that a client has had."""
        ever = [n.number for n in self.links if n.who == client and n.commitment]
        if not ever:
            raise ConfigError(f"client {client} was never in the book")
        return ever

    def _sum_of(self, numbers: Iterable[int]) -> GridStatistics:
        none = GridStatistics.empty(len(self.class_names), self.grid)
        return sum((self._entries[n].statistics for n in numbers), none)

    def _check_kind(self, client: int, statistics: GridStatistics) -> None:
        if statistics.grid != self.grid or statistics.num_classes != len(
            self.class_names
        ):
            raise StatisticsError(
                f"client {client}: the grid or the classes of its statistics differ "
                "from the book's"
            )

    def _check_joining(self, client: int, statistics: GridStatistics) -> None:
        if client < 1:
            raise ConfigError(f"client {client}: clients have numbers from 1")
        self._check_kind(client, statistics)
        few = (statistics.counts > 0) & (statistics.counts < self.min_samples)
        if few.any() or not statistics.classes:
            raise StatisticsError(
                f"client {client}: no class with at least {self.min_samples} rows"
                if not statistics.classes
                else f"client {client}: fewer than {self.min_samples} rows of a class"
            )
        check_possible(statistics)
        if any(entry.statistics == statistics for entry in self._entries.values()):
            raise ConfigError(
                f"client {client}: the same statistics are in the book already"
            )

    def _change(
        self,
        kind: str,
        who: int | None,
        new: tuple[GridStatistics, str, str] | None = None,
        gone: Iterable[int] = (),
        erased: Sequence[int] = (),
        class_names: Sequence[str] | None = None,
    ) -> Change:
        """Write a change and the new head.

        `gone` and `erased` are numbers of links: the change removes the entries of
        `gone`, and deletes all heads made with an entry of `erased`.
        """
        number, gone = len(self.links), tuple(sorted(gone))
        entries = {n: e for n, e in self._entries.items() if n not in gone}
        about, files, commitment = dict(self._about), {}, ""
        if class_names is not None:
            about["class_names"] = list(class_names)
            entries = {n: e.padded(len(class_names)) for n, e in entries.items()}
        if new is not None:
            statistics, domain, since = new
            assert who is not None, "statistics are a client's"
            entry = BookEntry(number, who, domain, since, statistics)
            entries[number], commitment = entry, entry.commitment
            files[entry.name] = entry.to_bytes()
        end = self.links[-1].hash
        link = ChainLink(number, kind, who, _now(), gone, commitment, end)
        links, folder = [*self.links, link], f"runs/{number:06d}_{kind}"
        made = self._links_with(erased)
        removed = [entry_name(n) for n in gone]
        removed += [f"runs/{n:06d}_{self.links[n].kind}" for n in sorted(made)]
        about["doomed"] = [r for r in about["runs"] if r["link"] in made]
        about["runs"] = [r for r in about["runs"] if r["link"] not in made]
        done = SUBTRACTED if kind == "withdraw" else FORGOTTEN
        said = (f"{done}; {NOT_RECALLED}",) if erased else ()
        after = self._with_entries(entries)
        after._about = about
        if entries:
            solved = after.head()
            said = _said_of(solved) + said
            own = after._run_files(solved, link, said)
            files.update({f"{folder}/{name}": data for name, data in own.items()})
        left: list[str] = []

        def clear() -> None:
            self._about, self.links, self._entries = about, links, entries
            left.extend(self._clear())

        state = self._state(links, about)
        self._folder.change({**files, **state}, removed, clear)
        said += tuple(left)
        return Change(link, str(self._folder.path / folder) if entries else "", said)

    def _with_entries(self, entries: Mapping[int, BookEntry]) -> Federation:
        """A copy of the book in memory, with other entries."""
        other = copy.copy(self)
        other._entries = dict(entries)
        return other

    def _links_with(self, entries: Sequence[int]) -> set[int]:
        """The links after which one of these entries was in the book."""
        last = len(self.links)
        gone = {number: link.number for link in self.links for number in link.gone}
        return {n for entry in entries for n in range(entry, gone.get(entry, last))}

    def _state(self, links: Sequence[ChainLink], about: Mapping) -> dict[str, bytes]:
        chain = signed({"links": [vars(link) for link in links]}, self._key)
        # The signature is of the values as they are read again.
        plain = json.loads(json.dumps({**about, "format": _FORMAT}))
        # Without an indent, a long chain is written three times as fast.
        return {
            _BOOK: json.dumps(signed(plain, self._key), indent=1).encode(),
            _CHAIN: json.dumps(chain).encode(),
        }

    def _head_file(self, solved: Solved) -> bytes:
        return head_bytes(solved.model, self.class_names, self._about["encoder"])

    @staticmethod
    def _sha256(data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()

    def _results_known(self) -> dict[str, Any]:
        return {
            "engine": "book",
            "config": self.config,
            "seed": self.config.get("seed", 0),
            "domains": sorted(set(self.domains.values())),
            "unseen_domains": [],
            "class_names": self.class_names,
            "encoder": self._about["encoder"],
            "given": self._about.get("given"),
            "clients": [],
        }

    def _run_files(
        self, solved: Solved, link: ChainLink, said: Sequence[str]
    ) -> dict[str, bytes]:
        """The files of the run folder of a head, by name."""
        head = self._head_file(solved)
        results = Results.begun(notes=list(said), **self._results_known())
        final = replace(
            results.final,
            head="closed_form",
            head_sha256=self._sha256(head),
            calibrated_by=solved.report.get("temperature_by"),
        )
        results = replace(results, status="finished", final=final)
        change = {"change": asdict(link), "clients": self.clients, "said": list(said)}
        return {
            HEAD_FILE: head,
            RESULTS_FILE: results.to_json().encode(),
            "change.json": json.dumps(change, indent=1).encode(),
        }


def _said_of(solved: Solved) -> tuple[str, ...]:
    """What a change says of its head."""
    return () if "temperature" in solved.report else (NOT_CALIBRATED,)


def _check_form(name: str) -> None:
    """Raise `ConfigError` for a head that needs more than a book's totals."""
    if name not in CLOSED_FORMS or not CLOSED_FORMS[name].from_sums:
        raise ConfigError(
            f"a book has one second moment for all classes, but {name} needs more; "
            "choose lda, ridge or ncm"
        )


def check_empty(path: Path) -> None:
    """Raise `ConfigError` for a folder that has files already, or for a file."""
    problem = ""
    if path.is_dir():
        if any(not name.startswith(".") for name in os.listdir(path)):
            problem = "is not empty"
    elif os.path.lexists(path):
        problem = "is not a folder"
    if problem:
        raise ConfigError(
            f"'{path}' {problem}; name a new folder for the book, since no file is "
            "overwritten"
        )


def check_withdrawal(
    held: GridStatistics, rows: GridStatistics, least: int, names: Sequence[str]
) -> None:
    """Refuse to remove `rows` from `held` where that would reveal single rows.

    In each class that loses rows, at least `least` rows must go. None or at least
    `least` rows must stay.

    Raises
    ------
    ConfigError
        It would reveal single rows.
    StatisticsError
        A class has fewer rows than would go.
    """
    left = held.counts - rows.counts
    if (left < 0).any():
        c = int(left.argmin())
        raise StatisticsError(
            f"class {names[c]!r} would have {int(left[c])} rows; remove only rows that "
            "were added"
        )
    touched = rows.counts > 0
    wrong = touched & ((rows.counts < least) | ((left != 0) & (left < least)))
    if wrong.any():
        who = listed([repr(names[c]) for c in wrong.nonzero()[0]], 5)
        raise ConfigError(
            f"class {who}: the change would reveal single rows. At least {least} rows "
            f"must go, and none or at least {least} must stay. Withdraw the whole "
            "class at once, in one file"
        )
    if not touched.any():
        raise ConfigError("the file has no rows to withdraw")


def check_possible(statistics: GridStatistics) -> None:
    """Raise `StatisticsError` if the scatter is not PSD: no rows can have it."""
    scatter = statistics.statistics().scatter()
    size = float(scatter.trace()) / len(scatter)
    smallest = scatter + 1e-7 * abs(size) * torch.eye(len(scatter), dtype=scatter.dtype)
    failed = torch.linalg.cholesky_ex(smallest).info != 0
    if size < 0 or (failed and bool(scatter.any())):
        raise StatisticsError(
            "no rows can have such statistics, so no client can have sent them"
        )


def _check_about(about: Mapping[str, Any]) -> None:
    """Raise `TypeError`, `ValueError` or `KeyError` for values of other types."""
    Grid(tuple(about["exponents"]))
    texts = [*about["class_names"], about["encoder"], about.get("temperature", "")]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a class, the encoder or the temperature is no text")
    Given.of_plain(about.get("given", {}))
    if type(about["min_samples"]) is not int:
        raise TypeError("min_samples is no whole number")
    for run in [*about["runs"], *about.get("doomed", [])]:
        RunPlaces.of_plain(run)
        if type(run["link"]) is not int:
            raise TypeError("the link of a run is no whole number")


def _now() -> str:
    return _text_of(datetime.now(timezone.utc))


def _text_of(when: datetime) -> str:
    return when.isoformat(timespec="microseconds")
