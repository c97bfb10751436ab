"""FedPG's generator of images: its networks, its loss, its training and its draws."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from federatedscope_ggeur.machine import sent
from federatedscope_ggeur.methods.adam import Adam
from federatedscope_ggeur.models import Model, bind_vector, to_vector

from .virtual_images import Shape, as_inputs, to_pixels

#: Adam's betas. Its rate falls by the factor _FALLS_TO after every _EVERY steps.
_BETAS = (0.5, 0.999)
_FALLS_TO, _EVERY = 0.95, 20
_SLOPE = 0.2
_HIDDEN = (128, 256, 512, 1024)
# The number of images to draw at a time: a convolutional generator needs much memory.
_CHUNK_ROWS = 256


class Generator(nn.Module):
    """The generator G(e, y): it maps noise e and labels y to images in [-1, 1].

    Parameters
    ----------
    kind : {"fc", "conv"}
        ``fc`` is the authors' network: Linear, BatchNorm and LeakyReLU to 128, 256, 512
        and 1024 numbers, then Linear and tanh. ``conv`` is this package's own network,
        because the authors did not publish theirs. A linear layer makes 128 channels
        with a quarter of the image's side. Twice, the size is doubled and a convolution
        follows, to 128 and to 64 channels. A last convolution makes the image.
    noise_dim, num_classes : int
    shape : (c, h, w)
        The shape of an image.
    """

    def __init__(self, kind: str, noise_dim: int, num_classes: int, shape: Shape):
        super().__init__()
        self.noise_dim, self.num_classes = noise_dim, num_classes
        make = _convolutional if kind == "conv" else _fully_connected
        self.layers = make(noise_dim + num_classes, shape)

    def forward(self, noise: Tensor, labels: Tensor) -> Tensor:
        """Images as rows (n, c h w), from noise [n, Z] in [0, 1) and labels [n]."""
        hot = F.one_hot(labels, self.num_classes).to(noise.dtype)
        return self.layers(torch.cat([noise, hot], dim=1)).flatten(1)

    def reset(self, rng: torch.Generator) -> Generator:
        """Draw the initial parameters as torch's layers do. Returns the generator."""
        with torch.no_grad():
            for layer in self.layers:
                if isinstance(layer, (nn.Linear, nn.Conv2d)):
                    bound = layer.weight[0].numel() ** -0.5
                    layer.weight.uniform_(-bound, bound, generator=rng)
                    layer.bias.uniform_(-bound, bound, generator=rng)  # type: ignore[union-attr]
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


def _fully_connected(inputs: int, shape: Shape) -> nn.Sequential:
    layers: list[nn.Module] = []
    for outputs in _HIDDEN:
        layers += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs)]
        layers.append(nn.LeakyReLU(_SLOPE))
        inputs = outputs
    return nn.Sequential(*layers, nn.Linear(inputs, math.prod(shape)), nn.Tanh())


def _convolutional(inputs: int, shape: Shape) -> nn.Sequential:
    channels, height, width = shape
    half, quarter = ((-(-height // part), -(-width // part)) for part in (2, 4))
    first = 128 * math.prod(quarter)
    return nn.Sequential(
        nn.Linear(inputs, first),
        nn.BatchNorm1d(first),
        nn.Unflatten(1, (128, *quarter)),
        nn.Upsample(half),
        nn.Conv2d(128, 128, 3, padding=1),
        nn.BatchNorm2d(128),
        nn.LeakyReLU(_SLOPE),
        nn.Upsample((height, width)),
        nn.Conv2d(128, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.LeakyReLU(_SLOPE),
        nn.Conv2d(64, channels, 3, padding=1),
        nn.Tanh(),
    )


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


@dataclass(frozen=True)
class GeneratorTraining:
    """Trains a generator in a round. Each round begins with a new Adam.

    Attributes
    ----------
    steps, batch_size : int
    lr, prototype_lr : float
        The rates of the generator and of the virtual prototypes.
    scale, strength : float
        The arguments of `generator_loss`.
    """

    steps: int
    batch_size: int
    lr: float
    prototype_lr: float
    scale: float
    strength: float

    @property
    def reach(self) -> float:
        """About how far Adam can move each number of the generator in a round."""
        return self.lr * sum(map(_fall, range(self.steps)))

    def run(
        self,
        generator: Generator,
        model: Model,
        virtual: Tensor,
        prototypes: Tensor,
        known: Tensor,
        rng: torch.Generator,
    ) -> Tensor:
        """Train `generator` in place against a frozen `model`.

        Returns the virtual prototypes P' after training. Labels are drawn uniformly. If
        training diverges, the results have NaN. `virtual`, `prototypes` and `known` are
        as in `generator_loss`.
        """
        vector = to_vector(generator)
        bind_vector(generator, vector)
        generator.train()
        weights = list(generator.parameters())
        virtual = virtual.clone()
        adams = (
            Adam(vector[: sum(w.numel() for w in weights)], self.lr, _BETAS),
            Adam(virtual, self.prototype_lr, _BETAS),
        )
        for step in range(self.steps):
            labels = torch.randint(
                generator.num_classes, (self.batch_size,), generator=rng
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
            for adam, lr, gradient in zip(
                adams, (self.lr, self.prototype_lr), (flat, of_virtual)
            ):
                adam.lr = lr * _fall(step)
                adam.step(gradient)
        return virtual.detach()


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
