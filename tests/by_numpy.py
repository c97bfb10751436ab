"""Tiny federations worked out in plain numpy: no torch, nothing of the package.

A method's oracle is its formulas as they stand in its paper: a client's loss as a
function of the weights, whose gradient central differences take, and the server's step.
Client 3 holds nothing, and class 3 is held by nobody.
"""

import math
from dataclasses import dataclass

import numpy as np

DIM, CLASSES = 6, 4
SIZES = {1: 5, 2: 9, 3: 0, 4: 7}
RATE, MOMENTUM, DECAY, BATCH, EPOCHS = 0.1, 0.9, 0.01, 4, 2


@dataclass(frozen=True)
class World:
    """What stays the same over a run.

    Attributes
    ----------
    drawn : tuple of tuple of int
        The clients of each round.
    hidden : int
        Hidden units; 0 for the linear head.
    equal : bool
        All clients with data count alike, in place of n_k.
    """

    drawn: tuple = ((1, 2, 3, 4),) * 2
    hidden: int = 0
    equal: bool = False

    @property
    def shapes(self):
        if not self.hidden:
            return [(CLASSES, DIM), (CLASSES,)]
        return [(self.hidden, DIM), (self.hidden,), (CLASSES, self.hidden), (CLASSES,)]

    @property
    def start(self):
        size = sum(np.prod(shape) for shape in self.shapes)
        return (0.4 * np.cos(1.3 * np.arange(size))).astype("float32").astype(float)

    def layers(self, w):
        return shaped(w, self.shapes)

    def represent(self, w, x):
        first, bias, *_ = self.layers(w)
        z = x @ first.T + bias
        return np.maximum(z, 0) if self.hidden else z

    def logits(self, w, x):
        z = self.represent(w, x)
        if not self.hidden:
            return z
        *_, last, bias = self.layers(w)
        return z @ last.T + bias

    def cross_entropy(self, w, x, y):
        return -log_softmax(self.logits(w, x))[np.arange(len(y)), y].mean()

    def pi(self, k):
        """Client k's share of all clients' weight."""
        counts = {j: float(n > 0) if self.equal else n for j, n in SIZES.items()}
        return counts[k] / sum(counts.values())

    def mean(self, w, clients, by_client):
        """``sum_S p_k w_k``; `w` if no client of S has any data."""
        total = sum(self.pi(k) for k in clients)
        if total == 0:
            return w
        return sum(self.pi(k) / total * by_client[k] for k in clients)


def shaped(w, shapes):
    """The parts of a vector."""
    found, start = [], 0
    for shape in shapes:
        end = start + math.prod(shape)
        found.append(w[start:end].reshape(shape))
        start = end
    return found


def rows(k):
    """Embeddings (n, D) and labels (n,) of client k, class by class."""
    n = SIZES[k]
    x = np.sin(1.7 * np.arange(n * DIM) + k).reshape(n, DIM)
    return x.astype("float32").astype(float), np.sort((np.arange(n) // 3 + k) % 3)


def log_softmax(logits):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def gradient(loss, w, step=1e-5):
    each = step * np.eye(len(w))
    return np.array([loss(w + e) - loss(w - e) for e in each]) / (2 * step)


def sgd(loss, w, k):
    """Client k's weights and steps from `w`, on ``loss(w, x, y)`` of its batches."""
    return sgd_by_batch(lambda x, y: lambda v: loss(v, x, y), w, k)


def sgd_by_batch(loss_of, w, k, held=None):
    """As `sgd`, on the loss ``loss_of(x, y)`` of `w` that each batch gets in its turn.

    Rows in their order, those that are `held` if they are not client k's; momentum from
    rest, weight decay as a part of the loss.
    """
    (x, y), velocity, steps = held or rows(k), np.zeros_like(w), 0
    for _ in range(EPOCHS):
        for i in range(0, len(y), BATCH):
            loss = loss_of(x[i : i + BATCH], y[i : i + BATCH])
            g = gradient(loss, w) + DECAY * w
            velocity = MOMENTUM * velocity + g
            w, steps = w - RATE * velocity, steps + 1
    return w, steps


def train_all(world, w, clients, loss=None):
    """The weights of each client after training on ``loss`` (plain cross-entropy)."""
    loss = loss or world.cross_entropy
    return {k: sgd(loss, w, k)[0] for k in clients}


def server_changes(change):
    """An oracle whose server changes w_g by `change` of d = sum p_k w_k - w_g."""

    def weights(world):
        """Weights after each round."""
        w, after, state = world.start, [], {}
        for clients in world.drawn:
            d = world.mean(w, clients, train_all(world, w, clients)) - w
            w = w + change(d, state)
            after.append(w)
        return after

    return weights


def means_of_rounds(world, train):
    """Weights after each round: the mean of those of ``train(w, clients, number)``."""
    w, after = world.start, []
    for number, clients in enumerate(world.drawn, start=1):
        w = world.mean(w, clients, train(w, clients, number))
        after.append(w)
    return after
