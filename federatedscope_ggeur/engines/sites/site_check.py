"""Checks a site before it joins: its data, its outdir, the way to the server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import NamedTuple

import numpy as np

from federatedscope_ggeur.cfg_ggeur import run_settings
from federatedscope_ggeur.data import find_pending
from federatedscope_ggeur.errors import ConfigError, GGEURError, listed
from federatedscope_ggeur.federation.advice import better_threshold, withheld_text
from federatedscope_ggeur.federation.holdings import Holdings, Withheld
from federatedscope_ggeur.reporting import ELSEWHERE, obstacle

from ..run import what_to_embed
from .roles import client_number, transport_settings
from .site_folder import Site
from .transport import Security
from .transport.probe import handshake_problem, own_certificate_end, reach_problem
from .transport.settings import require_grpc

_MOST_CLASSES = 12
#: Days before the end of a certificate from which a check says so.
_SOON = 30


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


def data_findings(cfg) -> Iterator[SiteFinding]:
    """Check a site's data and its outdir, in the order in which a user would solve
    problems."""
    try:
        if pending := _pending(cfg):
            yield pending
            return
        site = Site(cfg)
    except GGEURError as error:
        yield SiteFinding("data", str(error), problem=True)
        return
    held, whole = site.data.held, site.data.whole
    splits = {"train": held.train, "val": held.val, "test": held.test}
    rows = ", ".join(f"{name} {len(part)}" for name, part in splits.items())
    yield SiteFinding("data", f"'{cfg.data.root}': rows: {rows}")
    names = whole.class_names
    counts = np.bincount(held.train.labels.numpy(), minlength=len(names))
    each = [f"{name} {n}" for name, n in zip(names, counts.tolist())]
    listing = listed(each, _MOST_CLASSES)
    yield SiteFinding("classes", f"{len(names)}; rows to train on: {listing}")
    yield SiteFinding("embeddings", f"{whole.dim} dimensions, by {whole.encoder}")
    yield _withheld(Holdings.of([held], len(names)), site.settings)
    if problem := obstacle(cfg.outdir, run_settings.experiment_name(cfg)):
        yield SiteFinding("outdir", f"{problem}; {ELSEWHERE}", True)


def _pending(cfg) -> SiteFinding | None:
    """A note on images that are not embedded yet."""
    pending = find_pending(*what_to_embed(cfg))
    if pending is None:
        return None
    many = f"{pending.images} of {pending.total} images are not embedded yet"
    embed = "embed them: ggeur embed --cfg FILE"
    if not pending.has_weights:
        missing = "the encoder's weights are not on this machine"
        return SiteFinding("data", f"{many}, and {missing}; fetch and {embed}", True)
    return SiteFinding("data", f"{many}; {embed}")


def _withheld(held: Holdings, settings: run_settings.RunSettings) -> SiteFinding:
    threshold, demands = settings.role.min_samples, settings.demands
    own = Withheld.from_counts(held.counts, threshold)
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


def server_findings(cfg) -> Iterator[SiteFinding]:
    """Check whether the server can be reached, and the files of this side for it.

    The server itself compares what all sites must have alike, when this one joins.
    """
    try:
        yield SiteFinding("grpcio", str(require_grpc().__version__))
    except ConfigError as error:
        yield SiteFinding("grpcio", str(error), True)
        return
    settings = transport_settings(cfg)
    address = f"{cfg.distribute.server_host}:{cfg.distribute.server_port}"
    if not settings.http_proxy:  # only gRPC itself goes through one
        problem = reach_problem(address)
        yield SiteFinding("server", f"{address}: {problem or 'reached'}", bool(problem))
        if problem:
            return
        yield _tls(address, settings.security)
    yield _token(settings.security, client_number(cfg))


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


def _token(security: Security, number: int) -> SiteFinding:
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
