"""Settings of tracking: where a run's numbers are sent, and under which name."""

from __future__ import annotations

from federatedscope_ggeur.reporting import TrackingSettings

from .yaml_file import to_plain


def tracking_settings(cfg) -> TrackingSettings:
    """The settings of tracking by TensorBoard and Weights & Biases (W&B).

    W&B gets the arguments that FS would give it.
    """
    if not cfg.wandb.use:
        return TrackingSettings(cfg.ggeur.tensorboard)
    wandb, method = cfg.wandb, cfg.federate.method
    begun = {
        "project": wandb.name_project or None,
        "entity": wandb.name_user or None,
        "config": to_plain(cfg),
        "group": cfg.data.type,
        "job_type": method,
        "name": experiment_name(cfg),
        "notes": f"{method}, {experiment_name(cfg)}",
    }
    return TrackingSettings(cfg.ggeur.tensorboard, True, wandb.online_track, begun)


def experiment_name(cfg) -> str:
    """FS's name for an experiment: `expname`, or a name made of main settings."""
    name = cfg.expname or (
        f"{cfg.federate.method}_{cfg.model.type}_on_{cfg.data.type}"
        f"_lr{cfg.train.optimizer.lr}_lstep{cfg.train.local_update_steps}"
    )
    return f"{name}_{cfg.expname_tag}" if cfg.expname_tag else name
