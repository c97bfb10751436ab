"""This package's embedded engine."""

import numpy as np
from work import given

from federatedscope_ggeur import FederatedData, run

work = given()
clients, rows, dim = work.features.shape
data = FederatedData.from_arrays(
    work.features.reshape(-1, dim),
    work.labels.reshape(-1),
    clients=np.repeat(np.arange(clients), rows),
    class_names=[str(c) for c in range(len(work.bias))],
)
settings = {
    "seed": work.seed,
    "federate": {
        "method": "ggeur",
        "client_num": clients,
        "sample_client_num": len(work.schedule[0]),
        "total_round_num": work.rounds,
    },
    "data": {"type": "embeddings@ggeur", "root": "given", "splitter": "natural"},
    "dataloader": {"batch_size": work.batch},
    "train": {
        "local_update_steps": 1,
        "batch_or_epoch": "epoch",
        "optimizer": {"type": "SGD", "lr": work.rate},
    },
    "eval": {"freq": work.rounds},
    "ggeur": {"use": True, "steps": [], "space": "raw"},
}


def note(record) -> None:
    number = getattr(record, "round", 0)  # round 0 has none
    if number:
        assert record.clients == work.schedule[number - 1]
        work.after_round(number)


head = run(settings, data, on_round=note).model.classifier
work.finish(
    head.weight.detach().numpy(),
    head.bias.detach().numpy(),
    "federatedscope-ggeur",
    "torch",
)
