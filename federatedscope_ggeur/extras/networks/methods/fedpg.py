"""FedPG (Xue et al.): train also on images from a generator that the server trains."""

from __future__ import annotations

import torch
from torch import Tensor

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
from federatedscope_ggeur.models import Model, load_vector, to_vector
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.settings import NOT_SET

from ..keys import FEDPG_KEYS
from .fedpg_generator import Generator, GeneratorTraining, virtual_prototypes
from .virtual_images import (
    VirtualBatches,
    VirtualTerm,
    needs_images,
    shape_of,
    uniform_noise,
    virtual_accuracy,
)

logger = get_logger(__name__)

#: A generator whose weights move less than this in a round is hardly trained: the
#: weights of its first layer begin between -0.04 and 0.04.
_HARDLY = 0.01


@register_augmentation("fedpg")
class FedPG(Method):
    """Adds ``virtual CE(g f(x'), y') + alignment l_fa`` on labelled virtual images.

    After each round the server trains a generator. It trains the generator so that the
    averaged network, frozen, represents its images near virtual prototypes of their
    classes. Then the server draws a set of images
    (`fedpg_generator.GeneratorTraining`). The clients of the next round train on
    batches of this set besides their own (`virtual_images.VirtualTerm`). The first
    round has no images. For each class a client sends the mean of the representation of
    up to `support` random rows, by its trained weights. The class's prototype P_c is
    the plain mean of these over the round's clients. Every mean is over at least
    `min_samples` rows; a client sends nothing for classes with fewer own rows.

    Each round, the virtual prototypes P' begin where `prototypes` says:

    - redrawn: at new draws from N(0, 1), as the authors do;
    - kept: where the last round left them;
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
    generator: str
    noise_dim: int
    lr: float
    prototype_lr: float | None = None
    steps: int
    generator_batch: int
    scale: float
    strength: float
    prototypes: str
    constraint: bool
    until_round: int

    @classmethod
    def setting_notes(cls, settings):
        method = cls(**settings)
        reach = method._training.reach
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
            batches = VirtualBatches(images, classes, self.batch_size, rng)
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
        virtual = state.get("prototypes")
        if virtual is None:
            at = slice(None) if self.prototypes == "global" else slice(0)
            size = model.num_classes, model.width
            start = context.generator("fedpg-prototypes")
            virtual = virtual_prototypes(size, prototypes[at], known[at], start)
        if not self.constraint:
            prototypes, known = prototypes[:0], known[:0]
        virtual = self._training.run(
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
        kept = {"prototypes": virtual.cpu()} if self.prototypes == "kept" else {}
        return {"images": images, "generator": vector, **kept}

    def generator_of(self, model: Model) -> Generator:
        """The generator that makes input images for `model`, on the CPU."""
        classes, shape = model.num_classes, shape_of(model)
        return Generator(self.generator, self.noise_dim, classes, shape)

    @property
    def _training(self) -> GeneratorTraining:
        rates = self.lr, self.prototype_lr or self.lr
        return GeneratorTraining(
            self.steps, self.generator_batch, *rates, self.scale, self.strength
        )

    @property
    def _generates(self) -> bool:
        return self.source == "generator"

    def _draws_after(self, round_number: int) -> bool:
        """Whether a set is drawn after this round, for the next round."""
        return self.until_round == NOT_SET or round_number < self.until_round


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
