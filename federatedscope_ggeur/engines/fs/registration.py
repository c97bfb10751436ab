"""Adds the plugin's parts to FederatedScope's (FS's) registries."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from federatedscope import register as registries
from torch import nn
from yacs.config import CfgNode

from federatedscope_ggeur.cfg_ggeur import extend_ggeur_cfg
from federatedscope_ggeur.cfg_ggeur.fs_keys import HEAD, TRAINER
from federatedscope_ggeur.cfg_ggeur.plugins import load_plugins_of
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.models import ModelSettings, build_model

from .config import extend_config

METHOD = "ggeur"

#: FS's warnings that are false here: the logger, how a warning begins, a part of it.
FALSE_ALARMS = (
    # FS's wrappers for its own trainers do nothing to ours, which needs none.
    ("core.auxiliaries.trainer_builder", "Hook-like plug-in", "GGEURTrainer"),
    # FS's aggregator serves robust means. Otherwise the server role takes the step.
    (
        "core.auxiliaries.aggregator_builder",
        "Aggregator for method ggeur is not implemented",
        "",
    ),
    # Without a GPU FS changes one process to none. Both mean the same to it.
    (
        "core.configs.cfg_fl_setting",
        "We found the number of gpu is insufficient",
        "process_num=0",
    ),
)


def register(arguments: Sequence[str] | None = None) -> None:
    """Register the plugin; a second call only loads new modules of `ggeur.plugins`."""
    try:
        load_plugins_of(sys.argv[1:] if arguments is None else arguments)
    except ConfigError as error:
        if arguments is None:  # FS's main would show a traceback
            raise SystemExit(f"error: {error}") from error
        raise
    if arguments is None:
        from .user_errors import install_hook

        install_hook()
    if "ggeur" in registries.config_dict:
        return
    # An error must come now. If it came when FS calls this, FS would not run.
    extend_ggeur_cfg(CfgNode())
    # These import what FS must find ready. The config comes last.
    registries.register_worker("ggeur", find_workers)
    registries.register_trainer("ggeur", find_trainer)
    registries.register_data("ggeur", find_data)
    registries.register_model("ggeur", find_model)
    registries.register_config("ggeur", extend_config)
    for module, *_ in FALSE_ALARMS:
        logging.getLogger(f"federatedscope.{module}").addFilter(_is_no_false_alarm)


def find_workers(method: str) -> dict | None:
    """The worker classes for ``federate.method: ggeur``; None for other methods."""
    if method.lower() != METHOD:
        return None
    from .client import GGEURClient
    from .server import GGEURServer

    return {"client": GGEURClient, "server": GGEURServer}


def find_trainer(trainer_type: str) -> type | None:
    """The class for ``trainer.type: ggeur_trainer``; None for other types."""
    if trainer_type.lower() != TRAINER:
        return None
    from .trainer import GGEURTrainer

    return GGEURTrainer


def find_data(config, client_cfgs=None):
    """The data and config for ``data.type: <name>@ggeur``; None for other types."""
    # Otherwise FS would download data of another type, which the plugin refuses.
    asked = "ggeur" in config and config.ggeur.use
    if not (asked or config.data.type.lower().endswith("@ggeur")):
        return None
    from .data import load_fs_data

    return load_fs_data(config, client_cfgs)


def find_model(model_config, input_shape) -> nn.Module | None:
    """The head for ``model.type: ggeur_head``; None for other types.

    FS gives registered models only ``cfg.model`` and the shape of the data. So the data
    function has written the head's sizes into ``cfg.model``: ``hidden``,
    ``out_channels`` and ``input_shape``. A server without data learns the sizes only
    when clients join. Its model is an empty module, which the worker replaces later.
    """
    if model_config.type.lower() != HEAD:
        return None
    if not input_shape:
        return nn.Module()
    settings = ModelSettings(model_config.hidden, model_config.dropout)
    return build_model(input_shape[-1], model_config.out_channels, settings)


def _is_no_false_alarm(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    return not any(
        record.name == f"federatedscope.{module}"
        and message.startswith(beginning)
        and part in message
        for module, beginning, part in FALSE_ALARMS
    )
