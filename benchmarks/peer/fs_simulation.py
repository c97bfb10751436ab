"""FederatedScope (FS): FedAvg in standalone mode with its general trainer."""

import logging
import sys

import numpy as np
import torch
from federatedscope.core.auxiliaries.runner_builder import get_runner
from federatedscope.core.auxiliaries.worker_builder import (
    get_client_cls,
    get_server_cls,
)
from federatedscope.core.configs.config import global_cfg
from federatedscope.core.data import ClientData, StandaloneDataDict
from federatedscope.core.sampler import Sampler
from torch.utils.data import TensorDataset
from work import given

work = given()
logging.disable(logging.WARNING)
clients, rows, dim = work.features.shape


class Given(Sampler):
    """The clients of the schedule."""

    def __init__(self):
        super().__init__(clients)
        self.number = 0

    def sample(self, size):
        work.after_round(self.number)
        self.number += 1
        return list(work.schedule[self.number - 1])


cfg = global_cfg.clone()
cfg.merge_from_list([
    "seed", work.seed,
    "outdir", sys.argv[2],
    "federate.method", "FedAvg",
    "federate.client_num", clients,
    "federate.sample_client_num", len(work.schedule[0]),
    "federate.total_round_num", work.rounds,
    # One model for all clients, and sums as updates come: faster, and the same.
    "federate.share_local_model", True,
    "federate.online_aggr", True,
    "federate.make_global_eval", True,
    "early_stop.patience", 0,
    "dataloader.batch_size", work.batch,
    "criterion.type", "CrossEntropyLoss",
    "model.type", "lr",
    "model.out_channels", len(work.bias),
    "trainer.type", "general",
    "train.local_update_steps", 1,
    "train.batch_or_epoch", "epoch",
    "train.optimizer.type", "SGD",
    "train.optimizer.lr", work.rate,
    "eval.freq", work.rounds,
    "eval.split", ["test"],
    "eval.metrics", ["acc"],
    "eval.best_res_update_round_wise_key", "test_acc",
    "eval.count_flops", False,
])  # fmt: skip
features, labels = torch.tensor(work.features), torch.tensor(work.labels)
held = {
    k: ClientData(cfg, train=TensorDataset(features[k - 1], labels[k - 1]))
    for k in range(1, clients + 1)
}
# The server scores one row, once.
held[0] = ClientData(cfg, test=TensorDataset(features[0, :1], labels[0, :1]))
cfg.freeze(inform=False)
runner = get_runner(
    data=StandaloneDataDict(held, cfg),
    server_class=get_server_cls(cfg),
    client_class=get_client_cls(cfg),
    config=cfg.clone(),
)
server = runner.server
server.sampler = Given()
with torch.no_grad():
    server.model.fc.weight.copy_(torch.tensor(work.weight))
    server.model.fc.bias.copy_(torch.tensor(work.bias))
runner.run()
head = server.model.fc
work.finish(np.array(head.weight.detach()), np.array(head.bias.detach()), "torch")
