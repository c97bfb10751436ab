"""Totals of secure sums: those of all rows, and nothing of withheld ones.

Tests of exchanges/secure_sums/fixed_point.py, too: the ring of integers modulo 2^64.
"""

import hashlib
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.datasets import load_breast_cancer
from sums_of import (
    CLASSES,
    DIM,
    SESSION,
    SETTINGS,
    Sum,
    clients_of,
    fixed_secret,
    pooled,
    rows,
)

from federatedscope_ggeur.crypto import digest, public_key, shared_secret
from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.extras.secure_sums import participant, vectors
from federatedscope_ggeur.extras.secure_sums.collector import Collector
from federatedscope_ggeur.extras.secure_sums.limits import largest_fraction_bits
from federatedscope_ggeur.extras.secure_sums.settings import STAGES, SumSettings
from federatedscope_ggeur.federation.kept_file import RowDigests
from federatedscope_ggeur.models import build_closed_form


def plain(clients, threshold):
    """Counts, means and scatter of the classes that have enough rows, by numpy."""
    x, y = pooled(clients)
    counts, means = np.bincount(y, minlength=CLASSES), np.zeros((CLASSES, DIM))
    scatter = np.zeros((DIM, DIM))
    for c in np.flatnonzero(counts >= threshold):
        own = x[y == c]
        means[c] = own.mean(axis=0)
        scatter += (own - means[c]).T @ (own - means[c])
    return np.where(counts >= threshold, counts, 0), means, scatter


def relative(found, wanted):
    return np.abs(np.asarray(found) - wanted).max() / np.abs(wanted).max()


@pytest.mark.parametrize(("seed", "bits"), [*((n, 40) for n in range(6)), (0, 90)])
def test_sums_are_those_of_all_rows(seed, bits):
    """As exact as the rows, which are float32. 90 fraction bits take two limbs."""
    clients, settings = clients_of((31, 8, 20, 13), seed), SETTINGS
    settings = replace(settings, fraction_bits=bits)
    assert settings.limbs("pooled") == (1 if bits == 40 else 2)
    held = Sum(clients, settings).run().statistics
    counts, means, scatter = plain(clients, 3)
    assert held.counts.tolist() == counts.tolist()
    assert relative(held.means, means) < 1e-7
    assert relative(held.scatter(), scatter) < 1e-7


def test_the_order_of_clients_changes_no_bit():
    clients = clients_of()
    one = Sum(clients).run().statistics
    other = Sum(clients).run(order=lambda numbers: sorted(numbers)[::-1]).statistics
    assert torch.equal(one.means, other.means)
    assert torch.equal(one.scatter(), other.scatter())


def test_withheld_rows_change_nothing_that_goes_down_or_is_summed(monkeypatch):
    """Federations, each with other rows in the place of those of classes that are
    below the threshold over all clients."""
    # All but the salted digests by which clients tell whether they are the same rows.
    digests = RowDigests(frozenset(), bytes(32))
    monkeypatch.setattr(participant, "row_digests", lambda *rows: digests)
    changed, seeds = 0, range(20)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        clients = clients_of(sizes=rng.integers(3, 9, size=3), seed=seed)
        counts = np.bincount(pooled(clients)[1], minlength=CLASSES)
        if not (counts >= 3).any():
            continue
        others = {}
        for k, (x, y) in clients.items():
            withheld = torch.from_numpy(counts < 3)[y]
            changed += int(withheld.sum())
            other = rows(seed + 5000, len(y))[0]
            others[k] = torch.where(withheld[:, None], other, x), y
        first, second = Sum(clients), Sum(others)
        outcomes = []
        for one in (first, second):
            try:
                held = one.run()
                outcomes.append([held.statistics.means, held.statistics.scatter()])
            except GGEURError as error:
                outcomes.append(str(error))
        assert first.down == second.down
        if not isinstance(outcomes[0], str):
            assert all(torch.equal(a, b) for a, b in zip(*outcomes))
        else:
            assert outcomes[0] == outcomes[1]
    assert changed > len(seeds) / 2


def test_indicators_by_a_plain_oracle():
    """Who owns all of a class but fewer rows than the threshold says so, and nobody
    knows who."""
    settings = replace(SETTINGS, min_samples=4)
    held = {1: [9, 4, 0, 5, 2], 2: [1, 4, 7, 0, 2], 3: [2, 0, 0, 0, 1]}
    clients = {}
    for k, counts in held.items():
        y = torch.tensor(counts).new_tensor(np.repeat(np.arange(5), counts))
        clients[k] = rows(k, len(y))[0], y
    # Class 0: the others of client 1 have 3. Class 1: 4 and 4. 2 and 3 have one owner.
    # Class 4: for client 1 the others have 3, for 2 as well, for 3 they have 4.
    summed = Sum(clients, settings).run()
    assert summed.kept_back == (0, 4)
    assert summed.open_classes == [1, 2, 3]
    assert not summed.nearly_all
    assert summed.unnamed == 0


@pytest.mark.parametrize(
    ("sizes", "shape", "near"),
    [
        # All but two for each of 5 classes.
        ((60, 9, 3), None, True),
        ((60, 10, 3), None, False),
        # The others' scatter is the shape less one's own: see docs/secure_sums.md.
        ((80, 44, 20), 100, True),
        ((80, 45, 20), 100, False),
    ],
)
def test_nearly_all_rows_are_all_but_so_many(sizes, shape, near):
    dim = shape or DIM
    settings = replace(SETTINGS, dim=dim, sends_shape=bool(shape))
    clients = {k: rows(k, n, dim=dim) for k, n in enumerate(sizes, start=1)}
    clients = {k: (x, y % 2) for k, (x, y) in clients.items()}
    assert Sum(clients, settings).run().nearly_all == near


@pytest.mark.parametrize("place", [-1, -2])
@pytest.mark.parametrize("flag", [-1, 4])
def test_flags_that_no_clients_can_raise_are_noticed(place, flag):
    named = vectors.Named((0, 2), (5, 9))
    total = np.zeros(2 * (DIM + 1) + 1, dtype=np.int64)
    assert not vectors.mean_totals(total.view(np.uint64), named, SETTINGS, 3).nearly_all
    total[place] = flag
    with pytest.raises(GGEURError, match="more flags are raised than there are cl"):
        vectors.mean_totals(total.view(np.uint64), named, SETTINGS, 3)


@pytest.mark.parametrize(("share", "fits"), [(0.9, True), (1.2, False)])
def test_a_sum_is_no_longer_than_rows_allow_and_their_rounding(share, fits):
    """Three clients round each of `DIM` coordinates to 2^-8."""
    coarse, named = replace(SETTINGS, fraction_bits=8), vectors.Named((0,), (5,))
    total = np.zeros(DIM + 2)
    total[0] = 5 * SETTINGS.radius + share * 3 * DIM / 2**8
    if fits:
        found = vectors.mean_totals(vectors.encode(total, 8), named, coarse, 3)
        assert float(found.sums[0, 0]) == pytest.approx(total[0], abs=2**-8)
        return
    with pytest.raises(GGEURError, match="a sum of rows is longer than rows allow"):
        vectors.mean_totals(vectors.encode(total, 8), named, coarse, 3)


def test_a_row_that_is_too_long_or_not_a_number_does_not_fit():
    x, y = rows(0, 5)
    assert vectors.ClientRows(x, y, SETTINGS).fits
    for bad in (2.0, np.nan, np.inf):
        spoilt = x.clone()
        spoilt[3, 0] = bad
        assert not vectors.ClientRows(spoilt, y, SETTINGS).fits


def test_without_a_scatter_there_are_two_stages():
    clients = clients_of()
    one = Sum(clients, replace(SETTINGS, stages=STAGES[:2]))
    held = one.run().statistics
    assert held.content == "means"
    assert relative(held.means, plain(clients, 3)[1]) < 1e-7
    assert {stage for stage, _ in one.sent} == set(STAGES[:2])


def test_what_goes_down_has_no_class_that_is_kept_back_but_the_same_covariance():
    clients = clients_of(sizes=(40, 6, 6), seed=3)
    summed = Sum(clients, replace(SETTINGS, min_samples=5)).run()
    assert summed.kept_back
    kept, all_ = summed.released(), summed.statistics
    assert kept.classes == summed.open_classes
    assert not kept.means[list(summed.kept_back)].any()
    sizes = [int(s.counts.sum()) - len(s.classes) for s in (kept, all_)]
    torch.testing.assert_close(kept.scatter() / sizes[0], all_.scatter() / sizes[1])


@pytest.mark.parametrize(
    ("radius", "rows", "limbs", "bits"),
    [
        (1.0, 2**20, 1, 40),
        (40.0, 2**14, 1, 36),
        (1e9, 2**20, 1, -19),
        (1e9, 2**20, 2, 45),
    ],
)
def test_the_largest_precision_fits_and_one_bit_more_does_not(
    radius, rows, limbs, bits
):
    assert largest_fraction_bits(radius, rows, limbs) == bits
    size = Fraction(4 * rows) * max(Fraction(radius), Fraction(radius) ** 2)
    most = 2 ** (64 * limbs - 1)
    assert size * Fraction(2) ** bits < most <= size * Fraction(2) ** (bits + 1) * 1.01


@given(
    st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=20),
    st.one_of(
        st.tuples(st.just(1), st.integers(8, 45)),
        st.tuples(st.just(2), st.integers(8, 100)),
    ),
    st.integers(0, 2**32),
)
def test_a_sum_is_exact_but_for_the_rounding_of_its_terms(values, ring, seed):
    """Each term under a mask of its own; then the masks are taken away."""
    limbs, bits = ring
    masks = np.random.default_rng(seed).integers(
        0, 2**64, size=(len(values), limbs), dtype=np.uint64
    )
    total = np.zeros(limbs, dtype=np.uint64)
    for value, mask in zip(values, masks):
        term = vectors.encode(np.array([value]), bits, limbs)
        total = vectors.added(total, vectors.added(term, mask, limbs), limbs)
    for mask in masks:
        total = vectors.added(total, vectors.negated(mask, limbs), limbs)
    exact = sum(Fraction(value) for value in values)
    error = abs(Fraction(float(vectors.decode(total, bits, limbs)[0])) - exact)
    # Beside the terms' rounding that of the result to float64.
    assert error <= Fraction(len(values), 2 ** (bits + 1)) + abs(exact) / 2**52


@given(st.floats(-1e9, 1e9), st.integers(8, 90), st.integers(0, 2**32))
def test_low_bits_that_a_number_does_not_have_are_filled(value, bits, seed):
    """Without them each client's numbers would end in other zeros, and the low bits of
    a sum would be those of the client with the smallest."""
    values, ulp = np.array([value]), np.spacing(abs(value))
    plain = vectors.encode(values, bits, 2)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, 2**64, size=(100, 2), dtype=np.uint64)
    found = [vectors.filled(plain, values, bits, one, 2) for one in drawn]
    apart = [vectors.added(one, vectors.negated(plain, 2), 2) for one in found]
    sizes = np.array([float(vectors.decode(one, bits, 2)[0]) for one in apart])
    assert ((sizes >= 0) & (sizes < ulp)).all()
    if ulp > 2.0**-bits:
        assert 0.3 < (sizes >= ulp / 2).mean() < 0.7
        lowest = [int(one[0] & np.uint64(1)) for one in apart]
        assert 0.3 < np.mean(lowest) < 0.7


def test_a_client_of_one_row_is_not_read_off_the_low_bits_of_the_scatter():
    """Less the row, the sum would end in zeros: the others' numbers are larger."""
    x = torch.tensor(load_breast_cancer().data, dtype=torch.float32)
    settings = replace(
        SETTINGS, num_classes=1, dim=30, radius=6e3, fraction_bits=60, max_rows=2**20
    )
    named, origin = vectors.Named((0,), (500,)), x.mean(dim=0)

    def pooled_of(rows):
        labels = torch.zeros(len(rows), dtype=torch.int64)
        return vectors.ClientRows(rows, labels, settings).pooled(named, origin)

    total = pooled_of(x[:1])
    for others in x[1:451].split(150):
        total = vectors.added(total, pooled_of(others), limbs=2)
    assert (pooled_of(x[1:151]) == pooled_of(x[1:151])).all()
    zeros = []
    for row in (0, *range(451, 500)):
        left = vectors.added(total, vectors.negated(pooled_of(x[row, None]), 2), 2)
        low = left[: len(left) // 2]
        zeros.append(int(((low & (~low + np.uint64(1))) >= 2**4).sum()))
    assert zeros[0] <= max(zeros[1:])


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_members_of_a_class_are_not_told_by_the_low_bits_of_its_sum(kind):
    """Small values end in bits that no other value has: less a member's, the sum would
    end in zeros."""
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 500)))
    x = x.to(kind).float()
    settings = replace(SETTINGS, num_classes=1, dim=500, radius=64.0)
    bits, limbs = settings.fraction_bits, settings.limbs("means")
    named = vectors.Named((0,), (20,))
    total = np.zeros(settings.words("means", 1), np.uint64)
    for members in x[:20].split((8, 6, 6)):
        labels = torch.zeros(len(members), dtype=torch.int64)
        told = vectors.ClientRows(members, labels, settings).means(named)
        total = vectors.added(total, told, limbs)
    low = vectors.parted(total, 500, limbs)[0][:500]
    # Whoever attacks cuts the bits that are filled at random, and looks at the next.
    cut = bits - {torch.float32: 40, torch.float16: 24, torch.bfloat16: 20}[kind]
    ends = []
    for row in x.numpy():
        left = (low - vectors.encode(row, bits, limbs)[:500]) >> np.uint64(cut)
        lowest = (left & (~left + np.uint64(1))).clip(1).astype(np.float64)
        ends.append(np.log2(lowest)[np.abs(row) < 0.02].mean())
    told = stats.mannwhitneyu(ends[:20], ends[20:]).statistic / 400
    assert 0.3 < told < 0.7


def moves_of(x):
    """How far a client moves each of its rows [n, D], in float64."""
    n, dim = x.shape
    names = tuple(f"{c}" for c in range(n))
    own = {"num_classes": n, "dim": dim, "class_names": names, "min_samples": 1}
    settings = replace(SETTINGS, **own, radius=1e4)
    told = vectors.ClientRows(x, torch.arange(n), settings)
    limbs = settings.limbs("means")
    sums = told.means(vectors.Named(tuple(range(n)), (1,) * n))
    sums = vectors.parted(sums, n * dim, limbs)[0]
    found = vectors.decode(sums, settings.fraction_bits, limbs).reshape(n, dim)
    return found - x.double().numpy()


@pytest.mark.parametrize("n", [1, 7, 5000])
def test_values_are_moved_by_half_a_last_place(n):
    """The last place of large values of their column, at its own precision."""
    x = torch.from_numpy(np.random.default_rng(0).uniform(0.5, 0.99, size=(n, 4)))
    x = x.float()
    x[:, 1] = x[:, 1].half().float()
    x[:, 2] = x[:, 2].bfloat16().float()
    x[:, 3] = 2.0**9 * x[:, 3].bfloat16().float() + 2.0**-3  # 13 bits or so
    x[0] = torch.tensor([1 - 2.0**-24, 1 - 2.0**-11, 1 - 2.0**-8, 512 - 2.0**-3])
    found = np.abs(moves_of(x))
    half = 2.0 ** np.array([-25, -12, -9, -4])
    assert (found <= half).all()
    assert (found > half / 1e4).any(axis=0).all()
    if n > 100:
        np.testing.assert_allclose(found.mean(axis=0), half / 2, rtol=0.05)


def test_whole_short_and_equal_values_and_zeros_are_not_moved():
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(9, 6))).float()
    x[:, 0] = x[:, 0].mul(300).round()  # 10 bits or so
    x[:, 1] = x[:, 1].mul(8).round() / 4
    x[:, 2] = 0.3
    x[::2, 3] = 0
    x[:, 4] = 0
    found = moves_of(x)
    assert not found[:, [0, 1, 2, 4]].any()
    assert not found[::2, 3].any()
    assert found[1::2, 3].all()
    assert found[:, 5].all()


def test_outliers_do_not_move_the_other_values_far():
    x = torch.from_numpy(np.random.default_rng(0).uniform(0.5, 1, size=(50, 1))).half()
    x[:4] *= 2.0**10
    assert 2.0**-13 < np.abs(moves_of(x.float())).max() <= 2.0**-12


def test_the_order_of_rows_and_the_sign_of_zero_change_no_bit():
    (x, y), named = rows(1, 40), vectors.Named((0, 1, 2, 3, 4), (40,) * 5)
    x[::3, 1] = 0
    order = torch.from_numpy(np.random.default_rng(0).permutation(40))
    other = torch.where(x == 0, -0.0, x)[order]
    one, two = (
        vectors.ClientRows(*own, SETTINGS) for own in ((x, y), (other, y[order]))
    )
    assert (one.means(named) == two.means(named)).all()
    assert (one.pooled(named, x[0]) == two.pooled(named, x[0])).all()
    third = vectors.ClientRows(x[1:], y[1:], SETTINGS).means(named)
    assert (third != one.means(named)).mean() > 0.5


def test_a_dimension_of_equal_values_gets_no_variance():
    clients = clients_of()
    for x, _ in clients.values():
        x[:, 1] = 1000.3
    held = Sum(clients, replace(SETTINGS, radius=2e3)).run().statistics
    assert float(held.scatter()[1, 1]) < 1e-10


def test_a_column_far_apart_does_not_hide_the_others():
    """Its rounding is larger than the variance of theirs."""
    clients = {}
    for k, (x, y) in clients_of((40, 30, 50)).items():
        clients[k] = torch.cat([x, 1e3 * y[:, None].float()], dim=1), y
    settings = replace(SETTINGS, dim=DIM + 1, radius=5e3, fraction_bits=40)
    held = Sum(clients, settings).run().statistics
    _, _, scatter = plain({k: (x[:, :DIM], y) for k, (x, y) in clients.items()}, 3)
    assert relative(held.scatter()[:DIM, :DIM], scatter) < 1e-6


@pytest.mark.parametrize("limbs", [1, 2])
def test_ties_go_to_the_even_number(limbs):
    ties = np.array([0.5, 1.5, 2.5, -0.5, -1.5]) / 2**8
    low = vectors.encode(ties, 8, limbs)[: len(ties)]
    assert low.view(np.int64).tolist() == [0, 2, 2, 0, -2]


def test_a_matrix_as_a_vector_keeps_its_norm_and_comes_back():
    matrix = np.random.default_rng(0).normal(size=(5, 5))
    matrix = matrix + matrix.T
    vector = vectors.svec(matrix)
    assert len(vector) == 15
    assert np.linalg.norm(vector) == pytest.approx(np.linalg.norm(matrix), rel=1e-14)
    assert vector[:5].tolist() == np.diag(matrix).tolist()
    assert vector[5] == pytest.approx(2**0.5 * matrix[0, 1])
    np.testing.assert_allclose(vectors.unsvec(vector, 5), matrix, rtol=1e-15)


# The server: what it adds, and what it notices of masks that do not cancel.


@pytest.mark.parametrize("roster", [(), (1,), (1, 2)])
def test_fewer_than_three_make_no_sum(roster):
    with pytest.raises(GGEURError, match=f"{len(roster)} clients take part"):
        Collector(SETTINGS, roster)


def test_two_equal_keys_are_named():
    one = Sum(clients_of())
    one.participants[3]._make_secret = fixed_secret(1)
    with pytest.raises(GGEURError, match="clients 1 and 3 sent the same key"):
        one.keys()


def test_an_unfinished_stage_gives_nothing_and_names_who_is_missing():
    one = Sum(clients_of()).keys()
    request = one.collector.request("counts")
    one.collector.add([one.participants[k].masked(request) for k in (1, 3)])
    with pytest.raises(GGEURError, match=r"lacks the vectors of clients \[2\]"):
        one.collector.end("counts")


def test_what_an_unfinished_session_has_sent_is_uniform():
    """All uploads in hand but one: their total is noise."""
    settings = SumSettings(num_classes=3, dim=200, min_samples=3, store="")
    clients = {k: rows(k, 30, classes=3, dim=200) for k in (1, 2, 3, 4)}
    one = Sum(clients, settings)
    one.run()
    sent = [one.sent["pooled", k].numpy().view(np.uint64) for k in (1, 2, 3, 4)]
    for total in (sent[0], sent[0] - sent[1], sent[0] + sent[1], sum(sent[:3])):
        assert uniform(total) > 1e-5
    assert uniform(sum(sent)) < 1e-100


def test_more_rows_than_the_settings_allow_are_named():
    one = Sum(clients_of(), replace(SETTINGS, max_rows=20)).keys()
    with pytest.raises(GGEURError, match=r"35 rows together, but .*max_rows"):
        one.stage("counts")


def test_no_class_of_enough_rows_is_said():
    one = Sum(clients_of(), replace(SETTINGS, min_samples=30)).keys()
    with pytest.raises(GGEURError, match="no class has 30 rows"):
        one.stage("counts")


@cache
def summed(dim=4):
    """Of class 0 client 1 has all but two rows; 3 classes."""
    parts = {1: [20, 5, 5], 2: [1, 5, 6], 3: [1, 6, 5]}
    clients = {}
    for k, counts in parts.items():
        y = torch.from_numpy(np.repeat(np.arange(3), counts))
        clients[k] = rows(k, len(y), classes=3, dim=dim)[0], y
    settings = SumSettings(num_classes=3, dim=dim, min_samples=3, store="")
    found = Sum(clients, settings).run()
    assert found.kept_back == (0,)
    return found


class TestForHead:
    """Where a head tells means it is made without the classes that are kept back."""

    @pytest.mark.parametrize(
        ("name", "options", "shape", "classes"),
        [
            ("lda", {"shrinkage": 0.3}, False, [0, 1, 2]),
            ("lda", {"shrinkage": 0.3}, True, [1, 2]),
            ("lda", {"shrinkage": 0.95}, False, [1, 2]),
            ("ridge", {"strength": 0.5}, False, [0, 1, 2]),
            ("ridge", {"strength": 0.5}, True, [1, 2]),
            ("ridge", {"strength": 50.0}, False, [1, 2]),
            ("ncm", {}, False, [1, 2]),
        ],
    )
    def test_by_form(self, name, options, shape, classes):
        form = build_closed_form(name, {name: options})
        assert summed().for_head(form, shape).classes == classes

    def test_with_more_classes_than_dimensions(self):
        form = build_closed_form("lda", {"lda": {"shrinkage": 0.3}})
        assert summed(2).for_head(form, False).classes == [1, 2]


# Masks of pairs: they cancel in the whole sum, and hide everything in any other.


def uniform(numbers):
    """The smallest p-value over the 8 byte positions that all bytes are equally
    frequent there."""
    table = numbers.astype("<u8").view(np.uint8).reshape(-1, 8)
    counts = [np.bincount(column, minlength=256) for column in table.T]
    return min(stats.chisquare(found).pvalue for found in counts)


def test_each_stage_pair_and_bound_has_a_context_of_its_own():
    contexts = [
        vectors.pair_info(stage, *pair, bound)
        for stage in ("means", "pooled")
        for pair in ((1, 2), (1, 5))
        for bound in (b"b" * 32, b"c" * 32)
    ]
    assert len(set(contexts)) == 8
    assert vectors.pair_info("means", 2, 1, b"b" * 32) == contexts[0]


def test_golden_stream():
    """The key by an own HKDF (RFC 5869: extract, expand one block), the stream by one
    call of the cipher."""
    import hmac

    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    prk = hmac.new(SESSION, b"x" * 32, hashlib.sha256).digest()
    key = hmac.new(prk, b"info" + b"\x01", hashlib.sha256).digest()
    block = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor()
    wanted = np.frombuffer(block.update(bytes(24)), "<u8")
    assert vectors.stream(b"x" * 32, SESSION, b"info", 3).tolist() == wanted.tolist()


def test_a_point_that_makes_one_secret_with_everyone_is_refused():
    with pytest.raises(MessageError, match="same secret"):
        shared_secret(fixed_secret(1)(), bytes(32))


def test_fields_are_told_apart():
    assert digest(b"ab", b"c") != digest(b"a", b"bc")
    assert digest(1) != digest("1") != digest(b"1")


def test_the_fingerprint_is_8_words_and_of_all_keys():
    roster = (1, 2, 5, 9)
    keys = [public_key(fixed_secret(k)()) for k in roster]
    words = vectors.fingerprint(roster, keys).split(" ")
    assert [len(word) for word in words] == [4] * 8
    assert vectors.fingerprint(roster, keys[::-1]) != vectors.fingerprint(roster, keys)
