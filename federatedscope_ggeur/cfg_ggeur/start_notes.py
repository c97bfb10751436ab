"""Notes that tell a user at the start of a run what may surprise, on every engine.

Derive from a run's settings its privacy guarantee, and who sees which data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from federatedscope_ggeur.data.transforms import LIFT
from federatedscope_ggeur.extras import all_of
from federatedscope_ggeur.federation import advice, holdings
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.augmentation.keys import SetSettings
from federatedscope_ggeur.federation.exchanges.base import (
    due_exchanges,
    plugin_exchanges,
)
from federatedscope_ggeur.federation.exchanges.training.exchange import (
    RoundSettings,
    unbatched_because,
)
from federatedscope_ggeur.reporting import Privacy

from .demands import demands_of
from .method_settings import base_method, parts_in_use, run_notes
from .run_settings import RunSettings, server_evaluates
from .transform import row_transform


def start_notes(
    cfg,
    settings: RunSettings,
    client_domains: Mapping[int, str],
    held: holdings.Holdings | None,
    validates: bool | None = None,
) -> list[str]:
    """Facts about a run that may surprise a user, one line each.

    Parameters
    ----------
    cfg : config
    settings : RunSettings
    client_domains : mapping from client number to domain
        The clients that train.
    held : Holdings or None
        The numbers of these clients' rows. None on a server that cannot know them; then
        each client logs its own `client_notes`.
    validates : bool, optional
        Whether there are rows for validation, if that is known.
    """
    role, demands = settings.role, settings.demands
    notes = run_notes(cfg, demands, validates)
    if 2 in demands.steps:
        kind = role.of(SetSettings).prototypes
        own = holdings.sources(list(client_domains.values()), kind)
        notes.append(advice.step2_note(own, kind, base_method(cfg).pools_data))
    asked = due_exchanges(demands)
    notes += [part.UNSCREENED for part in asked]
    notes += [part.start_note(demands) for part in asked]
    if demands.noisy:
        return [note for note in notes if note]  # other notes reveal exact counts
    if held is not None:
        counts, threshold = held.counts, role.min_samples
        if withheld(demands, held, threshold) is not None:
            notes.append(advice.withheld_note(counts, threshold, held.domains))
        notes += [part.withheld_note(counts, threshold) for part in asked]
        rows, whole = set_rows(settings, held), set_rows(settings, held, whole=True)
        notes += [_rate_note(settings, held, rows, whole)]
        notes += _device_notes(settings, rows)
    return [note for note in notes if note]


def client_notes(
    settings: RunSettings, held: holdings.Holdings, rows: int, whole: int
) -> list[str]:
    """The notes of one client at the start of a run.

    Parameters
    ----------
    settings : RunSettings
    held : Holdings
        The numbers of the client's rows.
    rows, whole : int
        The client trains in a round on `rows` rows, from a set of `whole` rows.
    """
    own = withheld(settings.demands, held, settings.role.min_samples)
    # Other clients may send the classes that this client withholds.
    told = "" if own is None else advice.withheld_text(replace(own, classes=0))
    rate = _rate_note(settings, held, np.array([rows]), np.array([whole]))
    return [note for note in (told, rate) if note]


def withheld_line(settings: RunSettings, held: holdings.Holdings) -> str:
    """A line that tells how much the min-count threshold withholds.

    "" if no statistics are sent. Also "" if much is withheld, because `start_notes`
    tells it then.
    """
    amount = withheld(settings.demands, held, settings.role.min_samples)
    quiet = amount is None or advice.is_much(amount)
    return "" if quiet else advice.withheld_text(amount)


def withheld(
    demands: Demands, held: holdings.Holdings, threshold: int
) -> holdings.Withheld | None:
    """What the min-count threshold withholds of the statistics that clients send.

    None if no client sends its own at any time of the run.
    """
    sends = demands.own_statistics or demands.calibrates
    return holdings.Withheld.from_counts(held.counts, threshold) if sends else None


def set_rows(
    settings: RunSettings, held: holdings.Holdings, whole: bool = False
) -> np.ndarray:
    """The number of rows that each client trains on in a round: int array of shape [K].

    Drawn rows of the augmentation are included. With `whole`, the rows of the client's
    whole training set, of which a round may train on a drawn share.
    """
    threshold, own = settings.role.min_samples, settings.role.of(SetSettings)
    how = replace(own.expected, share=1.0) if whole else own.expected
    if not own.train_withheld:
        told = np.where(held.counts >= threshold, held.counts, 0)
        held = replace(held, counts=told)
    return holdings.augmented_rows(held, how, threshold, own.prototypes)


def _rate_note(
    settings: RunSettings, held: holdings.Holdings, rows: np.ndarray, whole: np.ndarray
) -> str:
    """A note if the learning rate of a linear head cannot fit raw embeddings, or ""."""
    task, training = settings.role.task, settings.role.training
    if task.space != "raw" or task.hidden_units or task.model.other is not None:
        return ""
    median = holdings.median_rows(rows.tolist())
    training = training.on_share(holdings.median_rows(whole.tolist()), median)
    batches = settings.rounds * training.batches(median)
    return advice.rate_note(training, held.mean_square_norm, task.num_classes, batches)


def batched_because(settings: RunSettings) -> tuple[bool, str]:
    """Whether clients of this process train at once; if not, why they cannot.

    The reason is "" if nobody asks for it.
    """
    role, own = settings.role, settings.role.of(RoundSettings)
    if not own.wants_batched(role.training.device):
        return False, ""
    why = unbatched_because(role.task.build_model(), role.task.method, own)
    return not why, why


def _device_notes(settings: RunSettings, rows: np.ndarray) -> list[str]:
    """What a GPU changes in the numbers of a run, and whether it pays."""
    task, training = settings.role.task, settings.role.training
    is_head = task.model.other is None
    if training.device.type == "cpu" or not settings.rounds or not is_head:
        return []
    units = task.hidden_units or task.num_classes
    flops = 4.0 * training.batch_size * task.dim * units
    steps = [training.batches(n) for n in rows.tolist()]
    drawn = settings.role.of(RoundSettings).sample_client_num / max(1, len(steps))
    at_once, _ = batched_because(settings)
    notes = [advice.gpu_note(steps, settings.rounds, flops, at_once, min(1.0, drawn))]
    if settings.demands.steps:
        notes.append(
            "the GPU draws the augmented sets: their noise is other than a CPU's, and "
            "repeats on the same kind of GPU with the same release of torch "
            f"({torch.__version__})"
        )
    return notes


_LIFTED = (
    "the threshold does not protect rows that data.transform lifts: they can be solved "
    "for from their statistics"
)
_POOLED = "the rows of all clients are pooled in one place, which sees each of them"
#: The privacy of a run that promises nothing and shows nothing.
_NO_GUARANTEE = Privacy(
    guarantee="none",
    covers=[],
    against=[],
    threshold=0,
    threshold_on="client",
    server_sees=[],
    clients_see=["the head"],
    warnings=[],
)


def privacy_of(cfg, engine: str = "") -> Privacy:
    """The privacy of a run with `cfg` on an engine, as docs/privacy.md describes it."""
    privacy = _privacy_of(cfg)
    warning = all_of("runs_code").get(engine)
    if warning is None or not (
        privacy.keys or (privacy.dp and privacy.dp.noise_by == "client")
    ):
        return privacy
    return replace(privacy, warnings=[warning, *privacy.warnings])


def _privacy_of(cfg) -> Privacy:
    demands = demands_of(cfg)
    if base_method(cfg).pools_data:
        seen = ["the rows of all clients"]
        return replace(_NO_GUARANTEE, server_sees=seen, warnings=[_POOLED])
    privacy = _of_core(cfg, demands)
    for part in due_exchanges(demands):
        privacy = part.privacy(privacy, demands)
    return privacy


def _of_core(cfg, demands: Demands) -> Privacy:
    """The privacy of a run, before its exchanges say what they change."""
    totals, steps = demands.only_totals, demands.steps
    clients = [*_NO_GUARANTEE.clients_see] if demands.federated else []
    if steps:
        pooled = demands.pooled_geometry
        clients.append("one shape" if pooled else "a shape for each class")
    if 2 in steps:
        clients.append(
            "class means over all clients" if totals else "class means of others"
        )
    if totals:
        clients.insert(0, "rows of each class over all clients")
    if demands.trains:
        hooks = ("aggregate_init", "download", "scoring_download")
        clients += _of_parts(cfg, "receives", hooks)
    return replace(
        _NO_GUARANTEE,
        threshold=0 if demands.noisy else demands.min_samples,
        threshold_on="sum" if totals and not demands.noisy else "client",
        server_sees=_server_sees(cfg, demands),
        clients_see=clients,
        warnings=[_LIFTED] if row_transform(cfg) == LIFT else [],
    )


#: In place of what a plugin's part sends or receives, if the part does not say it.
_UNSAID = "its plugin does not say what"


def _of_parts(cfg, told: str, hooks: tuple[str, ...]) -> list[str]:
    """What the methods in use say in `told` of the tensors that `hooks` define."""
    return [
        f"of {part.name}: {getattr(part, told) or _UNSAID}"
        for part in parts_in_use(cfg)
        if getattr(part, told) or part.overrides(*hooks)
    ]


def _server_sees(cfg, demands: Demands) -> list[str]:
    seen = []
    if demands.noisy:
        pass  # the exchange says what it sends
    elif demands.only_totals:
        seen.append("counts, means and one scatter over all clients")
    elif demands.statistics:
        seen.append("each client's class statistics")
    if demands.trains:
        seen += ["each client's updates"] if demands.federated else []
        seen.append("each client's aggregation weight")
        seen += _of_parts(cfg, "sends", ("init_upload_shapes", "upload_shapes"))
    if demands.reports_scores and not server_evaluates(cfg):
        seen.append("each client's scores: rows, hits and the sum of their losses")
    seen += [
        f"of the exchange {part.name}: {part.REVEALS or _UNSAID}"
        for part in plugin_exchanges(demands)
    ]
    if cfg.federate.mode == "distributed" and not demands.noisy:
        seen.append("how many rows each client declares, and a bound of their norms")
    return seen
