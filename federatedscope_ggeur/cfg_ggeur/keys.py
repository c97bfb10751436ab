"""The `ggeur.*` keys: the keys of every run, and the keys of registered parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, TypeVar

from federatedscope_ggeur.data import (
    ENCODERS,
    IMAGE_READERS,
    READERS,
    SPLITTERS,
    EncoderSettings,
    EncodingSettings,
    ExtractionSettings,
)
from federatedscope_ggeur.errors import ConfigError, name_settings
from federatedscope_ggeur.extras import manifests
from federatedscope_ggeur.federation.exchanges import EXCHANGES, ORDER
from federatedscope_ggeur.federation.screening import SCREENS
from federatedscope_ggeur.federation.steps import STEPS
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.settings import (
    Key,
    Registry,
    Section,
    is_of_plugin,
    key,
    keys_of_parts,
    names,
    not_negative,
    not_negative_up_to,
    one_of,
    positive_up_to,
    rule_of,
    whole,
)

from .fs_keys import section_of

S = TypeVar("S", bound=Section)


class DistributedKeys(Section):
    """The settings of distributed runs, beside those of the next three sections."""

    quorum: int | None = key(
        None,
        "The run ends with an error if fewer clients than this join or are left; -1: "
        "all clients are needed.",
        whole(1, not_set_allowed=True),
    )
    client_number: int | None = key(
        None,
        "Distributed, with distribute.data_idx -1: this client's number, 1, 2, ...; "
        "otherwise data_idx is the number.",
        whole(1, not_set_allowed=True),
    )
    domain: str = key(
        "",
        "Distributed, with distribute.data_idx -1: the domain of this client's data.",
    )
    join_secret: str = key(
        "",
        "Distributed, server: file with the secret from which `ggeur certificates` "
        "makes join tokens; every client must then have a token.",
    )
    join_token: str = key("", "Distributed, client: file with the client's join token.")
    share_results: bool = key(
        False,
        "Distributed, server: send every client the accuracy of each domain at the "
        "end. If a domain has one client, this is that client's accuracy.",
    )


def _seconds(meaning: str) -> Any:
    return key(600.0, f"Distributed{meaning}", positive_up_to(1e9))


class DeadlineKeys(Section):
    """How long the sides of a distributed run wait for each other, in seconds."""

    PREFIX = "deadline."

    join: float = _seconds(
        ": seconds that the server waits for clients to join, and that a client waits "
        "for a server it cannot reach."
    )
    round0: float = _seconds(
        ": seconds that the server waits for answers to one request of round 0 or of "
        "calibration."
    )
    train: float = _seconds(
        ": seconds that the server waits for the local training of a round."
    )
    evaluate: float = _seconds(
        ": seconds that the server waits for the clients' evaluation of a round."
    )
    silence: float = _seconds(
        ", client: after so many seconds without any word from the server, the client "
        "gives up. A waiting server says so from time to time."
    )
    returning: float = key(
        60.0,
        "Distributed: seconds that the server waits for a client whose connection "
        "broke, before ggeur.quorum decides. Waiting uses them up; ten seconds with a "
        "connection give one back. A client that ends by itself is not waited for.",
        not_negative_up_to(1e9),
        name="return",
    )


class TLSKeys(Section):
    """The PEM files of a process in a distributed run."""

    PREFIX = "tls."

    certificate: str = key(
        "",
        "Distributed: PEM file with the certificate chain of this process. On the "
        "server it switches TLS on.",
    )
    private_key: str = key(
        "", "Distributed: PEM file with the private key of tls.certificate.", name="key"
    )
    authority: str = key(
        "",
        "Distributed: PEM file with the certificates to trust. On a client it "
        "switches TLS on. On the server it makes clients show certificates.",
    )


class AgreedKeys(Section):
    """What all sides of a federation have agreed on beforehand."""

    PREFIX = "agreed."

    class_names: tuple[str, ...] = key(
        (),
        "Names that the classes must have, in the order of their numbers; []: the "
        "names in the data. A server without data refuses clients that differ. A "
        "folder of images may lack some of them.",
        names("class names"),
    )
    encoder: str = key(
        "",
        "The encoder that must have made the embeddings, written as in encoder.txt or "
        "in the log of a run; empty: the encoder in the data. A server without data "
        "refuses clients that differ.",
    )
    release: str = key(
        "",
        "The release of this package that `ggeur serve`, `join` and `check` require, "
        "written as `check` shows it. `ggeur certificates` writes it into all files; "
        "empty: any.",
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


def _are_modules(value: object) -> bool:
    """Whether a value is a list of names, none of them a file's."""
    if names("module names")(value):
        return False
    return not any(name.endswith(".py") for name in value)  # type: ignore[attr-defined]


class RunKeys(Section):
    """The settings of a run as a whole. Lower packages have the others."""

    embedding_dim: int | None = key(
        None,
        "Dimensions that the embeddings must have; -1: any number.",
        whole(1, not_set_allowed=True),
    )
    screen: str = key(
        SCREENS[0],
        "How to treat a client that sends values very unlike those of the other "
        "clients (class means, spreads, updates, weights or rows, compared with the "
        "others' medians, with three or more clients): warn names the client in the "
        "log, refuse removes it from the run (a smaller quorum must allow it).",
        one_of(*SCREENS),
    )
    checkpoint_every: float | None = key(
        60.0,
        "Least number of seconds between two checkpoints in the run folder; -1: no "
        "checkpoints there. They are written after round 0, then at this interval, at "
        "the end, and when the run is stopped, unless federate.save_to names a file. "
        "If a method keeps a state on clients, FederatedScope's engines write one "
        "after every round.",
        positive_up_to(1e9, not_set_allowed=True),
    )
    num_threads: int = key(
        1, "Number of torch threads of each process.", whole(1, maximum=1024)
    )
    memory_limit: float = key(
        1e9,
        "Bytes of augmented sets that a process keeps in memory; the other sets are "
        "drawn again in each round. On a GPU the default stands for 60% of its free "
        "memory.",
        not_negative,
    )
    plugins: tuple[str, ...] = key(
        (),
        "Modules with your own parts (`register_method` and its siblings). They are "
        "looked for beside the YAML file, then where Python finds modules.",
        rule_of(
            "must be a list of module names without .py, such as ['my_parts']",
            _are_modules,
        ),
    )


PLUGINS = RunKeys.by_field()["plugins"]


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


def _declared(*sections: type[Section]) -> Iterator[Key]:
    return chain.from_iterable(section.declared() for section in sections)


#: The keys that lower packages and extras bring, by subject.
_OF_ROOMS = (
    *_declared(*(EXCHANGES[room].SETTINGS for room in ORDER)),
    *_declared(EncoderSettings, EncodingSettings, ExtractionSettings),
    *extra_keys(),
)
_OWN = (
    *_OF_ROOMS,
    *_declared(RunKeys, DistributedKeys, DeadlineKeys, TLSKeys, AgreedKeys),
)

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


# The key of each field that lower packages name in messages.
name_settings(
    {
        **{key.field: f"ggeur.{key.name}" for key in _OWN},
        **FS_FIELDS,
        "deadline": "ggeur.deadline.*",
        "optimizer": "train.optimizer",
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
    for registry in (*REGISTRIES, EXCHANGES, STEPS):
        for name, part in registry.present().items():
            if registry.is_expected(name):  # the manifest has its keys
                continue
            keys = _keys_of(part, name)
            if not keys or getattr(part, "SECTION", ""):
                continue
            if name in taken:
                raise ConfigError(
                    f"ggeur.{name}: the {registry.kind} '{name}' needs this section "
                    "for its settings, but it is taken; register it by another name"
                )
            taken.add(name)
            yield from keys


@cache
def _keys_of(part: type, name: str) -> tuple[Key, ...]:
    """The keys of a part, by full names; those of the package's exchanges are known."""
    own = part.SETTINGS
    if isinstance(own, type):
        return own.declared() if is_of_plugin(own) else ()
    return keys_of_parts({name: own})


def extend_ggeur_cfg(cfg) -> None:
    """Add all missing `ggeur.*` keys to a yacs `CfgNode` or an FS `CN`."""
    add_key(cfg, "ggeur.use", False)
    for one in all_keys():
        add_key(cfg, f"ggeur.{one.name}", one.in_config)
        name_settings({one.field: f"ggeur.{one.name}"})
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


def read(ggeur, section: type[S]) -> S:
    """The settings that `section` declares, in the node ``ggeur`` of a config."""
    return section.read(lambda key: key.read(get_key(ggeur, key.name)))


def describe_keys(words: Sequence[str] = ()) -> str:
    """Text with the default and the meaning of every `ggeur.*` key.

    With `words`, it has only the keys whose name and meaning contain all words, in
    capitals or not.
    """
    wanted = [word.lower() for word in words]
    entries = map("\n".join, _entries())
    return "\n".join(e for e in entries if all(word in e.lower() for word in wanted))


def _entries() -> Iterator[list[str]]:
    """Yield the lines of each key."""
    yield ["ggeur.use = False", "    True switches the plugin on."]
    for each in all_keys():
        chosen = (one for one in REGISTRIES if one.field.endswith(each.name))
        parts = chain.from_iterable(map(_parts_of, chosen))
        title = f"ggeur.{each.name} = {_shown(each.in_config)}"
        yield [title, f"    {each.meaning}", *parts]
    # Parts that FederatedScope's own keys name.
    yield [READERS.field, *_parts_of(READERS), *_parts_of(IMAGE_READERS)]
    yield [SPLITTERS.field, *_parts_of(SPLITTERS)]
    for part in chain.from_iterable(one.values() for one in REGISTRIES):
        if section := getattr(part, "SECTION", ""):
            for each in part.SETTINGS:
                usual = each.in_config
                default = "" if usual is None else f" = {_shown(usual)}"
                meaning = f"    {part.name}: {each.meaning}"
                yield [f"{section}.{each.name}{default}", meaning]


def _parts_of(registry: Registry) -> list[str]:
    return [f"      {name}: {part.meaning}" for name, part in registry.items()]


def _shown(default: object) -> str:
    is_whole = isinstance(default, float) and default.is_integer()
    return str(int(default)) if is_whole else str(default)
