"""Clients send statistics as whole numbers; the server stores them in a book."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from federatedscope_ggeur.data.rows import NOT_KNOWN, Given
from federatedscope_ggeur.errors import DataError, StatisticsError
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.base import (
    ClientSide,
    Exchange,
    Request,
    RequestKind,
    Requests,
    RunFacts,
    refusal,
    register_exchange,
    require_known,
)
from federatedscope_ggeur.federation.exchanges.statistics.exchange import check_domain
from federatedscope_ggeur.federation.merge import Merge, Release
from federatedscope_ggeur.federation.sampling import windows
from federatedscope_ggeur.federation.settings import RoleSettings
from federatedscope_ggeur.federation.wire import schema
from federatedscope_ggeur.federation.wire.schema import Declared
from federatedscope_ggeur.printable import get_logger

from . import keys
from .chain import BookReceipt, BookUpload, check_signed
from .federation import Federation, check_empty, check_possible
from .folder import RunPlaces
from .grid import Grid, GridStatistics
from .manifest import BookKeys

logger = get_logger(__name__)


@dataclass(frozen=True)
class BookSettings:
    """The settings of a run that writes a book.

    Attributes
    ----------
    folder : str
    grid : Grid
    class_names : tuple of str
    encoder : str
        The encoder that made the embeddings.
    config : mapping
        The run's settings, as plain values.
    given : Given
        How the clients' rows were given.
    """

    folder: str
    grid: Grid
    class_names: tuple[str, ...]
    encoder: str
    config: Mapping[str, Any]
    given: Given = NOT_KNOWN

    def places(self, folder: str | os.PathLike, store: Path | None = None) -> RunPlaces:
        """Where a run in `folder` writes; for `store` see `Coordinator`."""
        return RunPlaces.of(folder, str(store or self.config["federate"]["save_to"]))


class BookClient(ClientSide):
    """Sends statistics on the grid, and checks the server's receipt.

    Attributes
    ----------
    receipt : mapping or None
    """

    receipt: Mapping[str, Any] | None = None

    def statistics(self) -> BookUpload:
        """The client's upload; classes with too few rows are left out."""
        client = self.client
        kept = client.told[client.labels]
        whole = GridStatistics.of_rows(
            client.features[kept],
            client.labels[kept],
            client.task.num_classes,
            client.settings.of(BookSettings).grid,
        )
        return BookUpload(client.number, client.domain, whole)

    def take(self, message: BookReceipt) -> None:
        """Check the receipt and log it, so that the client can keep it.

        Raises
        ------
        MessageError
            The receipt is for another client, or its signature is wrong.
        """
        number = self.client.number
        try:
            self.receipt = json.loads(message.text)
            of = check_signed(self.receipt, "the receipt").get("client")
        except (ValueError, DataError) as error:
            raise self.refused(str(error), "text") from error
        if of != number:
            raise self.refused(f"the receipt is not for client {number}", "text")
        logger.info("client %d: receipt of the book: %s", number, message.text)


def _validate(exchange: BookExchange, request: Request, upload: BookUpload) -> None:
    """Refuse a second upload, another grid, or statistics that no rows can have."""
    require_known(
        upload.client,
        exchange.server.client_domains,
        repeated=upload.client in exchange.exact.rows,
    )
    check_domain(upload, exchange)
    if upload.statistics.grid != exchange.settings.grid:
        raise refusal(upload.client, "exponents", "the grid differs from the book's")
    try:
        check_possible(upload.statistics)
    except StatisticsError as error:
        raise refusal(upload.client, "high", str(error)) from error


def _bound(declared: Declared, exchange: Any, upload: BookUpload) -> None:
    """Refuse more rows or longer means than the client declared."""
    held, k = upload.statistics.statistics(), upload.client
    declared.check_rows(k, "counts", int(held.counts.sum()), declared.train)
    declared.check_means(k, "sums", held.means)


def _largest(exchange: BookExchange) -> int:
    classes, dim = exchange.server.task.num_classes, exchange.server.task.dim
    return schema.PLAIN + 8 * (classes * (dim + 2) + dim * (dim + 2))


BOOK_STATISTICS = RequestKind(
    name="book_statistics",
    message="book_statistics_request",
    deadline="round0",
    parts=(),
    respond=lambda side: side.statistics(),
    answer_message="book_statistics",
    answer=BookUpload,
    validate=_validate,
    bound=_bound,
    largest=_largest,
)
BOOK_RECEIPT = RequestKind(
    name="book_receipt",
    message="book_receipt",
    deadline="round0",
    parts=(BookReceipt,),
    respond=lambda side, message: side.take(message),
)


@register_exchange("book", before="closed_form")
class BookExchange(Exchange):
    """Asks for statistics on the grid, writes them into a book, and sends receipts.

    Attributes
    ----------
    settings : BookSettings
    exact : Merge
        The statistics of all clients, on the grid.
    uploads : list of BookUpload
        Those that are merged.
    """

    KINDS = (BOOK_STATISTICS, BOOK_RECEIPT)
    CLIENT = BookClient
    agreed = staticmethod(keys.agreed)
    objections = staticmethod(keys.objections)
    REVEALS = (
        "counts and sums of each client's classes, and one second moment of its rows; "
        "the server stores them"
    )

    def __init__(self, course):
        super().__init__(course)
        self.settings = self.server.settings.of(BookSettings)
        nothing = GridStatistics.empty(self.server.task.num_classes, self.settings.grid)
        self.exact = Merge(nothing, [self])
        self.uploads: list[BookUpload] = []
        self._sizes: dict[str, int] = {}

    @classmethod
    def is_due(cls, demands: Demands) -> bool:
        return bool(demands.chosen.get("book"))

    @staticmethod
    def check_places(run: Demands) -> None:
        """Refuse a folder for the book that has files already."""
        check_empty(Path(run.of(BookKeys).book))

    @classmethod
    def states(cls, chosen: Mapping[str, Any]) -> Mapping[str, bool]:
        # A client may leave, and then nothing that it chose may stay in the head.
        return {"brings_totals": True} if BookKeys.of(chosen).book else {}

    @classmethod
    def settings_of(cls, run: RunFacts) -> BookSettings:
        own = run.demands.of(BookKeys)
        return BookSettings(
            own.book,
            Grid.of_steps(own.book_steps, run.dim),
            run.expected.class_names,
            run.expected.encoder,
            run.config,
            run.expected.given,
        )

    @staticmethod
    @contextmanager
    def writing(settings: RoleSettings, folder: str | os.PathLike) -> Iterator[None]:
        """A context in which a run writes its files into `folder`.

        The book notes the folder, as it did when the run began. Forgetting a client
        then removes these files, too.

        Raises
        ------
        ConfigError
            A client was forgotten meanwhile. The run leaves no files then.
        """
        own = settings.of(BookSettings)
        if not Path(own.folder).is_dir():  # the run has not come so far
            yield
            return
        book = Federation.load(own.folder)
        places = book.run_in(folder) or own.places(folder)
        book.note_run(places)
        try:
            yield
        finally:
            book.keep_run(places)

    @staticmethod
    def renaming(config: Mapping, folder: Path, to: Path) -> bool:
        """Rename the folder of a run, and note that in the run's book.

        Raises
        ------
        ConfigError
            A client was forgotten meanwhile. The run leaves no files then.
        """
        book = config["ggeur"].get("book", "")
        if not book or not Path(book).is_dir():
            return False
        Federation.load(book).rename_run(RunPlaces.of(folder), to)
        return True

    def begin(self) -> Requests[None]:
        """Ask the clients for their statistics, and add them up exactly.

        Raises
        ------
        ConfigError
            The folder of the book is not empty.
        """
        course, exact = self.course, self.exact
        self._begun()
        for numbers in windows(self.server.participants, course.plan.round0_window):
            asked = dict.fromkeys(course.membership.here(numbers), ())
            for upload in (
                yield from course.ask(BOOK_STATISTICS, 0, asked, self._sizes)
            ):
                exact.add(upload)
        total = Release.whole(exact.statistics.statistics())
        self.server.merged.take(total, exact.rows)

    def on_statistics(self, upload: BookUpload) -> None:
        self.uploads.append(upload)

    def complete(self) -> Requests[None]:
        """Write the book after the head is made, and send each client its receipt."""
        settings = self.settings
        book = self._begun() or Federation.create(
            settings.folder,
            settings.class_names,
            settings.grid.dim,
            settings.config,
            exponents=settings.grid.exponents,
            encoder=settings.encoder,
            given=settings.given,
            joining=[
                (held.client, held.domain, held.statistics)
                for held in self.uploads
                if held.statistics.classes
            ],
            run=self._places,
        )
        # The book may have changed since, if the run goes on from its store.
        first = book.first_receipts()
        receipts = {
            k: (BookReceipt(json.dumps(first[k])).to_bytes(),)
            for k in self.course.membership.here(first)
        }
        yield from self.course.tell(BOOK_RECEIPT, 0, receipts)

    @property
    def _places(self) -> RunPlaces | None:
        folder, store = self.course.folder, self.course.store
        return None if folder is None else self.settings.places(folder, store)

    def _begun(self) -> Federation | None:
        """The book that this run wrote before it went on from its store, if it did."""
        folder, store = Path(self.settings.folder), self.course.store
        if store is not None and self._places is not None:
            return Federation.of_run(folder, self._places)
        check_empty(folder)
        return None

    def record(self) -> dict[str, Any]:
        return {
            "statistics_bytes_up": self._sizes,
            "uploaded_pairs": sum(
                len(held.statistics.classes) for held in self.uploads
            ),
            "withheld_pairs": None if self._sizes else 0,
        }
