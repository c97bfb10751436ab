"""pfl-research: `FederatedAveraging` on its simulated backend, in PyTorch."""

import itertools

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch.nn import functional as F
from work import given

work = given()
torch.set_num_threads(1)
order = torch.Generator().manual_seed(work.seed)
features, labels = torch.tensor(work.features), torch.tensor(work.labels)


class Head(torch.nn.Linear):
    """With what pfl asks of a model."""

    def loss(self, x, y):
        return F.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x, y):
        return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


class Rounds(TrainingProcessCallback):
    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        work.after_round(central_iteration + 1)
        return False, Metrics()


def user(k: int) -> PyTorchTensorDataset:
    """The rows of client k in a fresh order: pfl takes batches in the order given."""
    rows = torch.randperm(labels.shape[1], generator=order)
    return PyTorchTensorDataset((features[k - 1][rows], labels[k - 1][rows]))


head = Head(*reversed(work.weight.shape))
with torch.no_grad():
    head.weight.copy_(torch.tensor(work.weight))
    head.bias.copy_(torch.tensor(work.bias))
clients = itertools.chain.from_iterable(work.schedule)
dataset = FederatedDataset(user, lambda: next(clients))
cohort = len(work.schedule[0])
FederatedAveraging().run(
    # It evaluates after its first round alone.
    NNAlgorithmParams(work.rounds, work.rounds, cohort, val_cohort_size=0),
    SimulatedBackend(dataset, dataset),
    PyTorchModel(head, torch.optim.SGD, torch.optim.SGD(head.parameters(), lr=1.0)),
    NNTrainHyperParams(
        local_num_epochs=1,
        local_learning_rate=work.rate,
        local_batch_size=work.batch,
    ),
    callbacks=[Rounds()],
)
work.finish(head.weight.detach().numpy(), head.bias.detach().numpy(), "pfl", "torch")
