"""Client and server roles that talk through bytes, as every engine has them do."""

import torch

from federatedscope_ggeur.federation import (
    Client,
    ClientSettings,
    MemoryBudget,
    OptimizerSettings,
    Server,
    ServerSettings,
    Task,
    TrainingSettings,
)
from federatedscope_ggeur.federation.course.requests import (
    EVALUATE,
    PREPARE,
    STATISTICS,
    TRAIN,
    Request,
    decode_answer,
)
from federatedscope_ggeur.federation.sampling import windows
from federatedscope_ggeur.geometry import (
    AugmentationSettings,
    SpaceSettings,
    TotalSizes,
)
from federatedscope_ggeur.methods import FedAvg
from federatedscope_ggeur.models import ModelSettings

DIM, CLASSES = 6, 4
SGD = TrainingSettings(OptimizerSettings("SGD", 0.1), 1, "epoch", 8)


def make_rows(n, seed, classes=CLASSES):
    """Embeddings of `n` rows whose classes can be learnt."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator)
    features = torch.randn(n, DIM, generator=generator)
    features[torch.arange(n), labels] += 2.0
    return features, labels


def make_client_data(sizes=(20, 30, 25)):
    """Client number -> (domain, features, labels), one domain for each client."""
    return {
        k: (f"domain {k}", *make_rows(n, seed=k)) for k, n in enumerate(sizes, start=1)
    }


class Federation:
    """A server and its clients.

    Parameters
    ----------
    data : dict from client number to (domain, features, labels)
    order : callable
        In which order the clients of a list run.
    """

    def __init__(
        self,
        data,
        method=None,
        *,
        steps=(),
        prototypes="domain",
        training=SGD,
        model=None,
        min_samples=1,
        weight="augmented",
        ignore_weight=False,
        sample_client_num=None,
        memory=1e9,
        noise="fixed",
        sizes=None,
        classes=CLASSES,
        seed=0,
        order=sorted,
        unseen=0,
        calibration=None,
        space="raw",
    ):
        self.order = order
        method, model = method or FedAvg(), model or ModelSettings()
        sizes = sizes or TotalSizes(12, 5)
        space = SpaceSettings(space)
        dim = next(iter(data.values()))[1].shape[1]
        task = Task(classes, dim, model, method, seed, space=space)
        client_settings = ClientSettings(
            task,
            augmentation=AugmentationSettings(tuple(steps), sizes, noise=noise),
            training=training,
            min_samples=min_samples,
            weight=weight,
            sends_statistics=bool(steps) or space.kind == "whitened",
        )
        server_settings = ServerSettings(
            task,
            steps=tuple(steps),
            prototypes=prototypes,
            sample_client_num=sample_client_num or len(data),
            ignore_weight=ignore_weight,
            total_rounds=10,
            eval_every=3,
            unseen_client_num=unseen,
            calibration=calibration,
        )
        budget = MemoryBudget(memory)
        self.clients = {
            k: Client(k, domain, features, labels, client_settings, budget)
            for k, (domain, features, labels) in data.items()
        }
        self.server = Server({k: data[k][0] for k in data}, server_settings)
        self.schema = self.server.schema

    def send(self, payload, sender="the server"):
        """What the other side gets."""
        return type(payload).from_bytes(payload.to_bytes(), self.schema, sender)

    def collect_statistics(self, window=2):
        for numbers in windows(self.server.participants, window):
            self.add_statistics(
                self.clients[k].statistics() for k in self.order(numbers)
            )

    def prepare(self, k):
        """Geometry and prototypes to client `k`; its answer."""
        geometry = prototypes = None
        if self.server.needs_statistics:
            geometry = self.send(self.server.geometry())
            prototypes = self.server.prototypes(k)
            prototypes = prototypes and self.send(prototypes)
        return self.send(self.clients[k].prepare(geometry, prototypes), f"client {k}")

    def round0(self):
        if self.server.needs_statistics:
            self.collect_statistics()
        for k in self.order(list(self.clients)):
            self.add_prepare_reply(self.prepare(k))
        message = self.server.start()
        if message is not None:
            for client in self.clients.values():
                client.receive(self.send(message))
        return self

    # what a coordinator does with answers: none is used before it is validated

    def validated(self, kind, answer, number=0, asked=None):
        """An answer as the server gets it; `asked` are the clients of the request."""
        asked = [answer.client] if asked is None else asked
        request = Request(kind, number, dict.fromkeys(asked, ()))
        parts = (answer.to_bytes(),)
        return decode_answer(self.server, request, answer.client, parts)

    def add_statistics(self, uploads):
        taken = [self.validated(STATISTICS, upload) for upload in uploads]
        self.server.add_statistics(taken)

    def add_prepare_reply(self, reply):
        self.server.add_prepare_reply(self.validated(PREPARE, reply))

    def step(self, number, updates, drawn=None):
        drawn = self.server.sample(number) if drawn is None else drawn
        taken = [self.validated(TRAIN, update, number, drawn) for update in updates]
        self.server.step(number, taken)

    def aggregate_scores(self, number, reports):
        taken = [self.validated(EVALUATE, report, number) for report in reports]
        return self.server.aggregate_scores(taken)

    def train(self, number):
        """The updates of the clients drawn in a round."""
        broadcast = self.send(self.server.broadcast(number))
        drawn = self.order(self.server.sample(number))
        return [
            self.send(self.clients[k].train(broadcast), f"client {k}") for k in drawn
        ]

    def run(self, rounds):
        """Round 0 and `rounds` rounds; the weights after each of them."""
        self.round0()
        weights = [self.server.params]
        for number in range(1, rounds + 1):
            self.step(number, self.train(number))
            weights.append(self.server.params)
        return torch.stack(weights)
