"""Makes the vectors that clients add to secure sums, and evaluates the totals.

Fixed-point numbers in the ring of integers modulo 2^64, where sums are exact. Where 64
bits are too few it is modulo 2^128. An element then has two limbs, and a vector of n
elements [2 n]: first all low limbs, then all high ones.

A sum in the ring does not depend on the order of its terms. A mask that is uniform in
the ring hides a number perfectly.

Makes masks from the keys of pairs of clients; pure functions.

References
----------
Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning",
CCS 2017. This module has the paper's pairwise masks, but no recovery of lost clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.crypto import KEY_BYTES, digest, words
from federatedscope_ggeur.errors import GGEURError, setting
from federatedscope_ggeur.federation.kept_file import digests_of_each
from federatedscope_ggeur.geometry import Statistics

from .limits import SLACK
from .settings import MEANS, POOLED, SumSettings

_WORD = 2.0**64


def encode(values: np.ndarray, bits: int, limbs: int = 1) -> np.ndarray:
    """Encode float64 numbers [n] in fixed point, with f = `bits` fraction bits.

    Each value v becomes ``round_half_even(v 2^f)``. The result is uint64 [limbs n]. All
    absolute values must be below ``2^(64 limbs - 1 - f)``.
    """
    values = np.asarray(values, dtype=np.float64)
    if limbs == 1:
        return np.rint(values * 2.0**bits).astype(np.int64).view(np.uint64)
    # Below 2^64 no float64 rounds up to it.
    whole, rest = np.divmod(np.abs(values) * 2.0**bits, _WORD)
    ring = np.concatenate([np.rint(rest), whole]).astype(np.uint64)
    below = np.tile(values < 0, 2)
    return np.where(below, negated(ring, limbs), ring)


def filled(
    ring: np.ndarray, values: np.ndarray, bits: int, drawn: np.ndarray, limbs: int = 1
) -> np.ndarray:
    """Fill the low bits of encoded `values` [n], those that float64 does not have.

    They are zero in a large number. `drawn` has random words [limbs n].
    """
    spare = np.log2(np.spacing(np.abs(values))).astype(np.int64) + bits
    masks = []
    for limb in range(limbs):
        width = (spare - 64 * limb).clip(0, 64)
        some = np.left_shift(np.uint64(1), width.clip(0, 63).astype(np.uint64))
        masks.append(np.where(width == 64, ~np.uint64(0), some - np.uint64(1)))
    return added(ring, drawn & np.concatenate(masks), limbs)


def decode(total: np.ndarray, bits: int, limbs: int = 1) -> np.ndarray:
    """Decode ring elements [limbs n], or a sum of them, to float64 [n].

    A sum of K encoded values has an error of at most ``K 2^-(f+1)``, with f = `bits`.
    """
    if limbs == 1:
        return total.view(np.int64).astype(np.float64) / 2.0**bits
    below = np.split(total.view(np.int64), 2)[1] < 0
    low, high = np.split(np.where(np.tile(below, 2), negated(total, limbs), total), 2)
    size = (high.astype(np.float64) * _WORD + low.astype(np.float64)) / 2.0**bits
    return np.where(below, -size, size)


def added(one: np.ndarray, other: np.ndarray, limbs: int = 1) -> np.ndarray:
    """The sum of two vectors in the ring."""
    total = one + other
    if limbs == 2:
        low, high = np.split(total, 2)
        high += low < other[: len(low)]
    return total


def negated(ring: np.ndarray, limbs: int) -> np.ndarray:
    """The negative of a vector in the ring."""
    one = np.zeros_like(ring)
    one[: len(ring) // limbs] = 1
    return added(~ring, one, limbs)


def joined(*parts: np.ndarray, limbs: int) -> np.ndarray:
    """Vectors in the ring, one behind the other."""
    return np.concatenate([p.reshape(limbs, -1) for p in parts], axis=1).ravel()


def parted(ring: np.ndarray, first: int, limbs: int) -> tuple[np.ndarray, np.ndarray]:
    """The first elements of a vector in the ring, and the others."""
    parts = ring.reshape(limbs, -1)
    return parts[:, :first].ravel(), parts[:, first:].ravel()


def svec(matrix: np.ndarray) -> np.ndarray:
    """Write a symmetric matrix [D, D] as a vector of length D (D + 1) / 2.

    First comes the diagonal, then the upper triangle row by row, times the root of 2.
    So the norm of the vector is the Frobenius norm of the matrix.
    """
    dim = len(matrix)
    upper = matrix[np.triu_indices(dim, 1)]
    return np.concatenate([np.diagonal(matrix), np.sqrt(2.0) * upper])


def unsvec(vector: np.ndarray, dim: int) -> np.ndarray:
    """Rebuild the matrix [D, D] from its `svec`."""
    matrix = np.zeros((dim, dim))
    matrix[np.triu_indices(dim, 1)] = vector[dim:] / np.sqrt(2.0)
    matrix += matrix.T
    matrix[np.diag_indices(dim)] = vector[:dim]
    return matrix


F64 = torch.float64
_CHUNK = 4096
#: The significant bits of float32, and of the shortest usual format, bfloat16.
_FLOAT_BITS, _LEAST_BITS = 24, 8
#: The least exponent of a float32 number, as `np.frexp` has it, and how many there are.
_LEAST_EXPONENT, _EXPONENTS = -148, 277
#: The share of values that are no outliers.
_USUAL = 0.9
#: The sum of a dimension's squares is rounding if it is not so many times larger.
_LOST = 100
#: A client can subtract its own scatter from a shape. From a scatter of 20 rows of
#: others it could compute all rows, from 30 rows a few. With as many rows as
#: dimensions, the scatter's span reveals nothing.
FEW_BEHIND_A_SHAPE = 64


@dataclass(frozen=True)
class Named:
    """The summed classes, and their numbers of rows over all clients.

    Attributes
    ----------
    classes, counts : tuple of int
        Classes are ascending; every count is at least the min-count threshold.
    """

    classes: tuple[int, ...]
    counts: tuple[int, ...]

    @classmethod
    def of_totals(cls, totals: np.ndarray, min_samples: int) -> Named:
        """Make it from the numbers of rows [C], for classes with `min_samples` rows."""
        kept = np.flatnonzero(totals >= min_samples).tolist()
        return cls(tuple(kept), tuple(int(totals[c]) for c in kept))

    @property
    def rows(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True)
class ClientRows:
    """The rows of one client, from which it makes its vectors.

    Attributes
    ----------
    features : Tensor of shape (n, D), float32
    labels : Tensor of shape (n,), int64
    settings : SumSettings
    """

    features: Tensor
    labels: Tensor
    settings: SumSettings

    def longest_norm(self) -> float:
        """The norm of the longest row: 0 without rows, NaN or infinite if a row is."""
        norms = [part.to(F64).norm(dim=1) for part in self.features.split(_CHUNK)]
        return float(torch.cat([torch.zeros(1, dtype=F64), *norms]).max())

    @property
    def fits(self) -> bool:
        """Whether no row is longer than the radius or has a NaN."""
        bound = self.settings.radius * (1 + SLACK)
        parts = self.features.split(_CHUNK)
        return all(bool((p.to(F64).norm(dim=1) <= bound).all()) for p in parts)

    def counts(self) -> np.ndarray:
        """The vector of stage "counts": rows of each class, uint64 [C], not scaled."""
        held = torch.bincount(self.labels, minlength=self.settings.num_classes)
        return held.numpy().astype(np.int64).view(np.uint64)

    def means(self, named: Named) -> np.ndarray:
        """The vector of stage "means": m (D + 1) + 1 elements for m classes `named`.

        First come the sums of their rows [m, D], in fixed point. Then comes one flag
        for each class: whether the other clients have rows of the class, but fewer than
        the threshold. The last flag says the same for all rows together. Its threshold
        is at least 2 (C + 1) and, if clients get a shape, also the smaller of D and
        `FEW_BEHIND_A_SHAPE`. If any client raises a flag, the server sends no mean of
        that class; with the last flag, it sends no head.
        """
        settings, classes = self.settings, list(named.classes)
        sums = torch.zeros(settings.num_classes, settings.dim, dtype=F64)
        summed = self._summed(named)
        for part, labels in summed.parts():
            sums.index_add_(0, labels, part)
        held = self.counts().view(np.int64)[classes]
        others = np.array(named.counts, dtype=np.int64) - held
        near = (others > 0) & (others < settings.min_samples)
        rest = int(others.sum())
        few = max(2 * (settings.num_classes + 1), settings.min_samples)
        if settings.sends_shape:
            few = max(few, min(FEW_BEHIND_A_SHAPE, settings.dim))
        flags = np.append(near, 0 < rest <= few)
        limbs = settings.limbs(MEANS)
        encoded = summed.encoded(MEANS, sums[classes].flatten().numpy())
        return joined(encoded, encode(flags, 0, limbs), limbs=limbs)

    def pooled(self, named: Named, origin: Tensor) -> np.ndarray:
        """The vector of stage "pooled": a scatter as `svec`, D (D + 1) / 2 elements.

        The scatter is the sum of ``(x - o)(x - o)^T`` over the rows x of the classes
        `named`, with o = `origin` [D].
        """
        dim = self.settings.dim
        total = torch.zeros(dim, dim, dtype=F64)
        summed = self._summed(named)
        for part, _ in summed.parts():
            centred = part - origin.to(F64)
            total += centred.T @ centred
        return summed.encoded(POOLED, svec(total.numpy()))

    @cached_property
    def _of_classes(self) -> dict[Named, _SummedRows]:
        return {}

    def _summed(self, named: Named) -> _SummedRows:
        """The rows of the classes `named`; both stages take the same ones."""
        if named not in self._of_classes:
            self._of_classes[named] = _SummedRows.of(self, named)
        return self._of_classes[named]


@dataclass(frozen=True)
class _SummedRows:
    """The rows of one client that are summed, for sums whose low bits tell little.

    A small value has low bits that large ones lack. The low bits of a total would be
    those of a few rows, the ones with the smallest values, and tell who is in it. So
    clients fill them with random bits. These depend on the summed rows alone, not on
    their order, so the same rows give the same sums. Only who knows all rows of a
    client can take its bits away.

    Attributes
    ----------
    features, labels : Tensor
        All rows of the client.
    order : Tensor of shape (m,)
        The summed rows, in the order of their digests.
    key : bytes
    settings : SumSettings
    """

    features: Tensor
    labels: Tensor
    order: Tensor
    key: bytes
    settings: SumSettings

    @classmethod
    def of(cls, rows: ClientRows, named: Named) -> _SummedRows:
        features, labels, settings = rows.features, rows.labels, rows.settings
        inside = torch.zeros(settings.num_classes, dtype=torch.bool)
        inside[list(named.classes)] = True
        summed = inside[labels].nonzero()[:, 0]
        names = settings.class_names
        _, digests = digests_of_each(features[summed], labels[summed], names, b"")
        ranked = sorted(range(len(digests)), key=digests.__getitem__)
        key = digest("low bits", b"".join(digests[i] for i in ranked))
        return cls(features, labels, summed[ranked], key, settings)

    def parts(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The rows in float64, with random low bits, and their labels."""
        for number, chosen in enumerate(self._chosen()):
            part = self.features[chosen]
            drawn = stream(self.key, b"", b"rows %d" % number, part.numel())
            share = torch.from_numpy(drawn / _WORD - 0.5).view(part.shape)
            moved = part.to(F64) + share * self._places * (part != 0)
            yield moved, self.labels[chosen]

    def _chosen(self) -> tuple[Tensor, ...]:
        return self.order.split(_CHUNK) if len(self.order) else ()

    @cached_property
    def _places(self) -> Tensor:
        """How far values are moved: Tensor of shape (D,), float64.

        It is the last place of a dimension's large values, if numbers have as many
        significant bits as the longest there: 24 in float32, 11 in float16, 8 in
        bfloat16. A tenth of the values may be larger: outliers would move the others
        too far. Whole numbers, shorter ones and equal values stay as they are, since
        moves of these could be seen.
        """
        dim = self.settings.dim
        longest = np.zeros(dim, np.int64)  # the bits that any mantissa has
        sizes = np.zeros((dim, _EXPONENTS), np.int64)  # how many have each exponent
        is_moved = np.zeros(dim, bool)
        differ = np.full(dim, len(self.order) == 1)
        for chosen in self._chosen():
            part = self.features[chosen]
            values = np.abs(part.numpy())
            mantissas, exponents = np.frexp(values)
            mantissas = np.ldexp(mantissas, _FLOAT_BITS).astype(np.int64)
            longest |= np.bitwise_or.reduce(mantissas, axis=0)
            cells = np.arange(dim) * _EXPONENTS + exponents - _LEAST_EXPONENT
            counted = np.bincount(cells[values > 0], minlength=sizes.size)
            sizes += counted.reshape(sizes.shape)
            is_moved |= (values != np.rint(values)).any(axis=0)
            differ |= (part != self.features[self.order[0]]).any(dim=0).numpy()
        lowest = np.frexp(longest & -longest)[1] - 1
        length = _FLOAT_BITS - lowest
        below = sizes.cumsum(axis=1) >= _USUAL * sizes.sum(axis=1, keepdims=True)
        large = below.argmax(axis=1) + _LEAST_EXPONENT
        is_moved &= differ & (length >= _LEAST_BITS)
        places = np.ldexp(1.0, large - length)
        return torch.from_numpy(np.where(is_moved, places, 0.0))

    def encoded(self, stage: str, values: np.ndarray) -> np.ndarray:
        """The numbers of a stage in the ring; bits that float64 lacks are random."""
        bits, limbs = self.settings.fraction_bits, self.settings.limbs(stage)
        drawn = stream(self.key, b"", stage.encode(), limbs * len(values))
        return filled(encode(values, bits, limbs), values, bits, drawn, limbs)


@dataclass(frozen=True)
class MeanTotals:
    """The total of stage "means".

    Attributes
    ----------
    sums : Tensor of shape (m, D), float64
    kept_back : tuple of int
        The named classes of which one client owns nearly all rows.
    nearly_all : bool
        Whether one client owns nearly all rows of all classes.
    """

    sums: Tensor
    kept_back: tuple[int, ...]
    nearly_all: bool


def count_totals(
    total: np.ndarray, settings: SumSettings, most: int | None
) -> np.ndarray:
    """Check the total of stage "counts" and return it as int64 [C].

    `most` is the number of rows that clients declared together, if it is known.

    Raises
    ------
    GGEURError
        The numbers cannot be counts because masks did not cancel, or are too large.
    """
    counts = total.view(np.int64)
    # Each number is checked first: their sum may wrap around.
    if (counts < 0).any() or (counts > 2**40).any():
        raise broken("counts", "impossible numbers of rows")
    rows = int(counts.sum())
    if rows > settings.max_rows:
        raise GGEURError(
            f"round 0, secure sums: clients have {rows} rows together, but "
            f"{setting('secure_sums_max_rows')} allows {settings.max_rows}; raise it "
            "on all sides"
        )
    if most is not None and rows > most:
        raise broken("counts", f"{rows} rows, but clients declared {most} together")
    return counts


def mean_totals(
    total: np.ndarray, named: Named, settings: SumSettings, clients: int
) -> MeanTotals:
    """Check the total of stage "means" and decode its parts."""
    m, dim = len(named.classes), settings.dim
    limbs = settings.limbs(MEANS)
    of_sums, of_flags = parted(total, m * dim, limbs)
    sums = torch.from_numpy(decode(of_sums, settings.fraction_bits, limbs))
    sums = sums.reshape(m, dim)
    flags = decode(of_flags, 0, limbs)
    if (flags < 0).any() or (flags > clients).any():
        raise broken("means", "more flags are raised than there are clients")
    rounding = clients * 2.0**-settings.fraction_bits * dim
    limits = torch.tensor(named.counts, dtype=F64) * settings.radius * (1 + SLACK)
    if not (sums.norm(dim=1) <= limits + rounding).all():
        raise broken("means", "a sum of rows is longer than rows allow")
    near = zip(named.classes, flags[:-1].tolist())
    return MeanTotals(sums, tuple(c for c, yes in near if yes), bool(flags[-1]))


def shared_origin(means: MeanTotals, named: Named, settings: SumSettings) -> Tensor:
    """The centre of stage "pooled", float32 [D].

    It is the mean over the classes outside ``means.kept_back``, or 0 without any. From
    a mean over all classes, a client could compute the others: it would subtract the
    means that it gets.
    """
    open_ = [i for i, c in enumerate(named.classes) if c not in means.kept_back]
    rows = sum(named.counts[i] for i in open_)
    origin = torch.zeros(settings.dim, dtype=F64)
    if rows:
        origin = means.sums[open_].sum(dim=0) / rows
    # Rounding to float32 may have made the origin longer than the radius.
    longest = float(origin.norm())
    if longest > settings.radius:
        origin = origin * (settings.radius / longest) * (1 - SLACK)
    return origin.float()


def class_means(means: MeanTotals, named: Named, settings: SumSettings) -> Statistics:
    """The counts and means of the named classes."""
    counts = torch.zeros(settings.num_classes, dtype=torch.int64)
    held = torch.zeros(settings.num_classes, settings.dim, dtype=F64)
    classes = list(named.classes)
    counts[classes] = torch.tensor(named.counts, dtype=torch.int64)
    held[classes] = means.sums / counts[classes].double()[:, None]
    return Statistics.of_means(counts, held)


def pooled_statistics(
    total: np.ndarray,
    held: Statistics,
    origin: Tensor,
    settings: SumSettings,
    clients: int,
) -> tuple[Statistics, int]:
    """Check the total Q of stage "pooled" and compute the scatter within classes.

    It is ``W = Q - sum_c N_c (mu_c - o)(mu_c - o)^T``, with the means mu_c of `held`.

    Returns
    -------
    Statistics
        A dimension whose scatter is rounding is constant in it. Standardized, such a
        dimension would rule the head.
    int
        How many such dimensions there are, constant ones apart.
    """
    dim, bits = settings.dim, settings.fraction_bits
    numbers = decode(total, bits, settings.limbs(POOLED))
    about = torch.from_numpy(unsvec(numbers, dim))
    rows = int(held.counts.sum())
    largest = 4.0 * rows * settings.radius**2 * (1 + SLACK) ** 2
    rounding = clients * 2.0**-bits
    noise = dim * rounding
    diagonal = about.diag()
    if not (diagonal >= -noise).all() or not float(diagonal.sum()) <= largest + noise:
        raise broken("pooled", "a scatter larger than rows allow")
    offsets = held.means[held.classes] - origin.to(F64)
    weights = held.counts[held.classes].double()
    within = about - (offsets * weights[:, None]).T @ offsets
    within = (within + within.T) / 2
    # Each dimension in its own unit: the rounding of large ones is too much for small
    # ones. A dimension that is hardly more than rounding may be off by its whole size.
    units = diagonal.clamp(min=max(noise, torch.finfo(F64).tiny)).sqrt()
    values, vectors = torch.linalg.eigh(within / units.outer(units))
    smallest = float(units.min()) if dim else 1.0
    if len(values) and float(values[0]) < -max(1e-9, noise / smallest**2):
        raise broken("pooled", "a scatter that is not positive semi-definite")
    if (values < 0).any():
        within = (vectors * values.clamp(min=0)) @ vectors.T * units.outer(units)
        within = (within + within.T) / 2
    means, apart = held.means.clone(), offsets.amax(dim=0) - offsets.amin(dim=0)
    equal = rounding + clients * torch.finfo(F64).eps * origin.to(F64).abs()
    lost = (diagonal < _LOST * rounding) & (apart > equal)
    means[:, lost] = origin.to(F64)[lost]
    within[lost] = 0.0
    within[:, lost] = 0.0
    summed = Statistics.of_pooled(held.counts, means, scatter=within)
    return summed, int(lost.sum())


def broken(stage: str, what: str) -> GGEURError:
    return GGEURError(
        f"round 0, secure sums: the sum of stage '{stage}' is impossible ({what}). "
        "Masks cancel only if every client got the same messages. Check that all "
        "run the same release with the same settings, and that nobody changes "
        "messages between clients and server"
    )


NAME = b"ggeur secure sum 1"
SESSION_BYTES = 16


def pair_info(stage: str, one: int, other: int, bound: bytes) -> bytes:
    """The context of a pair's key: the stage, the two clients, and `bound`.

    `bound` is the digest of all that the server has sent.
    """
    low, high = sorted((one, other))
    return b"|".join([NAME, stage.encode(), b"%d" % low, b"%d" % high, bound])


def stream(shared: bytes, session: bytes, info: bytes, length: int) -> np.ndarray:
    """Draw `length` uint64 limbs from ChaCha20, keyed by `shared` and `info`.

    The key comes from HKDF-SHA256. Each `info` gives another key, so nonce and counter
    can begin at 0.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    key = HKDF(SHA256(), KEY_BYTES, salt=session, info=info).derive(shared)
    made = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    data = made.update(bytes(8 * length))
    return np.frombuffer(data, dtype="<u8").astype(np.uint64)


def mask(
    number: int,
    shared: Mapping[int, bytes],
    session: bytes,
    stage: str,
    bound: bytes,
    length: int,
    limbs: int = 1,
) -> np.ndarray:
    """The mask of client k in one stage: uint64 [length].

    It is ``sum_{j>k} stream_kj - sum_{j<k} stream_kj`` in the ring.

    Parameters
    ----------
    number : int
        k.
    shared : mapping from client number to bytes
        The `shared_secret` with every other client of the roster.
    limbs : int
        The limbs of a ring element.
    """
    total = np.zeros(length, dtype=np.uint64)
    for other, secret in shared.items():
        info = pair_info(stage, number, other, bound)
        part = stream(secret, session, info, length)
        if other < number:
            part = negated(part, limbs)
        total = added(total, part, limbs)
    return total


def fingerprint(roster: Iterable[int], keys: Sequence[bytes]) -> str:
    """A fingerprint of all keys, 8 words of 4 hex digits, to compare by telephone."""
    return words(digest("roster keys", *roster, *keys))


def words_of(number: int, roster: Iterable[int], keys: Sequence[bytes]) -> str:
    """The words that client `number` reads out by telephone.

    Each client has different words, so nobody can copy them from their own terminal.
    The words are long, because a server that makes up keys could search for two lists
    of keys with the same words.
    """
    return words(digest("words", number, *roster, *keys))


def signed_bytes(session: bytes, number: int, key: bytes, commitment: bytes) -> bytes:
    """The bytes that a client signs: its mask key and commitment, for one session."""
    return digest("ggeur mask key 2", session, number, key, commitment)
