"""Local training by plain torch, for the peers that leave it to their user."""

import torch
from torch.nn import functional as F


def train(model, optimizer, features, labels, batch, order):
    """One epoch of `features` [n, D], `labels` [n] in an order drawn by `order`."""
    rows = torch.randperm(len(labels), generator=order)
    for chosen in rows.split(batch):
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(features[chosen]), labels[chosen]).backward()
        optimizer.step()


def linear(weight, bias):
    """`torch.nn.Linear` that begins with arrays of shapes (C, D) and (C,)."""
    classes, dim = weight.shape
    model = torch.nn.Linear(dim, classes)
    with torch.no_grad():
        model.weight.copy_(torch.tensor(weight))
        model.bias.copy_(torch.tensor(bias))
    return model
