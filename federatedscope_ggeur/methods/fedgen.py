"""FedGen (Zhu et al., 2021): a generator distilled from the clients' last layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from federatedscope_ggeur.models import LinearHead, Model
from federatedscope_ggeur.printable import get_logger
from federatedscope_ggeur.settings import (
    Key,
    amount,
    batch_rows,
    layer_width,
    not_negative,
    positive,
)

from .adam import Adam
from .base import LocalContext, LocalHooks, Method, ServerContext, Update, weighted_mean
from .contexts import TensorSpec, count_problem
from .registry import register_augmentation

logger = get_logger(__name__)


@register_augmentation("fedgen")
class FedGen(Method):
    """Adds ``alpha CE(classifier(G(noise, yhat)), yhat)`` with a generator G to the
    loss.

    yhat is uniform over the classes that G has seen. G makes inputs of the model's last
    layer: embeddings for a linear head, hidden activations for an MLP. Every batch gets
    as many draws as it has rows.

    After each round the server trains G on the clients' last layers l_k, from before
    averaging. The loss is ``CE(sum_k a_ky l_k(G(noise, y)), y)`` plus the term
    ``exp(-mean_ij |e_i - e_j|^2 |G_i - G_j|_1)``, which keeps draws apart. Its
    distances are means over dimensions. a_ky is client k's share of the rows of class y
    among the clients of the round. y is drawn uniformly from the classes that these
    clients have. Before G's first training, the clients' loss has no term of G. If a
    client has fewer than `min_samples` rows of a class, it counts as having none.

    With `alpha` 0 the method is FedAvg, to the bit. G's Adam begins anew each round.
    """

    meaning = (
        "trains the model's last layer also on draws of a generator that the server "
        "distils from the clients' last layers"
    )
    source = "Zhu 2021"
    sends = "in round 0: label counts, for the server alone"
    receives = (
        "the generator: (noise_dim + C + 1) hidden + (hidden + 1) D'' numbers; which "
        "classes it has seen"
    )
    SETTINGS = (
        Key("alpha", 1.0, "Weight of the loss on generated rows.", not_negative),
        Key("noise_dim", 32, "Dimensions of the generator's noise.", layer_width),
        Key("hidden", 128, "Hidden units of the generator.", layer_width),
        Key("lr", 0.001, "Learning rate of the generator's Adam.", positive),
        Key("steps", 50, "Training steps of the generator in a round.", amount),
        Key("batch_size", 32, "Generated rows in each of these steps.", batch_rows),
    )

    alpha: float
    noise_dim: int
    hidden: int
    lr: float
    steps: int
    batch_size: int

    def init_upload_shapes(self, model):
        return {"counts": TensorSpec((model.num_classes,), torch.int64)}

    def init_upload_problem(self, init_upload, model):
        return count_problem("'counts'", init_upload["counts"])

    def init_upload(self, features, labels, context):
        allowed = context.told
        return {"counts": context.counts * allowed}

    def initial_state(self, params, context):
        rng = context.generator("fedgen")
        return {
            "generator": self.generator_of(context.model).initial(rng),
            "seen": torch.zeros(context.model.num_classes, dtype=torch.int64),
        }

    def download(self, state):
        return state

    def local(self, context: LocalContext) -> LocalHooks:
        seen = context.download["seen"].nonzero().flatten()
        if not len(seen):
            return LocalHooks()  # the generator has not been trained yet
        generator = self.generator_of(context.model)
        rng = context.generator("fedgen")
        vector = context.download["generator"]

        def loss_term(model, batch):
            labels, noise = self._draw(seen, len(batch.labels), rng)
            inputs = generator(vector, noise, labels)
            return self.alpha * F.cross_entropy(model.classifier(inputs), labels)

        return LocalHooks(loss_term=loss_term)

    def step(self, params, updates, state, context):
        after = weighted_mean(params, updates)
        teachers = [
            u for u in updates if u.aggregation_weight and _counts(u, context).any()
        ]
        if not teachers:
            return after, state
        counts = torch.stack([_counts(update, context) for update in teachers])
        layers = [context.model.at(u.params).classifier for u in teachers]
        generator = self.generator_of(context.model)
        rng = context.generator("fedgen")
        trained = self._train(generator, state["generator"], layers, counts, rng)
        if not torch.isfinite(trained).all():
            logger.warning(
                "round %d: fedgen's generator diverged; its update is discarded; "
                "lower fedgen.lr, or check the clients' weights",
                context.round_number,
            )
            return after, state
        seen = torch.maximum(state["seen"], counts.any(dim=0).long())
        return after, {"generator": trained, "seen": seen}

    def _train(self, generator, vector, layers, counts, rng) -> Tensor:
        """The generator's next vector [P_G], trained on K last layers.

        `counts` [K, C] are the numbers of rows of each class at the K clients.
        """
        weights = torch.stack([layer.weight.t() for layer in layers])
        biases = torch.stack([layer.bias for layer in layers])[:, None]
        total = counts.sum(dim=0)
        classes = total.nonzero().flatten()
        shares = (counts / total.clamp(min=1)).float()
        vector = vector.clone()
        adam = Adam(vector, self.lr)
        for _ in range(self.steps):
            labels, noise = self._draw(classes, self.batch_size, rng)
            with torch.enable_grad():
                inputs = generator(vector.requires_grad_(True), noise, labels)
                each = inputs @ weights + biases
                logits = (shares[:, labels, None] * each).sum(dim=0)
                loss = F.cross_entropy(logits, labels) + _closeness(noise, inputs)
                (gradient,) = torch.autograd.grad(loss, vector)
            adam.step(gradient)
        return vector.detach()

    def _draw(self, classes, size, rng) -> tuple[Tensor, Tensor]:
        """Draw labels [size], uniform over `classes`, and noise [size, noise_dim]."""
        drawn = torch.randint(len(classes), (size,), generator=rng)
        noise = torch.randn(size, self.noise_dim, generator=rng)
        return classes[drawn.to(classes.device)], noise.to(classes.device)

    def generator_of(self, model: Model) -> Generator:
        """The generator that makes inputs of the last layer of `model`."""
        width = model.classifier.in_features
        sizes = (self.noise_dim + model.num_classes, self.hidden, width)
        return Generator(*sizes, rectified=not isinstance(model, LinearHead))


@dataclass(frozen=True)
class Generator:
    """The generator: Linear, ReLU and Linear layers on noise and a one-hot label.

    Its weights are one vector, which the caller holds.

    Attributes
    ----------
    inputs, hidden, outputs : int
        The widths of the layers. `inputs` is the length of noise and label.
    rectified : bool
        Whether a ReLU comes last, because inputs of an MLP's last layer are never
        negative.
    """

    inputs: int
    hidden: int
    outputs: int
    rectified: bool

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Numbers in the weights and biases of both layers. Their sum is P_G."""
        first = self.hidden * self.inputs, self.hidden
        return (*first, self.outputs * self.hidden, self.outputs)

    def initial(self, rng: torch.Generator) -> Tensor:
        """Draw an initial vector of shape (P_G,), as `torch.nn.Linear` does."""
        bounds = (self.inputs**-0.5,) * 2 + (self.hidden**-0.5,) * 2
        parts = zip(self.sizes, bounds)
        return torch.cat(
            [torch.empty(n).uniform_(-b, b, generator=rng) for n, b in parts]
        )

    def __call__(self, vector: Tensor, noise: Tensor, labels: Tensor) -> Tensor:
        """Generate rows (n, outputs) from noise [n, Z] and labels [n]."""
        weight, bias, last, last_bias = vector.split(self.sizes)
        classes = self.inputs - noise.shape[1]
        x = torch.cat([noise, F.one_hot(labels, classes).to(noise.dtype)], dim=1)
        x = F.relu(F.linear(x, weight.view(self.hidden, self.inputs), bias))
        x = F.linear(x, last.view(self.outputs, self.hidden), last_bias)
        return F.relu(x) if self.rectified else x


def _counts(update: Update, context: ServerContext) -> Tensor:
    """The numbers of rows of each class that the client sent: shape (C,)."""
    return context.init_uploads[update.client]["counts"].double()


def _closeness(noise: Tensor, inputs: Tensor) -> Tensor:
    """A measure of how close the draws are to each other; 1 if all are equal.

    It is ``exp(-mean_ij |e_i - e_j|^2 |G_i - G_j|_1)``.
    """
    # Products of rows would cancel in float32.
    exact = "donot_use_mm_for_euclid_dist"
    apart = torch.cdist(noise, noise, compute_mode=exact).square() / noise.shape[1]
    distance = torch.cdist(inputs, inputs, p=1.0) / inputs.shape[1]
    return (-(apart * distance).mean()).exp()
