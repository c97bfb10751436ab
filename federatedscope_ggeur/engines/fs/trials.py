"""Makes the trials of FederatedScope's (FS's) hpo.py work with the plugin.

hpo.py makes many runs (trials) in one process. FS has three faults here: it has one run
folder for all trials, it ends when one trial diverges, and its config refuses the types
of numpy 2 and ConfigSpace 1. With this module each trial has its own folder, a trial
that diverges counts as the worst, and values have Python's types.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.federation.course.checkpoint import (
    checkpoint_rounds,
    round0_path,
)
from federatedscope_ggeur.printable import Lines, get_logger

from ..run import load_federated_data
from .client_configs import complete
from .config import check, problems
from .search import is_search, metric_split
from .user_errors import setting_problem

logger = get_logger(__name__)

_ALGOS = "federatedscope.autotune.algos"


def settle_trial(cfg) -> None:
    """Prepare a run of hpo.py as a trial, with its own folder and number of rounds.

    The scheduler `sha` continues a trial from the trial's own checkpoint in
    ``hpo.working_folder``. ``federate.total_round_num`` then counts the further rounds,
    and an evaluation follows the last one. From any other ``federate.restore_from`` a
    run goes on up to this number of rounds, as everywhere.

    Raises
    ------
    GGEURError
        The trial left no file to continue from.
    """
    cfg.outdir = str(_new_folder(Path(cfg.outdir)))
    logger.info("this trial's folder is %s", cfg.outdir)
    path, work = cfg.federate.restore_from, Path(cfg.hpo.working_folder)
    kept = Path(cfg.federate.save_to)
    if not path and cfg.federate.save_to and kept.parent == work:
        # The scheduler names its files by a trial's values, so an old one may be there.
        for file in (kept, round0_path(kept)):
            file.unlink(missing_ok=True)
    if not path or path != cfg.federate.save_to or Path(path).parent != work:
        return
    if not Path(path).exists():
        raise GGEURError(
            f"the trial cannot continue, because its checkpoint '{path}' is missing"
        )
    rounds = checkpoint_rounds(path) + cfg.federate.total_round_num
    cfg.federate.total_round_num = cfg.eval.freq = rounds
    # The scheduler decides who stops, not the scores of earlier stages.
    cfg.early_stop.patience = 0


def _new_folder(parent: Path) -> Path:
    number = 1
    while True:
        folder = parent / f"trial_{number:03d}"
        try:
            folder.mkdir(parents=True)  # only one of several threads succeeds
            return folder
        except FileExistsError:
            number += 1


def check_search(cfg, client_cfgs=None) -> None:
    """Check before the first trial for problems that would make every trial fail.

    Parameters
    ----------
    cfg : config of FS as read by hpo.py
    client_cfgs : CfgNode, optional
        The settings from ``--client_cfg``. They are completed in place.

    Raises
    ------
    ConfigError, DataError
        A setting, a value in the search space, or the data are wrong.
    """
    check(cfg)
    found = list(dict.fromkeys(_space_problems(cfg)))
    if found:
        raise ConfigError(Lines(["wrong settings:", *found]))
    clients, split = load_federated_data(cfg).clients, metric_split(cfg)
    if client_cfgs is not None:
        divided = cfg.clone()
        divided.federate.client_num = len(clients)
        complete(client_cfgs, divided)
    if not any(len(getattr(held, split)) for held in clients):
        raise ConfigError(
            f"hpo.metric: is {cfg.hpo.metric}, but no client has {split} rows; set "
            "their share by data.splits"
        )
    if split == "test":
        logger.warning(
            "hpo.metric chooses by test rows, so the test scores of the chosen "
            "trial are too good"
        )


def _space_problems(cfg) -> Iterator[str]:
    """Yield the problems of the search space, each as a line.

    The ends of ranges and all choices are tried as settings.
    """
    already = set(problems(cfg))
    for name, values in _search_space(cfg.hpo.ss).items():
        if "." not in name:
            yield (
                f"  {name}: hpo.py can only search over keys in a section; take it "
                "out of the space"
            )
            continue
        for value in values:
            copy = cfg.clone()
            problem = setting_problem(copy, name, value)
            if problem:
                yield f"  {name}: {problem} (hpo.ss)"
            else:
                yield from (
                    f"{line} (hpo.ss)" for line in problems(copy) if line not in already
                )


def _search_space(path: str) -> dict[str, list]:
    """Read a search space: each key, with the ends of its range or its choices."""
    from federatedscope.autotune.utils import parse_search_space

    try:
        space = parse_search_space(path)
    except Exception as error:  # FS and ConfigSpace raise errors of many types
        raise ConfigError(
            f"hpo.ss: '{path}' is not a search space ({type(error).__name__}: "
            f"{error}). Each key needs type: float or int with lower and upper, or "
            "cate with choices"
        ) from error
    return {
        name: list(map(_plain, getattr(one, "choices", None) or (one.lower, one.upper)))
        for name, one in ((name, space[name]) for name in space)
    }


def mend_search() -> None:
    """Repair FS's schedulers: they check settings first and survive a failed trial.

    They also convert values to Python's types. Call this while hpo.py reads its
    settings: FS's modules are loaded then, but there is no scheduler yet.
    """
    algos = sys.modules.get(_ALGOS)
    if not is_search() or algos is None or hasattr(algos, "is_mended"):
        return
    from federatedscope.autotune import utils

    algos.is_mended = True  # type: ignore[attr-defined]
    _let_hpbandster_send_numbers()
    to_words, evaluate = utils.config2cmdargs, utils.eval_in_fs
    begin, executor = algos.Scheduler.__init__, algos.TrialExecutor
    one_at_a_time = threading.Lock()

    def config2cmdargs(config) -> list:
        return [_plain(word) for word in to_words(config)]

    def eval_in_fs(cfg, *args, **kwargs):
        try:
            return evaluate(cfg, *args, **kwargs)
        except GGEURError as error:
            who, metric = cfg.hpo.metric.split(".")
            return {who: {metric: _worst(cfg, error)}}

    def check_and_begin(self, cfg, client_cfgs=None) -> None:
        if cfg.ggeur.use:
            check_search(cfg, client_cfgs)
        begin(self, cfg, client_cfgs)

    class Trial(executor):
        """A trial in a thread (``hpo.num_workers``).

        Only one runs at a time, since FS redirects the output of the whole process
        while it writes a trial's config.
        """

        def run(self) -> None:
            try:
                with one_at_a_time:
                    super().run()
            except GGEURError as error:
                worst = _worst(self._trial_cfg, error)
                self._returns.update(perf=worst, cfg_idx=self._idx)
                self._signal.set()

    for module in (utils, algos):
        module.config2cmdargs, module.eval_in_fs = config2cmdargs, eval_in_fs
    algos.Scheduler.__init__, algos.TrialExecutor = check_and_begin, Trial


def _worst(cfg, error: GGEURError) -> float:
    """The score of a trial that diverged; any other error is raised again."""
    if isinstance(error, ConfigError):
        raise error
    logger.warning("this trial counts as the worst: %s", error)
    return -math.inf if cfg.hpo.larger_better else math.inf


def _plain(value):
    return value.item() if isinstance(value, np.generic) else value


def _let_hpbandster_send_numbers() -> None:
    """Let hpbandster send numpy 2's numbers to its worker; otherwise it never ends."""
    try:
        import serpent
    except ImportError:  # without hpbandster nothing is sent
        return

    def write(value, serializer, out, level) -> None:
        serializer._serialize(value.item(), out, level)

    serpent.register_class(np.generic, write)
