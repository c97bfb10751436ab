"""The keys of FederatedScope (FS) that the engines know, with FS's defaults.

The engines honour a key with FS's meaning, or accept only the values that fit what they
do. Inside FS some more keys are honoured, and others are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

import yaml

from federatedscope_ggeur.federation.exchanges.evaluation.scores import METRICS
from federatedscope_ggeur.federation.wire.schema import SPLITS
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS, Method
from federatedscope_ggeur.printable import is_hidden
from federatedscope_ggeur.settings import Rule, flatten, not_negative, one_of, rule_of

_TABLES = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
LARGEST = 2**31 - 1  # FS sends whole numbers in 32 bits

# The largest numbers of clients and of passes through a loop.
_MOST_CLIENTS, _MOST_TURNS = 100_000, 10_000_000
#: The plugin's names in FS's registries.
HEAD, TRAINER = "ggeur_head", "ggeur_trainer"


@dataclass(frozen=True)
class FSKey:
    """One key of FS, its default, and the rule for its values.

    `rule` maps a value to what is wrong with it, or to "" if nothing is. If `on_fs` is
    not None, it replaces `rule` inside FS.
    """

    name: str
    default: object
    rule: Rule
    on_fs: Rule | None = None


def table(name: str) -> Iterator[tuple[str, object]]:
    """Yield keys and defaults from one table of ``fs_keys.yaml``."""
    return flatten(_TABLES[name])


_INERT = dict(table("inert"))


def distributed(cfg, name: str):
    """The value of FS's key ``distribute.<name>``; its default if `cfg` lacks the key.

    Outside FederatedScope the config has the key only if it is set.
    """
    return cfg.distribute.get(name, _INERT[f"distribute.{name}"])


def anything(value) -> str:
    """The rule of a key that accepts any value."""
    return ""


_visible = rule_of(
    "must hold no line end and no other hidden character",
    lambda value: not any(map(is_hidden, str(value))),
)
_within = rule_of(
    "must lie within outdir: no absolute path, and no ..",
    lambda value: not PurePath(value).anchor and ".." not in PurePath(value).parts,
)


def _folder_name(value: str) -> str:
    """The rule for a text that becomes part of a folder's name."""
    return _visible(value) or _within(value)


def _only(*accepted) -> Rule:
    wanted = " or ".join(repr(value) for value in accepted)
    return rule_of(f"the plugin takes only {wanted}", lambda value: value in accepted)


def _own(*accepted: str) -> Rule:
    """A rule that accepts the plugin's own value, the last one, and others for it."""
    problem = f"the plugin uses its own: write {accepted[-1]}, or remove the line"
    return rule_of(problem, lambda value: value in accepted)


#: Keys whose default in FS is replaced by the plugin's, if no user chose it.
STANDS_FOR = {
    "model.type": ("lr", HEAD),
    "criterion.type": ("MSELoss", "CrossEntropyLoss"),
    "trainer.type": ("general", TRAINER),
}


def written_defaults(given: Iterable[tuple[str, object]]) -> Iterator[str]:
    """Yield a problem for each default in `STANDS_FOR` that somebody wrote.

    `given` are the settings that were written. A file that FS wrote names all its keys,
    with ``cfg_file`` among them, so nobody chose these values.
    """
    written = dict(given)
    if "cfg_file" in written:
        return
    for name, (default, ours) in STANDS_FOR.items():
        if written.get(name) == default:
            yield f"  {name}: {_own(ours)(default)}"


def _at_least(minimum, most: int = LARGEST) -> Rule:
    problem = f"must lie in {minimum}..{most}"
    return rule_of(problem, lambda value: minimum <= value <= most)


def _unset_or(low, high) -> Rule:
    """A rule for a number of clients, or a share of them, above `low` and up to `high`.

    The value -1 stands for all clients. FS also takes all clients if the value is
    impossible; here that is an error.
    """

    def rule(value) -> str:
        if value == -1 or low < value <= high:
            return ""
        return f"must be -1 (all clients) or lie above {low}, to {high}; got {value!r}"

    return rule


def _some_of(choices: Iterable[str], least: int = 0) -> Rule:
    """A rule for a list with some of `choices`, each at most once."""
    choices = list(choices)

    def fits(value: list) -> bool:
        each_once = all(v in choices and value.count(v) == 1 for v in value)
        return len(value) >= least and each_once

    some = "one or more" if least else "some"
    return rule_of(f"must be a list of {some} of {', '.join(choices)}", fits)


_metrics = _some_of(METRICS)
_FORMS = ("weighted_avg", "avg", "fairness", "raw")
_KEYS = [f"{split}_{metric}" for split in SPLITS for metric in METRICS]
_rate = rule_of("must be in [0, 1)", lambda value: 0 <= value < 1)
_one_process = rule_of("the plugin runs in one process", lambda value: value <= 1)

_alone = rule_of(
    "must be standalone without --engine federatedscope",
    lambda value: value == "standalone",
)
#: The rule for FS's searches within one run, which have their own server and clients.
_own_workers = rule_of(
    "must be False: FS would replace the plugin's workers by its own; `ggeur study` "
    "tunes settings",
    lambda value: value in (False, None),
)

_fs_alone = rule_of(
    "must be False: FederatedScope alone sends scores to Weights & Biases; each "
    "round's scores are in metrics.csv",
    lambda value: value is False,
)

HONOURED = (
    *(FSKey(name, default, anything) for name, default in table("honoured")),
    FSKey("seed", 0, _at_least(-LARGEST, 2**32 - 1)),
    FSKey("expname", "", _folder_name),
    FSKey("expname_tag", "", _folder_name),
    FSKey("federate.client_num", 0, _at_least(0, _MOST_CLIENTS)),
    FSKey("federate.sample_client_num", -1, _unset_or(0, LARGEST)),
    FSKey("federate.sample_client_rate", -1.0, _unset_or(0, 1)),
    FSKey("federate.unseen_clients_rate", 0.0, _rate),
    FSKey("federate.total_round_num", 50, _at_least(1, _MOST_TURNS)),
    FSKey("federate.method", "FedAvg", _only("ggeur")),
    FSKey("dataloader.batch_size", 64, _at_least(1)),
    FSKey("model.dropout", 0.5, _rate),
    FSKey("train.local_update_steps", 1, _at_least(1, _MOST_TURNS)),
    FSKey("train.batch_or_epoch", "batch", one_of("batch", "epoch")),
    FSKey("train.optimizer.type", "SGD", one_of("SGD", "Adam")),
    FSKey("train.optimizer.lr", 0.1, _at_least(0)),
    FSKey("train.scheduler.type", "", one_of("", "StepLR", "CosineAnnealingLR")),
    FSKey("eval.freq", 1, _at_least(1)),
    FSKey("wandb.use", False, _fs_alone, anything),
    FSKey("eval.metrics", [], _metrics),
    FSKey("eval.split", ["test", "val"], _some_of(SPLITS, least=1)),
    FSKey("eval.report", list(_FORMS), _some_of(_FORMS)),
    FSKey("eval.best_res_update_round_wise_key", "val_loss", one_of(*_KEYS)),
    FSKey("early_stop.patience", 5, _at_least(0)),
    FSKey("early_stop.delta", 0.0, not_negative),
    FSKey("early_stop.improve_indicator_mode", "best", one_of("best", "mean")),
)


FIXED = (
    *(FSKey(name, default, _only(default)) for name, default in table("at_default")),
    # At another value, or inside FS at others as well.
    FSKey("check_completeness", False, _only(False), anything),
    FSKey("print_decimal_digits", 6, _only(6), anything),
    FSKey("federate.mode", "standalone", _alone, one_of("standalone", "distributed")),
    FSKey("federate.use_diff", False, _only(False), anything),
    FSKey("federate.process_num", 1, _only(1), _one_process),
    *(FSKey(name, both[0], _own(*both)) for name, both in STANDS_FOR.items()),
)


def fs_keys() -> list[FSKey]:
    """Every key of FS that the engines know, including those of methods' sections."""
    return [
        *HONOURED,
        *FIXED,
        *(FSKey(f"{name}.use", False, anything) for name in switches()),
        *(
            FSKey(f"{part.SECTION}.{key.name}", key.in_config, key.rule)
            for part in _in_fs()
            for key in part.SETTINGS
            if key.in_config is not None
        ),
    ]


def open_sections() -> set[str]:
    """The sections of FS that take new keys, such as the options of an optimiser."""
    return {OPEN_SECTION, SCHEDULER_SECTION} | {
        part.SECTION
        for part in _in_fs()
        if any(key.in_config is None for key in part.SETTINGS)
    }


def _in_fs() -> list[type[Method]]:
    """The methods whose settings are in a section of FS."""
    parts = (*METHODS.present().values(), *AUGMENTATIONS.present().values())
    return [part for part in parts if part.SECTION]


def section_of(part: type[Method]) -> str:
    """The section that holds the settings of `part`."""
    return part.SECTION or f"ggeur.{part.name}"


def switch_of(part: type[Method]) -> str:
    """The section of FS whose key `use` switches `part` on; "" if there is none."""
    return part.SECTION.partition(".")[0]


def switches() -> list[str]:
    """All sections of FS whose key `use` switches a method on."""
    return sorted({switch_of(part) for part in _in_fs()})


#: Rules inside FS for keys that the embedded engine lacks.
FS_RULES: dict[str, Rule] = {
    "aggregator.robust_rule": one_of(
        "fedavg", "krum", "median", "trimmedmean", "bulyan", "normbounding"
    ),
    "federate.join_in_info": _only([]),
    "federate.resource_info_file": _only(""),
    **dict.fromkeys(("hpo.fedex.use", "hpo.fts.use", "hpo.pfedhpo.use"), _own_workers),
    "model.model_num_per_trainer": _only(1),
}

#: The section of the local optimiser, where FS takes new keys.
OPEN_SECTION = "train.optimizer"
#: The section of the learning rate's schedule over rounds, where FS takes new keys.
SCHEDULER_SECTION = "train.scheduler"

#: Entries that FS keeps in every section beside the settings.
_AUXILIARY = ("__cfg_check_funcs__", "__help_info__", "is_ready_for_run")


def settings_in(node) -> dict:
    """The settings in one section, without FS's own entries there."""
    return {name: value for name, value in node.items() if name not in _AUXILIARY}
