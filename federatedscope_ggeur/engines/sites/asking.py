"""Checks whether a site can join a federation over streams."""

from __future__ import annotations

from collections.abc import Iterator

from federatedscope_ggeur.engines.facts import Facts
from federatedscope_ggeur.engines.site_check import Finding, token_finding, way_findings
from federatedscope_ggeur.engines.streams import transport_settings
from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.federation.wire.handshake import Handshake
from federatedscope_ggeur.transport import StreamEnded
from federatedscope_ggeur.transport.asking import ask_server
from federatedscope_ggeur.transport.settings import require_grpc

_NAMES = {
    "class_names": "class list",
    "dim": "dimension",
    "encoder": "encoder",
    "text": "text features",
    "settings": "settings",
}


def install_finding() -> Finding:
    """Check whether the package that carries streams is installed."""
    try:
        return Finding("grpcio", str(require_grpc().__version__))
    except ConfigError as error:
        return Finding("grpcio", str(error), True)


def server_findings(cfg, own: Handshake | None) -> Iterator[Finding]:
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
        yield Finding("token", str(error), True)
        return
    except GGEURError as error:
        yield Finding("version", str(error), True)
        return
    token = "accepted" if security.join_token else "none is needed"
    yield Finding("token", token)
    problem = facts.version_problem()
    yield Finding("version", problem or f"{facts.package}, as here", bool(problem))
    yield _place(number, facts)
    if own is None:
        return
    for name, problem in facts.differences(own):
        said = f"{problem} (there: the server); this must be the same on all sites"
        yield Finding(_NAMES[name], said if problem else "as agreed", bool(problem))
    open_ = [
        _NAMES[n] for n in ("class_names", "dim", "encoder") if n not in facts.agreed
    ]
    if open_:
        yield Finding(
            "agreed",
            "not compared, since the server does not know them yet: "
            f"{', '.join(open_)}",
        )


def _place(number: int, facts: Facts) -> Finding:
    if not facts.is_expected:
        said = f"the federation has no client {number}; correct ggeur.client_number"
        return Finding("place", said, True)
    if facts.is_taken:
        said = f"client {number} has joined already; check ggeur.client_number"
        return Finding("place", said, True)
    begun = "; the run has begun" if facts.has_begun else ""
    return Finding("place", f"client {number} can join{begun}")
