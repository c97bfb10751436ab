"""A base method and a baseline augmentation in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.methods.base import (
    LocalContext,
    LocalHooks,
    LocalOutcome,
    Method,
    ServerContext,
    Tensors,
    Update,
)

_BASE, _ADDED = "base", "augmentation"


class Combined(Method):
    """Weights by the base method, local training with what both add.

    Each sees its own tensors only; what travels or is kept is named ``base.<name>`` or
    ``augmentation.<name>``.

    Parameters
    ----------
    base : Method
        Its `step` makes the next weights.
    augmentation : Method
        Of its `step` the state alone is used.

    Raises
    ------
    ConfigError
        Weights stay with the clients in `base`; or, in `local`, both set an objective.
    """

    def __init__(self, base: Method, augmentation: Method):
        if not base.federated:
            raise ConfigError(
                f"augmentation: {augmentation.name} needs weights to travel, which "
                f"base_method {base.name} does not send; take another of the two"
            )
        self.base, self.augmentation = base, augmentation
        self.name = f"{base.name} + {augmentation.name}"
        self.keeps_state = base.keeps_state or augmentation.keeps_state

    def init_upload_shapes(self, model):
        return _both(
            self.base.init_upload_shapes(model),
            self.augmentation.init_upload_shapes(model),
        )

    def upload_shapes(self, model):
        return _both(
            self.base.upload_shapes(model), self.augmentation.upload_shapes(model)
        )

    def init_upload_problem(self, init_upload, model):
        return self._problem(
            init_upload, lambda one, own: one.init_upload_problem(own, model)
        )

    def upload_problem(self, upload, model):
        return self._problem(upload, lambda one, own: one.upload_problem(own, model))

    def _problem(self, both: Tensors, of: Callable[[Method, Tensors], str]) -> str:
        for whose, method in ((_BASE, self.base), (_ADDED, self.augmentation)):
            problem = of(method, _part(both, whose))
            if problem:
                return f"{method.name}: {problem}"
        return ""

    def init_upload(self, features, labels, context):
        return _both(
            self.base.init_upload(features, labels, _local(context, _BASE)),
            self.augmentation.init_upload(features, labels, _local(context, _ADDED)),
        )

    def aggregate_init(self, init_uploads):
        return _both(
            self.base.aggregate_init(_of_each(init_uploads, _BASE)),
            self.augmentation.aggregate_init(_of_each(init_uploads, _ADDED)),
        )

    def local(self, context: LocalContext) -> LocalHooks:
        base = self.base.local(_local(context, _BASE))
        added = self.augmentation.local(_local(context, _ADDED))
        if base.objective and added.objective:
            raise ConfigError(
                f"{self.name}: both put a loss of their own in place of the "
                "cross-entropy; take another base_method or augmentation"
            )
        return LocalHooks(
            transform=_one_after_the_other(base.transform, added.transform),
            objective=base.objective or added.objective,
            loss_term=_sum(base.loss_term, added.loss_term),
            add_correction=_each(base.add_correction, added.add_correction),
            finish=_finish(base.finish, added.finish),
            start=base.start,
        )

    def eval_params(self, context):
        return self.base.eval_params(_local(context, _BASE))

    def initial_state(self, params, context):
        return _both(
            self.base.initial_state(params, _server(context, _BASE)),
            self.augmentation.initial_state(params, _server(context, _ADDED)),
        )

    def download(self, state):
        return _both(
            self.base.download(_part(state, _BASE)),
            self.augmentation.download(_part(state, _ADDED)),
        )

    def step(self, params, updates, state, context):
        after, kept = {}, {}
        for name, method in ((_BASE, self.base), (_ADDED, self.augmentation)):
            after[name], kept[name] = method.step(
                params,
                [_update(update, name) for update in updates],
                _part(state, name),
                _server(context, name),
            )
        return after[_BASE], _both(kept[_BASE], kept[_ADDED])


# Tensors (and shapes) by name, together and apart


def _both(base: Mapping, added: Mapping) -> dict:
    named = ((_BASE, base), (_ADDED, added))
    return {f"{whose}.{n}": value for whose, part in named for n, value in part.items()}


def _part(both: Tensors, whose: str) -> dict[str, Tensor]:
    start = f"{whose}."
    return {n[len(start) :]: t for n, t in both.items() if n.startswith(start)}


def _of_each(init_uploads: Mapping[int, Tensors], whose: str) -> dict[int, dict]:
    return {client: _part(tensors, whose) for client, tensors in init_uploads.items()}


def _local(context: LocalContext, whose: str) -> LocalContext:
    return replace(
        context,
        download=_part(context.download, whose),
        init_broadcast=_part(context.init_broadcast, whose),
        state=_part(context.state, whose),
    )


def _server(context: ServerContext, whose: str) -> ServerContext:
    return replace(context, init_uploads=_of_each(context.init_uploads, whose))


def _update(update: Update, whose: str) -> Update:
    return replace(update, upload=_part(update.upload, whose))


# Hooks; of two, each may be None


def _one_after_the_other(base: Callable | None, added: Callable | None):
    if base is None or added is None:
        return base or added
    return lambda features, labels: added(base(features, labels), labels)


def _sum(base: Callable | None, added: Callable | None):
    if base is None or added is None:
        return base or added
    return lambda model, batch: base(model, batch) + added(model, batch)


def _each(base: Callable | None, added: Callable | None):
    if base is None or added is None:
        return base or added

    def add_corrections(params: Tensor, gradient: Tensor) -> None:
        base(params, gradient)
        added(params, gradient)

    return add_corrections


def _finish(base: Callable | None, added: Callable | None):
    if base is None and added is None:
        return None

    def finish(outcome: LocalOutcome) -> tuple[Tensors, Tensors]:
        (up, kept), (more_up, more_kept) = (
            ({}, {}) if hook is None else hook(outcome) for hook in (base, added)
        )
        return _both(up, more_up), _both(kept, more_kept)

    return finish
