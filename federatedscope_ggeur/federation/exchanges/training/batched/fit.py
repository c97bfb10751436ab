"""`fit` for several clients at once.

A step of K clients is a few products of K matrices in place of K times as many small
ones. This pays on a GPU, where a small product takes no longer than a launch, and where
one client's head leaves nearly all of the GPU idle.

Every client takes the steps that `fit` takes: the same rows, the same draws of dropout.
So the results differ by rounding alone. No client's numbers enter another's.

Steps of fixed shapes: replayed as CUDA graphs on a GPU, run as they are elsewhere.

A step is a handful of small kernels. To launch them one by one takes longer than their
work. A graph launches those of many steps at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import accumulate
from types import ModuleType
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.client import TrainingSet
from federatedscope_ggeur.federation.settings import TrainingSettings
from federatedscope_ggeur.machine import fetched
from federatedscope_ggeur.methods import BatchedHooks, GroupBatch
from federatedscope_ggeur.models import Model
from federatedscope_ggeur.rng import torch_generator

from ..fit import FitResult
from .heads import BatchedHead, BatchedLinear, Orders, batched_head
from .optimizers import BatchedSGD, BatchedTorch, is_plain_sgd


@cache
def fused_kernels(device: torch.device) -> ModuleType | None:
    """The module `kernels`, if Triton can compile it for the device."""
    if not _can_compile(device):
        return None
    try:
        from . import kernels
    except ImportError:
        return None
    return kernels


def _can_compile(device: torch.device) -> bool:
    if os.environ.get("TRITON_INTERPRET") == "1":
        return True
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (7, 0)


#: Steps of the longest graph, a power of two. Up to `_SHORT` there is a graph for each
#: number of steps, since a short round is one launch then.
_LONGEST, _SHORT = 64, 8


class Steps:
    """Takes steps whose inputs have fixed shapes.

    Parameters
    ----------
    step : callable
        Takes one step. It gets one slice of each input, reads and changes tensors that
        keep their places, and draws nothing.
    changed : sequence of Tensor
        The tensors that a step changes. Warming up changes them, too; they are put
        back.
    like : sequence of Tensor
        Inputs [steps, ...] of the right shapes, types and device.
    captures : bool
        Whether to capture graphs on a GPU.
    """

    def __init__(
        self,
        step: Callable[..., None],
        changed: Sequence[Tensor],
        like: Sequence[Tensor],
        captures: bool,
    ):
        self._step, self._changed = step, changed
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._inputs: list[Tensor] = []
        if captures and like[0].is_cuda:
            self._inputs = [t.new_zeros((_LONGEST, *t.shape[1:])) for t in like]

    def run(self, *inputs: Tensor) -> None:
        """Take a step on each slice of `inputs` [steps, ...]."""
        if not self._inputs:
            for one in zip(*inputs):
                self._step(*one)
            return
        done, steps = 0, inputs[0].shape[0]
        while done < steps:
            length = min(steps - done, _LONGEST)
            if length > _SHORT:
                length = 1 << (length.bit_length() - 1)
            for kept, given in zip(self._inputs, inputs):
                kept[:length].copy_(given[done : done + length])
            if length not in self._graphs:
                self._graphs[length] = self._captured(length)
            self._graphs[length].replay()
            done += length

    def _captured(self, length: int) -> torch.cuda.CUDAGraph:
        slices = [[kept[i] for kept in self._inputs] for i in range(length)]
        if not self._graphs:
            self._warm_up(slices[0])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for one in slices:
                self._step(*one)
        return graph

    def _warm_up(self, inputs: Sequence[Tensor]) -> None:
        """Compile kernels and make the libraries' own memory, before a capture."""
        before = [tensor.clone() for tensor in self._changed]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._step(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        for tensor, kept in zip(self._changed, before):
            tensor.copy_(kept)


#: A row of weights begins at a multiple of so many numbers, as fast loads need it.
_ALIGNED = 32
#: Steps from which a graph for one round pays.
_PAYING_STEPS = 512


class Member(NamedTuple):
    """One client of a group: what `fit` takes for it.

    Attributes
    ----------
    rows : TrainingSet
        On the settings' device.
    settings : TrainingSettings
        Members of one group differ in rates and momenta of SGD alone.
    seed : int
    """

    rows: TrainingSet
    settings: TrainingSettings
    seed: int

    @property
    def steps(self) -> int:
        """The mini-batches of the round."""
        return self.settings.batches(self.rows.size)


def groups(members: Sequence[Member]) -> list[list[int]]:
    """The places of members that can train at once, by falling number of steps."""
    kinds: list[tuple[TrainingSettings, list[int]]] = []
    for place, member in enumerate(members):
        for settings, places in kinds:
            if _are_alike(member.settings, settings):
                places.append(place)
                break
        else:
            kinds.append((member.settings, [place]))
    steps = [member.steps for member in members]
    return [sorted(places, key=lambda k: -steps[k]) for _, places in kinds]


def _are_alike(one: TrainingSettings, other: TrainingSettings) -> bool:
    """Whether clients with these settings can train at once."""
    if one is other:
        return True
    first, second = one.optimizer, other.optimizer
    if is_plain_sgd(first) and is_plain_sgd(second):
        options = {**second.options, "momentum": first.momentum}
        if "momentum" not in first.options:
            del options["momentum"]
        other = replace(other, optimizer=replace(second, lr=first.lr, options=options))
    return one == other


def fit_group(
    model: Model,
    start: Tensor,
    members: Sequence[Member],
    hooks: BatchedHooks | None = None,
    exact: bool | None = None,
) -> list[FitResult]:
    """Train the heads of several clients, each from the weights `start`.

    Parameters
    ----------
    model : Model
        A linear or an MLP head. It is not changed.
    start : Tensor of shape (P,)
    members : sequence of Member, of length K
        One of the `groups`.
    hooks : BatchedHooks, optional
    exact : bool, optional
        Whether each step is of exactly the clients that have not finished. Otherwise
        steps have fixed shapes, and clients that have finished do not move. By default
        steps are exact but for SGD without dropout on a GPU, where fixed ones are
        captured as CUDA graphs.

    Returns
    -------
    list of FitResult
        In the order of `members`. Their weights are views of one tensor.

    Raises
    ------
    ConfigError
        The model has no batched form.
    """
    head = batched_head(model)
    if head is None:
        raise ConfigError(f"a {type(model).__name__} has no batched form")
    hooks, settings = hooks or BatchedHooks(), members[0].settings
    can_be_fixed = is_plain_sgd(settings.optimizer) and not head.dropped_units
    if exact is None:
        exact = not (can_be_fixed and settings.device.type == "cuda")
    with torch.no_grad():
        sets = [member.rows for member in members]
        # Where each set begins among the joined ones.
        places = [0, *accumulate(one.labels.shape[0] for one in sets[:-1])]
        stepper = _stepper(model, head, members, hooks, reuse=not exact)
        stepper.load(start, members, hooks)
        orders = Orders(sets, places, settings, [member.seed for member in members])
        is_fixed = can_be_fixed and not exact
        run = stepper.run_fixed if is_fixed else stepper.run_exact
        for rows, sizes in orders.segments(exact=not is_fixed):
            run(rows, sizes)
        largest = stepper.weights.abs().amax(dim=1)
        weights = fetched(stepper.weights)
    return [
        FitResult(own, steps, own, size)
        for own, steps, size in zip(weights, orders.steps, largest.tolist())
    ]


class _Stepper:
    """Takes the steps of a group. It may take those of the next round, too.

    All tensors that a step reads or changes keep their places: a CUDA graph holds them.

    Parameters
    ----------
    head : BatchedHead
    clients : int
        K
    settings : TrainingSettings
    features, labels : Tensor of shape (N, D) and (N,)
        The rows of all clients.
    hooks : BatchedHooks
        Those of the first round.
    """

    def __init__(
        self,
        head: BatchedHead,
        clients: int,
        settings: TrainingSettings,
        features: Tensor,
        labels: Tensor,
        hooks: BatchedHooks,
    ):
        self._head, self._settings, self._hooks = head, settings, hooks
        self.features, self.labels = features, labels
        # Padded: fast loads need rows that begin at certain multiples.
        size = -(-head.size // _ALIGNED) * _ALIGNED
        self._padded = features.new_zeros(clients, size)
        self._padded_buffer = torch.zeros_like(self._padded)
        self.weights = self._padded[:, : head.size]
        buffer = self._padded_buffer[:, : head.size]
        make = BatchedSGD if is_plain_sgd(settings.optimizer) else BatchedTorch
        self._optimizer = make(self.weights, buffer, settings.optimizer)
        self._apart = settings.grad_clip > 0 or hooks.perturb is not None
        self._gradient = torch.zeros_like(buffer) if self._apart else buffer
        self._fixed: dict[int, Steps] = {}
        self._dropout: list[torch.Generator] = []

    def load(
        self, start: Tensor, members: Sequence[Member], hooks: BatchedHooks
    ) -> None:
        """Begin a round."""
        self.weights.copy_(start if hooks.start is None else hooks.start)
        self._padded_buffer.zero_()
        held, given = self._hooks.add_correction, hooks.add_correction
        if held is not None and given is not None and held is not given:
            held.constant.copy_(given.constant)
        if isinstance(self._optimizer, BatchedSGD):
            self._optimizer.load([member.settings.optimizer for member in members])
        if self._head.dropped_units:
            seeds = [member.seed for member in members]
            self._dropout = [torch_generator(seed, "dropout") for seed in seeds]

    def run_exact(self, rows: Tensor, sizes: Tensor) -> None:
        """Take the steps of a segment, which all its clients take."""
        device = self._settings.device
        shares = _shares(sizes, rows.shape[2]).to(device)
        for i, numbers in enumerate(rows.to(device)):
            self._step(numbers, shares[i], None, self._kept(sizes[i]))

    def run_fixed(self, rows: Tensor, sizes: Tensor) -> None:
        """Take the steps of a segment, in which finished clients have empty batches."""
        device, clients = self._settings.device, rows.shape[1]
        inputs = [rows.to(device), sizes.to(device)]
        if self._kernels is None:
            shares = _shares(sizes, rows.shape[2]).to(device)
            inputs = [inputs[0], shares, (inputs[1] > 0).float()]
        if clients not in self._fixed:
            step = self._step if self._kernels is None else self._fused_step(clients)
            changed = [self._padded, self._padded_buffer]
            # A graph that calls a method's code serves one round alone.
            pays = not self._hooks.runs_code or len(rows) >= _PAYING_STEPS
            self._fixed[clients] = Steps(step, changed, inputs, pays)
        self._fixed[clients].run(*inputs)

    @property
    def _kernels(self) -> ModuleType | None:
        """The fused kernels, if they can take the steps."""
        is_linear = isinstance(self._head, BatchedLinear)
        if not is_linear or self._apart or self._hooks.runs_code:
            return None
        kernels = fused_kernels(self._settings.device)
        if kernels is None or self._head.classes > kernels.MOST_CLASSES:
            return None
        return kernels

    def _fused_step(self, clients: int) -> Callable[..., None]:
        """The step of the first clients by fused kernels."""
        kernels = self._kernels
        assert kernels is not None
        correction, sgd = self._hooks.add_correction, self._optimizer
        assert isinstance(sgd, BatchedSGD)
        constants, pull = None, sgd.weight_decay
        if correction is not None:
            constants, pull = correction.constant, pull + correction.alpha
        return kernels.LinearSteps(
            self._padded[:clients],
            self._padded_buffer[:clients],
            self.features,
            self.labels,
            self._head.classes,
            self._settings.batch_size,
            sgd.rates,
            sgd.momenta,
            pull,
            constants,
        ).step

    def _kept(self, sizes: Tensor) -> Tensor | None:
        """By what dropout multiplies each unit: [A, B, H]. Draws as `nn.Dropout`."""
        units, p = self._head.dropped_units, self._head.dropout
        if not units:
            return None
        shape = len(sizes), self._settings.batch_size, units
        kept = torch.zeros(shape, dtype=torch.float32)
        for own, size, generator in zip(kept, sizes.tolist(), self._dropout):
            own[:size].bernoulli_(1 - p, generator=generator)
        return kept.div_(1 - p).to(self._settings.device)

    def _step(
        self,
        numbers: Tensor,
        share: Tensor,
        moves: Tensor | None = None,
        kept: Tensor | None = None,
    ) -> None:
        """Take one step on the rows `numbers` [A, B]."""
        clients, batch = numbers.shape
        flat = numbers.reshape(-1)
        features = self.features.index_select(0, flat).view(clients, batch, -1)
        labels = self.labels.index_select(0, flat).view(clients, batch)
        weights, gradient = self.weights[:clients], self._gradient[:clients]
        hooks, optimizer = self._hooks, self._optimizer
        take = partial(self._add_gradient, gradient, features, labels, share, kept)
        if self._apart:
            gradient.zero_()
        else:
            optimizer.begin(clients)
        take(weights)
        if hooks.perturb is not None:
            nearby = weights + hooks.perturb(weights, gradient)
            gradient.zero_()
            take(nearby)
        if hooks.add_correction is not None:
            constant = hooks.add_correction.constant[:clients]
            replace(hooks.add_correction, constant=constant)(weights, gradient)
        if self._apart:
            optimizer.begin(clients)
            optimizer.buffer[:clients].add_(self._clipped(gradient))
        optimizer.step(clients, moves)

    def _add_gradient(
        self,
        into: Tensor,
        features: Tensor,
        labels: Tensor,
        share: Tensor,
        kept: Tensor | None,
        weights: Tensor,
    ) -> None:
        head, term = self._head, self._hooks.loss_term
        head.add_gradient(weights, into, features, labels, share, kept)
        if term is None:
            return
        with torch.enable_grad():
            at = weights.detach().requires_grad_()
            z = head.represent(at, features)
            batch = GroupBatch(features, labels, z, head.classify(at, z, kept), share)
            # Each term depends on its own client's weights alone. So the gradient of
            # the sum is that of each.
            total = term(head, batch).sum()
            if total.requires_grad:
                (gradient,) = torch.autograd.grad(total, at)
                into.add_(gradient)

    def _clipped(self, gradient: Tensor) -> Tensor:
        most = self._settings.grad_clip
        if most <= 0:
            return gradient
        norms = gradient.norm(dim=1, keepdim=True)
        return gradient * (most / (norms + 1e-6)).clamp(max=1.0)


#: The last stepper of each model, with what it was made for.
_STEPPERS: WeakKeyDictionary[Model, tuple[tuple, _Stepper]] = WeakKeyDictionary()


def _stepper(
    model: Model,
    head: BatchedHead,
    members: Sequence[Member],
    hooks: BatchedHooks,
    reuse: bool,
) -> _Stepper:
    """A stepper whose tensors hold the members' rows: the last one, if it fits."""
    sets = [member.rows for member in members]
    settings = replace(members[0].settings, schedule=None)
    features = [one.features for one in sets]
    labels = [one.labels for one in sets]
    made = partial(_Stepper, head, len(members), settings, hooks=hooks)
    if not reuse or hooks.runs_code:
        return made(_joined(features), _joined(labels))
    own, correction = settings.optimizer, hooks.add_correction
    decay = own.options.get("weight_decay", 0.0)
    linear = correction and (correction.alpha, correction.constant.shape)
    key = len(members), settings.batch_size, settings.grad_clip, decay, linear
    held = rows = sum(one.shape[0] for one in labels)
    if _lie_joined(features) and _lie_joined(labels):
        place: tuple = features[0].data_ptr(), labels[0].data_ptr(), rows
    else:
        rows = 1 << max(rows - 1, 0).bit_length()
        place = "copied", rows
    known = _STEPPERS.get(model)
    if known is None or known[0] != (key, place):
        if place[0] == "copied":
            empty = features[0].new_empty(rows, features[0].shape[1])
            stepper = made(empty, labels[0].new_empty(rows))
        else:
            stepper = made(_joined(features), _joined(labels))
        known = _STEPPERS[model] = (key, place), stepper
    stepper = known[1]
    if place[0] == "copied":
        torch.cat(features, out=stepper.features[:held])
        torch.cat(labels, out=stepper.labels[:held])
    return stepper


def _shares(sizes: Tensor, batch: int) -> Tensor:
    """One over the batch's size for rows that count, else 0: [..., B]."""
    counts = torch.arange(batch) < sizes[..., None]
    return counts.float() / sizes.clamp(min=1)[..., None].float()


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """The parts one below the other; without a copy if they lie so already."""
    first = parts[0]
    if not _lie_joined(parts):
        return torch.cat(list(parts))
    shape = sum(map(len, parts)), *first.shape[1:]
    return first.as_strided(shape, first.stride())


def _lie_joined(parts: Sequence[Tensor]) -> bool:
    """Whether the parts lie one below the other in one memory block."""
    end = parts[0].data_ptr()
    for part in parts:
        if part.data_ptr() != end or not part.is_contiguous():
            return False
        end += part.numel() * part.element_size()
    block = parts[0].untyped_storage().data_ptr()
    return all(part.untyped_storage().data_ptr() == block for part in parts)
