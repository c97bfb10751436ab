"""What secure sums make of a run's settings, and what cannot go with them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.augmentation.keys import AugmentationKeys
from federatedscope_ggeur.federation.exchanges.base import RunFacts, plugin_exchanges
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.reporting import Privacy
from federatedscope_ggeur.settings import Objection, Objections, Problem

from .limits import SERVER, largest_fraction_bits
from .manifest import SumKeys
from .settings import STAGES, SumSettings, summand_of

BY_SERVER = "keys through the server"
_COVERED = ["the statistics of round 0"]
_CURIOUS = ["a curious server", "curious clients"]
_TRAINING = (
    "training rounds escape the masks: each client's update is seen",
    "each client's aggregation weight escapes them, too",
)
_MADE_UP = "a server that makes up keys can read what each client adds"
_LIAR = "a client that lies about its rows can learn those of others"
_TOTALS = "rows of each class over all clients are seen by everyone"


def is_chosen(chosen: Mapping[str, Any]) -> bool:
    """Whether a run with these settings has secure sums."""
    return chosen.get("secure_sums", "none") != "none"


def agreed(run: Demands) -> dict[str, object]:
    """The settings of secure sums that server and clients must share."""
    own = run.of(SumKeys)
    return {
        "secure_sums": own.secure_sums,
        "secure_sums_min_clients": own.min_clients,
        "secure_sums_radius": own.radius,
        "secure_sums_max_rows": own.max_rows,
        "secure_sums_fraction_bits": own.fraction_bits,
        "secure_sums_confirm": own.confirm,
        "min_samples": run.min_samples,
        "prototypes": run.of(AugmentationKeys).prototypes,
        # The path of the file of keys may differ between sides.
        "secure_sums_trust": SERVER if own.trust == SERVER else "a file",
    }


def word_for_keys(run: Demands) -> str:
    """A text that says whether keys come through the server or are signed."""
    own = run.of(SumKeys)
    if own.trust != SERVER:
        return "keys signed by the clients"
    compared = ", compared by people" if own.confirm else ""
    return f"{BY_SERVER}{compared}"


def privacy(before: Privacy, run: Demands) -> Privacy:
    """The privacy of a run with secure sums; `before` is that without them."""
    keys = word_for_keys(run)
    by_server, part = keys == BY_SERVER, summand_of(run)
    if part is not None:
        return part.privacy(before, keys, by_server)
    rounds = _TRAINING if run.trains else ()
    asked = [
        f"the exchange {part.name} of a plugin escapes the masks: {part.REVEALS}"
        for part in plugin_exchanges(run)
    ]
    made_up = [_MADE_UP] if by_server else []
    return replace(
        before,
        guarantee="sums",
        covers=list(_COVERED),
        against=list(_CURIOUS),
        warnings=[*before.warnings, *rounds, *asked, *made_up, _LIAR, _TOTALS],
        keys=keys,
    )


def sum_settings(facts: RunFacts) -> SumSettings:
    """The settings of secure sums in a run with these facts.

    Raises
    ------
    ConfigError
        A client would have to send more than the settings allow.
    """
    run, agreed = facts.demands, json.dumps(facts.agreed, sort_keys=True).encode()
    solves = run.form is not None and run.form.NEEDS != "means"
    needs_scatter = bool(run.steps) or run.space != "raw" or solves
    stages = STAGES if needs_scatter else STAGES[:2]
    part = summand_of(run)
    settings = run.of(
        SumSettings,
        num_classes=facts.num_classes,
        dim=facts.dim,
        min_samples=run.min_samples,
        stages=stages if part is None else part.STAGES,
        agreed=hashlib.sha256(agreed).digest(),
        sends_shape=bool(run.steps),
        class_names=facts.expected.class_names,
        summand=None if part is None else part.of(facts),
    )
    # In one process nothing is sent, so nothing needs to be noted.
    return settings if run.distributed else replace(settings, store="")


def objections(run: Demands) -> Objections:
    """The settings that exclude secure sums, and those that require them."""
    own = "secure_sums"
    if not is_chosen(run.chosen):
        silent = {"secure_sums_confirm": [False]}
        yield Objection(own, silent, "which has no keys to compare")
        return
    yield from _own_problems(run)
    if "train" in run.splits:
        why = "since the server would see each client's loss on the summed rows"
        yield Objection(own, {"splits": []}, why)
    forms = [
        "none",
        *(name for name, form in CLOSED_FORMS.present().items() if form.from_sums),
    ]
    why = "which only gives counts, means and one scatter over all clients"
    yield Objection(own, {"closed_form": forms}, why)
    why = "since the choice between heads needs answers of single clients"
    yield Objection(own, {"keep": ["trained"]}, why)
    yield Objection(
        own,
        {"calibrate": ["none"]},
        "since calibration sends statistics of each client",
    )
    sums = {"statistics": ["needed", "class", "summed"]}
    yield Objection(own, sums, "which only sends sums")
    why = "since nobody sees single clients' statistics in round 0"
    yield Objection(own, {"screen": ["warn", "off"]}, why)
    if run.image_model:
        yield Objection(own, {run.image_model: [""]}, "which sums embeddings")
    if run.personal:
        why = "since clients report scores of their own rows"
        yield Objection("personal.head", {own: ["none"]}, why)
    if run.steps and not run.image_model:
        why = "which sums one scatter for all classes"
        yield Objection(own, {"geometry": ["pooled"]}, why)
    if 2 in run.steps and not run.image_model:
        why = "since nobody knows the mean of a single domain or client"
        yield Objection(own, {"prototypes": ["others"]}, why)
    for part in (run.method, run.augmentation):
        if part is not None and part.pools_data:
            yield Objection(own, {part.chosen_by: []}, "since there is one client")
        elif part is not None and part.sends_of_rows:
            why = "since its clients also send tensors that reveal rows"
            yield Objection(own, {part.chosen_by: []}, why)


def _own_problems(run: Demands) -> Iterator[Problem]:
    """The values of the secure-sums keys that do not fit together."""
    if find_spec("cryptography") is None:
        install = "pip install 'federatedscope-ggeur[privacy]'"
        yield "secure_sums", f"needs the package cryptography: {install}"
    if not run.closed_form and not run.statistics:
        nobody = " nor ".join(map(setting, ("closed_form", "steps", "space")))
        yield (
            "secure_sums",
            f"there is nothing to sum, since neither {nobody} needs statistics",
        )
    own = run.of(SumKeys)
    most = largest_fraction_bits(own.radius, own.max_rows, limbs=2)
    if own.fraction_bits > most:
        advice = f"set it to {most}" if most >= 8 else "lower one of the others"
        yield (
            "secure_sums_fraction_bits",
            f"{own.fraction_bits} do not fit 128 bits with "
            f"{setting('secure_sums_radius')} {own.radius:g} and "
            f"{setting('secure_sums_max_rows')} {own.max_rows}; {advice}",
        )
    trust = setting("secure_sums_trust")
    if (own.trust == SERVER) != (own.signing_key == ""):
        why = f"must be set together with a file of verifying keys in {trust}"
        yield "secure_sums_signing_key", why
    if own.confirm and own.trust != SERVER:
        why = (
            f"must be False with a file in {trust}, since signed keys need no "
            "telephone call"
        )
        yield "secure_sums_confirm", why
    if own.confirm and not run.distributed:
        why = (
            f"must be False without {setting('mode')}: distributed, since all "
            "clients are one process and no keys travel"
        )
        yield "secure_sums_confirm", why
    for part in plugin_exchanges(run):
        if not part.REVEALS:
            yield (
                "plugins",
                f"the exchange {part.name} of {part.__module__} does not say what "
                f"its answers reveal about rows, so {setting('secure_sums')} refuses "
                "it; give its class a REVEALS, or take the plugin out",
            )
    clients, least = run.client_num, own.min_clients
    if 0 < clients < least:
        yield (
            "client_num",
            f"{clients}, but {setting('secure_sums_min_clients')} needs {least}. Of "
            "two clients, each could subtract its own statistics from the sum and "
            "see the other's",
        )
    if run.distributed and not own.store:
        yield "secure_sums_store", "must name a folder in distributed mode"
