"""Each of `LocalHooks` does to training what it says."""

import pytest
import torch
from torch.nn import functional as F

from federatedscope_ggeur.federation import OptimizerSettings, TrainingSettings, fit
from federatedscope_ggeur.heads import HeadSettings, build_head, to_vector
from federatedscope_ggeur.methods import LocalHooks

DIM, CLASSES, ROWS, RATE = 6, 4, 30, 0.1
HEADS = {"linear": HeadSettings(), "mlp": HeadSettings(hidden=5)}
OPTIMIZERS = {
    "momentum": OptimizerSettings("SGD", RATE, {"momentum": 0.9, "weight_decay": 1e-2}),
    "adam": OptimizerSettings("Adam", 0.01),
}


@pytest.fixture(params=HEADS)
def head(request):
    head = build_head(DIM, CLASSES, HEADS[request.param])
    return head.reset(torch.Generator().manual_seed(1))


@pytest.fixture(params=OPTIMIZERS)
def settings(request):
    return TrainingSettings(OPTIMIZERS[request.param], 2, "epoch", 10, shuffle=False)


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (ROWS,), generator=generator)
    return torch.randn(ROWS, DIM, generator=generator), labels


def train_plainly(head, rows, settings, loss_of, clip=0.0):
    """The loop that everybody writes; `loss_of` makes the loss of (model, x, y)."""
    model = head.at(to_vector(head)).train().requires_grad_(True)
    chosen = settings.optimizer
    make = getattr(torch.optim, chosen.type)
    optimizer = make(model.parameters(), lr=chosen.lr, **chosen.options)
    for _ in range(settings.local_update_steps):
        for x, y in zip(*(part.split(settings.batch_size) for part in rows)):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
    return to_vector(model)


def check(head, rows, settings, hooks, loss_of):
    """Training with `hooks` is plain training on `loss_of`, not on cross-entropy."""
    start = to_vector(head)
    plain = train_plainly(head, rows, settings, loss_of)
    ordinary = fit(head, start, *rows, settings, 0).params.clone()
    result = fit(head, start, *rows, settings, 0, hooks).params
    torch.testing.assert_close(result, plain, rtol=1e-4, atol=1e-5)
    assert (result - ordinary).abs().max() > 1e-3


def entropy(logits):
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()


def test_transform_changes_the_features(head, rows, settings):
    hooks = LocalHooks(transform=lambda x, y: x * 2 + y[:, None])
    check(
        head,
        rows,
        settings,
        hooks,
        lambda model, x, y: F.cross_entropy(model(x * 2 + y[:, None]), y),
    )


def test_loss_term_is_added(head, rows, settings):
    hooks = LocalHooks(
        loss_term=lambda head, batch: (
            0.5 * batch.representation.square().mean() + entropy(batch.logits)
        )
    )

    def loss_of(model, x, y):
        z = model.represent(x)
        logits = model.classify(z)
        return F.cross_entropy(logits, y) + 0.5 * z.square().mean() + entropy(logits)

    check(head, rows, settings, hooks, loss_of)


def test_objective_stands_in_for_the_cross_entropy(head, rows, settings):
    hooks = LocalHooks(objective=lambda head, x, y: F.multi_margin_loss(head(x), y))
    check(
        head,
        rows,
        settings,
        hooks,
        lambda model, x, y: F.multi_margin_loss(model(x), y),
    )


def test_objective_and_loss_term_and_transform_go_together(head, rows, settings):
    hooks = LocalHooks(
        transform=lambda x, y: -x,
        objective=lambda head, x, y: F.multi_margin_loss(head(x), y),
        loss_term=lambda head, batch: entropy(batch.logits),
    )
    check(
        head,
        rows,
        settings,
        hooks,
        lambda model, x, y: F.multi_margin_loss(model(-x), y) + entropy(model(-x)),
    )


@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_correction_joins_the_gradient_before_clipping(head, rows, settings, clip):
    start = to_vector(head)
    anchor = torch.randn(len(start), generator=torch.Generator().manual_seed(7))

    def add_correction(params, gradient):
        gradient.add_(params - anchor, alpha=0.3)

    def loss_of(model, x, y):
        params = torch.cat([p.flatten() for p in model.parameters()])
        return F.cross_entropy(model(x), y) + 0.15 * (params - anchor).square().sum()

    settings = TrainingSettings(
        settings.optimizer, 2, "epoch", 10, shuffle=False, grad_clip=clip
    )
    plain = train_plainly(head, rows, settings, loss_of, clip)
    hooks = LocalHooks(add_correction=add_correction)
    result = fit(head, start, *rows, settings, 0, hooks).params
    torch.testing.assert_close(result, plain, rtol=1e-4, atol=1e-5)


def test_a_batch_holds_what_the_head_made_of_it(head, rows, settings):
    seen = []

    def look(head, batch):
        seen.append(batch)
        assert torch.equal(batch.representation, head.represent(batch.features))
        assert torch.equal(batch.logits, head(batch.features))
        return batch.logits.sum() * 0

    fit(head, to_vector(head), *rows, settings, 0, LocalHooks(loss_term=look))
    assert len(seen) == 6
    assert torch.equal(seen[0].features, rows[0][:10])
    assert torch.equal(seen[0].labels, rows[1][:10])


def test_a_term_on_the_representation_reaches_the_hidden_layer(rows, settings):
    head = build_head(DIM, CLASSES, HEADS["mlp"])
    head.reset(torch.Generator().manual_seed(1))
    before = head.hidden.weight.detach().clone()
    hooks = LocalHooks(objective=lambda head, x, y: head.represent(x).square().mean())
    fit(head, to_vector(head), *rows, settings, 0, hooks)
    assert not torch.equal(head.hidden.weight, before)


def test_a_term_without_any_gradient_changes_nothing(head, rows, settings):
    start = to_vector(head)
    plain = fit(head, start, *rows, settings, 0).params.clone()
    hooks = LocalHooks(loss_term=lambda head, batch: torch.zeros(()))
    assert torch.equal(fit(head, start, *rows, settings, 0, hooks).params, plain)


def test_an_objective_that_is_the_cross_entropy_changes_nothing(rows, settings):
    head = build_head(DIM, CLASSES, HeadSettings(hidden=8, dropout=0.5))
    start = to_vector(head)
    plain = fit(head, start, *rows, settings, 0).params.clone()
    hooks = LocalHooks(objective=lambda head, x, y: F.cross_entropy(head(x), y))
    assert torch.equal(fit(head, start, *rows, settings, 0, hooks).params, plain)


def test_tensors_that_hooks_keep_can_be_used_with_autograd_later(head, rows, settings):
    kept = []

    def transform(features, labels):
        kept.append(features.mean(dim=0))
        return features

    def add_correction(params, gradient):
        kept.append(params * 1.0)

    hooks = LocalHooks(transform=transform, add_correction=add_correction)
    fit(head, to_vector(head), *rows, settings, 0, hooks)
    for tensor in kept:
        weight = torch.ones_like(tensor, requires_grad=True)
        (weight * tensor).sum().backward()
        tensor.add_(1.0)
