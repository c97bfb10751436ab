"""The `ggeur.*` keys: those of a run, and those that registered parts bring."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from federatedscope_ggeur.cfg_ggeur.distributed_keys import DISTRIBUTED_KEYS
from federatedscope_ggeur.cfg_ggeur.fs_keys import section_of
from federatedscope_ggeur.data import ENCODERS, IMAGE_READERS, READERS, SPLITTERS
from federatedscope_ggeur.data.encoders.keys import ENCODER_KEYS
from federatedscope_ggeur.data.text import TEXT_KEYS
from federatedscope_ggeur.errors import ConfigError, name_settings
from federatedscope_ggeur.federation.exchanges import EXCHANGES, ORDER
from federatedscope_ggeur.federation.screening import SCREENS
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS
from federatedscope_ggeur.models import CLOSED_FORMS, TEXT_MODELS
from federatedscope_ggeur.models.networks.keys import NETWORK_KEYS
from federatedscope_ggeur.models.text import TEXT_USE_KEYS
from federatedscope_ggeur.settings import (
    NOT_SET,
    Key,
    Registry,
    names,
    not_negative,
    one_of,
    positive_up_to,
    whole,
)

#: Registries of parts with settings, below `ggeur.<name>` or in a `SECTION`.
REGISTRIES: tuple[Registry, ...] = (
    METHODS,
    AUGMENTATIONS,
    CLOSED_FORMS,
    ENCODERS,
    READERS,
    IMAGE_READERS,
    SPLITTERS,
    TEXT_MODELS,
)

PLUGINS = Key(
    "plugins",
    [],
    "Modules with parts of your own (`register_method` and the like). They are looked "
    "for beside the YAML file, then where Python finds modules.",
    names("module names"),
)


#: Keys that belong to no room below; each exchange has its own keys.
_RUN_KEYS = (
    Key(
        "embedding_dim",
        NOT_SET,
        "Number of dimensions that the embeddings must have; -1: any.",
        whole(1, not_set_allowed=True),
    ),
    Key(
        "screen",
        SCREENS[0],
        "What happens to a client whose message is unlike those of the others (class "
        "means, spreads, updates, weights, rows, compared with medians; needs three "
        "clients). warn: the log names it. refuse: it is put out of the run.",
        one_of(*SCREENS),
    ),
    *DISTRIBUTED_KEYS,
    Key(
        "checkpoint_every",
        60.0,
        "The shortest time in seconds between two checkpoints in the run folder, "
        "which a run without federate.save_to writes; -1: none. There is always one "
        "after round 0, at the end, and when the run is stopped. For methods with a "
        "client state, FederatedScope's engines write one after every round.",
        positive_up_to(1e9, not_set_allowed=True),
    ),
    Key(
        "workers",
        0.0,
        "Embedded engine: processes that train and score the clients. Their number "
        "does not change a bit of the result. 0: one in Python; in commands one a "
        "core, where that is faster.",
        whole(0, maximum=1024),
    ),
    Key(
        "num_threads",
        1.0,
        "Number of torch threads of each process.",
        whole(1, maximum=1024),
    ),
    Key(
        "memory_limit",
        1e9,
        "Bytes of augmented sets that a process keeps in memory. It draws other sets "
        "again in each round.",
        not_negative,
    ),
    Key(
        "tensorboard",
        False,
        "Write each round's scores for TensorBoard, too, into the run folder.",
        one_of(True, False),
    ),
    PLUGINS,
)


#: Former keys of parts, and what to do instead.
_REMOVED = {
    "fisher.steps": "the head is trained to its optimum now; leave this key out "
    "(ggeur.fisher.penalty bounds its weights)",
}
#: The keys of rooms below, by subject.
_OF_ROOMS = (
    *(key for room in ORDER for key in EXCHANGES[room].KEYS),
    *ENCODER_KEYS,
    *NETWORK_KEYS,
    *TEXT_KEYS,
    *TEXT_USE_KEYS,
)
_OWN = (*_OF_ROOMS, *_RUN_KEYS)

#: FederatedScope's keys, by the names that rooms below use.
FS_FIELDS = {
    "batch_or_epoch": "train.batch_or_epoch",
    "batch_size": "dataloader.batch_size",
    "best_by": "eval.best_res_update_round_wise_key",
    "client_num": "federate.client_num",
    "drop_last": "dataloader.drop_last",
    "grad_clip": "grad.grad_clip",
    "local_update_steps": "train.local_update_steps",
    "mode": "federate.mode",
    "optimizer.lr": "train.optimizer.lr",
    "optimizer.type": "train.optimizer.type",
    "patience": "early_stop.patience",
    "restore_from": "federate.restore_from",
    "save_to": "federate.save_to",
    "shuffle": "dataloader.shuffle",
    "splits": "eval.split",
    "total_rounds": "federate.total_round_num",
    "unseen_client_num": "federate.unseen_clients_rate",
}


def field_of(key: Key) -> str:
    """The name that rooms below use for a key of the plugin."""
    return key.name.removeprefix("privacy.")


# The key of each field that rooms below name in messages.
name_settings(
    {
        **{field_of(key): f"ggeur.{key.name}" for key in _OWN},
        **FS_FIELDS,
        "deadline": "ggeur.deadline.*",
        "wandb": "wandb.use",
    }
)


def all_keys() -> tuple[Key, ...]:
    """Every `ggeur.*` key except `use`, with the keys of plugins that are loaded.

    Raises
    ------
    ConfigError
        The settings of two registered parts have the same place.
    """
    return (*_OWN, *_of_parts({"use", *(key.name.split(".")[0] for key in _OWN)}))


def removed_key(dotted: str) -> str:
    """What to do instead of a former key; "" for any other key."""
    ggeur, _, rest = dotted.partition(".")
    if ggeur != "ggeur":
        return ""
    return _REMOVED.get(rest, "") or CLOSED_FORMS.removed(rest.partition(".")[0])


def _of_parts(taken: set[str]) -> Iterator[Key]:
    for registry in (*REGISTRIES, EXCHANGES):
        for name, part in registry.items():
            if not part.SETTINGS or getattr(part, "SECTION", ""):
                continue
            if name in taken:
                raise ConfigError(
                    f"ggeur.{name}: the {registry.kind} '{name}' needs this section "
                    "for its settings, but it is taken; register it by another name"
                )
            taken.add(name)
            for key in part.SETTINGS:
                yield replace(key, name=f"{name}.{key.name}")


def extend_ggeur_cfg(cfg) -> None:
    """Add the missing keys of `cfg.ggeur` to a yacs `CfgNode` or an FS `CN`."""
    add_key(cfg, "ggeur.use", False)
    for key in all_keys():
        add_key(cfg, f"ggeur.{key.name}", key.default)
        name_settings({field_of(key): f"ggeur.{key.name}"})
    for part in (*METHODS.values(), *AUGMENTATIONS.values()):
        for k in part.SETTINGS:
            name_settings({f"{part.name}.{k.name}": f"{section_of(part)}.{k.name}"})


def add_key(node, dotted: str, default: object) -> None:
    """Add a key with its default, and the sections above it, if they are missing."""
    *path, name = dotted.split(".")
    for part in path:
        if part not in node:
            node[part] = type(node)()
        node = node[part]
    if name not in node:
        node[name] = list(default) if isinstance(default, list) else default


def get_key(node, dotted: str):
    """The value of e.g. ``"federate.client_num"`` in a config."""
    for part in dotted.split("."):
        node = node[part]
    # FS wraps some values, with a description, until its config is ready to run.
    return node.value if hasattr(node, "description") else node
