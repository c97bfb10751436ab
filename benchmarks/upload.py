"""Bytes of the round-0 uploads of S1 with `min_samples: 1`, and what they lose."""

from __future__ import annotations

import argparse

import torch
from measure import report
from workloads import DIM, OFFICE_HOME, S1_CLASSES, s1

from federatedscope_ggeur.data import ClientData, Embeddings
from federatedscope_ggeur.federation import (
    Client,
    MemoryBudget,
    RoleSettings,
    Task,
    TrainingSettings,
)
from federatedscope_ggeur.federation.demands import Demands
from federatedscope_ggeur.federation.exchanges.statistics.exchange import (
    StatisticsClient,
)
from federatedscope_ggeur.federation.exchanges.statistics.keys import StatisticsKeys
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.wire.schema import MessageSchema
from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.methods import build_method
from federatedscope_ggeur.models import ModelSettings

TASK = Task(S1_CLASSES, DIM, ModelSettings(), build_method("fedavg"), seed=0)
SETTINGS = RoleSettings(TASK, Demands(), TrainingSettings(), min_samples=1).with_own(
    StatisticsKeys()
)
MB = 1e6


def upload(number: int, features, labels) -> bytes:
    domain = f"domain{number}"
    rows = Embeddings(features, labels, domain)
    held = ClientData(number, domain, rows, rows.select([]))
    client = Client(held, SETTINGS, MemoryBudget(0))
    return StatisticsClient(client, {}).statistics().to_bytes()


def errors(clients, uploads: list[bytes]) -> tuple[float, float]:
    """Largest relative error of a class's merged covariance, and of float32 itself."""
    schema = MessageSchema(S1_CLASSES, DIM, num_parameters=0)
    merged = Statistics.empty(S1_CLASSES, DIM)
    for k, data in enumerate(uploads, 1):
        decoded = StatisticsUpload.from_bytes(data, schema, f"client {k}")
        merged = merged + decoded.statistics
    features = torch.cat([features for features, _ in clients]).double()
    labels = torch.cat([labels for _, labels in clients])
    found, rounding = [0.0], [0.0]
    for c in merged.classes:
        sigma = torch.cov(features[labels == c].T, correction=0)
        if sigma.any():
            size = sigma.norm()
            found.append(float((merged.covariance(c) - sigma).norm() / size))
            rounding.append(float((sigma.float().double() - sigma).norm() / size))
    return max(found), max(rounding)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the workload")
    parser.add_argument("--csv", help="write the table to this file")
    args = parser.parse_args()
    clients = s1(args.seed)
    uploads = [upload(k, *rows) for k, rows in enumerate(clients, 1)]
    table = []
    for k, ((_, labels), data) in enumerate(zip(clients, uploads), 1):
        classes = len(labels.unique())
        # What the published scripts send: float64 covariances and means.
        dense = classes * (DIM * DIM + DIM) * 8
        table.append((str(k), len(labels), classes, len(data), dense))
    means = [sum(column) / len(OFFICE_HOME) for column in list(zip(*table))[1:]]
    report(
        [
            {
                "client": client,
                "rows": f"{rows:g}",
                "classes": f"{classes:g}",
                "upload MB": f"{sent / MB:.3f}",
                "dense float64 MB": f"{dense / MB:.1f}",
                "times smaller": f"{dense / sent:.0f}",
            }
            for client, rows, classes, sent, dense in [*table, ("mean", *means)]
        ],
        args.csv,
    )
    found, rounding = errors(clients, uploads)
    print(
        f"merged covariance of the decoded uploads against the pooled rows: relative "
        f"error at most {found:.1e} over classes;\nrounding the pooled covariance "
        f"itself to float32: {rounding:.1e}"
    )


if __name__ == "__main__":
    main()
