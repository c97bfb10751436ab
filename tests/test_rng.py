"""Seeds depend on every part of the key, and on nothing else."""

import itertools

import numpy as np
import torch

from federatedscope_ggeur.rng import derive_seed, numpy_generator, torch_generator


def test_seeds_are_the_same_on_every_machine():
    # From blake2b, which is specified to the byte: a change here changes every result.
    assert derive_seed(0) == 365213108179586954
    assert derive_seed(12345, 3, "noise", 7) == 2613584959646821422


def test_every_key_has_its_own_seed():
    parts = [0, 1, -1, 10, 12, 100, 123, "", "1", "noise", "cut", "1;i1:1", ":", ";"]
    keys = [key for n in range(1, 4) for key in itertools.product(parts, repeat=n)]
    keys = [key for key in keys if not isinstance(key[0], str)]
    seeds = {derive_seed(*key) for key in keys}
    assert len(seeds) == len(keys)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_kinds_of_integers_do_not_matter():
    plain = derive_seed(3, 7)
    assert derive_seed(np.int64(3), np.int32(7)) == plain
    assert derive_seed(torch.tensor(3).item(), torch.tensor(7)) == plain


def test_generators_draw_the_same_however_much_was_drawn_before():
    def draw(*key):
        return (
            torch.randn(5, generator=torch_generator(*key)).tolist(),
            numpy_generator(*key).normal(size=5).tolist(),
        )

    first = draw(1, "noise", 2)
    torch.randn(100)
    np.random.default_rng(0).normal(size=100)
    torch.manual_seed(99)
    assert draw(1, "noise", 2) == first
    others = [draw(1, "noise", 3), draw(2, "noise", 2), draw(1, "cut", 2), draw(1)]
    for torch_numbers, numpy_numbers in others:
        assert torch_numbers != first[0]
        assert numpy_numbers != first[1]


def test_drawing_leaves_the_global_generators_alone():
    before = torch.get_rng_state()
    torch.randn(3, generator=torch_generator(0, "x"))
    assert torch.equal(torch.get_rng_state(), before)
