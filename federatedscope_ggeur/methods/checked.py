"""Check what the hooks of a user's own method return.

Without these checks, a wrong shape would cause an error in another module. The
package's own methods are tested, so they are not checked.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from federatedscope_ggeur.errors import PluginError
from federatedscope_ggeur.settings import (
    check_function,
    is_number,
    is_of_plugin,
    kind_of,
    where_of,
)

from .base import BatchedHooks, Method
from .contexts import (
    OWN_DTYPES,
    LinearCorrection,
    LocalContext,
    LocalHooks,
    Specs,
    TensorSpec,
    names_problem,
    own_problem,
)


def checked(part: type[Method]) -> type[Method]:
    """Add checks of results to the hooks of a user's own method.

    It changes the class in place and returns it. It does not change the package's own
    methods.
    """
    if is_of_plugin(part):
        for name, check in _CHECKS.items():
            hook = getattr(part, name)
            if is_of_plugin(hook) and not hasattr(hook, "__wrapped__"):
                setattr(part, name, _checking(name, hook, check))
    return part


def _checking(name: str, hook: Callable, check: Callable) -> Callable:
    signature = inspect.signature(hook)

    @wraps(hook)
    def call(self, *values, **named):
        returned = hook(self, *values, **named)
        given = signature.bind(self, *values, **named).args[1:]
        return check(_Returned(self, name, hook, returned), *given) or returned

    return call


class _Returned:
    """A hook's result, with checks whose errors name the hook.

    Parameters
    ----------
    method : Method
    name : str
        The hook's name.
    function : callable
        The hook itself.
    value : object
    """

    def __init__(self, method: Method, name: str, function: object, value: Any):
        self.method, self.value = method, value
        self._name, self._function = name, function

    def refuse(self, problem: str) -> PluginError:
        where = where_of(self._function)
        return PluginError(
            f"{self._name} of the method '{self.method.name}'{where} {problem}"
        )

    def pair(self, wanted: str) -> tuple[Any, Any]:
        if not isinstance(self.value, tuple) or len(self.value) != 2:
            raise self.refuse(f"must return {wanted}, but returned {_kind(self.value)}")
        return self.value

    def weights(self, tensor: Any, like: Tensor, what: str = "weights") -> None:
        """Refuse a tensor unless it has the shape and dtype of the weights `like`."""
        wanted = f"{what} of shape {tuple(like.shape)} and dtype {like.dtype}"
        if not isinstance(tensor, Tensor) or (tensor.shape, tensor.dtype) != (
            like.shape,
            like.dtype,
        ):
            raise self.refuse(f"must return {wanted}, but returned {_kind(tensor)}")

    def tensors(self, value: Any, what: str = "tensors") -> None:
        """Refuse a value unless it is a dict of tensors that messages can hold."""
        if not isinstance(value, Mapping):
            raise self.refuse(
                f"must return a dict of {what}, but returned {_kind(value)}"
            )
        for name, tensor in value.items():
            if not isinstance(tensor, Tensor):
                raise self.refuse(
                    f"must return a dict of {what}, but '{name}' in it is "
                    f"{_kind(tensor)}"
                )
            self._fits(name, own_problem(tensor))

    def finite(self) -> None:
        """Refuse tensors with NaN or infinity."""
        for name, tensor in self.value.items():
            if not torch.isfinite(tensor).all():
                self._fits(name, "contains NaN or infinity")

    def declared(self, tensors: Mapping[str, Tensor], specs: Specs, by: str) -> None:
        """Refuse tensors to send that are not as `specs` of the hook `by` declare."""
        problem = names_problem(tensors, specs)
        if problem:
            raise self.refuse(f"must send what {by} declares: {problem}")
        for name, spec in specs.items():
            self._fits(name, spec.problem(tensors[name]), f" ({by} declares it)")

    def _fits(self, name: str, problem: str, declared: str = "") -> None:
        if problem:
            raise self.refuse(f"returned '{name}'{declared}: {problem}")


def _kind(value: object) -> str:
    """The type of a value for a message; for a tensor, also its shape and dtype."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)} and dtype {value.dtype}"
    return kind_of(value)


# Checks of `Method`'s hooks. Each returns None, or a value that replaces the result.


def _shapes(returned: _Returned, model) -> None:
    shapes = returned.value
    for spec in shapes.values() if isinstance(shapes, Mapping) else [shapes]:
        if not isinstance(spec, TensorSpec):
            raise returned.refuse(
                f"must return a dict of TensorSpec, but returned {_kind(spec)}"
            )
        if spec.dtype not in OWN_DTYPES:
            raise returned.refuse(
                f"must declare types of {OWN_DTYPES}, but declares {spec.dtype}"
            )


def _dict(returned: _Returned, *given) -> None:
    returned.tensors(returned.value)
    returned.finite()


def _init_upload(returned: _Returned, features, labels, context: LocalContext) -> None:
    _dict(returned)
    specs = returned.method.init_upload_shapes(context.model)
    returned.declared(returned.value, specs, "init_upload_shapes")


def _eval_params(returned: _Returned, context: LocalContext) -> None:
    returned.weights(returned.value, context.weights)


def _scored_params(returned: _Returned, params: Tensor, state) -> None:
    returned.weights(returned.value, params)


def _step(returned: _Returned, params: Tensor, updates, state, context) -> None:
    weights, kept = returned.pair("(weights, state)")
    returned.weights(weights, params)
    returned.tensors(kept, "tensors to keep as state")


def _figures(returned: _Returned, state) -> dict[str, float | None]:
    figures = returned.value
    for value in figures.values() if isinstance(figures, Mapping) else [figures]:
        if not is_number(value):
            raise returned.refuse(
                f"must return a dict of numbers, but returned {_kind(value)}; use "
                "float(...) for a tensor of one number"
            )
    # JSON has no NaN: a number that does not exist is null there.
    return {n: f if math.isfinite(f) else None for n, f in figures.items()}


def _local(returned: _Returned, context: LocalContext) -> LocalHooks:
    hooks = returned.value
    if not isinstance(hooks, LocalHooks):
        raise returned.refuse(f"must return LocalHooks, but returned {_kind(hooks)}")
    if hooks.start is not None:
        returned.weights(hooks.start, context.weights, "a start")
    if isinstance(hooks.add_correction, LinearCorrection):
        constant = hooks.add_correction.constant
        returned.weights(constant, context.broadcast, "a constant to add")
    given = {name: getattr(hooks, name) for name in _LOCAL_CHECKS}
    checked_hooks: dict[str, Any] = {
        name: _checking_local(returned.method, name, hook, context)
        for name, hook in given.items()
        if hook is not None and not isinstance(hook, LinearCorrection)
    }
    return replace(hooks, **checked_hooks)


def _local_batched(returned: _Returned, contexts: Sequence) -> BatchedHooks:
    hooks = returned.value
    if not isinstance(hooks, BatchedHooks):
        raise returned.refuse(f"must return BatchedHooks, but returned {_kind(hooks)}")
    ends = [
        end and _checking_local(returned.method, "finish", end, context)
        for end, context in zip(hooks.finish or (), contexts)
    ]
    return replace(hooks, finish=ends or None)


def _checking_local(
    method: Method, name: str, hook: Callable, context: LocalContext
) -> Callable:
    takes, check = _LOCAL_CHECKS[name]
    what = f"{name} of the method '{method.name}'{where_of(hook)}"
    if not inspect.isbuiltin(hook):  # Python does not know what a builtin takes
        try:
            check_function(what, hook, takes)
        except TypeError as error:
            raise PluginError(str(error)) from None

    def call(*given):
        returned = hook(*given)
        check(_Returned(method, name, hook, returned), context, *given)
        return returned

    return call


# Checks of `LocalHooks`


def _transform(returned: _Returned, context, features: Tensor, labels) -> None:
    value = returned.value
    if not isinstance(value, Tensor) or value.shape != features.shape:
        raise returned.refuse(
            f"must return features of shape {tuple(features.shape)}, but returned "
            f"{_kind(value)}"
        )


def _loss(returned: _Returned, context, model, *given) -> None:
    value = returned.value
    if not isinstance(value, Tensor) or value.ndim:
        raise returned.refuse(
            f"must return one number, a tensor of shape (), but returned "
            f"{_kind(value)}; take its mean over the batch"
        )


def _objective(returned: _Returned, context, *given) -> None:
    _loss(returned, context, *given)
    if not returned.value.requires_grad:
        raise returned.refuse(
            "must return a loss with a gradient, but returned a constant, which trains "
            "nothing; compute it by the model, without no_grad and detach"
        )


def _anything(returned: _Returned, *given) -> None:
    """A hook that changes its argument returns nothing."""


def _perturb(returned: _Returned, context, params: Tensor, gradient) -> None:
    returned.weights(returned.value, params, "a move of the weights")


def _finish(returned: _Returned, context: LocalContext, outcome) -> None:
    upload, state = returned.pair("(tensors to send, tensors to keep)")
    returned.tensors(upload, "tensors to send")
    returned.tensors(state, "tensors to keep as state")
    specs = returned.method.upload_shapes(context.model)
    returned.declared(upload, specs, "upload_shapes")


_CHECKS: dict[str, Callable] = {
    "init_upload_shapes": _shapes,
    "upload_shapes": _shapes,
    "init_upload": _init_upload,
    "aggregate_init": _dict,
    "local": _local,
    "local_batched": _local_batched,
    "eval_params": _eval_params,
    "initial_state": _dict,
    "download": _dict,
    "scoring_download": _dict,
    "scored_params": _scored_params,
    "figures": _figures,
    "step": _step,
}
#: What each hook of `LocalHooks` takes, and the check of what it returns.
_LOCAL_CHECKS: dict[str, tuple[tuple[str, ...], Callable]] = {
    "transform": (("features", "labels"), _transform),
    "objective": (("model", "features", "labels"), _objective),
    "loss_term": (("model", "batch"), _loss),
    "add_correction": (("params", "gradient"), _anything),
    "perturb": (("params", "gradient"), _perturb),
    "finish": (("outcome",), _finish),
}
