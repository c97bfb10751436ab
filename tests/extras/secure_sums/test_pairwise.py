"""Masks of pairs: they cancel in the whole sum, and hide everything in any other."""

import hashlib

import numpy as np
import pytest
from scipy import stats
from sums_of import fixed_secret

from federatedscope_ggeur.crypto import digest, public_key, shared_secret
from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.extras.secure_sums.vectors import (
    fingerprint,
    mask,
    pair_info,
    stream,
)

ROSTER, LENGTH = (1, 2, 5, 9), 100_000
SESSION, BOUND = b"s" * 16, b"b" * 32
SECRETS = {k: fixed_secret(k)() for k in ROSTER}
SHARED = {
    k: {j: shared_secret(SECRETS[k], public_key(SECRETS[j])) for j in ROSTER if j != k}
    for k in ROSTER
}


def masks(stage="pooled", length=LENGTH, bound=BOUND):
    return {k: mask(k, SHARED[k], SESSION, stage, bound, length) for k in ROSTER}


def uniform(numbers):
    """The smallest p-value over the 8 byte positions that all bytes are equally
    frequent there."""
    table = numbers.astype("<u8").view(np.uint8).reshape(-1, 8)
    counts = [np.bincount(column, minlength=256) for column in table.T]
    return min(stats.chisquare(found).pvalue for found in counts)


def test_all_masks_add_up_to_nothing():
    assert not sum(masks().values()).any()


def test_a_mask_is_uniform_at_every_byte_and_so_is_every_part_of_the_sum():
    held = masks()
    small = np.arange(LENGTH, dtype=np.uint64) % 7  # what is masked is not random
    sent = {k: m + small for k, m in held.items()}
    assert uniform(sent[1]) > 1e-4
    assert uniform(sent[1] - sent[2]) > 1e-4
    for part in ((1, 2), (1, 2, 5), (5, 9), (2, 9)):
        assert uniform(sum(sent[k] for k in part)) > 1e-4
    assert uniform(sum(sent.values())) < 1e-100


@pytest.mark.parametrize("change", ["stage", "bound", "session", "pair"])
def test_whatever_changes_makes_another_stream(change):
    one, other = SHARED[1][2], SHARED[1][5]
    plain = stream(one, SESSION, pair_info("means", 1, 2, BOUND), 64)
    changed = {
        "stage": stream(one, SESSION, pair_info("pooled", 1, 2, BOUND), 64),
        "bound": stream(one, SESSION, pair_info("means", 1, 2, b"c" * 32), 64),
        "session": stream(one, b"t" * 16, pair_info("means", 1, 2, BOUND), 64),
        "pair": stream(other, SESSION, pair_info("means", 1, 5, BOUND), 64),
    }[change]
    assert not (plain == changed).any()
    assert uniform(plain.repeat(1) ^ changed) > 1e-12


def test_golden_stream():
    """The key by an own HKDF (RFC 5869: extract, expand one block), the stream by one
    call of the cipher."""
    import hmac

    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    prk = hmac.new(SESSION, b"x" * 32, hashlib.sha256).digest()
    key = hmac.new(prk, b"info" + b"\x01", hashlib.sha256).digest()
    block = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor()
    wanted = np.frombuffer(block.update(bytes(24)), "<u8")
    assert stream(b"x" * 32, SESSION, b"info", 3).tolist() == wanted.tolist()


def test_a_point_that_makes_one_secret_with_everyone_is_refused():
    with pytest.raises(MessageError, match="same secret"):
        shared_secret(SECRETS[1], bytes(32))


def test_fields_are_told_apart():
    assert digest(b"ab", b"c") != digest(b"a", b"bc")
    assert digest(1) != digest("1") != digest(b"1")


def test_the_fingerprint_is_8_words_and_of_all_keys():
    keys = [public_key(SECRETS[k]) for k in ROSTER]
    words = fingerprint(ROSTER, keys).split(" ")
    assert [len(word) for word in words] == [4] * 8
    assert fingerprint(ROSTER, keys[::-1]) != fingerprint(ROSTER, keys)
