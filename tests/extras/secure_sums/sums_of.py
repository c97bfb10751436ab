"""Secure sums of a few clients without an engine: every message through its bytes."""

import hashlib
from dataclasses import replace

import numpy as np
import torch

from federatedscope_ggeur.extras.secure_sums import messages
from federatedscope_ggeur.extras.secure_sums.collector import Collector
from federatedscope_ggeur.extras.secure_sums.participant import Participant
from federatedscope_ggeur.extras.secure_sums.settings import SumSettings
from federatedscope_ggeur.federation.wire.schema import MessageSchema

CLASSES, DIM = 5, 4
#: As many as any test has.
NAMES = ("ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay")
SETTINGS = SumSettings(
    num_classes=CLASSES,
    dim=DIM,
    min_samples=3,
    store="",
    max_rows=2**16,
    class_names=NAMES[:CLASSES],
)
SESSION = bytes(range(16))


def fixed_secret(number, session=0):
    """The secret of a client, the same each time."""
    return lambda: hashlib.sha256(b"%d of %d" % (number, session)).digest()


def rows(seed, n, classes=CLASSES, dim=DIM):
    """`n` float32 rows no longer than 1, and labels."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, dim)) + rng.normal(size=dim)
    x /= np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    y = rng.integers(classes, size=n)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def clients_of(sizes=(12, 9, 14), seed=0):
    """Client number -> (features, labels)."""
    return {k: rows(seed * 100 + k, n) for k, n in enumerate(sizes, start=1)}


class Sum:
    """A collector and its participants.

    Attributes
    ----------
    participants : dict from client number to Participant
    sent : dict from (stage, client) to Tensor
    down, up : list of bytes
        All that went down, in order, and up.
    tamper : callable (stage, client, MaskedRequest) -> MaskedRequest
        What the server does to the request of one client.
    """

    def __init__(self, clients, settings=SETTINGS, session=SESSION, generation=0):
        names = settings.class_names or NAMES[: settings.num_classes]
        self.settings = settings = replace(settings, class_names=names)
        self.clients = clients
        self.participants = {
            k: Participant(k, x, y, settings, fixed_secret(k, generation))
            for k, (x, y) in clients.items()
        }
        self.collector = Collector(
            settings, sorted(clients), make_session=lambda: session
        )
        self.sent, self.down, self.up = {}, [], []
        self.tamper = lambda stage, k, request: request
        self.schema = MessageSchema(settings.num_classes, settings.dim, 1)

    def keys(self, order=sorted):
        data = self.collector.keys_request().to_bytes()
        self.down.append(data)
        request = messages.SumKeysRequest.from_bytes(data, self.schema)
        keys = []
        for k in order(self.participants):
            answer = self.participants[k].key(request).to_bytes()
            self.up.append(answer)
            keys.append(messages.SumKey.from_bytes(answer, self.schema, f"client {k}"))
        self.collector.take_keys(keys)
        return self

    def stage(self, stage, order=sorted):
        request = self.collector.request(stage)
        self.down.append(request.to_bytes())
        for k in order(self.participants):
            data = self.tamper(stage, k, request).to_bytes()
            received = messages.MaskedRequest.from_bytes(data, self.schema)
            answer = self.participants[k].masked(received).to_bytes()
            self.up.append(answer)
            vector = messages.MaskedVector.from_bytes(
                answer, self.schema, f"client {k}"
            )
            self.sent[stage, k] = vector.masked
            self.collector.add([vector])
        self.collector.end(stage)
        return self

    def run(self, order=sorted):
        """All stages; what the server knows then."""
        self.keys(order)
        for stage in self.settings.stages:
            self.stage(stage, order)
        return self.collector.summed()


def pooled(clients):
    """All rows and labels, in float64."""
    x, y = (torch.cat(parts) for parts in zip(*clients.values()))
    return x.double().numpy(), y.numpy()


def changed(**fields):
    """A `tamper` that changes the fields of one client's request in one stage."""
    stage, client = fields.pop("stage"), fields.pop("client")

    def tamper(now, k, request):
        if (now, k) != (stage, client):
            return request
        return replace(request, **fields)

    return tamper
