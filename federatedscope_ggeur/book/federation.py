"""A federation with a book: clients join, leave and are forgotten."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, timezone
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch

from federatedscope_ggeur.book.chain import (
    Link,
    check_chain,
    check_signed,
    new_key,
    present,
    public_of,
    signed,
)
from federatedscope_ggeur.book.entries import Entry, entry_name
from federatedscope_ggeur.book.folder import Folder
from federatedscope_ggeur.errors import ConfigError, DataError, StatisticsError, listed
from federatedscope_ggeur.geometry import Grid, GridStatistics
from federatedscope_ggeur.geometry.grid import USUAL_EXPONENT
from federatedscope_ggeur.machine import torch_threads
from federatedscope_ggeur.models import (
    CLOSED_FORMS,
    ClosedForm,
    build_closed_form,
    head_bytes,
)
from federatedscope_ggeur.models.closed_forms import Solved
from federatedscope_ggeur.reporting import HEAD_FILE, RESULTS_FILE, Results

_FORMAT = 1
_BOOK, _CHAIN, _KEY = "book.json", "chain.json", "key"
_MADE_OF_STATISTICS = (
    HEAD_FILE,
    "strangeness.safetensors",
    "heads",
    "checkpoint",
    "checkpoint.round0",
    "checkpoint.clients",
    RESULTS_FILE,
    "metrics.csv",
    "curve.png",
    "change.json",
)
#: A note on each change that forgets rows.
NOT_RECALLED = (
    "the rows are forgotten in this book; copies of earlier heads elsewhere cannot be "
    "recalled, and a disk or a backup may keep deleted blocks"
)
NOT_CALIBRATED = "the head is not calibrated, because no client was asked to score it"
NOT_CHOSEN = (
    "the kind and strength of head that clients chose before no longer hold; with "
    "--choose the clients in the book now choose again"
)
#: Changes that remove earlier heads, too.
_ERASING = ("forget", "withdraw")
_MEANWHILE = "a client was forgotten or has withdrawn rows while the run went on"
_AGAIN = "run it again with those who are left"


@dataclass(frozen=True)
class Change:
    """A change of the book, and the run folder that it wrote.

    Attributes
    ----------
    link : Link
    folder : str
        The run folder with the new head and its results; "" if no client is left.
    said : tuple of str
        Notes for the user.
    """

    link: Link
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
    links : list of Link
        All changes so far.

    Notes
    -----
    The head depends only on sums of whole numbers over the clients in the book. So it
    equals, to the bit, the head of a federation that never had the other clients.
    """

    def __init__(self, folder: str | os.PathLike):
        self._folder = Folder(folder)
        with self._folder.opened():
            self._read()

    @classmethod
    def load(cls, folder: str | os.PathLike) -> Federation:
        """Open the book in `folder`, after finishing an interrupted change.

        Raises
        ------
        ConfigError
            There is no book in the folder, or the folder cannot be written.
        DataError
            A file of the book is damaged, or somebody rewrote the chain.
        """
        if not Folder(folder).path.is_dir():
            raise ConfigError(f"'{os.fspath(folder)}' holds no book")
        return cls(folder)

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike,
        class_names: Sequence[str],
        dim: int,
        config: Mapping[str, Any],
        *,
        exponents: Sequence[int] = (),
        min_samples: int = 5,
        encoder: str = "arrays",
        joining: Iterable[tuple[int, str, GridStatistics]] = (),
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
        min_samples : int
            The min-count threshold: of each class, a client has no rows in the book, or
            at least this many.
        encoder : str
        joining : iterable of (client number, domain, GridStatistics)
            The clients that are in the book from the start.

        Raises
        ------
        ConfigError
            The folder is not empty, or a book cannot make this kind of head.
        """
        held = Folder(folder)
        _check_form(config["ggeur"]["closed_form"])
        about = {
            "format": _FORMAT,
            "exponents": list(exponents) or [USUAL_EXPONENT] * dim,
            "class_names": list(class_names),
            "min_samples": min_samples,
            "encoder": encoder,
            "config": dict(config),
            "runs": [],
        }
        key = new_key()
        with held.opened():
            check_empty(held.path)
            made = cls.__new__(cls)
            made._folder, made._about, made._key = held, about, key
            made.links, made._entries = [], {}
            entries, links = made._first(joining)
            files = {entry.name: entry.to_bytes() for entry in entries}
            held.change({**files, _KEY: key, **made._state(links, about)})
            made._read()
        return made

    def _first(self, joining: Iterable) -> tuple[list[Entry], list[Link]]:
        """The entries and links of a new book."""
        now, start = _now(), public_of(self._key)
        links = [Link(0, "begin", None, now, (), "", start)]
        entries = []
        for client, domain, statistics in joining:
            self._check_joining(client, statistics)
            entry = Entry.new(len(links), client, domain, now, statistics)
            before = links[-1].hash
            links.append(
                Link(len(links), "join", client, now, (), entry.commitment, before)
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
        """The head's kind and strength.

        They come from `choose`, if that was the last change; otherwise from `config`.
        """
        chosen = dict(self._about.get("chosen", {}))
        if chosen:
            name = chosen.pop("closed_form")
            return build_closed_form(name, {name: chosen})
        settings = self.config["ggeur"]
        return build_closed_form(settings["closed_form"], settings)

    # heads

    def total(
        self, clients: Iterable[int] | None = None, domains: Iterable[str] | None = None
    ) -> GridStatistics:
        """Merged statistics of all clients, of `clients`, or of clients of `domains`.

        Raises
        ------
        ConfigError
            A client or domain is not in the book.
        """
        numbers = None if clients is None else set(clients)
        names = None if domains is None else set(domains)
        absent = sorted((numbers or set()) - set(self.clients))
        unknown = sorted((names or set()) - set(self.domains.values()))
        if absent or unknown:
            what = listed([f"client {k}" for k in absent] + unknown, 5)
            raise ConfigError(f"not in the book: {what}; its clients: {self.clients}")
        found = GridStatistics.empty(len(self.class_names), self.grid)
        for entry in self._entries.values():
            if numbers is not None and entry.client not in numbers:
                continue
            if names is None or entry.domain in names:
                found = found + entry.statistics
        return found

    def head(
        self, clients: Iterable[int] | None = None, domains: Iterable[str] | None = None
    ) -> Solved:
        """The head of all clients, of `clients`, or of the clients of `domains`.

        Raises
        ------
        ConfigError, StatisticsError
            A client or domain is not in the book, or the head cannot be computed.
        """
        return self.head_of(self.total(clients, domains))

    def head_of(self, total: GridStatistics) -> Solved:
        """The head of merged statistics, computed on `num_threads` torch threads.

        The number of threads changes the rounding of decompositions.

        Raises
        ------
        StatisticsError
            The head cannot be computed from these statistics.
        """
        with torch_threads(self.num_threads):
            return self.form.solve(total.statistics())

    def rows(self, features: Any, labels: Any) -> GridStatistics:
        """Grid statistics of rows [n, D] with labels [n].

        They leave out classes with fewer rows than `min_samples`.
        """
        features, labels = torch.as_tensor(features), torch.as_tensor(labels)
        size = len(self.class_names)
        counts = torch.bincount(labels, minlength=size)
        kept = counts[labels] >= self.min_samples
        return GridStatistics.of_rows(features[kept], labels[kept], size, self.grid)

    def write_head(
        self,
        folder: str | os.PathLike,
        clients: Iterable[int] | None = None,
        domains: Iterable[str] | None = None,
    ) -> list[int]:
        """Write the head of some clients into a new folder; returns these clients.

        If the book later forgets one of them, it deletes this head, too.

        Raises
        ------
        ConfigError
            The folder exists already, or a client or domain is not in the book.
        """
        path = os.path.abspath(folder)
        if os.path.exists(path):
            raise ConfigError(f"'{folder}' exists already; name a new folder")
        with self._changing():
            self.total(clients, domains)
            names = None if domains is None else set(domains)
            part = set(self.clients if clients is None else clients)
            part &= {k for k, d in self.domains.items() if names is None or d in names}
            after = self._with_entries(
                {n: e for n, e in self._entries.items() if e.client in part}
            )
            files = after._run_files(path, self.links[-1], (NOT_CALIBRATED,))
            self._note(path, self.links[-1], files)
        return sorted(part)

    # changes

    def join(self, client: int, features: Any, labels: Any, domain: str) -> Change:
        """Add rows [n, D] of a client with labels [n]; raises the errors of `take`."""
        return self.take(client, self.rows(features, labels), domain)

    def take(self, client: int, statistics: GridStatistics, domain: str) -> Change:
        """Add statistics of a client.

        Raises
        ------
        ConfigError
            The book has the same statistics already, or has the client with another
            domain.
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
            ever = [n.number for n in self.links if n.who == client and n.commitment]
            if not ever:
                raise ConfigError(f"client {client} was never in the book")
            gone = [n for n in ever if n in self._entries]
            return self._change("forget", client, gone=gone, erased=ever)

    def withdraw(self, client: int, features: Any, labels: Any) -> Change:
        """Remove rows [n, D] of a client, as if it had never sent them.

        It raises the errors of `give_back`.
        """
        size = len(self.class_names)
        features, labels = torch.as_tensor(features), torch.as_tensor(labels)
        rows = GridStatistics.of_rows(features, labels, size, self.grid)
        return self.give_back(client, rows)

    def give_back(self, client: int, rows: GridStatistics) -> Change:
        """Subtract the statistics `rows` from those of a client.

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
            left, domain = held - rows, self.domains[client]
            check_withdrawal(held, rows, self.min_samples, self.class_names)
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

    def choose(self, form: Mapping[str, Any]) -> Change:
        """Use the head `form` until the next change of the book.

        Parameters
        ----------
        form : mapping
            ``closed_form``, and settings of this form. The clients in the book chose
            them.

        Raises
        ------
        ConfigError
            A book cannot make this kind of head. Or the book has changed since this
            object read it, so other clients would have to choose.
        """
        _check_form(form["closed_form"])
        with self._unchanged():
            return self._change("choose", None, chosen=form)

    def note_run(self, folder: str | os.PathLike) -> None:
        """Record the folder of the run that began this book. Forgetting deletes there.

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
                raise ConfigError(f"{_MEANWHILE}, so it leaves no files; {_AGAIN}")
            self._note(folder, first[-1])

    def begin_run(self, folder: str | os.PathLike) -> None:
        """Record the folder of a run that begins with the clients of this object.

        Call `keep_run` once the files are written.

        Raises
        ------
        ConfigError
            The book has changed since this object read it.
        """
        with self._unchanged():
            self._note(folder, self.links[-1])

    def keep_run(self, folder: str | os.PathLike) -> None:
        """Check that all clients of a recorded run may stay in the files it has left.

        Raises
        ------
        ConfigError
            One was forgotten or has withdrawn rows meanwhile. The files are removed.
        """
        path = os.path.abspath(folder)
        with self._changing():
            if all(run["path"] != path for run in self._about["runs"]):
                self._folder.change({}, _made_in(path))
                raise ConfigError(f"{_MEANWHILE}, so its files were removed; {_AGAIN}")

    # what is proven

    def receipt(self, client: int) -> dict[str, Any]:
        """A client's receipt: the last link of the chain, signed."""
        end = self.links[-1]
        known = {"book": self.links[0].hash, "client": client, "link": end.number}
        return signed({"kind": "receipt", **known, "hash": end.hash}, self._key)

    def certificate(self) -> dict[str, Any]:
        """The signed chain, and the hash of the head of all clients in the book."""
        known = {
            "kind": "certificate",
            "links": [asdict(link) for link in self.links],
            "head_sha256": self._sha256(self._head_file()),
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
        if certificate["head_sha256"] != self._sha256(self._head_file()):
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
                raise ValueError(f"unknown format {about['format']!r:.20}")
            Grid(tuple(about["exponents"])), about["class_names"], about["runs"]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"the book '{where}' is damaged: {error}") from error
        self._about, self._key = about, names[_KEY]
        check_signed(chain, f"the chain of '{where}'")
        public = public_of(self._key)
        self.links: list[Link] = check_chain(chain["links"], public)
        if chain["public_key"] != public:
            raise DataError(f"the chain of '{where}' was signed by another key")
        before = getattr(self, "_entries", {})
        here = present(self.links)
        self._entries: dict[int, Entry] = {
            n: self._entry(n, link, before) for n, link in here.items()
        }

    def _entry(self, number: int, link: Link, known: Mapping[int, Entry]) -> Entry:
        size = len(self.class_names)
        if number in known:
            return known[number].padded(size)
        name = entry_name(number)
        entry = Entry.of_bytes(self._folder.read(name), size, self.grid, name)
        if entry.commitment != link.commitment or entry.client != link.who:
            raise DataError(f"'{name}' is not the entry that the chain names")
        return entry

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._folder.opened():
            self._read()  # another process may have changed it
            yield

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """As `_changing`, but fail if the book differs from the state in memory."""
        end = self.links[-1]
        with self._changing():
            if self.links[-1] != end:
                raise ConfigError("another process has changed the book; begin again")
            yield

    def _note(
        self,
        folder: str | os.PathLike,
        link: Link,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        """Record a run outside the book's folder, made with the entries at `link`."""
        run = {"path": os.path.abspath(folder), "link": link.number}
        about = {**self._about, "runs": [*self._about["runs"], run]}
        self._folder.change({**self._state(self.links, about), **(files or {})})
        self._about = about

    def _is_of_the_start(self, link: Link) -> bool:
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

    def _sum_of(self, numbers: Iterable[int]) -> GridStatistics:
        none = GridStatistics.empty(len(self.class_names), self.grid)
        return sum((self._entries[n].statistics for n in numbers), none)

    def _check_joining(self, client: int, statistics: GridStatistics) -> None:
        if statistics.grid != self.grid or statistics.num_classes != len(
            self.class_names
        ):
            raise StatisticsError(
                f"client {client}: the grid or the classes of its statistics differ "
                "from the book's"
            )
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
        chosen: Mapping[str, Any] | None = None,
    ) -> Change:
        """Write a change and the new head.

        `gone` and `erased` are numbers of links: the change removes the entries of
        `gone`, and deletes all heads made with an entry of `erased`. An earlier choice
        of the head ends; `chosen` is the new one.
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
            entry = Entry.new(number, who, domain, since, statistics)
            entries[number], commitment = entry, entry.commitment
            files[entry.name] = entry.to_bytes()
        end = self.links[-1].hash
        link = Link(number, kind, who, _now(), gone, commitment, end)
        links, folder = [*self.links, link], f"runs/{number:06d}_{kind}"
        made = self._links_with(erased)
        removed = [entry_name(n) for n in gone] + self._runs_of(made)
        about["runs"] = [r for r in about["runs"] if r["link"] not in made]
        said = (NOT_CALIBRATED,) + ((NOT_RECALLED,) if erased else ())
        if about.pop("chosen", None) is not None and chosen is None:
            said += (NOT_CHOSEN,)
        if chosen is not None:
            about["chosen"] = dict(chosen)
        after = self._with_entries(entries)
        after._about = about
        if entries:
            files.update(after._run_files(folder, link, said))
        self._folder.change({**files, **self._state(links, about)}, removed)
        self._about, self.links, self._entries = about, links, entries
        return Change(link, str(self._folder.path / folder) if entries else "", said)

    def _with_entries(self, entries: Mapping[int, Entry]) -> Federation:
        """A copy of the book in memory, with other entries."""
        other = copy.copy(self)
        other._entries = dict(entries)
        return other

    def _links_with(self, entries: Sequence[int]) -> set[int]:
        """The links after which one of these entries was in the book."""
        last = len(self.links)
        gone = {number: link.number for link in self.links for number in link.gone}
        return {n for entry in entries for n in range(entry, gone.get(entry, last))}

    def _runs_of(self, links: Collection[int]) -> list[str]:
        """The files and folders of all heads made after these links."""
        own = [f"runs/{n:06d}_{self.links[n].kind}" for n in sorted(links)]
        elsewhere = [
            name
            for run in self._about["runs"]
            if run["link"] in links
            for name in _made_in(run["path"])
        ]
        return own + elsewhere

    def _state(self, links: Sequence[Link], about: Mapping) -> dict[str, bytes]:
        chain = signed({"links": [vars(link) for link in links]}, self._key)
        # Without an indent, a long chain is written three times as fast.
        return {
            _BOOK: json.dumps(about, indent=1).encode(),
            _CHAIN: json.dumps(chain).encode(),
        }

    def _head_file(self) -> bytes:
        names, encoder = self.class_names, self._about["encoder"]
        return head_bytes(self.head().model, names, encoder)

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
            "clients": [],
        }

    def _run_files(
        self, folder: str, link: Link, said: Sequence[str]
    ) -> dict[str, bytes]:
        """The files of the run folder that a change writes, by path in the book."""
        head = self._head_file()
        results = Results.begun(notes=list(said), **self._results_known())
        final = replace(
            results.final, head="closed_form", head_sha256=self._sha256(head)
        )
        results = replace(results, status="finished", final=final)
        change = {"change": asdict(link), "clients": self.clients, "said": list(said)}
        return {
            f"{folder}/{HEAD_FILE}": head,
            f"{folder}/{RESULTS_FILE}": results.to_json().encode(),
            f"{folder}/change.json": json.dumps(change, indent=1).encode(),
        }


def _check_form(name: str) -> None:
    """Raise `ConfigError` for a head that needs more than a book's totals."""
    if name not in CLOSED_FORMS or not CLOSED_FORMS[name].from_sums:
        raise ConfigError(
            f"a book has one second moment for all classes, but {name} needs more; "
            "choose lda, ridge or ncm"
        )


def check_empty(path: os.PathLike) -> None:
    """Raise `ConfigError` for a folder that has files already."""
    if any(not name.startswith(".") for name in os.listdir(path)):
        raise ConfigError(
            f"'{os.fspath(path)}' is not empty; name a new folder for the book, since "
            "no file is overwritten"
        )


def check_withdrawal(
    held: GridStatistics, rows: GridStatistics, least: int, names: Sequence[str]
) -> None:
    """Raise `ConfigError` if removing `rows` from `held` would reveal single rows.

    In each class that loses rows, at least `least` rows must go. None or at least
    `least` rows must stay.
    """
    left = held.counts - rows.counts
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


def _made_in(folder: str) -> list[str]:
    """The files of a run folder that are computed from clients' statistics."""
    return [os.path.join(folder, name) for name in _MADE_OF_STATISTICS]


def _now() -> str:
    return _text_of(datetime.now(timezone.utc))


def _text_of(when: datetime) -> str:
    return when.isoformat(timespec="microseconds")
