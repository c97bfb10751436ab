"""Runs of FederatedScope (FS) in this process, done as FS's own main.py does them.

What a run on FS and one on the embedded engine must have equal is `outcome`.
"""

from __future__ import annotations

import atexit
import itertools
import json
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load, load_file

from federatedscope_ggeur.engines.fs import install
from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.reporting import Results, numbers

#: A small run of FS itself.
TOY = """\
data: {type: toy}
model: {type: lr}
federate: {client_num: 3, total_round_num: 3}
train: {optimizer: {lr: 0.1}}
eval: {count_flops: False, best_res_update_round_wise_key: test_loss}
"""
_runs = itertools.count(1)


@dataclass
class FSRun:
    """A run of FS: what it was set up with, and what it leaves."""

    config: object
    data: object
    runner: object

    @property
    def server(self):
        return self.runner.server

    @property
    def folder(self) -> Path:
        return Path(self.config.outdir)

    @property
    def results(self) -> Results:
        return Results.from_json((self.folder / "results.json").read_text())

    @property
    def model(self) -> dict[str, torch.Tensor]:
        return load_file(self.folder / "head.safetensors")

    @property
    def log(self) -> str:
        return (self.folder / "exp_print.log").read_text()

    def lines(self) -> list[dict]:
        """``eval_results.log`` as FS's own reader takes it."""
        text = (self.folder / "eval_results.log").read_text()
        return [json.loads(line.replace("'", '"')) for line in text.splitlines()]

    def final(self) -> dict:
        """What FS's line ``Final`` holds."""
        (final,) = (line for line in self.lines() if line["Round"] == "Final")
        return final["Results_raw"]

    def go(self) -> FSRun:
        self.runner.run()
        return self


def outcome(results: Results) -> dict:
    """All but times, the engine's name and config, and what FS's server cannot know:
    how many pairs were withheld, how many rows a client holds."""
    kept = numbers(results)
    del kept["round0"]["withheld_pairs"]
    kept["clients"] = [(c["number"], c["domain"]) for c in kept["clients"]]
    return {k: v for k, v in kept.items() if k not in ("engine", "config")}


def assert_same(there, here: Run) -> None:
    """A run that is over on FS, and one on the embedded engine that was not begun."""
    results = here.follow(lambda record: None)
    assert outcome(there.results) == outcome(results)
    model = here.history.head_bytes()
    if model is None:  # every client has its own
        assert not (there.folder / "head.safetensors").exists()
        return
    model = load(model)
    assert there.model.keys() == model.keys()
    for name, tensor in there.model.items():
        assert torch.equal(tensor, model[name])


class Standalone:
    """Runs of FS with the settings of `config`, a function to an embedded config."""

    def __init__(self, config: Callable, folder: Path):
        self._config, self._folder = config, folder

    def file(self, *settings) -> Path:
        path = self._folder / f"config_{next(_runs)}.yaml"
        path.write_text(self._config(*settings).dump())
        return path

    def set_up(self, *settings, also: Sequence = (), **options) -> FSRun:
        """A run that can begin; `also` are settings that only FS has."""
        out = ["outdir", self._folder / "exp"]
        return set_up(self.file(*settings), [*out, *also], **options)

    def run(self, *settings, **options) -> FSRun:
        """A run that is over."""
        return self.set_up(*settings, **options).go()


def new_config(plugin_first: bool = False, plugin: bool = True):
    """FS's config as it is after its start, with the plugin where it is enabled."""
    from federatedscope import register as registries
    from federatedscope.core.configs import config

    from federatedscope_ggeur.engines.fs import register

    register()
    known = dict(registries.config_dict)
    ours = {"ggeur": known.pop("ggeur")} if plugin else {}
    known.pop("ggeur", None)
    before = dict(registries.config_dict)
    registries.config_dict.clear()
    registries.config_dict.update(
        {**ours, **known} if plugin_first else {**known, **ours}
    )
    try:
        cfg = config.CN()
        config.init_global_cfg(cfg)
    finally:
        registries.config_dict.clear()
        registries.config_dict.update(before)
    return cfg


def merged(path: Path, settings: Sequence = (), **options):
    """FS's config after a file and the ``KEY VALUE`` pairs behind it."""
    cfg = new_config(**options)
    cfg.merge_from_file(str(path))
    cfg.merge_from_list([str(word) for word in settings])
    return cfg


def set_up(path: Path, settings: Sequence = (), clients=None, **options) -> FSRun:
    """All that main.py does before the run; FS's run folder is a new one."""
    cfg = merged(path, [*settings, "expname", f"run_{next(_runs)}"], **options)
    # Not before the plugin is registered, which mends FS's protobuf module.
    from federatedscope.core.auxiliaries.data_builder import get_data
    from federatedscope.core.auxiliaries.logging import update_logger
    from federatedscope.core.auxiliaries.runner_builder import get_runner
    from federatedscope.core.auxiliaries.utils import setup_seed
    from federatedscope.core.auxiliaries.worker_builder import (
        get_client_cls,
        get_server_cls,
    )
    from federatedscope.core.configs.config import CfgNode

    update_logger(cfg, clear_before_add=True)
    setup_seed(cfg.seed)
    client_cfgs = CfgNode.load_cfg(clients) if clients is not None else None
    data, modified = get_data(config=cfg.clone(), client_cfgs=client_cfgs)
    cfg.merge_from_other_cfg(modified)
    cfg.freeze()
    runner = get_runner(
        data=data,
        server_class=get_server_cls(cfg),
        client_class=get_client_cls(cfg),
        config=cfg.clone(),
        client_configs=client_cfgs,
    )
    return FSRun(cfg, data, runner)


def linked(federatedscope, folder: Path) -> Path:
    """A checkout in which the plugin can be enabled: of links to the real one's files,
    which stay as they are, and are compiled already."""
    real, package = Path(federatedscope.__file__).parents[2], folder / "federatedscope"
    for made in (package, package / "contrib", package / "contrib" / "configs"):
        made.mkdir()
        for path in (real / made.relative_to(package)).iterdir():
            own = path.name in ("contrib", "configs") and path.parts[-2] != "core"
            if not own and path.name != install.PLUGIN_FILE:
                (made / path.name).symlink_to(path)
    return folder


@contextmanager
def as_before():
    """Undo what FS leaves in a process: loggers, seeds, threads, exit handlers."""
    loggers = [logging.getLogger(n) for n in ("federatedscope", "federatedscope_ggeur")]
    kept = [(x, x.level, x.propagate, list(x.handlers)) for x in loggers]
    # The global generator is the one that FS seeds.
    drawn = np.random.get_state()  # noqa: NPY002
    seeds = random.getstate(), drawn, torch.get_rng_state()
    threads, printed = torch.get_num_threads(), np.get_printoptions()
    deterministic = torch.backends.cudnn.deterministic
    register = atexit.register
    at_exit: list[Callable] = []

    def note(function, *args, **kwargs):
        at_exit.append(function)
        return register(function, *args, **kwargs)

    atexit.register = note
    try:
        yield
    finally:
        atexit.register = register
        for function in at_exit:
            atexit.unregister(function)
        for logger, level, propagate, handlers in kept:
            for handler in set(logger.handlers) - set(handlers):
                handler.close()
            logger.handlers[:] = handlers
            logger.propagate = propagate
            logger.setLevel(level)
        random.setstate(seeds[0])
        np.random.set_state(seeds[1])  # noqa: NPY002
        torch.set_rng_state(seeds[2])
        torch.set_num_threads(threads)
        np.set_printoptions(**printed)
        torch.backends.cudnn.deterministic = deterministic
