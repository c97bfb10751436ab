"""Settings of differential privacy, and what cannot go with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.base import plugin_exchanges
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

_DP = "privacy.dp"
#: Above, e^epsilon says nothing that a person could use.
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
        "Differential privacy: a public guess of how many rows a class has over all "
        "clients. Nothing looks at the data for it. From 100 on, the release has the "
        "second moment, too.",
        whole(0),
    ),
    Key(
        f"{_DP}.project",
        256.0,
        "Differential privacy: a random projection takes longer embeddings to this "
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
        "labels), one or more for each class. Their class means are the first guess, "
        "which the release corrects.",
        text,
    ),
    Key(
        f"{_DP}.ledger",
        "",
        "Differential privacy, client: folder of the ledger, which records the budget "
        "spent on each row. Keep it from run to run. Distributed runs need one.",
        text,
    ),
    Key(
        f"{_DP}.epsilon_total",
        0.0,
        "Differential privacy, client: budget of a row over all releases, as epsilon "
        "at dp.delta; 0: dp.epsilon, which is enough for one release.",
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

#: What all sides must have alike.
_AGREED = (
    "epsilon", "delta", "noise", "tolerated", "rows_per_class", "project",
    "project_seed", "report_scores",
)  # fmt: skip


def agreed(run: Demands) -> dict[str, object]:
    """The settings that all sides must share if statistics are released with noise."""
    return {f"dp.{name}": run[f"dp.{name}"] for name in _AGREED}


def noise_settings(
    run: Demands,
    num_classes: int,
    dim: int,
    class_names: Sequence[str],
    preparation: str,
) -> NoiseSettings:
    """The release's settings, from the facts of the run."""
    delta = run["dp.delta"]
    total = run["dp.epsilon_total"] or run["dp.epsilon"]
    plan = ReleasePlan(num_classes, dim, run["dp.epsilon"], delta, releases_square(run))
    return NoiseSettings(
        plan,
        by=run["dp.noise"],
        tolerated=run["dp.tolerated"],
        preparation=preparation,
        class_names=tuple(class_names),
        ledger=run["dp.ledger"],
        most_mu=mu_of(total, delta),
        most_clients=run["client_num"],
        test_seed=run["dp.test_seed"],
    )


def releases_square(run: Demands) -> bool:
    """Whether the second moment is released; only public numbers decide this."""
    form = run.form
    return (
        form is not None
        and form.NEEDS != "means"
        and run["dp.rows_per_class"] >= ROWS_FOR_SQUARE
        and not run["dp.prior"]
    )


def objections(run: Demands) -> Objections:
    """What cannot go with differential privacy, and what needs it."""
    if not run.noisy:
        for key in KEYS[1:]:
            field = key.name.removeprefix("privacy.")
            default = key.read(key.default)
            why = "which is no differential privacy"
            yield Objection("dp.epsilon", {field: [default]}, why)
        return
    own = "dp.epsilon"
    yield from _own_problems(run)
    if run["dp.noise"] == DISTRIBUTED and not run.sums:
        kinds = [SERVER, CLIENT]
        why = "where nobody adds up what clients send under masks"
        yield Objection("secure_sums", {"dp.noise": kinds}, why)
    elif run["dp.noise"] != DISTRIBUTED:
        yield Objection("dp.noise", {"secure_sums": ["none"]}, "which needs no sums")
    forms = [name for name, form in CLOSED_FORMS.items() if form.from_noise]
    why = "since other heads are lost in the noise" if run.form else _ROUNDS
    yield Objection(own, {"closed_form": forms}, why)
    for field, (allowed, reason) in _TURNED_OFF.items():
        yield Objection(own, {field: allowed}, reason)
    if "train" in run["splits"]:
        yield Objection(own, {"splits": []}, "since scores of training rows are exact")
    if run.reads_images:
        why = "whose rows must be embeddings: make them with `ggeur embed`"
        yield own, f"cannot go with images, {why}"
    for part in (run.method, run.augmentation):
        if part is not None and part.pools_data:
            yield Objection(own, {part.chosen_by: []}, "since there is one client")
    if plugin_exchanges(run):
        yield (
            "plugins",
            f"the exchanges of plugins cannot be asked with {setting(own)}: what "
            "their answers tell of rows is covered by no noise",
        )


_ROUNDS = "since rounds send exact updates: they tell rows, and no epsilon covers them"
_EXACT = "since clients would send exact numbers"
_SCALED = "which scales rows to length 1 and has a grid of its own"
_FIXED = "whose heads are fixed beforehand and know the noise"
#: What other settings must be, and why.
_TURNED_OFF: Mapping[str, tuple[Sequence[object], str]] = {
    "init": (["random"], _ROUNDS),
    "text.model": (["none", ""], _ROUNDS),
    "calibrate": (["none"], _EXACT),
    "personal.head": (["none"], _EXACT),
    "confidences": ([False], _EXACT),
    "network.name": ([""], "which releases embeddings"),
    "text.ensemble": ([0], "which knows nothing of the noise"),
    "lda.shrinkage": ([None], _FIXED),
    "lda.rule": (["leave_one_out"], _FIXED),
    "lda.priors": (["counts"], _FIXED),
    "lda.standardize": ([False], _FIXED),
    "statistics": (["class"], "which has a release of its own"),
    "float32_means": ([False], "where no means travel"),
    "min_samples": ([5, 1], "where every row enters and no threshold holds"),
    "secure_sums_radius": ([1.01], _SCALED),
    "secure_sums_fraction_bits": ([40], _SCALED),
    "secure_sums_new_roster": ([False], "where dp.ledger says what may be sent"),
    "unseen_client_num": ([0], "since unseen clients do nothing but send scores"),
}


def _own_problems(run: Demands) -> Iterator[Problem]:
    if not run["dp.rows_per_class"]:
        yield (
            "dp.rows_per_class",
            "must be set: about how many rows a class has over all clients, as far as "
            "it is public; a look at the data would cost privacy",
        )
    total = run["dp.epsilon_total"]
    if 0 < total < run["dp.epsilon"]:
        yield "dp.epsilon_total", f"is below {setting('dp.epsilon')}"
    if run.distributed and not run["dp.ledger"]:
        yield "dp.ledger", "must name a folder in distributed mode"
    if run.distributed and not run["agreed.class_names"]:
        yield (
            "agreed.class_names",
            "must name all classes, in the order of their numbers, in distributed "
            "mode: a client that counts its classes would tell the server which it has",
        )
    if run["dp.prior"] and run["text.prior"]:
        yield "dp.prior", f"cannot go with {setting('text.prior')}: name one of them"
    if not run["dp.project"] and run["dp.project_seed"]:
        yield "dp.project_seed", f"is of no use with {setting('dp.project')}: 0"
    clients, spared = run["client_num"], run["dp.tolerated"]
    if spared is not None and run["dp.noise"] != DISTRIBUTED:
        yield "dp.tolerated", f"is for {setting('dp.noise')}: distributed"
    elif spared is not None and 0 < clients < spared + 2:
        yield (
            "dp.tolerated",
            f"{spared} of {clients} clients: at least two must be honest",
        )
