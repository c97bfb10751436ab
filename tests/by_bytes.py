"""Client and server roles that talk through bytes, as every engine has them do."""

from dataclasses import replace
from types import SimpleNamespace

import torch

from federatedscope_ggeur.data import Embeddings
from federatedscope_ggeur.federation import (
    Client,
    MemoryBudget,
    OptimizerSettings,
    RoleSettings,
    Server,
    Task,
    TrainingSettings,
)
from federatedscope_ggeur.federation.course.client_handler import (
    ClientHandler,
    DecodedParts,
)
from federatedscope_ggeur.federation.course.coordinator import Coordinator, Plan
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges import Request
from federatedscope_ggeur.federation.exchanges.augmentation import AugmentationExchange
from federatedscope_ggeur.federation.exchanges.augmentation.keys import SetSettings
from federatedscope_ggeur.federation.exchanges.base import carry
from federatedscope_ggeur.federation.exchanges.closed_form.client import (
    ClosedFormSettings,
)
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import (
    EvaluationClient,
)
from federatedscope_ggeur.federation.exchanges.statistics import Threshold
from federatedscope_ggeur.federation.exchanges.statistics.keys import StatisticsKeys
from federatedscope_ggeur.federation.exchanges.training.exchange import (
    TRAIN,
    RoundSettings,
    TrainingClient,
    TrainingExchange,
    train_broadcast,
)
from federatedscope_ggeur.federation.wire.schema import StatisticsForm
from federatedscope_ggeur.geometry import AugmentationSettings, TotalSizes
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


def few_of_a_class(data, few=3):
    """The rows of a client, in place, of which only the first `few` are of class 2."""
    domain, features, labels = data
    labels[labels == 2] = 1
    labels[:few] = 2
    return domain, features, labels


def held(number, domain, features, labels, weights=None):
    """What a client holds, such as `ClientData`."""
    train = SimpleNamespace(features=features, labels=labels, weights=weights)
    return SimpleNamespace(number=number, domain=domain, train=train)


class Federation:
    """A server and its clients, and the coordinator that knows what the server asks.

    Parameters
    ----------
    data : dict from client number to (domain, features, labels)
    order : callable
        In which order the clients of a list run.
    closed_form : ClosedForm, optional
    own : sequence of settings
        Those of further exchanges.
    facts : dict, optional
        Further fields of the run's `Demands`.
    plan : dict
        Of the coordinator's `Plan`.
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
        rounds=10,
        closed_form=None,
        own=(),
        statistics=None,
        plugins=(),
        facts=None,
    ):
        self.order, self.memory = order, MemoryBudget(memory)
        method, model = method or FedAvg(), model or ModelSettings()
        augmentation = AugmentationSettings(
            tuple(steps), sizes or TotalSizes(12, 5), noise=noise
        )
        dim = next(iter(data.values()))[1].shape[1]
        task = Task(
            classes,
            dim,
            model,
            method,
            seed,
            space=space,
            counted_prototypes=bool(facts and facts.get("only_totals")),
            statistics=replace(
                statistics or StatisticsForm(), steps=(Threshold(min_samples),)
            ),
        )
        demands = Demands(
            rounds=rounds,
            federated=method.federated,
            steps=tuple(steps),
            space=space,
            closed_form=closed_form is not None,
            uses_statistics=closed_form is not None and closed_form.asks,
            is_open=closed_form is not None and closed_form.is_open,
            compares_kinds=closed_form is not None and closed_form.by_losses,
            calibrates=calibration is not None,
            plugins=tuple(plugins),
            **(facts or {}),
        )
        settings = RoleSettings(
            task,
            demands,
            training,
            min_samples,
            eval_every=3,
            unseen_client_num=unseen,
            ignore_weight=ignore_weight,
        ).with_own(
            StatisticsKeys(),
            SetSettings(augmentation, prototypes, weight),
            RoundSettings(
                sample_client_num=sample_client_num or len(data), batched="never"
            ),
        )
        if closed_form is not None:
            settings = settings.with_own(ClosedFormSettings(closed_form))
        if calibration is not None:
            settings = settings.with_own(calibration)
        self.settings = settings = settings.with_own(*own)
        self.clients = {
            k: Client(held(k, *own), settings, self.memory) for k, own in data.items()
        }
        self.server = Server({k: data[k][0] for k in data}, settings)
        self.schema = self.server.schema
        self.lead(Coordinator(self.server, Plan(2, None, False), {}))

    def lead(self, coordinator):
        """Have a coordinator ask the clients, each by a new handler."""
        self.coordinator, self._cache = coordinator, DecodedParts()
        self.handlers = {k: self.new_handler(k) for k in self.clients}

    def new_handler(self, k, rows=None):
        """One of client `k`, which scores `rows` by split, by default test rows."""
        client = self.clients[k]
        test = Embeddings(*make_rows(15, seed=50 + k), client.domain)
        return ClientHandler(client, rows or {"test": test}, self._cache)

    def replies(self, request):
        """What the clients answer, by client."""
        asked = self.order(list(request.parts))
        kind, parts = request.kind, request.parts
        return {k: self.handlers[k].answer(kind, parts[k]) for k in asked}

    def side(self, k, kind):
        """Client `k`'s part of an exchange."""
        return self.handlers[k].side(kind)

    def find(self, kind):
        """The server's part of an exchange."""
        return self.coordinator.find(kind)

    @property
    def augmentation(self):
        return self.find(AugmentationExchange)

    @property
    def training(self):
        return self.find(TrainingExchange)

    def send(self, payload, sender="the server"):
        """What the other side gets."""
        return type(payload).from_bytes(payload.to_bytes(), self.schema, sender)

    def round0(self):
        carry(self.coordinator.round0(), self.replies)
        return self

    def validated(self, kind, answer, number=0, asked=None):
        """An answer as the server gets it; `asked` are the clients of the request."""
        asked = [answer.client] if asked is None else asked
        request = Request(kind, number, dict.fromkeys(asked, ()))
        parts = (answer.to_bytes(),)
        return self.coordinator.asking.decode(request, answer.client, parts)

    def broadcast(self, number):
        return train_broadcast(self.server, number)

    def sample(self, number):
        return self.training.sample(number)

    def step(self, number, updates, drawn=None):
        drawn = self.sample(number) if drawn is None else drawn
        taken = [self.validated(TRAIN, update, number, drawn) for update in updates]
        self.training.step(number, taken)

    def fit(self, k, broadcast):
        """The update of client `k`."""
        return self.side(k, TrainingClient).train(broadcast)

    def train(self, number):
        """The updates of the clients drawn in a round."""
        broadcast = self.send(self.broadcast(number))
        drawn = self.order(self.sample(number))
        return [self.send(self.fit(k, broadcast), f"client {k}") for k in drawn]

    def run(self, rounds):
        """Round 0 and `rounds` rounds; the weights after each of them."""
        self.round0()
        weights = [self.server.params]
        for number in range(1, rounds + 1):
            self.step(number, self.train(number))
            weights.append(self.server.params)
        return torch.stack(weights)


def train_of(client, broadcast):
    """The update of a client that no federation holds."""
    return TrainingClient(client, {}).train(broadcast)


def score_of(client, broadcast, rows):
    return EvaluationClient(client, {}).score(broadcast, rows)


def eval_params_of(client, broadcast):
    return EvaluationClient(client, {}).eval_params(broadcast)
