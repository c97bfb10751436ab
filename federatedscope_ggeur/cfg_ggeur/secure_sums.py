"""Secure sums of the statistics: keys, what they cannot go with, settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.base import plugin_exchanges
from federatedscope_ggeur.federation.exchanges.secure_sums.fixed_point import (
    MOST_BITS,
    largest_fraction_bits,
)
from federatedscope_ggeur.federation.exchanges.secure_sums.messages import MOST_CLIENTS
from federatedscope_ggeur.federation.exchanges.secure_sums.settings import (
    STAGES,
    SumSettings,
)
from federatedscope_ggeur.federation.exchanges.secure_sums.trust import SERVER
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS, Method
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.settings import Key, one_of, positive, text, whole

_NAME = "privacy.secure_sums"
SECURE_SUMS_KEYS = (
    Key(
        _NAME,
        "none",
        "statistics: those of round 0 are added up under masks that cancel in the sum, "
        "so that the server sees totals alone, and privacy.min_samples holds for "
        "these; none: each client's own go up.",
        one_of("none", "statistics"),
    ),
    Key(
        f"{_NAME}_min_clients",
        3.0,
        "Fewer clients make no secure sum.",
        whole(3, maximum=MOST_CLIENTS),
    ),
    Key(
        f"{_NAME}_radius",
        1.01,
        "Secure sums: no embedding is longer than this; a client that has a longer one "
        "refuses. The default is for those of length 1, float16 ones among them.",
        positive,
    ),
    Key(
        f"{_NAME}_max_rows",
        1048576.0,
        "Secure sums: the most rows that all clients have together.",
        whole(1),
    ),
    Key(
        f"{_NAME}_fraction_bits",
        40.0,
        "Secure sums: bits behind the point of the numbers that are added.",
        whole(8, maximum=MOST_BITS),
    ),
    Key(
        f"{_NAME}_trust",
        SERVER,
        "Secure sums, client: whose mask keys are believed; server, which passes them "
        "on, or a file with every client's verifying key, a line <number> <64 hex "
        "digits> each. All sides must have the one or the other.",
        text,
    ),
    Key(
        f"{_NAME}_confirm",
        False,
        "Secure sums, distributed, with secure_sums_trust: server: before anything is "
        "sent, each client waits until its person has typed the words that another "
        "client's person reads out by telephone. Words differ where the server made "
        "up keys.",
        one_of(True, False),
    ),
    Key(
        f"{_NAME}_signing_key",
        "",
        "Secure sums, client, with a file in secure_sums_trust: PEM file of its own "
        "Ed25519 key; {client} in it stands for the client's number.",
        text,
    ),
    Key(
        f"{_NAME}_store",
        "secure_sums",
        "Secure sums, distributed, client: folder in which it keeps what it has sent, "
        "so that it sends nothing twice that could be subtracted; keep it from run to "
        "run.",
        text,
    ),
    Key(
        f"{_NAME}_new_roster",
        False,
        "Secure sums, client: allow a second sum over the same rows with other "
        "clients. The difference of the two sums is what those that joined or left "
        "have; fewer than secure_sums_min_clients of them are refused even so.",
        one_of(True, False),
    ),
    Key(
        f"{_NAME}_max_upload_mb",
        64.0,
        "Secure sums: megabytes that a client sends in one stage at most; more is "
        "refused before anything is sent.",
        whole(1, maximum=4096),
    ),
)
BY_SERVER = "keys through the server"
#: What all sides must have alike beside the shared keys, where sums are on.
_AGREED = (
    *(_NAME, f"{_NAME}_min_clients", f"{_NAME}_radius", f"{_NAME}_max_rows"),
    *(f"{_NAME}_fraction_bits", f"{_NAME}_confirm"),
    *("privacy.min_samples", "prototypes"),
)


def agreed_sums(ggeur) -> dict[str, object]:
    """What all sides must have alike because of secure sums; nothing without them."""
    if ggeur.privacy.secure_sums == "none":
        return {}
    values = {name.partition(".")[2]: name for name in _AGREED if "." in name}
    own = {f"ggeur.{full}": ggeur.privacy[last] for last, full in values.items()}
    # Everyone's file of keys has a name of its own.
    trust = ggeur.privacy.secure_sums_trust
    own[f"ggeur.{_NAME}_trust"] = trust if trust == SERVER else "a file"
    return {**own, "ggeur.prototypes": ggeur.prototypes}


def word_for_keys(privacy) -> str:
    """Whose word for clients' keys is taken; all sides have these settings alike."""
    if privacy.secure_sums_trust != SERVER:
        return "keys signed by the clients"
    compared = ", compared by people" if privacy.secure_sums_confirm else ""
    return f"{BY_SERVER}{compared}"


def sum_settings(
    cfg,
    demands: Demands,
    num_classes: int,
    dim: int,
    agreed: Mapping[str, str],
    class_names: Sequence[str],
) -> SumSettings:
    """The secure sums in `cfg`, whose facts are `demands`.

    Raises
    ------
    ConfigError
        A client would send more than it may.
    """
    own = cfg.ggeur.privacy
    form = CLOSED_FORMS.get(cfg.ggeur.closed_form)
    solves = form is not None and form.NEEDS != "means"
    needs_scatter = bool(demands.steps) or demands.space != "raw" or solves
    settings = SumSettings(
        num_classes,
        dim,
        int(own.min_samples),
        STAGES if needs_scatter else STAGES[:2],
        min_clients=int(own.secure_sums_min_clients),
        radius=float(own.secure_sums_radius),
        max_rows=int(own.secure_sums_max_rows),
        fraction_bits=int(own.secure_sums_fraction_bits),
        agreed=hashlib.sha256(json.dumps(agreed, sort_keys=True).encode()).digest(),
        sends_shape=bool(demands.steps) or demands.space == "whitened",
        trust=own.secure_sums_trust,
        signing_key=own.secure_sums_signing_key,
        store=own.secure_sums_store if _is_distributed(cfg) else "",
        new_roster=own.secure_sums_new_roster,
        class_names=tuple(class_names),
        confirm=own.secure_sums_confirm,
    )
    size = 8 * settings.longest / 1e6
    if size > own.secure_sums_max_upload_mb:
        raise ConfigError(
            f"ggeur.{_NAME}_max_upload_mb: is {own.secure_sums_max_upload_mb:g}, and a "
            f"client would send {size:.0f} MB for {num_classes} classes in {dim} "
            "dimensions; raise it, or take embeddings of fewer dimensions"
        )
    return settings


def _is_distributed(cfg) -> bool:
    # The mode is hidden from what FS's constructors make, see `for_constructor`.
    used = "distribute" in cfg and bool(cfg.distribute.get("use"))
    return used or cfg.federate.mode == "distributed"


def secure_sums_problems(cfg, demands: Demands) -> Iterator[str]:
    """What cannot go with secure sums, each ``"<key>: <problem>"``."""
    ggeur = cfg.ggeur
    if not demands.sums:
        if ggeur.prototypes == "others":
            yield (
                "ggeur.prototypes: others, one over all other clients, needs "
                f"ggeur.{_NAME}: statistics"
            )
        if ggeur.privacy.secure_sums_confirm:
            yield (
                f"ggeur.{_NAME}_confirm: True needs ggeur.{_NAME}: statistics; there "
                "are no keys to compare"
            )
        return
    own, beside = ggeur.privacy, f"with ggeur.{_NAME}: statistics"
    if find_spec("cryptography") is None:
        yield (
            f"ggeur.{_NAME}: needs the package cryptography: pip install "
            "'federatedscope-ggeur[privacy]'"
        )
    most = largest_fraction_bits(own.secure_sums_radius, int(own.secure_sums_max_rows))
    if own.secure_sums_fraction_bits > most:
        advice = f"set it to {most}" if most >= 8 else "lower one of the others"
        yield (
            f"ggeur.{_NAME}_fraction_bits: {own.secure_sums_fraction_bits:g} do not "
            f"fit 64 bits with ggeur.{_NAME}_radius {own.secure_sums_radius:g} and "
            f"ggeur.{_NAME}_max_rows {own.secure_sums_max_rows:g}; {advice}"
        )
    if (own.secure_sums_trust == SERVER) != (own.secure_sums_signing_key == ""):
        yield (
            f"ggeur.{_NAME}_signing_key: goes with a file in ggeur.{_NAME}_trust, "
            "which has the verifying keys"
        )
    if own.secure_sums_confirm and own.secure_sums_trust != SERVER:
        yield (
            f"ggeur.{_NAME}_confirm: must be False with a file in ggeur.{_NAME}_trust: "
            "keys that are signed need no telephone"
        )
    if own.secure_sums_confirm and not _is_distributed(cfg):
        yield (
            f"ggeur.{_NAME}_confirm: must be False without federate.mode: distributed: "
            "all clients are one process, and no keys travel"
        )
    clients = cfg.federate.client_num
    if 0 < clients < own.secure_sums_min_clients:
        yield (
            f"federate.client_num: {clients}, and ggeur.{_NAME}_min_clients asks for "
            f"{own.secure_sums_min_clients:g}: of two clients each knows what the "
            "other has sent, by taking its own from the sum"
        )
    if _is_distributed(cfg) and not own.secure_sums_store:
        yield f"ggeur.{_NAME}_store: must name a folder in distributed mode"
    if "train" in cfg.eval.split:
        yield (
            f"eval.split: must not hold train {beside}: losses of the rows that are "
            "summed would be seen by client"
        )
    yield from _head_problems(ggeur, beside)
    yield from _step_problems(ggeur, demands, beside)
    yield from _part_problems(ggeur, beside)
    yield from _exchange_problems(demands, beside)


def _head_problems(ggeur, beside: str) -> Iterator[str]:
    form = CLOSED_FORMS.get(ggeur.closed_form)
    if form is not None and not form.from_sums:
        fitting = [name for name, other in CLOSED_FORMS.items() if other.from_sums]
        yield (
            f"ggeur.closed_form: must be none, {' or '.join(fitting)} {beside}, got "
            f"{ggeur.closed_form}, which needs more than counts, means and one scatter "
            "over all clients"
        )
    if ggeur.keep == "best":
        yield (
            f"ggeur.keep: must be trained {beside}: what chooses between heads is "
            "known by client only"
        )
    if ggeur.calibrate != "none":
        yield f"ggeur.calibrate: must be none {beside}, since it sends statistics again"
    if ggeur.statistics not in ("class", "summed"):
        yield (
            f"ggeur.statistics: must be class or summed {beside}, which sends sums "
            f"only, got {ggeur.statistics}"
        )
    if ggeur.screen == "refuse":
        yield (
            f"ggeur.screen: must be warn or off {beside}: what a single client sends "
            "in round 0 is seen by nobody"
        )


def _step_problems(ggeur, demands: Demands, beside: str) -> Iterator[str]:
    if ggeur.network.name:
        yield f"ggeur.network.name: must be '' {beside}, which sums embeddings"
        return
    if demands.steps and ggeur.geometry != "pooled":
        yield (
            f"ggeur.geometry: must be pooled {beside} and ggeur.steps that are not []: "
            "one scatter is summed for all classes"
        )
    if 2 in demands.steps and ggeur.prototypes != "others":
        yield (
            f"ggeur.prototypes: must be others {beside} and step 2: no mean of a "
            "single domain or client is known"
        )
    if not demands.closed_form and not demands.statistics:
        yield (
            f"ggeur.{_NAME}: there is nothing to sum: neither ggeur.closed_form nor "
            "ggeur.steps nor ggeur.space: whitened asks for class statistics"
        )


def _part_problems(ggeur, beside: str) -> Iterator[str]:
    base = METHODS.get(ggeur.base_method)
    added = AUGMENTATIONS.get(ggeur.augmentation)
    if base is not None and base.pools_data:
        yield f"ggeur.base_method: cannot be {base.name} {beside}: there is one client"
    for field, part in (("base_method", base), ("augmentation", added)):
        if part is not None and _sends_of_rows(part):
            yield (
                f"ggeur.{field}: cannot be {part.name} {beside}: its clients send more "
                "than weights, each its own, which tells of rows"
            )


def _exchange_problems(demands: Demands, beside: str) -> Iterator[str]:
    for part in plugin_exchanges(demands):
        if not part.REVEALS:
            yield (
                f"ggeur.plugins: the exchange {part.name} of {part.__module__} cannot "
                f"be asked {beside}: it does not say what its answers tell of rows; "
                "give its class a REVEALS, or take the plugin out"
            )


def _sends_of_rows(part: type[Method]) -> bool:
    own = (
        part.upload_shapes is not Method.upload_shapes
        or part.init_upload_shapes is not Method.init_upload_shapes
    )
    return own and not part.sends_weights_alone
