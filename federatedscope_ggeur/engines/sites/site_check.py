"""Checks a site before it joins: its data, its machine, the way to the server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

import numpy as np

from federatedscope_ggeur.cfg_ggeur.method_settings import options_of
from federatedscope_ggeur.cfg_ggeur.run_settings import (
    RunSettings,
    encoder_device,
    encoding_settings,
    experiment_name,
)
from federatedscope_ggeur.cfg_ggeur.start_notes import set_rows
from federatedscope_ggeur.data import find_pending, find_reader
from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.federation.advice import better_threshold, withheld_text
from federatedscope_ggeur.federation.holdings import Holdings, Withheld
from federatedscope_ggeur.federation.wire.handshake import Handshake
from federatedscope_ggeur.machine import available_memory
from federatedscope_ggeur.progress import bytes_text
from federatedscope_ggeur.reporting import ELSEWHERE, obstacle

from .distributed_data import SiteData
from .facts import Facts
from .keys import PinnedKeys, read_identity
from .site import Meeting, site_settings
from .site_folder import Site
from .store import FROM
from .streams import transport_settings
from .transport import Security, StreamEnded
from .transport.asking import ask_server, own_certificate_end, reach_problem
from .transport.probe import handshake_problem
from .transport.settings import require_grpc

_F32 = 4  # bytes
#: Log, settings and results of a run.
_FILES = 20_000_000
_MOST_CLASSES = 12
#: Days before the end of a certificate from which a check says so.
_SOON = 30

_NAMES = {
    "class_names": "class list",
    "dim": "dimension",
    "encoder": "encoder",
    "text": "text features",
    "settings": "settings",
}


class SiteFinding(NamedTuple):
    """The result of one check.

    Attributes
    ----------
    what : str
    said : str
        The facts that were found, or the problem.
    problem : bool
        Whether this keeps the site from joining.
    """

    what: str
    said: str
    problem: bool = False


def folder_findings(
    shared: Path, keys: Path
) -> Generator[SiteFinding, None, Mapping[str, object]]:
    """Check a site's keys and the shared folder, up to the first problem.

    It returns what the site's file need not say, as far as it is known.
    """
    more: Mapping[str, object] = site_settings("site", 1)
    try:
        own = read_identity(keys, "ggeur join --new NAME")
        more = site_settings(own.name, 1)
        known = PinnedKeys(keys, own, serves=False)
        for words in known.words:
            new = words in known.uncompared
            said = "; compare them by telephone: ggeur join asks for it" if new else ""
            yield SiteFinding("words", f"of {words}{said}")
        if known.uncompared:
            return more
        met = Meeting(shared, keys, own)
        place = shared / FROM / own.name
        while not place.exists():
            place = place.parent
        if not os.access(place, os.W_OK):
            raise ConfigError(f"--folder: '{place}' cannot be written")
        if met.greeting is None:
            yield SiteFinding("server", "it has not greeted this site yet")
            return more
        met.known_store()
    except ConfigError as error:
        yield SiteFinding("folder", str(error), True)
        return more
    said = f"{met.server} calls this site client {met.greeting.client}"
    yield SiteFinding("server", said)
    return met.settings


class SiteCheck:
    """Checks the data and the machine of a site.

    Parameters
    ----------
    cfg : the site's settings

    Attributes
    ----------
    handshake : Handshake or None
        The handshake with which the site would join; None while its data cannot be
        read.
    """

    def __init__(self, cfg):
        self._cfg = cfg
        self.handshake: Handshake | None = None

    def findings(self) -> Iterator[SiteFinding]:
        """Yield the results, in the order in which a user would solve problems."""
        cfg = self._cfg
        try:
            pending = self._pending()
            if pending:
                yield pending
                if not pending.problem:
                    yield SiteFinding(
                        "classes, rows", "known when the images are embedded"
                    )
                return
            site = Site(cfg)
            found, settings, self.handshake = site.data, site.settings, site.handshake
            held, whole, names = found.held, found.whole, found.whole.class_names
        except GGEURError as error:
            yield SiteFinding("data", str(error), problem=True)
            return
        splits = {"train": held.train, "val": held.val, "test": held.test}
        rows = ", ".join(f"{name} {len(part)}" for name, part in splits.items())
        yield SiteFinding("data", f"'{cfg.data.root}': rows: {rows}")
        yield SiteFinding("classes", f"{len(names)}; {_by_class(found)}")
        yield SiteFinding("embeddings", f"{whole.dim} dimensions, by {whole.encoder}")
        counts = Holdings.of([held], len(names))
        yield self._withheld(counts, settings)
        yield from self._machine(found, counts, settings)

    def _pending(self) -> SiteFinding | None:
        """A note on images that are not embedded yet."""
        cfg = self._cfg
        encoding = encoding_settings(cfg.ggeur, encoder_device(cfg))
        own = options_of(find_reader(cfg.data.type), cfg.ggeur)
        pending = find_pending(cfg.data.type, cfg.data.root, encoding, own)
        if pending is None:
            return None
        many = f"{pending.images} of {pending.total} images are not embedded yet"
        embed = "embed them: ggeur embed --cfg FILE"
        if not pending.has_weights:
            missing = "the encoder's weights are not on this machine"
            return SiteFinding(
                "data", f"{many}, and {missing}; fetch and {embed}", True
            )
        return SiteFinding("data", f"{many}; {embed}")

    def _withheld(self, held: Holdings, settings: RunSettings) -> SiteFinding:
        threshold = settings.role.min_samples
        own = Withheld.from_counts(held.counts, threshold)
        demands = settings.demands
        if not own.of_rows:
            return SiteFinding("threshold", "there are no rows to train on", True)
        if not (demands.own_statistics or demands.only_totals or demands.calibrates):
            return SiteFinding("threshold", "no statistics are sent")
        said = withheld_text(own)
        if demands.own_statistics and own.pairs == own.of_pairs:
            better = better_threshold(held.counts, threshold)
            return SiteFinding(
                "threshold",
                f"{said}: this site would send nothing. Give it more rows, or set a "
                f"threshold of {better} on all sites",
                True,
            )
        return SiteFinding("threshold", said)

    def _machine(
        self, found: SiteData, held: Holdings, settings: RunSettings
    ) -> Iterator[SiteFinding]:
        dim, classes = found.whole.dim, len(found.whole.class_names)
        hidden = int(self._cfg.ggeur.mlp_hidden_dim)
        head = _F32 * ((dim + classes) * hidden if hidden else dim * classes)
        disk = 3 * head + _FILES
        if problem := obstacle(self._cfg.outdir, experiment_name(self._cfg)):
            yield SiteFinding("outdir", f"{problem}; {ELSEWHERE}", True)
        folder = Path(self._cfg.outdir).absolute()
        while not folder.exists():
            folder = folder.parent
        free = shutil.disk_usage(folder).free
        yield _room("disk", disk, free, f"in '{folder}' (outdir)")
        own = sum(
            part.features.numel() * part.features.element_size()
            for part in (found.held.train, found.held.val, found.held.test)
        )
        rows = int(np.sum(set_rows(settings, held))) if settings.rounds else 0
        drawn = min(rows * dim * _F32, self._cfg.ggeur.memory_limit)
        shapes = _F32 * classes * dim**2 if settings.demands.steps else 0
        needed = int(own + drawn + 2 * shapes + 6 * head)
        free_memory = available_memory()
        if free_memory is not None:
            yield _room("memory", needed, free_memory, "beside that of the program")


def way_findings(address: str, security: Security) -> Iterator[SiteFinding]:
    """Check whether the server at `address` can be reached, and its TLS.

    It ends with the first problem.
    """
    problem = reach_problem(address)
    yield SiteFinding("server", f"{address}: {problem or 'reached'}", bool(problem))
    if not problem:
        yield _tls(address, security)


def _tls(address: str, security: Security) -> SiteFinding:
    try:
        security.channel_credentials()  # checks the files
        ends: list[datetime] = []
        if problem := handshake_problem(address, security, ends):
            return SiteFinding("TLS", problem, True)
        own = own_certificate_end(security)
    except (OSError, ConfigError) as error:
        return SiteFinding("TLS", str(error), True)
    if not security.authority:
        return SiteFinding("TLS", "off at both ends: everything travels in the clear")
    if not ends:
        return SiteFinding("TLS", "the server is gone; try again", True)
    said = f"the server's certificate is {_valid_until(ends[0])}"
    if own is not None:
        said += f"; this site's is {_valid_until(own)}"
    return SiteFinding("TLS", said)


def _valid_until(end: datetime) -> str:
    days = (end - datetime.now(timezone.utc)).days
    soon = ", so ask for a new one now" if days < _SOON else ""
    return f"valid for {days} days{soon}"


def token_finding(security: Security, number: int) -> SiteFinding:
    """Check whether the token is one of client `number`; the server checks the rest."""
    try:
        token = security.token()
    except ConfigError as error:
        return SiteFinding("token", str(error), True)
    named = token.partition(":")[0]
    if named not in ("", str(number)):
        said = f"it is that of client {named}, but this is client {number}"
        return SiteFinding("token", f"ggeur.join_token: {said}", True)
    return SiteFinding("token", f"of client {named}" if named else "none")


def _room(what: str, needed: int, free: int, where: str) -> SiteFinding:
    said = f"{bytes_text(free)} are free, about {bytes_text(needed)} needed {where}"
    if needed > free:
        return SiteFinding(what, f"{said}; free some, or name another place", True)
    return SiteFinding(what, said)


def _by_class(found: SiteData) -> str:
    """A text with the training rows of each class; only extremes if there are many."""
    names = found.whole.class_names
    counts = np.bincount(found.held.train.labels.numpy(), minlength=len(names))
    if len(names) <= _MOST_CLASSES:
        each = ", ".join(f"{name} {n}" for name, n in zip(names, counts.tolist()))
        return f"rows to train on: {each}"
    few, many = int(counts.argmin()), int(counts.argmax())
    return (
        f"rows to train on: from {counts[few]} ({names[few]}) to {counts[many]} "
        f"({names[many]}), {int((counts == 0).sum())} classes without any"
    )


def install_finding() -> SiteFinding:
    """Check whether the package that carries streams is installed."""
    try:
        return SiteFinding("grpcio", str(require_grpc().__version__))
    except ConfigError as error:
        return SiteFinding("grpcio", str(error), True)


def server_findings(cfg, own: Handshake | None) -> Iterator[SiteFinding]:
    """Check whether the server can be reached, and whether this client could join.

    Parameters
    ----------
    cfg : the site's settings
    own : Handshake, optional
        The handshake with which the site would join. It is compared with the server's
        here, and not sent.
    """
    settings = transport_settings(cfg)
    security = settings.security
    index = cfg.distribute.data_idx
    number = int(cfg.ggeur.client_number) if index == -1 else index
    address = f"{cfg.distribute.server_host}:{cfg.distribute.server_port}"
    if not settings.http_proxy:  # only gRPC itself goes through one
        for finding in way_findings(address, security):
            yield finding
            if finding.problem:
                return
    if (own_token := token_finding(security, number)).problem:
        yield own_token
        return
    try:
        facts = Facts.from_bytes(ask_server(address, number, settings))
    except (StreamEnded, ConfigError) as error:
        yield SiteFinding("token", str(error), True)
        return
    except GGEURError as error:
        yield SiteFinding("version", str(error), True)
        return
    token = "accepted" if security.join_token else "none is needed"
    yield SiteFinding("token", token)
    problem = facts.version_problem()
    yield SiteFinding("version", problem or f"{facts.package}, as here", bool(problem))
    yield _place(number, facts)
    if own is None:
        return
    for name, problem in facts.differences(own):
        said = f"{problem} (there: the server); this must be the same on all sites"
        yield SiteFinding(_NAMES[name], said if problem else "as agreed", bool(problem))
    open_ = [
        _NAMES[n] for n in ("class_names", "dim", "encoder") if n not in facts.agreed
    ]
    if open_:
        yield SiteFinding(
            "agreed",
            "not compared, since the server does not know them yet: "
            f"{', '.join(open_)}",
        )


def _place(number: int, facts: Facts) -> SiteFinding:
    if not facts.is_expected:
        said = f"the federation has no client {number}; correct ggeur.client_number"
        return SiteFinding("place", said, True)
    if facts.is_taken:
        said = f"client {number} has joined already; check ggeur.client_number"
        return SiteFinding("place", said, True)
    begun = "; the run has begun" if facts.has_begun else ""
    return SiteFinding("place", f"client {number} can join{begun}")
