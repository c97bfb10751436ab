"""What differential privacy makes of a run's settings, and what cannot go with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from federatedscope_ggeur.cfg_ggeur.keys import AgreedKeys
from federatedscope_ggeur.data import NO_TRANSFORM
from federatedscope_ggeur.data.transforms import Expected, projected
from federatedscope_ggeur.errors import setting
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.base import plugin_exchanges
from federatedscope_ggeur.federation.settings import RoleSettings
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.reporting import DifferentialPrivacy, Privacy
from federatedscope_ggeur.settings import Objection, Objections, Problem

from .manifest import CLIENT, DISTRIBUTED, SERVER, NoiseKeys
from .noise import NoiseSettings, too_few_honest
from .noisy_release import ROWS_FOR_SQUARE, ReleasePlan, epsilon_of, mu_of, replaced_mu
from .public import public_rows

#: The settings that server and clients must have in common.
_AGREED = (
    "epsilon", "delta", "noise", "tolerated", "rows_per_class", "project",
    "project_seed", "report_scores",
)  # fmt: skip


def agreed(run: Demands) -> dict[str, object]:
    """The noise settings that server and clients must share; {} without noise."""
    own = run.of(NoiseKeys)
    return {f"dp.{name}": getattr(own, name) for name in _AGREED}


def is_chosen(chosen: Mapping[str, Any]) -> bool:
    """Whether a run with these settings has differential privacy."""
    return chosen.get("dp.epsilon", 0) > 0


def is_shared(run: Demands) -> bool:
    """Whether each client adds a share of the noise, under masks."""
    return run.of(NoiseKeys).noise == DISTRIBUTED


def transform(run: Demands) -> str:
    """Rows are scaled to length 1, and projected to fewer dimensions."""
    own = run.of(NoiseKeys)
    return projected(own.project, own.project_seed)


def start_note(run: Demands) -> str:
    """A note if the settings do not name the classes."""
    if run.of(AgreedKeys).class_names:
        return ""
    return (
        "differential privacy: epsilon does not cover the list of classes, which must "
        "be public. Without class_names.txt beside the data it comes from the labels; "
        f"{setting('agreed.class_names')} fixes it beforehand"
    )


def forecast(settings: RoleSettings, clients: int) -> list[str]:
    """Lines about the noise of the release, beside the size of what it covers."""
    plan = settings.of(NoiseSettings).plan_of(clients)
    rows = settings.demands.of(NoiseKeys).rows_per_class
    total = rows * plan.num_classes
    lines = [
        f"noise of a count: {plan.total('counts'):.3g}, where a class has about "
        f"{rows:g} rows",
        f"noise of the mean of all rows: {plan.total('mean') / total:.3g} in each of "
        f"{plan.dim} dimensions, of rows of length 1",
        f"noise of a class mean: {plan.total('sums') / rows:.3g} in each dimension, "
        f"{plan.total('sums') / rows * plan.dim**0.5:.3g} in length",
    ]
    if plan.square:
        edge = plan.total("square") * (2 * plan.dim) ** 0.5 / total
        lines.append(f"noise of the covariance: eigenvalues up to {edge:.3g}")
    return lines


#: What holds of every release.
UNIT = "a person with g rows has g times the mu of one row"
_TRUSTED = "the server sees everything without noise"
_NOT_PRIVATE = "not private: the noise is drawn by a test seed"
_SCORES = "clients' scores are exact and not covered"
_NO_LEDGER = "there is no ledger: releases of the same rows are not added up"
_NOT_COVERED = (
    "which clients take part, and their domains",
    "class names and the encoder",
    "how long clients compute",
    "rows for tests and validation",
)


def privacy(before: Privacy, run: Demands) -> Privacy:
    """The privacy of a run with noise: no exact number about rows leaves a client.

    `before` says which scores are seen nevertheless.
    """
    own, plan, scores = run.of(NoiseKeys), release_plan(run, 2, 2), before.server_sees
    by = own.noise
    seen = ["statistics of each client without noise"] if by == SERVER else []
    seen += ["each client's statistics with noise"] if by == CLIENT else []
    is_private = own.test_seed is None
    warnings = [] if is_private else [_NOT_PRIVATE]
    warnings += [_TRUSTED] if by == SERVER else []
    warnings += [UNIT, *([_SCORES] if scores else [])]
    warnings += [] if own.ledger else [_NO_LEDGER]
    return replace(
        before,
        guarantee="statistics" if is_private else "none",
        covers=["the statistics of round 0, and all that is made of them"],
        against=list(_AGAINST[by]),
        server_sees=[*seen, *scores],
        clients_see=["the mean of all rows with noise", "the head"],
        warnings=warnings,
        dp=DifferentialPrivacy(
            mechanism="discrete Gaussian noise on counts, mean and clipped sums"
            + (", and on the clipped second moment" if plan.square else ""),
            adjacency="one row of one client more or less",
            epsilon=plan.epsilon,
            delta=plan.delta,
            epsilon_replaced=epsilon_of(replaced_mu(plan), plan.delta),
            noise_by=by,
            not_covered=list(_NOT_COVERED),
        ),
    )


_AGAINST = {
    SERVER: ["curious clients", "users of the head"],
    CLIENT: ["the server and all other clients together"],
    DISTRIBUTED: ["the server together with the tolerated number of clients"],
}


def noise_settings(
    run: Demands, num_classes: int, dim: int, expected: Expected
) -> NoiseSettings:
    """The release's settings, from the facts of the run."""
    own = run.of(NoiseKeys)
    public = partial(public_rows, own.prior, expected, dim) if own.prior else None
    return run.of(
        NoiseSettings,
        plan=release_plan(run, num_classes, dim),
        preparation=expected.given.transform,
        class_names=expected.class_names,
        most_mu=mu_of(own.epsilon_total or own.epsilon, own.delta),
        most_clients=run.client_num,
        public=public,
    )


def release_plan(run: Demands, num_classes: int, dim: int) -> ReleasePlan:
    """The numbers of the release, for one party that adds all the noise."""
    own = run.of(NoiseKeys)
    square = releases_square(run)
    return ReleasePlan(num_classes, dim, own.epsilon, own.delta, square)


def releases_square(run: Demands) -> bool:
    """Whether clients release the second moment; only public numbers decide this."""
    form, own = run.form, run.of(NoiseKeys)
    return (
        form is not None
        and form.NEEDS != "means"
        and own.rows_per_class >= ROWS_FOR_SQUARE
        and not own.prior
    )


def objections(run: Demands) -> Objections:
    """The settings that exclude differential privacy, and those that need it."""
    if not is_chosen(run.chosen):
        for one in NoiseKeys.declared()[1:]:
            why = "which turns differential privacy off"
            yield Objection("dp.epsilon", {one.field: [one.default]}, why)
        return
    own, by = "dp.epsilon", run.of(NoiseKeys).noise
    yield from _own_problems(run)
    if by == DISTRIBUTED and "secure_sums" not in run:
        why = "must be server or client, since the extra secure_sums is not there"
        yield "dp.noise", why
    elif by == DISTRIBUTED and run.chosen["secure_sums"] == "none":
        kinds = [SERVER, CLIENT]
        why = "since without masks nobody adds up the clients' shares of the noise"
        yield Objection("secure_sums", {"dp.noise": kinds}, why)
    elif by != DISTRIBUTED:
        yield Objection("dp.noise", {"secure_sums": ["none"]}, "which needs no sums")
    forms = [name for name, form in CLOSED_FORMS.present().items() if form.from_noise]
    why = "since the noise drowns other heads" if run.form else _ROUNDS
    yield Objection(own, {"closed_form": forms}, why)
    if run.image_model:
        yield Objection(own, {run.image_model: [""]}, "which releases embeddings")
    for field, (allowed, reason) in _TURNED_OFF.items():
        yield Objection(own, {field: allowed}, reason)
    if "train" in run.splits:
        yield Objection(
            own, {"splits": []}, "since scores of training rows have no noise"
        )
    if run.transform != NO_TRANSFORM:
        yield (
            "transform",
            f"must be [] with {setting(own)}, which scales embeddings to length 1 and "
            f"projects them ({setting('dp.project')})",
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
    "lda.priors": (["counts"], _FIXED),
    "lda.standardize": ([False], _FIXED),
    "statistics": (["needed", "class"], "which sends statistics in its own form"),
    "float32_means": ([False], "since clients send no means"),
    "min_samples": ([5, 1], "which uses all rows, without a threshold"),
    "secure_sums_radius": ([1.01], _SCALED),
    "secure_sums_fraction_bits": ([40], _SCALED),
    "secure_sums_new_roster": ([False], "since dp.ledger limits what a client sends"),
    "unseen_client_num": ([0], "since unseen clients only send exact scores"),
}


def _own_problems(run: Demands) -> Iterator[Problem]:
    own = run.of(NoiseKeys)
    if not own.rows_per_class:
        yield (
            "dp.rows_per_class",
            "must be set: about how many rows a class has over all clients. Guess it "
            "from public knowledge; a look at the data would cost privacy",
        )
    if 0 < own.epsilon_total < own.epsilon:
        yield "dp.epsilon_total", f"must not be below {setting('dp.epsilon')}"
    if run.distributed and not own.ledger:
        yield "dp.ledger", "must name a folder in distributed mode"
    if run.distributed and not run.of(AgreedKeys).class_names:
        yield (
            "agreed.class_names",
            "must name all classes in distributed mode, in the order of their "
            "numbers: otherwise a client's own list tells the server its classes",
        )
    if not own.project and own.project_seed:
        yield "dp.project_seed", f"has no effect with {setting('dp.project')}: 0"
    clients, spared = run.client_num, own.tolerated
    if spared is None:
        return
    if own.noise != DISTRIBUTED:
        yield "dp.tolerated", f"needs {setting('dp.noise')}: distributed"
    elif clients and (problem := too_few_honest(clients, spared)):
        yield "dp.tolerated", problem
