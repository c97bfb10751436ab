"""FedPG (Xue et al.): train also on images from a generator that the server trains.

FedPG's generator of images: its networks, its loss, its training and its draws.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from federatedscope_ggeur.machine import sent
from federatedscope_ggeur.methods.adam import Adam
from federatedscope_ggeur.methods.base import (
    LocalContext,
    LocalHooks,
    Method,
    ServerContext,
    weighted_mean,
)
from federatedscope_ggeur.methods.class_means import (
    class_means,
    class_means_problem,
    class_means_specs,
)
from federatedscope_ggeur.methods.registry import register_augmentation
from federatedscope_ggeur.models import Model, bind_vector, load_vector, to_vector
from federatedscope_ggeur.models.base import draw_linear_layers
from federatedscope_ggeur.printable import get_logger

from ..keys import FEDPG_KEYS
from .vhl import (
    Shape,
    VirtualTerm,
    as_inputs,
    needs_images,
    shape_of,
    to_pixels,
    uniform_noise,
    virtual_accuracy,
    virtual_batches,
)

#: Adam's betas. Its rate falls by the factor _FALLS_TO after every _EVERY steps.
_BETAS = (0.5, 0.999)
_FALLS_TO, _EVERY = 0.95, 20
_SLOPE = 0.2
_HIDDEN = (128, 256, 512, 1024)
# The number of images to draw at a time.
_CHUNK_ROWS = 256


class ImageGenerator(nn.Module):
    """The generator G(e, y): it maps noise e and labels y to images in [-1, 1].

    It is the authors' network: Linear, BatchNorm and LeakyReLU to 128, 256, 512 and
    1024 numbers, then Linear and tanh.

    Parameters
    ----------
    noise_dim, num_classes : int
    shape : (c, h, w)
        The shape of an image.
    """

    def __init__(self, noise_dim: int, num_classes: int, shape: Shape):
        super().__init__()
        self.noise_dim, self.num_classes = noise_dim, num_classes
        layers: list[nn.Module] = []
        inputs = noise_dim + num_classes
        for outputs in _HIDDEN:
            layers += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs)]
            layers.append(nn.LeakyReLU(_SLOPE))
            inputs = outputs
        last = nn.Linear(inputs, math.prod(shape))
        self.layers = nn.Sequential(*layers, last, nn.Tanh())

    def forward(self, noise: Tensor, labels: Tensor) -> Tensor:
        """Images as rows (n, c h w), from noise [n, Z] in [0, 1) and labels [n]."""
        hot = F.one_hot(labels, self.num_classes).to(noise.dtype)
        return self.layers(torch.cat([noise, hot], dim=1)).flatten(1)

    def reset(self, rng: torch.Generator) -> ImageGenerator:
        """Draw the initial parameters as torch's layers do. Returns the generator."""
        draw_linear_layers(self, rng)
        return self

    def inputs(self, labels: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw noise for `labels`; return both on the device of the parameters."""
        noise = torch.rand(len(labels), self.noise_dim, generator=rng)
        device = next(self.parameters()).device
        return sent(noise, device), sent(labels, device)

    def draw(self, per_class: int, rng: torch.Generator) -> Tensor:
        """Draw `per_class` images of each class: uint8 rows. Row i is of class i mod C.

        BatchNorm uses its running statistics.
        """
        labels = torch.arange(self.num_classes).repeat(per_class)
        noise, labels = self.inputs(labels, rng)
        self.eval()
        with torch.no_grad():
            pairs = zip(noise.split(_CHUNK_ROWS), labels.split(_CHUNK_ROWS))
            return torch.cat([to_pixels(self(e, y)).cpu() for e, y in pairs])


def generator_loss(
    z: Tensor,
    labels: Tensor,
    virtual: Tensor,
    prototypes: Tensor,
    known: Tensor,
    scale: float,
    strength: float,
) -> Tensor:
    """The generator's loss L_G (Eq. 10): low if images are near their prototypes.

    The loss is ``CE(-scale d, y) + strength mean_i d_{i, y_i} + (1/|J|) sum_{c in J}
    CE(-scale |P'_c - P_.|^2, c)`` with ``d_ic = |z_i - P'_c|^2`` (Eqs. 8, 9, 7). J are
    the classes with a prototype P_c. Without any, the last part is 0.

    Parameters
    ----------
    z : Tensor of shape (n, D')
        Representations of drawn images.
    labels : Tensor of shape (n,)
    virtual : Tensor of shape (C, D')
        The virtual prototypes P'.
    prototypes : Tensor of shape (|J|, D')
        The prototypes P of the classes J.
    known : Tensor of shape (|J|,), int64
        The classes J.
    scale, strength : float

    Notes
    -----
    Where the authors' code and paper differ, this function follows the code. Distances
    are squared. `scale` multiplies them; the paper divides by tau. The sum of Eq. 8
    includes the image's own class; otherwise the loss would have no lower bound. This
    function differs from the code in one point: Eq. 7 is over J only, while the code
    uses zeros for unknown prototypes.
    """
    squares = _squared_distances(z, virtual)
    loss = F.cross_entropy(-scale * squares, labels)
    loss = loss + strength * squares.gather(1, labels[:, None]).mean()
    if len(known):
        apart = _squared_distances(virtual[known], prototypes)
        own = torch.arange(len(known), device=z.device)
        loss = loss + F.cross_entropy(-scale * apart, own)
    return loss


def _squared_distances(rows: Tensor, others: Tensor) -> Tensor:
    """|r - o|^2 of all pairs: (n, m). Products of rows would cancel in float32."""
    exact = "donot_use_mm_for_euclid_dist"
    return torch.cdist(rows, others, compute_mode=exact).square()


def _fall(step: int) -> float:
    return _FALLS_TO ** (step // _EVERY)


def virtual_prototypes(
    size: tuple[int, int], prototypes: Tensor, known: Tensor, rng: torch.Generator
) -> Tensor:
    """The virtual prototypes P' [C, D'] at the start of a round.

    Classes in `known` have their `prototypes` [|J|, D']. Other classes get draws with
    the mean and spread of these prototypes. If `known` is empty, all classes get draws
    from N(0, 1).
    """
    drawn = torch.randn(size, generator=rng).to(prototypes.device)
    if len(known):
        mean = prototypes.mean(dim=0)
        drawn = mean + (prototypes - mean).square().mean().sqrt() * drawn
        drawn[known] = prototypes
    return drawn


logger = get_logger(__name__)

#: A generator whose weights move less than this in a round is hardly trained: the
#: weights of its first layer begin between -0.04 and 0.04.
_HARDLY = 0.01


@register_augmentation("fedpg")
class FedPG(Method):
    """Adds ``virtual CE(g f(x'), y') + alignment l_fa`` on labelled virtual images.

    After each round the server trains a generator. It trains the generator so that the
    averaged network, frozen, represents its images near virtual prototypes of their
    classes. Then the server draws a set of images (`train_generator`). The clients of
    the next round train on batches of this set besides their own (`VirtualTerm`). The
    first round has no images. For each class a client sends the mean of the
    representation of up to `support` random rows, by its trained weights. The class's
    prototype P_c is the plain mean of these over the round's clients. Every mean is
    over at least `min_samples` rows; a client sends nothing for classes with fewer own
    rows.

    Each round, the virtual prototypes P' begin where `prototypes` says:

    - redrawn: at new draws from N(0, 1), as the authors do;
    - global: at P_c.

    A rate of 2e-5 over 300 falling steps moves a number by only 0.004 in a round. So
    redrawn prototypes stay random, and the images say nothing about their labels. The
    record of every round has `virtual_accuracy`: the share of the new images that the
    averaged network classifies as labelled.

    With `source` noise, a set of uniform noise replaces the generator. It is drawn
    once, after the first round, and no prototypes are sent. Compare any gain of FedPG
    with this. With `virtual` and `alignment` 0 the method is FedAvg, to the bit.

    The averaged network is the mean of the round's weights. A base method other than
    FedAvg may change it further.
    """

    meaning = (
        "trains also on virtual images, the same for all clients; the server trains "
        "their generator against class means of the representation"
    )
    source = "Xue 2025 (FedPG)"
    sends = "means of the representation of some rows of each class, and of which"
    receives = "C times `images_per_class` virtual images, uint8"
    SETTINGS = FEDPG_KEYS
    lower_if_diverging = ("virtual", "alignment")

    images_per_class: int
    batch_size: int
    virtual: float
    alignment: float
    temperature: float
    support: int
    noise_dim: int
    lr: float
    prototype_lr: float | None = None
    steps: int
    generator_batch: int
    scale: float
    strength: float
    prototypes: str
    constraint: bool
    until_round: int | None

    @classmethod
    def setting_notes(cls, settings):
        method = cls(**settings)
        # About how far Adam can move each number of the generator in a round.
        reach = method.lr * sum(map(_fall, range(method.steps)))
        if method._generates and reach < _HARDLY:
            yield (
                "lr",
                f"{method.lr:g} over {method.steps} falling steps moves a number of "
                f"the generator by only about {reach:.2g} a round. So its images "
                "hardly change, and may not show their labels; virtual_accuracy of "
                "each round says whether they do",
            )

    def model_problem(self, model):
        return needs_images(model)

    def upload_shapes(self, model):
        return class_means_specs(model) if self._generates else {}

    def upload_problem(self, upload, model):
        return class_means_problem(upload) if self._generates else ""

    def initial_state(self, params, context):
        none = torch.zeros(0, context.model.in_features, dtype=torch.uint8)
        if not self._generates:
            return {"images": none}
        generator = self.generator_of(context.model).reset(context.generator("fedpg"))
        return {"images": none, "generator": to_vector(generator)}

    def download(self, state):
        return {"images": state["images"]}

    def scoring_download(self, state):
        return {}

    def figures(self, state):
        known = "virtual_accuracy" in state
        return {"virtual_accuracy": float(state["virtual_accuracy"])} if known else {}

    def local(self, context: LocalContext) -> LocalHooks:
        images, term = context.download["images"], None
        if len(images) and (self.virtual or self.alignment):
            rng, classes = context.generator("fedpg"), context.model.num_classes
            batches = virtual_batches(images, classes, self.batch_size, rng)
            term = VirtualTerm(batches, self.virtual, self.alignment, self.temperature)

        def finish(outcome):
            wanted = context.told
            if not self._draws_after(context.round_number):
                wanted = torch.zeros_like(wanted)
            rng = context.generator("fedpg-prototype")
            most = max(self.support, context.min_samples)
            rows = _some_of_each(outcome.labels, wanted, most, rng)
            trained = context.model.at(outcome.weights)
            features = outcome.features[rows.to(outcome.features.device)]
            return class_means(trained, features, outcome.labels[rows], wanted), {}

        return LocalHooks(loss_term=term, finish=finish if self._generates else None)

    def step(self, params, updates, state, context):
        after = weighted_mean(params, updates)
        if not self._draws_after(context.round_number):
            kept = {n: t for n, t in state.items() if n != "virtual_accuracy"}
            return after, {**kept, "images": state["images"][:0]}
        model = context.model.at(after).to(context.device)
        if self._generates:
            state = self._drawn(model, updates, state, context)
        elif not len(state["images"]):
            rng = context.generator("fedpg-noise")
            count = self.images_per_class * model.num_classes
            state = {"images": uniform_noise(count, shape_of(model), rng)}
        if len(state["images"]):
            share = virtual_accuracy(model, state["images"])
            state = {
                **state,
                "virtual_accuracy": torch.tensor(share, dtype=torch.float64),
            }
        return after, state

    def _drawn(self, model: Model, updates, state, context: ServerContext) -> dict:
        """Train the generator and draw a set; return the new state."""
        device, generator = context.device, self.generator_of(model)
        load_vector(generator, state["generator"])
        prototypes, known = (t.to(device) for t in global_prototypes(updates))
        rng = context.generator("fedpg")
        at = slice(None) if self.prototypes == "global" else slice(0)
        size = model.num_classes, model.width
        start = context.generator("fedpg-prototypes")
        virtual = virtual_prototypes(size, prototypes[at], known[at], start)
        if not self.constraint:
            prototypes, known = prototypes[:0], known[:0]
        virtual = self.train_generator(
            generator.to(device), model, virtual.to(device), prototypes, known, rng
        )
        vector = to_vector(generator).cpu()
        if not (torch.isfinite(vector).all() and torch.isfinite(virtual).all()):
            logger.warning(
                "round %d: fedpg's generator diverged; its update is discarded and the "
                "last images stay; lower fedpg.lr, or check the clients' weights",
                context.round_number,
            )
            return dict(state)
        images = generator.draw(self.images_per_class, rng)
        return {"images": images, "generator": vector}

    def generator_of(self, model: Model) -> ImageGenerator:
        """The generator that makes input images for `model`, on the CPU."""
        classes, shape = model.num_classes, shape_of(model)
        return ImageGenerator(self.noise_dim, classes, shape)

    def train_generator(
        self,
        generator: ImageGenerator,
        model: Model,
        virtual: Tensor,
        prototypes: Tensor,
        known: Tensor,
        rng: torch.Generator,
    ) -> Tensor:
        """Train `generator` in place for a round, against a frozen `model`.

        Each round begins with a new Adam. Labels are drawn uniformly. If training
        diverges, the results have NaN. Returns the virtual prototypes P' after
        training. `virtual`, `prototypes` and `known` are as in `generator_loss`.
        """
        vector = to_vector(generator)
        bind_vector(generator, vector)
        generator.train()
        weights = list(generator.parameters())
        virtual = virtual.clone()
        rates = self.lr, self.prototype_lr or self.lr
        adams = (
            Adam(vector[: sum(w.numel() for w in weights)], rates[0], _BETAS),
            Adam(virtual, rates[1], _BETAS),
        )
        for step in range(self.steps):
            labels = torch.randint(
                generator.num_classes, (self.generator_batch,), generator=rng
            )
            noise, labels = generator.inputs(labels, rng)
            with torch.enable_grad():
                moved = virtual.requires_grad_(True)
                z = model.represent(as_inputs(model, generator(noise, labels)))
                loss = generator_loss(
                    z, labels, moved, prototypes, known, self.scale, self.strength
                )
                *of_weights, of_virtual = torch.autograd.grad(loss, [*weights, moved])
            flat = torch.cat([g.flatten() for g in of_weights])
            for adam, lr, gradient in zip(adams, rates, (flat, of_virtual)):
                adam.lr = lr * _fall(step)
                adam.step(gradient)
        return virtual.detach()

    @property
    def _generates(self) -> bool:
        return self.source == "generator"

    def _draws_after(self, round_number: int) -> bool:
        """Whether a set is drawn after this round, for the next round."""
        return self.until_round is None or round_number < self.until_round


def global_prototypes(updates) -> tuple[Tensor, Tensor]:
    """The plain mean of each class over the clients that sent it (Eq. 5).

    Returns
    -------
    tuple of Tensor of shape (|J|, D') and Tensor of shape (|J|,), int64
        The means, and the classes J that at least one client sent.
    """
    sent = torch.stack([u.upload["known"] for u in updates])
    sums = torch.stack([u.upload["means"] for u in updates]).sum(dim=0)
    known = sent.any(dim=0).nonzero().flatten()
    return sums[known] / sent.sum(dim=0)[known][:, None], known


def _some_of_each(
    labels: Tensor, wanted: Tensor, most: int, rng: torch.Generator
) -> Tensor:
    """Indices of up to `most` random rows of each `wanted` class, class by class.

    `wanted` has shape [C]. Rows are drawn without replacement.
    """
    chosen = [labels.new_zeros(0)]
    for c in wanted.nonzero().flatten().tolist():
        own = (labels == c).nonzero().flatten()
        order = torch.randperm(len(own), generator=rng)[:most]
        chosen.append(own[order.to(own.device)])
    return torch.cat(chosen)
