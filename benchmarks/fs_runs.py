"""What the benchmarks inside FederatedScope (FS) share: settings, and FS's runner.

Clients train a linear head for one epoch a round, with the plugin or with FS alone.
"""

from __future__ import annotations

SHARED = [
    "federate.make_global_eval", False,
    "early_stop.patience", 0,
    "criterion.type", "CrossEntropyLoss",
    "train.local_update_steps", 1,
    "train.batch_or_epoch", "epoch",
    "eval.split", ["test"],
    "eval.metrics", ["acc", "correct"],
    "eval.best_res_update_round_wise_key", "test_acc",
    "eval.count_flops", False,
]  # fmt: skip
OURS = [
    "federate.method", "ggeur",
    "data.type", "benchmark@ggeur",
    "data.splits", [0.7, 0.0, 0.3],
    "model.type", "ggeur_head",
    "trainer.type", "ggeur_trainer",
    "ggeur.use", True,
    "ggeur.steps", [],
]  # fmt: skip
THEIRS = [
    "federate.method", "FedAvg",
    "data.type", "benchmark",
    "model.type", "lr",
    "trainer.type", "general",
]  # fmt: skip


def runner_of(settings: list, folder: str):
    """FS's runner of a run with `SHARED` and `settings`, which writes into `folder`."""
    from federatedscope.core.auxiliaries.data_builder import get_data
    from federatedscope.core.auxiliaries.runner_builder import get_runner
    from federatedscope.core.auxiliaries.worker_builder import (
        get_client_cls,
        get_server_cls,
    )
    from federatedscope.core.configs.config import global_cfg

    cfg = global_cfg.clone()
    cfg.outdir = folder
    cfg.merge_from_list([*SHARED, *settings])
    data, changed = get_data(cfg.clone())
    cfg.merge_from_other_cfg(changed)
    cfg.freeze(inform=False)
    return get_runner(
        data=data,
        server_class=get_server_cls(cfg),
        client_class=get_client_cls(cfg),
        config=cfg.clone(),
    )
