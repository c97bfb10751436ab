"""The registries of federated methods and of baseline augmentations.

Combine a base method and a baseline augmentation into one method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.settings import Registry, check_class

from .base import Method
from .checked import checked
from .contexts import LocalContext, LocalHooks, LocalOutcome, ServerContext, Tensors


class Combined(Method):
    """A base method and an augmentation as one method. Both add to local training.

    Only the base method makes the next weights. Each part sees only its own tensors.
    Tensors that are sent or kept are called ``base.<name>`` or ``augmentation.<name>``.

    Parameters
    ----------
    base : Method
        The base method. Its `step` makes the next weights.
    augmentation : Method
        The augmentation. `Combined` takes only the state from its `step`.

    Raises
    ------
    ConfigError
        The clients of `base` send no weights. `local` raises it if both parts set an
        objective, or both set a `perturb`.
    """

    batched = False

    def __init__(self, base: Method, augmentation: Method):
        if not base.federated:
            raise ConfigError(
                f"augmentation: {augmentation.name} needs clients that send weights, "
                f"but clients of base_method {base.name} send none; change one of the "
                "two"
            )
        self.base, self.augmentation = base, augmentation
        self.parts = {"base": base, "augmentation": augmentation}
        self.name = f"{base.name} + {augmentation.name}"
        self.keeps_state = base.keeps_state or augmentation.keeps_state
        self.personal = base.personal

    def _each(self, of: Callable[[Method, str], Mapping]) -> dict:
        return _named({whose: of(part, whose) for whose, part in self.parts.items()})

    def settings_to_lower(self):
        return [n for part in self.parts.values() for n in part.settings_to_lower()]

    def of_plugins(self):
        return [one for part in self.parts.values() for one in part.of_plugins()]

    def model_problem(self, model):
        problems = (part.model_problem(model) for part in self.parts.values())
        return next(filter(None, problems), "")

    def init_upload_shapes(self, model):
        return self._each(lambda part, whose: part.init_upload_shapes(model))

    def upload_shapes(self, model):
        return self._each(lambda part, whose: part.upload_shapes(model))

    def init_upload_problem(self, init_upload, model):
        return self._problem(
            init_upload, lambda part, own: part.init_upload_problem(own, model)
        )

    def upload_problem(self, upload, model):
        return self._problem(upload, lambda part, own: part.upload_problem(own, model))

    def _problem(self, both: Tensors, of: Callable[[Method, Tensors], str]) -> str:
        for whose, part in self.parts.items():
            problem = of(part, _own(both, whose))
            if problem:
                return f"{part.name}: {problem}"
        return ""

    def init_upload(self, features, labels, context):
        return self._each(
            lambda part, whose: part.init_upload(
                features, labels, _local(context, whose)
            )
        )

    def aggregate_init(self, init_uploads):
        return self._each(
            lambda part, whose: part.aggregate_init(_own_of_each(init_uploads, whose))
        )

    def local(self, context: LocalContext) -> LocalHooks:
        hooks = {w: part.local(_local(context, w)) for w, part in self.parts.items()}
        base, added = hooks.values()
        if base.objective and added.objective:
            raise ConfigError(
                f"{self.name}: both replace the cross-entropy by their own loss; "
                "set another base_method or augmentation"
            )
        if base.perturb and added.perturb:
            raise ConfigError(
                f"{self.name}: both move the weights before taking the gradient; set "
                "another base_method or augmentation"
            )
        return LocalHooks(
            transform=_both(base.transform, added.transform, _one_after_the_other),
            objective=base.objective or added.objective,
            loss_term=_both(base.loss_term, added.loss_term, _sum),
            add_correction=_both(base.add_correction, added.add_correction, _in_turn),
            perturb=base.perturb or added.perturb,
            stage=_both(base.stage, added.stage, _through),
            finish=_finish(hooks),
            start=base.start,
        )

    def eval_params(self, context):
        return self.base.eval_params(_local(context, "base"))

    def initial_state(self, params, context):
        return self._each(
            lambda part, whose: part.initial_state(params, _server(context, whose))
        )

    def download(self, state):
        return self._each(lambda part, whose: part.download(_own(state, whose)))

    def scoring_download(self, state):
        return self._each(lambda part, whose: part.scoring_download(_own(state, whose)))

    def scored_params(self, params, state):
        return self.base.scored_params(params, _own(state, "base"))

    def figures(self, state):
        parts = self.parts.items()
        return {
            name: figure
            for whose, part in parts
            for name, figure in part.figures(_own(state, whose)).items()
        }

    def step(self, params, updates, state, context):
        after, kept = {}, {}
        for whose, part in self.parts.items():
            own = [replace(u, upload=_own(u.upload, whose)) for u in updates]
            after[whose], kept[whose] = part.step(
                params, own, _own(state, whose), _server(context, whose)
            )
        return after["base"], _named(kept)


# Tensors (and shapes) by name, together and apart


def _named(parts: Mapping[str, Mapping]) -> dict:
    return {f"{w}.{n}": value for w, own in parts.items() for n, value in own.items()}


def _own(both: Tensors, whose: str) -> dict[str, Tensor]:
    start = f"{whose}."
    return {n[len(start) :]: t for n, t in both.items() if n.startswith(start)}


def _own_of_each(init_uploads: Mapping[int, Tensors], whose: str) -> dict[int, dict]:
    return {client: _own(tensors, whose) for client, tensors in init_uploads.items()}


def _local(context: LocalContext, whose: str) -> LocalContext:
    return replace(
        context,
        download=_own(context.download, whose),
        init_broadcast=_own(context.init_broadcast, whose),
        state=_own(context.state, whose),
    )


def _server(context: ServerContext, whose: str) -> ServerContext:
    return replace(context, init_uploads=_own_of_each(context.init_uploads, whose))


# Hooks


def _both(base: Callable | None, added: Callable | None, join: Callable):
    """Both hooks joined by `join`; if one is None, the other hook."""
    return join(base, added) if base and added else base or added


def _one_after_the_other(base: Callable, added: Callable):
    return lambda features, labels: added(base(features, labels), labels)


def _sum(base: Callable, added: Callable):
    return lambda model, batch: base(model, batch) + added(model, batch)


def _through(base: Callable, added: Callable):
    return lambda k, stage_map: added(k, base(k, stage_map))


def _in_turn(base: Callable, added: Callable):
    def add_corrections(params: Tensor, gradient: Tensor) -> None:
        base(params, gradient)
        added(params, gradient)

    return add_corrections


def _finish(hooks: Mapping[str, LocalHooks]):
    finishes = {whose: hook.finish for whose, hook in hooks.items() if hook.finish}

    def finish(outcome: LocalOutcome) -> tuple[Tensors, Tensors]:
        ends = {whose: end(outcome) for whose, end in finishes.items()}
        upload = _named({whose: up for whose, (up, _) in ends.items()})
        return upload, _named({whose: kept for whose, (_, kept) in ends.items()})

    return finish if finishes else None


#: FedAvg comes first, then the others by module name, then a user's own.
METHODS: Registry[type[Method]] = Registry("method", "base_method")

#: Augmentations that replace GGEUR. Each runs with any of METHODS that is federated.
AUGMENTATIONS: Registry[type[Method]] = Registry(
    "augmentation", "augmentation", taken=("ggeur", "none")
)


def register_method(name: str) -> Callable[[type[Method]], type[Method]]:
    """Decorator: register a subclass of `Method` as ``ggeur.base_method: <name>``.

    Its `SETTINGS` become the keys ``ggeur.<name>.<setting>``.

    Raises
    ------
    TypeError
        The class is no `Method`, or a hook has a wrong name or wrong arguments.
    ValueError
        The name is taken.

    Examples
    --------
    >>> @register_method("half_way")
    ... class HalfWay(Method):
    ...     def step(self, params, updates, state, context):
    ...         return (params + weighted_mean(params, updates)) / 2, state
    """
    return _registered(METHODS, name)


def register_augmentation(name: str) -> Callable[[type[Method]], type[Method]]:
    """Decorator: register a subclass of `Method` as ``ggeur.augmentation: <name>``.

    The augmentation runs with any base method. The run takes only the state from its
    `step`. Settings and errors are as for `register_method`.

    Examples
    --------
    >>> @register_augmentation("noise")
    ... class Noise(Method):
    ...     def local(self, context):
    ...         return LocalHooks(transform=lambda x, y: x + 0.1 * torch.randn_like(x))
    """
    return _registered(AUGMENTATIONS, name)


def _registered(
    registry: Registry[type[Method]], name: str
) -> Callable[[type[Method]], type[Method]]:
    registry.require_name(name)

    def register(part: type[Method]) -> type[Method]:
        check_class(f"the {registry.kind} '{name}'", part, Method)
        return registry.add(name, checked(part))

    return register


def build_method(
    name: str,
    augmentation: str = "ggeur",
    augmentation_settings: Mapping | None = None,
    /,
    **settings,
) -> Method:
    """Make the method called `name` with its settings.

    A baseline `augmentation` is combined with the method. "ggeur" and "none" change
    nothing here.

    Raises
    ------
    ConfigError
        A name is unknown, or the method's clients send no weights, which an
        augmentation needs.
    """
    base = METHODS.find(name)(**settings)
    if augmentation in AUGMENTATIONS.taken:
        return base
    part = AUGMENTATIONS.find(augmentation)
    return Combined(base, part(**(augmentation_settings or {})))
