"""Draw new embeddings along the global directions of each class.

This is Algorithm 1 of the paper (one domain) and Algorithm 2 (several domains).
`augment` decides how many rows of a class are drawn around which anchors.
`AugmentedSet.draw` draws them (Eq. 5). An `AugmentedSet` is a recipe that always gives
the same rows. So callers may keep the rows, or throw them away and draw again. If a
round uses only a share of the set, each round draws other rows.

Rules for how many rows of a class an augmented set has, one for each source.

The rules differ if a class has more own rows than its set size. A rule that cuts keeps
all own rows if they fit, and fills the other places with new rows chosen at random. If
the own rows do not all fit, a random choice of them stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Union

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.errors import StatisticsError
from federatedscope_ggeur.rng import torch_generator

from .shape import SCALES, GeometricShape
from .spaces import Space


def share_of(rows: int, share: float) -> int:
    """`share` of a class's rows, rounded to whole rows; at least one if the class has
    any."""
    return max(min(rows, 1), round(share * rows))


@dataclass(frozen=True)
class TotalSizes:
    """The paper's rule (Sections 3.2.1 and 3.2.2): a total number of rows for each
    class.

    A class with more own rows than `step1` keeps them all, and step 1 adds none. The
    code published for label skew does the same.

    Attributes
    ----------
    step1 : int
        Own rows and new rows of step 1 together.
    step2 : int
        New rows for each prototype.
    """

    step1: int
    step2: int

    def around_samples(self, n: int) -> int:
        return max(0, self.step1 - n) if n else 0

    def around_prototype(self) -> int:
        return self.step2

    def kept(self, rows: int) -> int:
        return rows


@dataclass(frozen=True)
class ReleaseSizes:
    """The rule of the published code for domain skew: a fixed number of new rows, then
    a cut.

    A class with many own rows gets as many new rows as any other. There is one
    difference: if a class has no own rows, the published code keeps only the rows of
    the first prototypes. Here the cut is random for such a class as well.

    Attributes
    ----------
    step1 : int
        The number of new rows of step 1, which does not depend on the class's own rows.
    step2 : int
        New rows for each prototype.
    target : int
        Rows that the cut leaves, own rows included.
    """

    step1: int
    step2: int
    target: int

    def around_samples(self, n: int) -> int:
        return self.step1 if n else 0

    def around_prototype(self) -> int:
        return self.step2

    def kept(self, rows: int) -> int:
        return min(rows, self.target)


@dataclass(frozen=True)
class PerAnchorSizes:
    """The plugin document's rule: a number of new rows for each anchor, then a cut.

    Attributes
    ----------
    per_sample : int
        New rows around each own embedding (`num_generated_per_sample`).
    per_prototype : int
        New rows around each prototype (`num_generated_per_prototype`).
    target : int or None
        Rows of a class that the cut leaves, own rows included
        (`target_size_per_class`). None means no cut.
    """

    per_sample: int
    per_prototype: int
    target: int | None = None

    def around_samples(self, n: int) -> int:
        return n * self.per_sample

    def around_prototype(self) -> int:
        return self.per_prototype

    def kept(self, rows: int) -> int:
        return rows if self.target is None else min(rows, self.target)


Sizes = Union[TotalSizes, ReleaseSizes, PerAnchorSizes]


NOISES = ("fixed", "fresh")
_PAPERS = TotalSizes(500, 500)


@dataclass(frozen=True)
class AugmentationSettings:
    """How a client enlarges its training set.

    Attributes
    ----------
    steps : tuple of int
        The augmentation steps: ``()`` for none, ``(1,)`` for one domain, ``(1, 2)`` for
        several domains.
    sizes : TotalSizes, ReleaseSizes or PerAnchorSizes
    scale : {"covariance", "eigenvalue"}
        See `GeometricShape.basis`.
    noise : {"fixed", "fresh"}
        Whether all rounds have the same rows, or each has new noise.
    share : float
        The share of each class's rows that one round draws, in (0, 1]. Below 1, each
        round has other rows, with new noise.
    """

    steps: tuple[int, ...] = (1, 2)
    sizes: Sizes = _PAPERS
    scale: str = "covariance"
    noise: str = "fixed"
    share: float = 1.0

    def __post_init__(self):
        if not set(self.steps) <= {1, 2}:
            raise ValueError(f"steps may hold only 1 and 2, got {self.steps}")
        if self.scale not in SCALES or self.noise not in NOISES:
            raise ValueError(f"unknown scale {self.scale!r} or noise {self.noise!r}")
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, got {self.share}")

    @property
    def draws_anew(self) -> bool:
        """Whether each round draws again, and not the rows of round 0."""
        return self.noise == "fresh" or self.share < 1


def augment(
    features: Tensor,
    labels: Tensor,
    shapes: Mapping[int, GeometricShape],
    prototypes: Tensor,
    prototype_labels: Tensor,
    settings: AugmentationSettings,
    seed: int,
    space: Space | None = None,
) -> AugmentedSet:
    """Make the recipe of one client's training set.

    Algorithm 1 has step 1 alone ("local domain augmentation"). Algorithm 2 has step 1
    and step 2 ("cross-domain simulation").

    Parameters
    ----------
    features : Tensor of shape (n, D), float32
        The client's own embeddings, the anchors of step 1.
    labels : Tensor of shape (n,), int64
    shapes : mapping from class to GeometricShape
        The global shapes. If a class has no shape, its new rows of step 1 are copies of
        the client's own rows, so that the class counts as much as the others. Without
        any shapes there are no new rows.
    prototypes : Tensor of shape (P, D)
        The anchors of step 2: class means of other domains or clients.
    prototype_labels : Tensor of shape (P,), int64
    settings : AugmentationSettings
    seed : int
        The same seed gives the same rows.
    space : Space, optional
        The space of shapes, prototypes and drawn rows, if `features` are still raw
        embeddings. By default `features` are in that space already.

    Raises
    ------
    StatisticsError
        Shapes or prototypes have another dimension than the embeddings.
    """
    dim = features.shape[1]
    for c, shape in shapes.items():
        if shape.dim != dim:
            raise StatisticsError(
                f"the shape of class {c} has {shape.dim} dimensions, but the "
                f"embeddings have {dim}"
            )
    if prototypes.shape != (len(prototype_labels), dim):
        raise StatisticsError(
            f"prototypes must be of shape ({len(prototype_labels)}, {dim}), got "
            f"{tuple(prototypes.shape)}"
        )
    if 2 not in settings.steps:
        prototypes, prototype_labels = prototypes[:0], prototype_labels[:0]
    anchors = prototypes, prototype_labels
    return AugmentedSet(features, labels, shapes, anchors, settings, seed, space)


@dataclass(frozen=True)
class _Block:
    """One class of a recipe: its own rows, new rows of step 1, new rows of step 2."""

    label: int
    own: Tensor  # [n] rows of the client's embeddings
    around_own: int  # new rows of step 1 in all
    prototypes: Tensor  # [P, D]
    around_each: int  # new rows of step 2 for each prototype
    shape: GeometricShape | None
    whole: int  # rows after the cut
    rows: int  # rows of one round

    @property
    def drawn(self) -> int:
        return len(self.own) + self.new

    @property
    def new(self) -> int:
        return self.around_own + len(self.prototypes) * self.around_each

    def anchor_order(self) -> Tensor:
        """The anchor index of each new row; see `_anchors_of`."""
        own, around_own, around_each = self.sizes
        return _anchors_of(torch.arange(self.new), own, around_own, around_each)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Numbers of own rows, new rows of step 1, and new rows for each prototype."""
        return len(self.own), self.around_own, self.around_each

    def kept(self, generator: torch.Generator) -> Tensor:
        """Indices of the rows that the cut keeps, ascending.

        The cut keeps all own rows if they fit, and else a random draw of them.
        """
        n = len(self.own)
        if self.whole <= n:
            return torch.randperm(n, generator=generator)[: self.whole].sort().values
        new = torch.randperm(self.new, generator=generator)[: self.whole - n]
        return torch.cat([torch.arange(n), n + new.sort().values])


def _anchors_of(
    new: Tensor, own: int | Tensor, around_own: int | Tensor, around_each: int | Tensor
) -> Tensor:
    """The anchor index of each of the `new` rows: own rows first, then prototypes.

    Each size is one number, or a tensor with one number for each row.
    """
    # Algorithm 1, lines 14-16, and Algorithm 2, lines 4-6: j = 1..n_k^i. If a number
    # is 0, no row uses it, so 1 may replace it.
    step1 = new % _at_least_one(own)
    # Algorithm 2, lines 7-9: the prototypes of other domains in turn.
    step2 = own + (new - around_own) // _at_least_one(around_each)
    return torch.where(new < around_own, step1, step2)


def _at_least_one(number: int | Tensor) -> int | Tensor:
    return number.clamp(min=1) if isinstance(number, Tensor) else max(1, number)


def _make_block(
    c: int,
    own: Tensor,
    prototypes: Tensor,
    shape: GeometricShape | None,
    settings: AugmentationSettings,
) -> _Block:
    sizes = settings.sizes
    around_own = sizes.around_samples(len(own)) if 1 in settings.steps else 0
    if shape is None:
        prototypes = prototypes[:0]
        if not len(own):
            around_own = 0
    around_each = sizes.around_prototype()
    rows = len(own) + around_own + len(prototypes) * around_each
    if settings.steps:
        rows = sizes.kept(rows)
    share = share_of(rows, settings.share)
    return _Block(c, own, around_own, prototypes, around_each, shape, rows, share)


@dataclass(frozen=True)
class AugmentedSet:
    """The recipe of a training set. `augment` makes the recipe, `draw` makes the rows.

    Until `draw` is called, the recipe holds only views of the client's own rows. Drawn
    rows stand class by class, in ascending order. Within a class the own rows come
    first, then the rows of step 1, then those of step 2, prototype by prototype.
    """

    features: Tensor
    own_labels: Tensor
    shapes: Mapping[int, GeometricShape]
    anchors: tuple[Tensor, Tensor]
    settings: AugmentationSettings
    seed: int
    space: Space | None = None

    @property
    def enlarges(self) -> bool:
        """Whether the set may have more rows than the client's own.

        Without any shapes no class is enlarged. With some shapes, classes without a
        shape are enlarged too, so that they count as much as the others.
        """
        return bool(self.shapes and self.settings.steps)

    @cached_property
    def blocks(self) -> tuple[_Block, ...]:
        """The blocks of an enlarged set, one for each class."""
        prototypes, prototype_labels = self.anchors
        blocks = []
        for c in torch.cat([self.own_labels, prototype_labels]).unique().tolist():
            own = torch.nonzero(self.own_labels == c).flatten()
            around = prototypes[prototype_labels == c].to(self.features.dtype)
            block = _make_block(c, own, around, self.shapes.get(c), self.settings)
            if block.whole:
                blocks.append(block)
        return tuple(blocks)

    @property
    def whole(self) -> int:
        """Number of rows of the whole set. `draw` returns a share of them."""
        if not self.enlarges:
            return len(self.own_labels)
        return sum(block.whole for block in self.blocks)

    @property
    def rows(self) -> int:
        """Number of rows that `draw` returns for a round."""
        if not self.enlarges:
            return len(self.own_labels)
        return sum(block.rows for block in self.blocks)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the drawn features and labels take."""
        return self.rows * (self.features.shape[1] * self.features.element_size() + 8)

    @property
    def same_every_round(self) -> bool:
        if not self.settings.draws_anew or not self.enlarges:
            return True
        is_whole = self.rows == self.whole
        return is_whole and not any(block.new for block in self.blocks)

    @property
    def labels(self) -> Tensor:
        """Labels of the rows that `draw` returns: Tensor of shape (rows,), int64."""
        if not self.enlarges:
            return self.own_labels.sort().values
        labels = torch.tensor([b.label for b in self.blocks], dtype=torch.int64)
        rows = torch.tensor([b.rows for b in self.blocks], dtype=torch.int64)
        return labels.repeat_interleave(rows)

    @property
    def order(self) -> Tensor | None:
        """The row numbers of the own rows, in the order in which the set has them.

        None if the set has other rows: new ones, or own ones in another space.
        """
        if self.enlarges or not (self.space is None or self.space.is_raw):
            return None
        return self._by_class()

    def draw(
        self, round_number: int = 0, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Draw one round's features of shape (rows, D) and labels of shape (rows,).

        `out` is a tensor of the features' shape and type. If given, the features are
        drawn into it: at low rank, getting fresh memory takes about as long as drawing.
        They are drawn on the device of `out`. A GPU draws other noise than the CPU, and
        the same rows and anchors.
        """
        drawn_for = round_number if self.settings.draws_anew else 0
        shape = (self.rows, self.features.shape[1])
        features = self.features.new_empty(shape) if out is None else out
        own, device = self.features, features.device
        if self.space is not None:
            own = self.space.features(own)
        own = own.to(device)
        if not self.enlarges:
            order = self._by_class()
            torch.index_select(own, 0, order.to(device), out=features)
            return features, self.own_labels[order].to(device)
        labels = self.labels.to(device)
        if self.rows != self.whole:
            self._draw_share(own, drawn_for, features)
            return features, labels
        start = 0
        for block in self.blocks:
            target = features[start : start + block.rows]
            self._draw_block(block, own, drawn_for, target)
            start += block.rows
        return features, labels

    def _by_class(self) -> Tensor:
        # torch takes several times as long to sort few labels.
        order = np.argsort(self.own_labels.numpy(), kind="stable")
        return torch.from_numpy(order)

    def _draw_block(
        self, block: _Block, own: Tensor, drawn_for: int, target: Tensor
    ) -> None:
        cut = block.whole != block.drawn
        full = target.new_empty(block.drawn, target.shape[1]) if cut else target
        n, device = len(block.own), full.device
        torch.index_select(own, 0, block.own.to(device), out=full[:n])
        if block.new:
            new = full[n:]
            anchors = torch.cat([full[:n], block.prototypes.to(device)])
            torch.index_select(anchors, 0, block.anchor_order().to(device), out=new)
            if block.shape is not None:
                # Algorithm 1, lines 3-12, GGEUR(X, GD_i, N): beta^h for all rows.
                basis = block.shape.basis(self.settings.scale)
                basis = basis.to(device, full.dtype)
                key = block.label, "noise", drawn_for
                shape = block.new, len(basis)
                new.addmm_(self._noise(shape, full, *key), basis)
        if cut:
            generator = torch_generator(self.seed, block.label, "cut", drawn_for)
            kept = block.kept(generator).to(device)
            torch.index_select(full, 0, kept, out=target)

    def _noise(self, shape: tuple[int, int], like: Tensor, *key: int | str) -> Tensor:
        """Standard normal numbers, drawn on the device of `like`."""
        generator = torch_generator(self.seed, *key, device=like.device)
        return torch.randn(
            shape, dtype=like.dtype, device=like.device, generator=generator
        )

    def _draw_share(self, own: Tensor, drawn_for: int, out: Tensor) -> None:
        """Draw a random share of each block's rows into `out`. Other rows are not made.

        In a share a class has few rows, so the work for each class would cost more than
        its rows. Therefore rows of all classes are chosen at once.
        """
        generator = torch_generator(self.seed, "share", drawn_for)
        chosen = torch.cat([_share_of_block(b, generator) for b in self.blocks])
        is_new, around = self._places(chosen)
        prototypes = torch.cat([block.prototypes for block in self.blocks])
        device = out.device
        anchors = torch.cat([own, prototypes.to(device)])
        torch.index_select(anchors, 0, around.to(device), out=out)
        if device.type != "cpu":
            generator = torch_generator(self.seed, "share", drawn_for, device=device)
        is_new, start = is_new.to(device), 0
        for block in self.blocks:
            rows = slice(start, start + block.rows)
            start += block.rows
            if block.shape is not None and block.new:
                lengths, directions = (
                    part.to(device) for part in block.shape.scaled(self.settings.scale)
                )
                noise = torch.randn(
                    (block.rows, len(lengths)),
                    dtype=out.dtype,
                    device=device,
                    generator=generator,
                )
                noise *= lengths
                noise *= is_new[rows, None]
                out[rows].addmm_(noise, directions.T)

    def _places(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each of the `chosen` rows is new, and the row number of its anchor.

        Row numbers count the client's own rows first, then the prototypes of all
        blocks.
        """
        blocks = self.blocks
        lengths = torch.tensor([block.rows for block in blocks])
        numbers, first, below = [], 0, len(self.features)
        for block in blocks:
            numbers.append((*block.sizes, first, below - len(block.own)))
            first += len(block.own)
            below += len(block.prototypes)
        each = torch.tensor(numbers).repeat_interleave(lengths, dim=0)
        own, around_own, around_each, first_own, below_own = each.unbind(1)
        is_new = chosen >= own
        around = _anchors_of(chosen - own, own, around_own, around_each)
        anchor = torch.where(is_new, around, chosen)
        originals = torch.cat([block.own for block in blocks])
        if len(originals):
            last = len(originals) - 1
            place = originals[(first_own + anchor).clamp(max=last)]
            return is_new, torch.where(anchor < own, place, below_own + anchor)
        return is_new, below_own + anchor


def _share_of_block(block: _Block, generator: torch.Generator) -> Tensor:
    """Indices of the block's rows that one round draws, ascending."""
    chosen = torch.randperm(block.whole, generator=generator)[: block.rows]
    if block.whole != block.drawn:
        chosen = block.kept(generator)[chosen]
    return chosen.sort().values
