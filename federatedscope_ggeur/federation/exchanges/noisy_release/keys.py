"""Settings of differential privacy, and the settings that cannot go with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from federatedscope_ggeur.data.expected import Expected
from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.noise import (
    CLIENT,
    DISTRIBUTED,
    NOISE_BY,
    SERVER,
    NoiseSettings,
)
from federatedscope_ggeur.geometry.gaussian_privacy import mu_of
from federatedscope_ggeur.geometry.noisy_release import ROWS_FOR_SQUARE, ReleasePlan
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.settings import (
    Key,
    Objection,
    Objections,
    Problem,
    is_number,
    one_of,
    rule_of,
    text,
    whole,
)

from ..base import plugin_exchanges
from .public import public_rows

_DP = "privacy.dp"
#: A larger epsilon protects nobody: e^100 is about 10^43.
LARGEST_EPSILON = 100.0


def _epsilon(what: str):
    return rule_of(
        f"must be {what}, or above 0 and at most {LARGEST_EPSILON:g}",
        lambda value: is_number(value) and 0 <= value <= LARGEST_EPSILON,
    )


KEYS = (
    Key(
        f"{_DP}.epsilon",
        0.0,
        "Differential privacy of the statistics of round 0: epsilon for each row of "
        "each client; 0: no differential privacy.",
        _epsilon("0 (no differential privacy)"),
    ),
    Key(
        f"{_DP}.delta",
        1e-5,
        "Differential privacy: delta. Keep it well below one over the number of all "
        "rows.",
        rule_of(
            "must be above 0 and at most 0.01",
            lambda value: is_number(value) and 0 < value <= 0.01,
        ),
    ),
    Key(
        f"{_DP}.noise",
        DISTRIBUTED,
        "Differential privacy: who adds the noise. distributed: each client adds a "
        "share, under the masks of secure sums. client: each client adds all of it. "
        "server: the server adds it, and sees everything without noise.",
        one_of(*NOISE_BY),
    ),
    Key(
        f"{_DP}.tolerated",
        -1.0,
        "With dp.noise distributed: how many clients may collude with the server "
        "while epsilon still holds for all others; -1: a third of all clients.",
        whole(0, not_set_allowed=True),
    ),
    Key(
        f"{_DP}.rows_per_class",
        0.0,
        "Differential privacy: your guess of how many rows a class has over all "
        "clients, from public knowledge only. From 100 on, clients also release the "
        "second moment.",
        whole(0),
    ),
    Key(
        f"{_DP}.project",
        256.0,
        "Differential privacy: a random projection reduces longer embeddings to this "
        "many dimensions; 0: no projection.",
        whole(0),
    ),
    Key(
        f"{_DP}.project_seed",
        0.0,
        "Differential privacy: seed of the random projection. It is public.",
        whole(0),
    ),
    Key(
        f"{_DP}.prior",
        "",
        "Differential privacy, server: npz file of public embeddings (features, "
        "labels), one or more for each class. The release corrects their class means.",
        text,
    ),
    Key(
        f"{_DP}.ledger",
        "",
        "Differential privacy, client: folder of the ledger, where the client records "
        "the budget spent on each row. Keep it from run to run. Distributed runs need "
        "one.",
        text,
        in_site_folder=True,
    ),
    Key(
        f"{_DP}.epsilon_total",
        0.0,
        "Differential privacy, client: the largest epsilon of a row over all its "
        "releases together, at dp.delta; 0: dp.epsilon, enough for one release.",
        _epsilon("0 (one release)"),
    ),
    Key(
        f"{_DP}.report_scores",
        False,
        "Differential privacy: clients send the server exact scores of the head on "
        "their test rows. Epsilon does not cover these scores.",
        one_of(True, False),
    ),
    Key(
        f"{_DP}.test_seed",
        -1.0,
        "Differential privacy, for tests only: seed of the noise. Seeded noise "
        "protects nothing. -1: the operating system draws the noise.",
        whole(0, not_set_allowed=True),
    ),
)

#: The settings that server and clients must have in common.
_AGREED = (
    "epsilon", "delta", "noise", "tolerated", "rows_per_class", "project",
    "project_seed", "report_scores",
)  # fmt: skip


def agreed(run: Demands) -> dict[str, object]:
    """The noise settings that server and clients must share; {} without noise."""
    return {f"dp.{name}": run[f"dp.{name}"] for name in _AGREED}


def noise_settings(
    run: Demands, num_classes: int, dim: int, expected: Expected
) -> NoiseSettings:
    """The release's settings, from the facts of the run."""
    delta = run["dp.delta"]
    total, prior = run["dp.epsilon_total"] or run["dp.epsilon"], run["dp.prior"]
    plan = release_plan(run, num_classes, dim)
    return NoiseSettings(
        plan,
        by=run["dp.noise"],
        tolerated=run["dp.tolerated"],
        preparation=expected.given.transform,
        class_names=expected.class_names,
        ledger=run["dp.ledger"],
        most_mu=mu_of(total, delta),
        most_clients=run["client_num"],
        test_seed=run["dp.test_seed"],
        public=partial(public_rows, prior, expected, dim) if prior else None,
    )


def release_plan(run: Demands, num_classes: int, dim: int) -> ReleasePlan:
    """The numbers of the release, for one party that adds all the noise."""
    about = run["dp.epsilon"], run["dp.delta"], releases_square(run)
    return ReleasePlan(num_classes, dim, *about)


def releases_square(run: Demands) -> bool:
    """Whether clients release the second moment; only public numbers decide this."""
    form = run.form
    return (
        form is not None
        and form.NEEDS != "means"
        and run["dp.rows_per_class"] >= ROWS_FOR_SQUARE
        and not run["dp.prior"]
    )


def objections(run: Demands) -> Objections:
    """The settings that exclude differential privacy, and those that need it."""
    if not run.noisy:
        for key in KEYS[1:]:
            field = key.name.removeprefix("privacy.")
            default = key.read(key.default)
            why = "which turns differential privacy off"
            yield Objection("dp.epsilon", {field: [default]}, why)
        return
    own = "dp.epsilon"
    yield from _own_problems(run)
    if run["dp.noise"] == DISTRIBUTED and not run.only_totals:
        kinds = [SERVER, CLIENT]
        why = "since without masks nobody adds up the clients' shares of the noise"
        yield Objection("secure_sums", {"dp.noise": kinds}, why)
    elif run["dp.noise"] != DISTRIBUTED:
        yield Objection("dp.noise", {"secure_sums": ["none"]}, "which needs no sums")
    forms = [name for name, form in CLOSED_FORMS.present().items() if form.from_noise]
    why = "since the noise drowns other heads" if run.form else _ROUNDS
    yield Objection(own, {"closed_form": forms}, why)
    if run.image_model:
        yield Objection(own, {run.image_model: [""]}, "which releases embeddings")
    for field, (allowed, reason) in _TURNED_OFF.items():
        yield Objection(own, {field: allowed}, reason)
    if "train" in run["splits"]:
        yield Objection(
            own, {"splits": []}, "since scores of training rows have no noise"
        )
    if run.reads_images:
        yield own, "needs embeddings, not images; make them with `ggeur embed`"
    for part in (run.method, run.augmentation):
        if part is not None and part.pools_data:
            yield Objection(own, {part.chosen_by: []}, "since there is one client")
    if plugin_exchanges(run):
        yield (
            "plugins",
            f"remove plugins that ask clients, or {setting(own)}: no noise covers "
            "what these answers reveal about rows",
        )


_ROUNDS = "since rounds send exact updates, which reveal rows and which epsilon ignores"
_EXACT = "since clients would send exact numbers"
_SCALED = "which scales rows to length 1 and has its own grid"
_FIXED = "which fixes the settings of its heads, to suit the noise"
#: The values that other settings may have, and the reason.
_TURNED_OFF: Mapping[str, tuple[Sequence[object], str]] = {
    "init": (["random"], _ROUNDS),
    "calibrate": (["none"], _EXACT),
    "personal.head": (["none"], _EXACT),
    "confidences": ([False], _EXACT),
    "lda.shrinkage": ([None], _FIXED),
    "lda.rule": (["leave_one_out"], _FIXED),
    "lda.priors": (["counts"], _FIXED),
    "lda.standardize": ([False], _FIXED),
    "statistics": (["class"], "which sends statistics in its own form"),
    "float32_means": ([False], "since clients send no means"),
    "min_samples": ([5, 1], "which uses all rows, without a threshold"),
    "secure_sums_radius": ([1.01], _SCALED),
    "secure_sums_fraction_bits": ([40], _SCALED),
    "secure_sums_new_roster": ([False], "since dp.ledger limits what a client sends"),
    "unseen_client_num": ([0], "since unseen clients only send exact scores"),
}


def _own_problems(run: Demands) -> Iterator[Problem]:
    if not run["dp.rows_per_class"]:
        yield (
            "dp.rows_per_class",
            "must be set: about how many rows a class has over all clients. Guess it "
            "from public knowledge; a look at the data would cost privacy",
        )
    total = run["dp.epsilon_total"]
    if 0 < total < run["dp.epsilon"]:
        yield "dp.epsilon_total", f"must not be below {setting('dp.epsilon')}"
    if run.distributed and not run["dp.ledger"]:
        yield "dp.ledger", "must name a folder in distributed mode"
    if run.distributed and not run["agreed.class_names"]:
        yield (
            "agreed.class_names",
            "must name all classes in distributed mode, in the order of their "
            "numbers: otherwise a client's own list tells the server its classes",
        )
    if not run["dp.project"] and run["dp.project_seed"]:
        yield "dp.project_seed", f"has no effect with {setting('dp.project')}: 0"
    clients, spared = run["client_num"], run["dp.tolerated"]
    if spared is not None and run["dp.noise"] != DISTRIBUTED:
        yield "dp.tolerated", f"needs {setting('dp.noise')}: distributed"
    elif spared is not None and 0 < clients < spared + 2:
        yield (
            "dp.tolerated",
            f"lets {spared} of {clients} clients collude, but at least two must be "
            "honest",
        )
