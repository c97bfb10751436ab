"""Books for tests, and the rows behind them."""

import numpy as np
import torch

from federatedscope_ggeur.extras.book.federation import Federation

DIM = 5
NAMES = ["ant", "bee", "cat"]
CONFIG = {"ggeur": {"closed_form": "lda", "lda": {"shrinkage": 0.01}}, "seed": 3}


def rows_of(seed, classes=(0, 1, 2), each=12):
    """Rows and labels of a client: `each` of every class."""
    rng = np.random.default_rng(seed)
    labels = torch.tensor(np.repeat(classes, each), dtype=torch.int64)
    features = rng.normal(size=(len(labels), DIM)) + np.eye(DIM)[labels]
    return torch.tensor(features, dtype=torch.float32), labels


def new_book(folder, clients=(), config=CONFIG, names=NAMES):
    book = Federation.create(folder, names, DIM, config)
    for k in clients:
        book.join(k, *rows_of(k), "here" if k % 2 else "there")
    return book


def head_bits(book, clients=None):
    model = book.head(clients).model
    return [p.detach().numpy().tobytes() for p in model.parameters()]
