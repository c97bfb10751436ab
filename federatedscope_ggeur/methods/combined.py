"""A base method and a rival of GGEUR in one."""

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

_BASE, _RIVAL = "base", "rival"


class Combined(Method):
    """Weights by the base method, local training with what both add.

    Each sees its own tensors only; what travels or is kept is named ``base.<name>`` or
    ``rival.<name>``.

    Parameters
    ----------
    base : Method
        Its `step` makes the next weights.
    rival : Method
        Of its `step` the state alone is used.

    Raises
    ------
    ConfigError
        Weights stay with the clients in `base`; or, in `local`, both set an objective.
    """

    def __init__(self, base: Method, rival: Method):
        if not base.federated:
            raise ConfigError(
                f"ggeur.augmentation: {rival.name} needs weights to travel, which "
                f"ggeur.base_method: {base.name} does not send; take another of the two"
            )
        self.base, self.rival = base, rival
        self.name = f"{base.name} + {rival.name}"
        self.keeps_state = base.keeps_state or rival.keeps_state

    def init_upload_shapes(self, model):
        return _both(
            self.base.init_upload_shapes(model), self.rival.init_upload_shapes(model)
        )

    def upload_shapes(self, model):
        return _both(self.base.upload_shapes(model), self.rival.upload_shapes(model))

    def init_upload_problem(self, init_upload, model):
        return self._problem(
            init_upload, lambda one, own: one.init_upload_problem(own, model)
        )

    def upload_problem(self, upload, model):
        return self._problem(upload, lambda one, own: one.upload_problem(own, model))

    def _problem(self, both: Tensors, of: Callable[[Method, Tensors], str]) -> str:
        for whose, method in ((_BASE, self.base), (_RIVAL, self.rival)):
            problem = of(method, _part(both, whose))
            if problem:
                return f"{method.name}: {problem}"
        return ""

    def init_upload(self, features, labels, context):
        return _both(
            self.base.init_upload(features, labels, _local(context, _BASE)),
            self.rival.init_upload(features, labels, _local(context, _RIVAL)),
        )

    def aggregate_init(self, init_uploads):
        return _both(
            self.base.aggregate_init(_of_each(init_uploads, _BASE)),
            self.rival.aggregate_init(_of_each(init_uploads, _RIVAL)),
        )

    def local(self, context: LocalContext) -> LocalHooks:
        base = self.base.local(_local(context, _BASE))
        rival = self.rival.local(_local(context, _RIVAL))
        if base.objective and rival.objective:
            raise ConfigError(
                f"{self.name}: both put a loss of their own in place of the "
                "cross-entropy; take another ggeur.base_method or ggeur.augmentation"
            )
        return LocalHooks(
            transform=_one_after_the_other(base.transform, rival.transform),
            objective=base.objective or rival.objective,
            loss_term=_sum(base.loss_term, rival.loss_term),
            add_correction=_each(base.add_correction, rival.add_correction),
            finish=_finish(base.finish, rival.finish),
            start=base.start,
        )

    def eval_params(self, context):
        return self.base.eval_params(_local(context, _BASE))

    def initial_state(self, params, context):
        return _both(
            self.base.initial_state(params, _server(context, _BASE)),
            self.rival.initial_state(params, _server(context, _RIVAL)),
        )

    def download(self, state):
        return _both(
            self.base.download(_part(state, _BASE)),
            self.rival.download(_part(state, _RIVAL)),
        )

    def step(self, params, updates, state, context):
        after, kept = {}, {}
        for name, method in ((_BASE, self.base), (_RIVAL, self.rival)):
            after[name], kept[name] = method.step(
                params,
                [_update(update, name) for update in updates],
                _part(state, name),
                _server(context, name),
            )
        return after[_BASE], _both(kept[_BASE], kept[_RIVAL])


# Tensors (and shapes) by name, together and apart


def _both(base: Mapping, rival: Mapping) -> dict:
    named = ((_BASE, base), (_RIVAL, rival))
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


def _one_after_the_other(base: Callable | None, rival: Callable | None):
    if base is None or rival is None:
        return base or rival
    return lambda features, labels: rival(base(features, labels), labels)


def _sum(base: Callable | None, rival: Callable | None):
    if base is None or rival is None:
        return base or rival
    return lambda model, batch: base(model, batch) + rival(model, batch)


def _each(base: Callable | None, rival: Callable | None):
    if base is None or rival is None:
        return base or rival

    def add_corrections(params: Tensor, gradient: Tensor) -> None:
        base(params, gradient)
        rival(params, gradient)

    return add_corrections


def _finish(base: Callable | None, rival: Callable | None):
    if base is None and rival is None:
        return None

    def finish(outcome: LocalOutcome) -> tuple[Tensors, Tensors]:
        (up, kept), (rival_up, rival_kept) = (
            ({}, {}) if hook is None else hook(outcome) for hook in (base, rival)
        )
        return _both(up, rival_up), _both(kept, rival_kept)

    return finish
