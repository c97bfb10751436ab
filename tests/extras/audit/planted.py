"""Transcripts in which something is given away on purpose, or nothing is."""

import math
from dataclasses import replace

import numpy as np
import torch

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.run_settings import run_settings
from federatedscope_ggeur.extras.audit.base import Clock, Transcript, Truth
from federatedscope_ggeur.federation.exchanges.closed_form.client import (
    ClosedFormSettings,
)
from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.models import build_closed_form

#: Of attacks that end by themselves.
CLOCK = Clock(3600)


def relu_rows(seed, n):
    """Rows that are not negative, many entries of them 0."""
    rng = np.random.default_rng(seed)
    x = rng.gamma(2.0, size=(n, 300)) * (rng.random((n, 300)) > 0.3)
    return torch.tensor(x, dtype=torch.float32)


def gaussian(seed, n, dim=12, shift=0.0):
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.normal(size=(n, dim)) + shift, dtype=torch.float32)


def truth_of(clients, others=None, classes=4):
    """Of client -> (features, labels), and rows that nobody holds."""
    dim = next(iter(clients.values()))[0].shape[1]
    if others is None:
        others = torch.zeros(0, dim), torch.zeros(0, dtype=torch.int64)
    return Truth(clients, others, classes)


def uploaded(clients, least=1, classes=4, content="class"):
    """What clients would send of their classes from `least` rows up."""
    found = {}
    for k, (x, y) in clients.items():
        held = Statistics.from_embeddings(x, y, classes)
        kept = [c for c in held.classes if held.counts[c] >= least]
        found[k] = held.restrict(kept).to(content)
    return found


def merged(clients, classes=4):
    x, y = (torch.cat(parts) for parts in zip(*clients.values()))
    return Statistics.from_embeddings(x, y, classes)


def owned(dim=12, classes=4, rows=30, few=1, sole=1, others=25):
    """Client 1 holds all but `few` rows of class 0 and all of `sole` classes; clients 2
    and 3 share the others'."""
    rng, centres = np.random.default_rng(0), gaussian(50, classes, dim) * 3
    held = {1: [], 2: [], 3: []}
    for c in range(classes):
        held[1].append((c, rows))
        if c == 0:
            held[2].append((c, few))
        elif c > sole:
            held[2].append((c, others))
            held[3].append((c, others))
    found = {}
    for k, parts in held.items():
        labels = [torch.full((n,), c) for c, n in parts] or [torch.zeros(0).long()]
        y = torch.cat(labels).long()
        noise = rng.normal(size=(len(y), dim)) * rng.uniform(0.3, 2.0, size=dim)
        found[k] = centres[y] + torch.tensor(noise, dtype=torch.float32), y
    return found


def head_of(clients, name, options=None, classes=4, but=()):
    """A head in closed form of all rows, or of all classes `but` some: its weights and
    biases, and the classes in it."""
    held = merged(clients, classes)
    kept = [c for c in held.classes if c not in but]
    statistics = held.restrict(kept).to("pooled")
    form = build_closed_form(name, {name: options or {}})
    linear = form.solve(statistics).model.classifier
    return form, (linear.weight.detach(), linear.bias.detach()), tuple(kept)


def transcript(settings=(), form=None, **seen):
    cfg = load_config("ggeur_quickstart.yaml", list(settings))
    role = run_settings(cfg, 4, 12, 3).role
    if form is not None:
        demands = replace(role.demands, closed_form=True)
        own = role.with_own(ClosedFormSettings(form))
        role = replace(own, demands=demands)
    return Transcript(role, **seen)


def only(findings):
    """The one finding of an attack."""
    found = list(findings)
    assert len(found) == 1
    assert not math.isnan(found[0].value or 0.0)
    return found[0]


def finding_of(attack, truth, clock=CLOCK, **seen):
    """The one finding of an attack by somebody who has `seen` this."""
    return only(attack(transcript(**seen), truth, clock))
