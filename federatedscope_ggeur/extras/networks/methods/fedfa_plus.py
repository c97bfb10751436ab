"""FedFA+ (Zhou et al., 2023): noise on feature statistics, and aligned histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from federatedscope_ggeur.machine import sent
from federatedscope_ggeur.methods.base import (
    LocalContext,
    LocalHooks,
    Method,
    Update,
    weighted_mean,
)
from federatedscope_ggeur.methods.contexts import (
    TensorSpec,
    count_problem,
    value_problem,
)
from federatedscope_ggeur.methods.registry import register_augmentation
from federatedscope_ggeur.models import Model

from ..keys import FEDFA_PLUS_KEYS
from .feature_statistics import (
    EPS,
    BatchDraws,
    RunningStatistics,
    client_variances,
    modulated,
    shaken,
    soft_histogram,
    stage_problem,
    symmetric_divergence,
)

#: Variants with gamma from the server, and variants with histograms.
_LEARNT = ("l", "plus", "direct")
_ALIGNED = ("h", "plus")
#: Variants with a fixed gamma. FedFA-R's -1 removes the batch's variance.
_FIXED = {"c": 0.0, "c2": 1.0, "r": -1.0}
#: The standard deviation of FedFA-R's noise.
_DEVIATION = 0.5
#: Settings that only one half of the method uses.
_OF_LAYERS = ("probability", "stages", "noise")
_OF_STATISTICS = ("momentum", "debias")
_OF_ALIGNMENT = ("bins", "weight", "temperature", "align_stages")


@register_augmentation("fedfa_plus")
class FedFAPlus(Method):
    """FedFA-l adds noise to statistics of feature maps; FedFA-h aligns their
    histograms.

    There is a layer after each of `stages`. It acts on a batch with `probability`. Let
    X be a map with mean mu and standard deviation sigma over its pixels. The layer
    returns ``sigma^ (X - mu) / sigma + mu^`` with ``mu^ = mu + e sqrt(f Var_B(mu))``,
    and sigma^ likewise. e ~ N(0, noise^2) is drawn for every row and channel. `variant`
    decides f (Eq. 8, Tables 9 and 11):

    - ``l``, ``plus``: gamma + 1. The server computes gamma for each channel from s, the
      variance over clients of their means of mu (of sigma): ``q = s / (1 + s)``,
      ``gamma_j = C_k q_j / sum(q)``. gamma is 1 before the first round, and if all s
      are 0.
    - ``direct``: s + 1 ("direct fusion").
    - ``c``: 1, so only the client's own variance counts (FedFA-C).
    - ``c2``: 2, that is gamma = 1. The published code does this: it takes one variance
      over all clients and channels together.
    - ``r``: no f. mu^ and sigma^ have the standard deviation 0.5 everywhere (FedFA-R).
    - ``h``: no layers.

    A client's means are running means (Eq. 5, `momentum`) that start anew every round.
    `debias` removes the effect of the start. Otherwise the start would dominate after
    few batches, and s would show which clients had few batches.

    ``plus`` and ``h`` add ``weight * mean_c 1/2 [KL(pi_B || pi) + KL(pi || pi_B)]`` to
    the loss, over the channels of `align_stages` (Eqs. 11-14). pi_B is the soft
    histogram of the batch's maps, averaged over pixels. pi is the plain mean of the
    clients' histograms. A client makes its histogram from all its rows after training,
    without the layers. The term is missing until the server knows pi. A histogram is
    scaled to the range of its rows: it reveals their shape, but not location or scale.

    On the server all clients count equally in gamma and pi, as in the paper. (Their
    weights are averaged equally only with `ignore_weight`.) A client withholds its
    means of a stage if fewer than `min_samples` rows are in them, or if one row is more
    than ``1 / min_samples`` of them. With fewer than `min_samples` rows in all, it
    withholds everything.

    With `probability` 0 (of ``l``, ``c``, ``c2``, ``r``, ``direct``), or `weight` 0 of
    ``h``, the method is FedAvg to the bit.
    """

    meaning = (
        "adds noise to the statistics of feature maps, more in channels in which "
        "clients differ, and aligns histograms of features"
    )
    source = "FedFA+ (Zhou 2023); FedFA-l: Zhou 2023 (ICLR)"
    sends = (
        "l, plus, direct: 2 C_k numbers and how many rows, for each of the stages; h, "
        "plus: a histogram of bins numbers for each channel of the aligned stages"
    )
    receives = "the same of all clients: gamma, and the mean histogram"
    SETTINGS = FEDFA_PLUS_KEYS
    lower_if_diverging = ("weight", "noise")

    variant: str
    probability: float
    momentum: float
    debias: bool
    bins: int
    weight: float
    temperature: float
    stages: Sequence[int]
    align_stages: Sequence[int]
    noise: float

    @classmethod
    def setting_notes(cls, settings):
        variant = settings["variant"]
        unused = [
            *(_OF_LAYERS if variant == "h" else ()),
            *(() if variant in _LEARNT else _OF_STATISTICS),
            *(() if variant in _ALIGNED else _OF_ALIGNMENT),
        ]
        for key in cls.SETTINGS:
            if key.name in unused and settings[key.name] != key.default:
                yield (
                    key.name,
                    f"has no effect with ggeur.fedfa_plus.variant: {variant}",
                )

    @property
    def shakes(self) -> bool:
        """Whether noise is added to the statistics of feature maps."""
        return self.variant != "h" and self.probability > 0

    @property
    def learns(self) -> bool:
        """Whether the server computes gamma."""
        return self.shakes and self.variant in _LEARNT

    @property
    def aligns(self) -> bool:
        """Whether the method aligns histograms of stages."""
        return self.variant in _ALIGNED and self.weight > 0

    def shaken_stages(self, model: Model) -> list[int]:
        """The numbers, from 0, of the stages that have an augmentation layer."""
        numbers = self.stages or range(1, len(model.stage_widths) + 1)
        return [int(number) - 1 for number in numbers]

    def aligned_stages(self, model: Model) -> list[int]:
        """The stages whose histograms are aligned, numbered from 0."""
        numbers = self.align_stages or [len(model.stage_widths)]
        return [int(number) - 1 for number in numbers]

    def model_problem(self, model):
        return stage_problem(model, self.stages, "stages") or stage_problem(
            model, self.align_stages, "align_stages"
        )

    def upload_shapes(self, model):
        shapes, widths = {}, model.stage_widths
        if self.learns:
            stages = self.shaken_stages(model)
            channels = sum(widths[k] for k in stages)
            shapes["mu"] = shapes["sigma"] = TensorSpec((channels,))
            shapes["rows"] = TensorSpec((len(stages),), torch.int64)
        if self.aligns:
            channels = sum(widths[k] for k in self.aligned_stages(model))
            shapes["histogram"] = TensorSpec((channels, self.bins))
        return shapes

    def upload_problem(self, upload, model):
        if self.learns:
            for name in ("mu", "sigma"):
                problem = value_problem(f"'{name}'", upload[name])
                if problem:
                    return problem
            if (upload["sigma"] < 0).any():
                return "'sigma' must not be negative"
            problem = count_problem("'rows'", upload["rows"])
            if problem:
                return problem
        return _histogram_problem(upload["histogram"]) if self.aligns else ""

    def initial_state(self, params, context):
        shapes = self.upload_shapes(context.model)
        state = {}
        if self.learns:
            state["gamma_mu"] = torch.ones(shapes["mu"].shape)
            state["gamma_sigma"] = torch.ones(shapes["sigma"].shape)
        if self.aligns:
            state["histogram"] = torch.zeros(shapes["histogram"].shape)
        return state

    def download(self, state):
        return state

    def local(self, context: LocalContext) -> LocalHooks:
        layers = Layers(self, context)
        target = context.download.get("histogram", torch.zeros(0))
        if not target.any():
            layers.aligned = []  # no client has sent a histogram yet

        def loss_term(model, batch):
            values = torch.cat([layers.pooled[k] for k in layers.aligned], dim=1)
            histogram = soft_histogram(values, self.bins, self.temperature)
            return self.weight * symmetric_divergence(histogram, target).mean()

        def finish(outcome):
            enough = int(context.counts.sum()) >= context.min_samples
            upload = layers.statistics(enough) if self.learns else {}
            if self.aligns:
                model = context.model.at(outcome.weights)
                upload["histogram"] = self._histogram(model, outcome.features, enough)
            return upload, {}

        acts = self.shakes or layers.aligned
        return LocalHooks(
            stage=layers if acts else None,
            transform=layers.draws.new_batch if self.shakes else None,
            loss_term=loss_term if layers.aligned else None,
            finish=finish if self.learns or self.aligns else None,
        )

    def _histogram(self, model: Model, rows: Tensor, enough: bool) -> Tensor:
        """The histogram [C, L] of all the client's rows; 0 if the client withholds it.

        `model` makes the features of the rows.
        """
        stages = self.aligned_stages(model)
        if not enough or not len(rows):
            channels = sum(model.stage_widths[k] for k in stages)
            return torch.zeros(channels, self.bins)
        kept: dict[int, Tensor] = {}

        def keep(stage: int, maps: Tensor) -> Tensor:
            kept[stage] = _pooled(maps)
            return maps

        def features(x: Tensor) -> Tensor:
            model.represent(x)
            return torch.cat([kept[k] for k in stages], dim=1)

        with model.stages_hooked(keep):
            values = model.in_chunks(features, rows)
        return soft_histogram(values, self.bins, self.temperature)

    def step(self, params, updates, state, context):
        state, counted = dict(state), [u for u in updates if u.aggregation_weight]
        if self.learns:
            stages = self.shaken_stages(context.model)
            widths = [context.model.stage_widths[k] for k in stages]
            for name in ("mu", "sigma"):
                before = state[f"gamma_{name}"].split(widths)
                after = [
                    self._factor(_of_stage(counted, name, i, widths), before[i])
                    for i in range(len(widths))
                ]
                state[f"gamma_{name}"] = torch.cat(after)
        if self.aligns:
            sent = [u.upload["histogram"].double() for u in counted]
            known = [histogram for histogram in sent if histogram.any()]
            if known:
                state["histogram"] = torch.stack(known).mean(dim=0).float()
        return weighted_mean(params, updates), state

    def _factor(self, sent: list[Tensor], before: Tensor) -> Tensor:
        """Compute a stage's gamma [C] from the clients' means `sent`.

        The variant ``direct`` gets s instead. With fewer than two clients the result is
        `before`.
        """
        if len(sent) < 2:
            return before
        s = client_variances(sent)
        return (s if self.variant == "direct" else modulated(s)).float()


def _of_stage(updates: Sequence[Update], name: str, stage: int, widths) -> list[Tensor]:
    """The means [C_k] of a stage, from the clients that sent them."""
    end = list(accumulate(widths))[stage]
    return [
        update.upload[name][end - widths[stage] : end]
        for update in updates
        if update.upload["rows"][stage] > 0
    ]


def _histogram_problem(histogram: Tensor) -> str:
    """Why to refuse a client's histogram [C, L]; "" if it is good.

    A withheld histogram is all zeros.
    """
    if (histogram < 0).any() or (histogram > 1).any():
        return "'histogram' must lie in 0..1"
    if histogram.any() and ((histogram.sum(dim=1) - 1).abs() > 1e-3).any():
        return "'histogram' must sum to 1 in every row, or be 0 throughout"
    return ""


class Layers:
    """The layers of one client in one round. An object is a `LocalHooks.stage`.

    Attributes
    ----------
    aligned : list of int
        The stages to align. For these, `pooled` has the current batch's maps after the
        layer, averaged over pixels [B, C].
    """

    def __init__(self, method: FedFAPlus, context: LocalContext):
        model = context.model
        self.method, self.min_samples = method, context.min_samples
        self.aligned = method.aligned_stages(model) if method.aligns else []
        self.pooled: dict[int, Tensor] = {}
        self.stages = method.shaken_stages(model) if method.shakes else []
        self.draws = BatchDraws(self._draw)
        self._floor = _DEVIATION**2 if method.variant == "r" else EPS
        self._active = context.generator("ffa-active")
        self._noise = context.generator("ffa-noise")
        widths = [model.stage_widths[k] for k in self.stages]
        device = context.broadcast.device
        self.running = {
            k: RunningStatistics(width, method.momentum, device)
            for k, width in zip(self.stages, widths)
        }
        self.factors = _factors(method, context.download, self.stages, widths)

    def __call__(self, stage: int, maps: Tensor) -> Tensor:
        if stage in self.running:
            noise, is_new = self.draws.of(stage, maps)
            if noise is not None:
                maps = self._shaken(stage, maps, noise, is_new)
        if stage in self.aligned:
            self.pooled[stage] = _pooled(maps)
        return maps

    def _draw(self, stage: int, maps: Tensor) -> list[Tensor] | None:
        """Draw e for mu and for sigma, [B, C] each; None if the layer does not act."""
        # Two generators, so that another probability does not change the noise.
        if torch.rand((), generator=self._active) >= self.method.probability:
            return None
        size = maps.shape[:2]
        drawn = [torch.randn(size, generator=self._noise) for _ in range(2)]
        return [*sent(self.method.noise * torch.stack(drawn), maps.device)]

    def _shaken(self, stage: int, maps: Tensor, noise, is_new: bool) -> Tensor:
        of_mean, of_std = noise
        factors = self.factors[stage]
        new, mean, std = shaken(maps, *factors, of_mean, of_std, self._floor)
        if self.method.learns and is_new:
            self.running[stage].add(mean, std, len(maps))
        return new

    def statistics(self, enough: bool) -> dict[str, Tensor]:
        """The tensors to send: `mu` and `sigma` [sum C_k], and `rows` [K].

        Withheld numbers are 0. Without `enough` rows the client withholds all.
        """
        parts = []
        for running in self.running.values():
            mean, std = running.debiased if self.method.debias else running.biased
            # A share of exactly 1 / min_samples is allowed, even if it is rounded up.
            told = (
                enough
                and running.rows >= self.min_samples
                and running.largest_share * self.min_samples <= 1 + 1e-9
            )
            parts.append((mean * told, std * told, running.rows * told))
        means, stds, rows = zip(*parts)
        return {
            "mu": torch.cat(means),
            "sigma": torch.cat(stds),
            "rows": torch.tensor(rows),
        }


def _factors(
    method: FedFAPlus, download: Mapping[str, Tensor], stages, widths
) -> dict[int, tuple[Tensor | float, Tensor | float]]:
    """The factors of the batch's variances of mu and sigma, by stage."""
    if method.variant in _FIXED:
        return dict.fromkeys(stages, (_FIXED[method.variant] + 1,) * 2)
    if not method.learns:
        return {}
    gammas = (download[f"gamma_{name}"].split(widths) for name in ("mu", "sigma"))
    return {k: (mu + 1, sigma + 1) for k, mu, sigma in zip(stages, *gammas)}


def _pooled(maps: Tensor) -> Tensor:
    """The mean over the pixels of maps [B, C, H, W]: shape (B, C)."""
    return maps.flatten(2).mean(dim=2)
