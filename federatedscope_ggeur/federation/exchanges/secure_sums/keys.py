"""Settings of secure sums, and the settings that cannot go with them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec

from federatedscope_ggeur.errors import ConfigError, setting
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.noise import NoiseSettings
from federatedscope_ggeur.geometry.noisy_release import RELEASE_STAGES
from federatedscope_ggeur.methods import Method
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.settings import (
    Key,
    Objection,
    Objections,
    Problem,
    one_of,
    positive,
    text,
    whole,
)

from ..base import plugin_exchanges
from .fixed_point import MOST_BITS, largest_fraction_bits
from .messages import MOST_CLIENTS
from .settings import STAGES, SumSettings
from .trust import SERVER

_NAME = "privacy.secure_sums"
KEYS = (
    Key(
        _NAME,
        "none",
        "statistics: clients mask their statistics of round 0, and the masks cancel "
        "in the sum. The server sees only totals, and privacy.min_samples applies to "
        "totals. none: the server sees each client's statistics.",
        one_of("none", "statistics"),
    ),
    Key(
        f"{_NAME}_min_clients",
        3.0,
        "Secure sums: the smallest number of clients in a sum.",
        whole(3, maximum=MOST_CLIENTS),
    ),
    Key(
        f"{_NAME}_radius",
        1.01,
        "Secure sums: the largest length of an embedding. A client with a longer one "
        "refuses to take part. The default suits embeddings of length 1, also in "
        "float16.",
        positive,
    ),
    Key(
        f"{_NAME}_max_rows",
        1048576.0,
        "Secure sums: the largest number of rows of all clients together.",
        whole(1),
    ),
    Key(
        f"{_NAME}_fraction_bits",
        40.0,
        "Secure sums: binary places that numbers are rounded to before they are added.",
        whole(8, maximum=MOST_BITS),
    ),
    Key(
        f"{_NAME}_trust",
        SERVER,
        "Secure sums, client: how clients know each other's mask keys. server: they "
        "trust the server, which passes the keys on. Otherwise a file with every "
        "client's verifying key, one line <number> <64 hex digits> each. All sides "
        "must choose the same way.",
        text,
    ),
    Key(
        f"{_NAME}_confirm",
        False,
        "Secure sums, distributed, with secure_sums_trust server: before a client "
        "sends anything, its person types words that the person at another client "
        "reads out by telephone. The words differ if the server has exchanged keys.",
        one_of(True, False),
    ),
    Key(
        f"{_NAME}_signing_key",
        "",
        "Secure sums, client, with a file in secure_sums_trust: PEM file with the "
        "client's own Ed25519 key. {client} in the path stands for the client's "
        "number.",
        text,
    ),
    Key(
        f"{_NAME}_store",
        "secure_sums",
        "Secure sums, distributed, client: folder that records what the client has "
        "sent, so that it never joins two sums whose difference reveals rows. Keep it "
        "from run to run.",
        text,
    ),
    Key(
        f"{_NAME}_new_roster",
        False,
        "Secure sums, client: allow a second sum over the same rows with other "
        "clients. The difference of the two sums reveals the statistics of the "
        "clients that joined or left. If these are fewer than "
        "secure_sums_min_clients, the client refuses all the same.",
        one_of(True, False),
    ),
    Key(
        f"{_NAME}_max_upload_mb",
        64.0,
        "Secure sums: the most megabytes that a client sends in one stage. If a stage "
        "needs more, the run is refused before anything is sent.",
        whole(1, maximum=4096),
    ),
)

BY_SERVER = "keys through the server"


def agreed(run: Demands) -> dict[str, object]:
    """The settings of secure sums that server and clients must share."""
    own = ("min_clients", "radius", "max_rows", "fraction_bits", "confirm")
    fields = ["secure_sums", *(f"secure_sums_{name}" for name in own)]
    found = {field: run[field] for field in (*fields, "min_samples", "prototypes")}
    # The path of the file of keys may differ between sides.
    trust = run["secure_sums_trust"]
    return {**found, "secure_sums_trust": trust if trust == SERVER else "a file"}


def word_for_keys(run: Demands) -> str:
    """A text that says whether keys come through the server or are signed."""
    if run["secure_sums_trust"] != SERVER:
        return "keys signed by the clients"
    compared = ", compared by people" if run["secure_sums_confirm"] else ""
    return f"{BY_SERVER}{compared}"


def sum_settings(
    run: Demands,
    num_classes: int,
    dim: int,
    agreed: Mapping[str, str],
    class_names: Sequence[str],
    noise: NoiseSettings | None = None,
) -> SumSettings:
    """The settings of secure sums in a run with these facts.

    Raises
    ------
    ConfigError
        A client would have to send more than the settings allow.
    """
    solves = run.form is not None and run.form.NEEDS != "means"
    needs_scatter = bool(run.steps) or run.space != "raw" or solves
    stages = STAGES if needs_scatter else STAGES[:2]
    if noise is not None:
        stages = RELEASE_STAGES
    settings = SumSettings(
        num_classes,
        dim,
        run["min_samples"],
        stages,
        min_clients=run["secure_sums_min_clients"],
        radius=run["secure_sums_radius"],
        max_rows=run["secure_sums_max_rows"],
        fraction_bits=run["secure_sums_fraction_bits"],
        agreed=hashlib.sha256(json.dumps(agreed, sort_keys=True).encode()).digest(),
        sends_shape=bool(run.steps) or run.space == "whitened",
        trust=run["secure_sums_trust"],
        signing_key=run["secure_sums_signing_key"],
        store=run["secure_sums_store"] if run.distributed else "",
        new_roster=run["secure_sums_new_roster"],
        class_names=tuple(class_names),
        confirm=run["secure_sums_confirm"],
        noise=noise,
    )
    size, most = 8 * settings.longest / 1e6, run["secure_sums_max_upload_mb"]
    if size > most:
        raise ConfigError(
            f"{setting('secure_sums_max_upload_mb')}: is {most}, but a client would "
            f"send {size:.0f} MB for {num_classes} classes in {dim} dimensions; "
            "raise it, or take embeddings of fewer dimensions"
        )
    return settings


def objections(run: Demands) -> Objections:
    """The settings that exclude secure sums, and those that require them."""
    own = "secure_sums"
    if not run.sums:
        kinds = {"prototypes": ["domain", "client"]}
        yield Objection(own, kinds, "which has no means over all other clients")
        silent = {"secure_sums_confirm": [False]}
        yield Objection(own, silent, "which has no keys to compare")
        return
    yield from _own_problems(run)
    if "train" in run["splits"]:
        why = "since the server would see each client's loss on the summed rows"
        yield Objection(own, {"splits": []}, why)
    forms = ["none", *(name for name, form in CLOSED_FORMS.items() if form.from_sums)]
    why = "which only gives counts, means and one scatter over all clients"
    yield Objection(own, {"closed_form": forms}, why)
    why = "since the choice between heads needs answers of single clients"
    yield Objection(own, {"keep": ["trained"]}, why)
    yield Objection(
        own,
        {"calibrate": ["none"]},
        "since calibration sends statistics of each client",
    )
    sums = {"statistics": ["class", "summed"]}
    yield Objection(own, sums, "which only sends sums")
    why = "since nobody sees single clients' statistics in round 0"
    yield Objection(own, {"screen": ["warn", "off"]}, why)
    if run.image_model:
        yield Objection(own, {run.image_model: [""]}, "which sums embeddings")
    if run.steps and not run.image_model:
        why = "which sums one scatter for all classes"
        yield Objection(own, {"geometry": ["pooled"]}, why)
    if 2 in run.steps and not run.image_model:
        why = "since nobody knows the mean of a single domain or client"
        yield Objection(own, {"prototypes": ["others"]}, why)
    for part in (run.method, run.augmentation):
        if part is not None and part.pools_data:
            yield Objection(own, {part.chosen_by: []}, "since there is one client")
        elif part is not None and _sends_of_rows(part):
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
    radius, rows = run["secure_sums_radius"], run["secure_sums_max_rows"]
    bits, most = run["secure_sums_fraction_bits"], largest_fraction_bits(radius, rows)
    if bits > most:
        advice = f"set it to {most}" if most >= 8 else "lower one of the others"
        yield (
            "secure_sums_fraction_bits",
            f"{bits} do not fit 64 bits with {setting('secure_sums_radius')} "
            f"{radius:g} and {setting('secure_sums_max_rows')} {rows}; {advice}",
        )
    trust = setting("secure_sums_trust")
    if (run["secure_sums_trust"] == SERVER) != (run["secure_sums_signing_key"] == ""):
        why = f"must be set together with a file of verifying keys in {trust}"
        yield "secure_sums_signing_key", why
    if run["secure_sums_confirm"] and run["secure_sums_trust"] != SERVER:
        why = (
            f"must be False with a file in {trust}, since signed keys need no "
            "telephone call"
        )
        yield "secure_sums_confirm", why
    if run["secure_sums_confirm"] and not run.distributed:
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
    clients, least = run["client_num"], run["secure_sums_min_clients"]
    if 0 < clients < least:
        yield (
            "client_num",
            f"{clients}, but {setting('secure_sums_min_clients')} needs {least}. Of "
            "two clients, each could subtract its own statistics from the sum and "
            "see the other's",
        )
    if run.distributed and not run["secure_sums_store"]:
        yield "secure_sums_store", "must name a folder in distributed mode"


def _sends_of_rows(part: type[Method]) -> bool:
    own = (
        part.upload_shapes is not Method.upload_shapes
        or part.init_upload_shapes is not Method.init_upload_shapes
    )
    return own and not part.sends_weights_alone
