"""Makes the client's and the server's side, in the same way for all engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from federatedscope_ggeur.cfg_ggeur.run_settings import RunSettings, run_settings
from federatedscope_ggeur.cfg_ggeur.transform import expected_rows
from federatedscope_ggeur.data import ClientData, Embeddings, Given
from federatedscope_ggeur.federation import MemoryBudget, Server
from federatedscope_ggeur.federation.course.checkpoint import FinishedPart, restore
from federatedscope_ggeur.federation.course.client_handler import (
    ClientHandler,
    DecodedParts,
)
from federatedscope_ggeur.federation.course.coordinator import Coordinator
from federatedscope_ggeur.federation.course.membership import Membership
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.settings import Prepared
from federatedscope_ggeur.federation.wire.handshake import Handshake, Join
from federatedscope_ggeur.federation.wire.schema import Declared


class Described(Protocol):
    """Facts about the data that are the same for all clients."""

    @property
    def class_names(self) -> tuple[str, ...]: ...
    @property
    def dim(self) -> int: ...
    @property
    def encoder(self) -> str: ...
    @property
    def given(self) -> Given: ...


@dataclass
class Shared:
    """The objects that the clients of one process share."""

    memory: MemoryBudget
    cache: DecodedParts = field(default_factory=DecodedParts)


class ServerSide(NamedTuple):
    """The server's role and course, and the checkpoint if they were restored."""

    coordinator: Coordinator
    progress: FinishedPart | None


def settings_for(
    cfg, data: Described, clients: int, prepared: Prepared | None
) -> RunSettings:
    """The settings of a run of `cfg` with `clients` clients on `data`."""
    names = data.class_names
    about = names, data.encoder, data.given
    return run_settings(cfg, len(names), data.dim, clients, prepared, *about)


def known_of_rows(cfg, data: Described) -> dict[str, Any]:
    """The fields of `Results` that say what the run's head expects of rows."""
    expected = expected_rows(cfg, data.class_names, data.encoder, data.given)
    return {
        "class_names": list(data.class_names),
        "encoder": data.encoder,
        "given": expected.given.plain(),
        "prepare": expected.take,
    }


def handshake_of(
    data: Described, agreed: Mapping[str, str], prepared: Prepared | None
) -> Handshake:
    """The handshake of a side that knows `data`, for comparison with other sides."""
    names = tuple(data.class_names)
    return Handshake(
        names, data.dim, data.encoder, agreed, prepared.key if prepared else ""
    )


def client_side(
    held: ClientData,
    settings: RunSettings,
    shared: Shared,
    save_to: str,
    asked: bool = True,
) -> ClientHandler:
    """Make the handler that answers for the client with the data `held`.

    Parameters
    ----------
    held : ClientData
    settings : RunSettings
    shared : Shared
    save_to : str
        The checkpoint to which the state of the client's method belongs. With "" the
        state is not kept.
    asked : bool
        Whether the user chose `save_to`; see `ClientStore`.
    """
    splits, memory = settings.plan.evaluation.splits, shared.memory
    return ClientHandler.of(
        held, settings.role, splits, memory, shared.cache, save_to, asked
    )


def join_of(held: ClientData, handshake: Handshake, demands: Demands) -> Join:
    """The message by which the client with the data `held` joins."""
    scored = len(held.val), len(held.test)
    if not demands.noisy:
        declared = Declared.of(held.train.features, *scored)
    else:  # nothing exact about the rows that are released with noise
        declared = Declared(0, *scored if demands.reports_scores else (0, 0))
    return Join(held.number, held.domain, handshake, declared)


def server_side(
    client_domains: Mapping[int, str],
    settings: RunSettings,
    handshake: Handshake,
    rows: Mapping[str, Mapping[str, Embeddings]],
    members: Membership | None = None,
    dismiss: Callable[[int, str], None] = lambda number, reason: None,
) -> ServerSide:
    """Make the server's side for these clients, and restore a continued run.

    Parameters
    ----------
    client_domains : mapping from client number to domain
    settings : RunSettings
    handshake : Handshake
        The handshake of all sides.
    rows, members, dismiss
        See `Coordinator`.

    Raises
    ------
    ConfigError
        The checkpoint cannot be used, or belongs to another run.
    """
    server = Server(client_domains, settings.role)
    coordinator = Coordinator(server, settings.plan, rows, members, dismiss)
    path = settings.restore_from
    return ServerSide(
        coordinator, restore(path, coordinator, handshake) if path else None
    )
