"""The `ggeur.*` keys: the keys of every run, and the keys of registered parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain

from federatedscope_ggeur.data import ENCODERS, IMAGE_READERS, READERS, SPLITTERS
from federatedscope_ggeur.data.encoders.base import ENCODER_KEYS
from federatedscope_ggeur.errors import ConfigError, name_settings
from federatedscope_ggeur.extras import manifests
from federatedscope_ggeur.federation.exchanges import EXCHANGES, ORDER
from federatedscope_ggeur.federation.screening import SCREENS
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.settings import (
    NOT_SET,
    Key,
    Registry,
    alike,
    names,
    not_negative,
    not_negative_up_to,
    one_of,
    positive_up_to,
    text,
    whole,
)

from .fs_keys import section_of

DISTRIBUTED_KEYS = (
    *alike(
        NOT_SET,
        whole(1, not_set_allowed=True),
        quorum="The run ends with an error if fewer clients than this join or are "
        "left; -1: all clients are needed.",
        client_number="Distributed, with distribute.data_idx -1: this client's number, "
        "1, 2, ...; otherwise data_idx is the number.",
    ),
    Key(
        "domain",
        "",
        "Distributed, with distribute.data_idx -1: the domain of this client's data.",
        text,
    ),
    *alike(
        600.0,
        positive_up_to(1e9),
        "deadline.",
        join="Distributed: seconds that the server waits for clients to join, and "
        "that a client waits for a server it cannot reach.",
        round0="Distributed: seconds that the server waits for answers to one "
        "request of round 0 or of calibration.",
        train="Distributed: seconds that the server waits for the local training of "
        "a round.",
        evaluate="Distributed: seconds that the server waits for the clients' "
        "evaluation of a round.",
        silence="Distributed, client: after so many seconds without any word from the "
        "server, the client gives up. A waiting server says so from time to time.",
    ),
    Key(
        "deadline.return",
        60.0,
        "Distributed: seconds that the server waits for a client whose connection "
        "broke, before ggeur.quorum decides. Waiting uses them up; ten seconds with a "
        "connection give one back. A client that ends by itself is not waited for.",
        not_negative_up_to(1e9),
    ),
    *alike(
        "",
        text,
        "tls.",
        certificate="Distributed: PEM file with the certificate chain of this process. "
        "On the server it switches TLS on.",
        key="Distributed: PEM file with the private key of tls.certificate.",
        authority="Distributed: PEM file with the certificates to trust. On a client "
        "it switches TLS on. On the server it makes clients show certificates.",
    ),
    *alike(
        "",
        text,
        join_secret="Distributed, server: file with the secret from which `ggeur "
        "certificates` makes join tokens; every client must then have a token.",
        join_token="Distributed, client: file with the client's join token.",
    ),
    Key(
        "share_results",
        False,
        "Distributed, server: send every client the accuracy of each domain at the "
        "end. If a domain has one client, this is that client's accuracy.",
        one_of(True, False),
    ),
    Key(
        "agreed.class_names",
        [],
        "Names that the classes must have, in the order of their numbers; []: the "
        "names in the data. A server without data refuses clients that differ.",
        names("class names"),
    ),
    Key(
        "agreed.encoder",
        "",
        "The encoder that must have made the embeddings, written as in encoder.txt or "
        "in the log of a run; empty: the encoder in the data. A server without data "
        "refuses clients that differ.",
        text,
    ),
    Key(
        "agreed.release",
        "",
        "The release of this package that `ggeur serve`, `join` and `check` require, "
        "written as `check` shows it. `ggeur certificates` writes it into all files; "
        "empty: any.",
        text,
    ),
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
    *(one for extra in manifests().values() for one in extra.registries),
)

PLUGINS = Key(
    "plugins",
    [],
    "Modules with your own parts (`register_method` and its siblings). They are "
    "looked for beside the YAML file, then where Python finds modules.",
    names("module names"),
)


#: The default of ``ggeur.memory_limit``.
MEMORY_LIMIT = 1e9

#: Keys of the run as a whole. Lower packages and exchanges have the other keys.
_RUN_KEYS = (
    Key(
        "embedding_dim",
        NOT_SET,
        "Dimensions that the embeddings must have; -1: any number.",
        whole(1, not_set_allowed=True),
    ),
    Key(
        "screen",
        SCREENS[0],
        "How to treat a client that sends values very unlike those of the other "
        "clients (class means, spreads, updates, weights or rows, compared with the "
        "others' medians, with three or more clients): warn names the client in the "
        "log, refuse removes it from the run.",
        one_of(*SCREENS),
    ),
    *DISTRIBUTED_KEYS,
    Key(
        "checkpoint_every",
        60.0,
        "Least number of seconds between two checkpoints in the run folder; -1: no "
        "checkpoints there. They are written after round 0, then at this interval, at "
        "the end, and when the run is stopped, unless federate.save_to names a file. "
        "If a method keeps a state on clients, FederatedScope's engines write one "
        "after every round.",
        positive_up_to(1e9, not_set_allowed=True),
    ),
    Key(
        "workers",
        0.0,
        "Processes that train and score the clients of an embedded run. The results "
        "are the same for any number. 0: one process in Python; in commands as many "
        "as there are cores if that is faster.",
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
        MEMORY_LIMIT,
        "Bytes of augmented sets that a process keeps in memory; the other sets are "
        "drawn again in each round. On a GPU the default stands for 60% of its free "
        "memory.",
        not_negative,
    ),
    PLUGINS,
)


#: Former keys of parts, each with advice on what to do now.
_REMOVED = {
    "ridge.alpha": "set ggeur.ridge.strength, which is relative to the embeddings",
    "encoder.skip_unreadable": "move the images elsewhere that the error names",
    "encoder.float16_cache": "the cache keeps float32, so remove this key",
    "encoder.hash_files": "images are told apart by size and time of their files",
    "personal.prior": "own heads have the priors of all, so remove this key",
    "privacy.secure_sums_max_upload_mb": "a dry run says what a client sends, so "
    "remove this key",
    "fedclip.loss": "the loss is the published one, so remove this key",
    "fedpg.generator": "it is the authors' network, so remove this key",
    "fedsam.adaptive": "there is no FedASAM any more, so remove this key",
    "fedsam.eta": "it was for fedsam.adaptive, which is gone, so remove this key",
    "lda.rule": "leave-one-out chooses the shrinkage, so remove this key",
    "whitened.shrinkage": "there is no whitened space any more, so remove this key",
    "tensorboard": "each round's scores are in metrics.csv and results.json, so remove "
    "this key",
}


def extra_keys() -> Iterator[Key]:
    """The keys of all extras."""
    return chain.from_iterable(one.keys for one in manifests().values())


#: The keys that lower packages and extras bring, by subject.
_OF_ROOMS = (
    *(key for room in ORDER for key in EXCHANGES[room].KEYS),
    *ENCODER_KEYS,
    *extra_keys(),
)
_OWN = (*_OF_ROOMS, *_RUN_KEYS)

#: FederatedScope's keys, by the names that lower packages use.
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
    "use_gpu": "use_gpu",
}


def field_of(key: Key) -> str:
    """The name that lower packages use for a key of the plugin."""
    return key.name.removeprefix("privacy.")


# The key of each field that lower packages name in messages.
name_settings(
    {
        **{field_of(key): f"ggeur.{key.name}" for key in _OWN},
        **FS_FIELDS,
        "deadline": "ggeur.deadline.*",
        "transform": "data.transform",
    }
)


def all_keys() -> tuple[Key, ...]:
    """Every `ggeur.*` key except `use`, including the keys of loaded plugins.

    Raises
    ------
    ConfigError
        Two registered parts need the same section for their settings.
    """
    return (*_OWN, *_of_parts({"use", *(key.name.split(".")[0] for key in _OWN)}))


def put_key(node, dotted: str, value: object) -> None:
    """Give a key of a config, such as ``"privacy.min_samples"``, a value."""
    *sections, name = dotted.split(".")
    for part in sections:
        node = node[part]
    node[name] = value


def removed_key(dotted: str) -> str:
    """Advice for a key that existed in an older version; "" for any other key."""
    ggeur, _, rest = dotted.partition(".")
    if ggeur != "ggeur":
        return ""
    return _REMOVED.get(rest, "") or CLOSED_FORMS.removed(rest.partition(".")[0])


def _of_parts(taken: set[str]) -> Iterator[Key]:
    for registry in (*REGISTRIES, EXCHANGES):
        for name, part in registry.present().items():
            if registry.is_expected(name):  # the manifest has its keys
                continue
            if not part.SETTINGS or getattr(part, "SECTION", ""):
                continue
            if name in taken:
                raise ConfigError(
                    f"ggeur.{name}: the {registry.kind} '{name}' needs this section "
                    "for its settings, but it is taken; register it by another name"
                )
            taken.add(name)
            yield from _in_section(part, name)


@cache
def _in_section(part: type, name: str) -> tuple[Key, ...]:
    return tuple(replace(key, name=f"{name}.{key.name}") for key in part.SETTINGS)


def extend_ggeur_cfg(cfg) -> None:
    """Add all missing `ggeur.*` keys to a yacs `CfgNode` or an FS `CN`."""
    add_key(cfg, "ggeur.use", False)
    for key in all_keys():
        add_key(cfg, f"ggeur.{key.name}", key.default)
        name_settings({field_of(key): f"ggeur.{key.name}"})
    for part in (*METHODS.present().values(), *AUGMENTATIONS.present().values()):
        for k in part.SETTINGS:
            name_settings({f"{part.name}.{k.name}": f"{section_of(part)}.{k.name}"})


def add_key(node, dotted: str, default: object) -> None:
    """Add a key with its default, unless the config has it.

    Missing sections above the key are added, too.
    """
    *path, name = dotted.split(".")
    for part in path:
        if part not in node:
            node[part] = type(node)()
        node = node[part]
    if name not in node:
        node[name] = list(default) if isinstance(default, list) else default


def get_key(node, dotted: str):
    """The value of a key, such as ``"federate.client_num"``, in a config."""
    for part in dotted.split("."):
        node = node[part]
    # FS wraps some values, with a description, until its config is ready to run.
    return node.value if hasattr(node, "description") else node


def describe_keys(words: Sequence[str] = ()) -> str:
    """Text with the default and the meaning of every `ggeur.*` key.

    With `words`, it has only the keys whose name and meaning contain all words, in
    capitals or not.
    """
    wanted = [word.lower() for word in words]
    found = [
        entry
        for entry in map("\n".join, _entries())
        if all(word in entry.lower() for word in wanted)
    ]
    return "\n".join(found)


def _entries() -> Iterator[list[str]]:
    """Yield the lines of each key."""
    yield ["ggeur.use = False", "    True switches the plugin on."]
    for key in all_keys():
        chosen = (one for one in REGISTRIES if one.field.endswith(key.name))
        parts = chain.from_iterable(map(_parts_of, chosen))
        yield [
            f"ggeur.{key.name} = {_shown(key.default)}",
            f"    {key.meaning}",
            *parts,
        ]
    # Parts that FederatedScope's own keys name.
    yield [READERS.field, *_parts_of(READERS), *_parts_of(IMAGE_READERS)]
    yield [SPLITTERS.field, *_parts_of(SPLITTERS)]
    for part in chain.from_iterable(one.values() for one in REGISTRIES):
        if section := getattr(part, "SECTION", ""):
            for key in part.SETTINGS:
                default = "" if key.default is None else f" = {_shown(key.default)}"
                meaning = f"    {part.name}: {key.meaning}"
                yield [f"{section}.{key.name}{default}", meaning]


def _parts_of(registry: Registry) -> list[str]:
    return [f"      {name}: {part.meaning}" for name, part in registry.items()]


def _shown(default: object) -> str:
    is_whole = isinstance(default, float) and default.is_integer()
    return str(int(default)) if is_whole else str(default)
