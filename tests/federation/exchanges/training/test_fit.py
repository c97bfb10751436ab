"""`fit` against a plain loop of torch, and its promises on rows and randomness."""

from itertools import cycle, islice

import pytest
import torch
from examples import examples
from federations import OPTIMIZERS, PLAIN_MODELS, train_plainly
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from federatedscope_ggeur.federation import TrainingSettings, fit
from federatedscope_ggeur.methods import LocalHooks
from federatedscope_ggeur.models import (
    ModelSettings,
    bind_vector,
    build_model,
    to_vector,
)

DIM, CLASSES = 6, 4


@pytest.fixture(params=PLAIN_MODELS)
def model(request):
    return make_head(PLAIN_MODELS[request.param])


def make_head(settings):
    return build_model(DIM, CLASSES, settings).reset(torch.Generator().manual_seed(1))


def make_rows(n):
    """Rows that can be told apart: the first feature is the row's number / n."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(n, DIM, generator=generator)
    features[:, 0] = torch.arange(n) / max(n, 1)
    return features, torch.randint(CLASSES, (n,), generator=generator)


def rows_used(model, n, settings):
    """The rows of every batch that `fit` takes, in order."""
    batches = []

    def note(features, labels):
        batches.append((features[:, 0] * n).round().long().tolist())
        return features

    hooks = LocalHooks(note)
    result = fit(model, to_vector(model), *make_rows(n), settings, 0, hooks)
    assert result.steps == len(batches)
    return batches


def loss_of(model, x, y):
    return F.cross_entropy(model(x), y)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("clip", [-1.0, 0.05])
def test_equals_a_plain_loop(model, optimizer, clip):
    settings = TrainingSettings(optimizer, 3, "epoch", 16, grad_clip=clip)
    start, (features, labels) = to_vector(model), make_rows(150)
    used = rows_used(model, 150, settings)
    batches = [(features[rows], labels[rows]) for rows in used]
    plain = train_plainly(model, start, batches, optimizer, loss_of, clip)
    trained = fit(model, start, features, labels, settings, seed=0)
    torch.testing.assert_close(trained.params, plain, rtol=1e-4, atol=1e-5)
    assert (trained.params - start).abs().max() > 1e-2


def test_without_rows_nothing_happens(model):
    start = to_vector(model)
    result = fit(model, start, *make_rows(0), TrainingSettings(), 0)
    assert torch.equal(result.params, start)
    assert result.steps == 0


def test_start_and_rows_are_left_as_they_are(model):
    start, rows = to_vector(model), make_rows(40)
    copies = [tensor.clone() for tensor in (start, *rows)]
    fit(model, start, *rows, TrainingSettings(), 0)
    for tensor, copy in zip((start, *rows), copies):
        assert torch.equal(tensor, copy)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("clip", [-1.0, 0.05])
def test_chosen_rows_train_as_if_they_were_the_set(model, shuffle, clip):
    start, (features, labels) = to_vector(model), make_rows(40)
    chosen = torch.tensor([7, 3, 39, 3, 0, 21, 8])
    settings = TrainingSettings(batch_size=3, shuffle=shuffle, grad_clip=clip)
    among = fit(model, start, features, labels, settings, 0, rows=chosen)
    alone = fit(model, start, features[chosen], labels[chosen], settings, 0)
    assert torch.equal(among.params, alone.params)
    assert among.steps == alone.steps == 3


def test_what_one_fit_returns_the_next_does_not_change(model):
    start, rows = to_vector(model), make_rows(40)
    result = fit(model, start, *rows, TrainingSettings(), 0)
    copy = result.weights.clone()
    assert torch.equal(to_vector(model), copy)
    fit(model, start + 1, *rows, TrainingSettings(), 1)
    assert torch.equal(result.weights, copy)


def test_a_fit_leaves_alone_what_the_model_was_bound_to(model):
    start, rows = to_vector(model), make_rows(40)
    result = fit(model, start, *rows, TrainingSettings(), 0)
    other = start + 1
    bind_vector(model, other)
    again = fit(model, start, *rows, TrainingSettings(), 0)
    assert torch.equal(again.params, result.params)
    assert torch.equal(other, start + 1)


@examples(60)
@given(
    *(st.integers(0, 130), st.integers(1, 40), st.sampled_from(["epoch", "batch"])),
    *(st.integers(1, 11), st.booleans()),
)
def test_each_epoch_takes_every_row_once(n, size, mode, amount, drop_last):
    """But the last few, where they are dropped: others in each epoch."""
    full, rest = divmod(n, size)
    of_epoch = [size] * full + [rest] * (rest > 0 and not drop_last)
    steps = amount * len(of_epoch) if mode == "epoch" else amount * bool(of_epoch)
    own = TrainingSettings(OPTIMIZERS["sgd"], amount, mode, size, True, drop_last)
    batches = rows_used(make_head(PLAIN_MODELS["linear"]), n, own)
    assert [len(batch) for batch in batches] == [*islice(cycle(of_epoch), steps)]
    epochs = []
    for start in range(0, steps, max(1, len(of_epoch))):
        epoch = [r for batch in batches[start : start + len(of_epoch)] for r in batch]
        assert len(set(epoch)) == len(epoch)
        epochs.append(tuple(epoch))
    if n > 12 and len(epochs) > 1 and size < n:
        assert len({*epochs}) == len(epochs)
        if drop_last and rest > 6:
            assert set(epochs[0]) != set(epochs[1])


def test_without_shuffling_rows_come_in_order(model):
    settings = TrainingSettings(OPTIMIZERS["sgd"], 2, "epoch", 7, shuffle=False)
    batches = rows_used(model, 150, settings)
    assert [row for batch in batches for row in batch] == 2 * list(range(150))


class TestRandomness:
    model_settings = ModelSettings(hidden=16, dropout=0.5)

    def train(self, seed=3, model=None):
        model = model or make_head(self.model_settings)
        settings = TrainingSettings(OPTIMIZERS["momentum"], 2, "epoch", 16)
        return fit(model, to_vector(model), *make_rows(60), settings, seed).params

    def test_same_seed_same_bits_whatever_torchs_global_state(self):
        torch.manual_seed(0)
        first = self.train()
        torch.manual_seed(12345)
        torch.rand(7)
        assert torch.equal(self.train(), first)

    def test_another_seed_gives_another_result(self):
        assert not torch.equal(self.train(seed=3), self.train(seed=4))

    def test_global_state_is_left_as_found(self):
        torch.manual_seed(42)
        expected = torch.rand(3)
        model = make_head(self.model_settings)
        torch.manual_seed(42)
        self.train(model=model)
        assert torch.equal(torch.rand(3), expected)

    def test_dropout_is_at_work(self):
        with_dropout = self.train()
        self.model_settings = ModelSettings(hidden=16)
        assert not torch.equal(self.train(), with_dropout)
