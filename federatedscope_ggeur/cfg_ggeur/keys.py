"""The `ggeur.*` keys: the run's own, and those that registered parts bring."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from federatedscope_ggeur.data import ENCODERS, IMAGE_READERS, READERS, SPLITTERS
from federatedscope_ggeur.data.encoders.keys import ENCODER_KEYS
from federatedscope_ggeur.errors import ConfigError, name_settings
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS
from federatedscope_ggeur.models import CLOSED_FORMS, calibration_draws
from federatedscope_ggeur.settings import (
    NOT_SET,
    Key,
    Registry,
    names,
    not_negative,
    one_of,
    positive,
    steps,
    text,
    whole,
)

#: Whose parts have settings: below `ggeur.<name>`, or in a `SECTION` of their own.
REGISTRIES: tuple[Registry, ...] = (
    METHODS,
    AUGMENTATIONS,
    CLOSED_FORMS,
    ENCODERS,
    READERS,
    IMAGE_READERS,
    SPLITTERS,
)

PLUGINS = Key(
    "plugins",
    [],
    "Modules with parts of your own (`register_method` and its siblings), sought "
    "beside the YAML file, then where Python finds modules.",
    names("module names"),
)

_RUN_KEYS = (
    Key(
        "steps",
        [1, 2],
        "Augmentation by GGEUR: [] none, [1] single-domain, [1, 2] multi-domain, [2] "
        "prototypes alone.",
        steps,
        shared=True,
    ),
    Key(
        "scale",
        "covariance",
        "Length of the noise along direction m: covariance sqrt(lambda_m), eigenvalue "
        "lambda_m (the paper's formula).",
        one_of("covariance", "eigenvalue"),
    ),
    Key(
        "noise",
        "fixed",
        "fixed: the same augmented set every round; fresh: new noise every round.",
        one_of("fixed", "fresh"),
    ),
    Key(
        "prototypes",
        "domain",
        "Anchors of step 2: one for each class and other domain, or other client.",
        one_of("domain", "client"),
    ),
    Key(
        "step1_size",
        NOT_SET,
        "Rows of a class after step 1, originals included; -1: 2000 with steps [1], "
        "else 500.",
        whole(0, not_set_allowed=True),
    ),
    Key(
        "step2_size",
        NOT_SET,
        "New rows for each prototype in step 2; -1: 500.",
        whole(0, not_set_allowed=True),
    ),
    Key(
        "num_generated_per_sample",
        NOT_SET,
        "Instead of step1_size: new rows around each embedding; -1: not used.",
        whole(0, not_set_allowed=True),
    ),
    Key(
        "num_generated_per_prototype",
        NOT_SET,
        "Instead of step2_size: new rows around each prototype; -1: not used.",
        whole(0, not_set_allowed=True),
    ),
    Key(
        "target_size_per_class",
        NOT_SET,
        "With the two above: rows of a class that a random cut leaves, originals "
        "included; -1: no cut.",
        whole(1, not_set_allowed=True),
    ),
    Key(
        "mlp_hidden_dim",
        0.0,
        "Hidden units of the head (dropout: model.dropout); 0: a linear head.",
        whole(0),
        shared=True,
    ),
    Key(
        "weight",
        "augmented",
        "Rows that a client counts for in averages, and so tells the server of: "
        "augmented, or its original ones.",
        one_of("augmented", "original"),
    ),
    Key(
        "privacy.min_samples",
        5.0,
        "A client says nothing of a class it has fewer samples of. 1 reproduces the "
        "paper and reveals single embeddings.",
        whole(1),
    ),
    Key(
        "unseen_domains",
        [],
        "Domains that no client holds and every evaluation scores (leave one out).",
        names("domain names"),
    ),
    Key(
        "round0_window",
        8.0,
        "Clients asked for their statistics at a time.",
        whole(1),
    ),
    Key(
        "quorum",
        NOT_SET,
        "The run ends with an error when fewer clients than this are left, joining "
        "included; -1: all must be there.",
        whole(1, not_set_allowed=True),
    ),
    Key(
        "client_number",
        NOT_SET,
        "Distributed, with distribute.data_idx -1: this client's number, 1, 2, ...; "
        "otherwise data_idx is the number.",
        whole(1, not_set_allowed=True),
    ),
    Key(
        "domain",
        "",
        "Distributed, with distribute.data_idx -1: the domain of this client's data.",
        text,
    ),
    Key(
        "deadline.join",
        600.0,
        "Distributed: seconds that the server waits for clients to join, and a client "
        "for a server that it cannot reach.",
        positive,
    ),
    Key(
        "deadline.round0",
        600.0,
        "Distributed: seconds for the answers to one request of round 0, or of "
        "calibration.",
        positive,
    ),
    Key(
        "deadline.train",
        600.0,
        "Distributed: seconds for the local training of a round.",
        positive,
    ),
    Key(
        "deadline.evaluate",
        600.0,
        "Distributed: seconds for the clients' evaluation of a round.",
        positive,
    ),
    Key(
        "tls.certificate",
        "",
        "Distributed: this process's own certificate chain (PEM file); on the server "
        "it switches TLS on.",
        text,
    ),
    Key("tls.key", "", "Private key of tls.certificate (PEM file).", text),
    Key(
        "tls.authority",
        "",
        "Distributed: certificates to trust (PEM file); on a client it switches TLS "
        "on, on the server it demands certificates of the clients.",
        text,
    ),
    Key(
        "join_secret",
        "",
        "Distributed, server: file with the secret that join tokens are made of "
        "(`federatedscope-ggeur token`); clients must then have one.",
        text,
    ),
    Key("join_token", "", "Distributed, client: file with its join token.", text),
    Key(
        "init",
        "random",
        "Where training starts: random, or closed_form, at the head that "
        "ggeur.closed_form names. With random a closed form is the whole run: there "
        "are no rounds of training.",
        one_of("random", "closed_form"),
        shared=True,
    ),
    Key(
        "statistics",
        "class",
        "Scatters that clients send in round 0: class, one for each class; summed, one "
        "summed over classes, which is enough for most closed forms.",
        one_of("class", "summed"),
        shared=True,
    ),
    Key(
        "calibrate",
        "none",
        "After the last round: none, or ccvr, the last layer trained again on draws "
        "from the clients' merged class statistics of what it takes in.",
        one_of("none", "ccvr"),
        shared=True,
    ),
    Key("num_threads", 1.0, "torch threads of each process.", whole(1, maximum=1024)),
    Key(
        "memory_limit",
        1e9,
        "Bytes of augmented sets that a process keeps; the rest is redrawn each round.",
        not_negative,
    ),
    PLUGINS,
)


# Which key each field is that rooms below name in messages.
name_settings(
    {
        "batch_size": "dataloader.batch_size",
        "calibrate": "ggeur.calibrate",
        "client_num": "federate.client_num",
        "closed_form": "ggeur.closed_form",
        "deadline.join": "ggeur.deadline.join",
        "drop_last": "dataloader.drop_last",
        "grad_clip": "grad.grad_clip",
        "min_samples": "ggeur.privacy.min_samples",
        "optimizer.lr": "train.optimizer.lr",
        "quorum": "ggeur.quorum",
        "restore_from": "federate.restore_from",
        "save_to": "federate.save_to",
        "step1_size": "ggeur.step1_size",
        "step2_size": "ggeur.step2_size",
        "steps": "ggeur.steps",
        "total_rounds": "federate.total_round_num",
        "unseen_client_num": "federate.unseen_clients_rate",
        "unseen_domains": "ggeur.unseen_domains",
    }
)


def all_keys() -> tuple[Key, ...]:
    """Every `ggeur.*` key but `use`; what a plugin registers adds some.

    Raises
    ------
    ConfigError
        The settings of a registered part stand where others do already.
    """
    draws = _below("ccvr", calibration_draws.SETTINGS)
    own = (*_choices(), *_RUN_KEYS, *ENCODER_KEYS, *draws)
    return (*own, *_of_parts({"use", *(key.name.split(".")[0] for key in own)}))


def _choices() -> tuple[Key, ...]:
    """The keys that name a registered part."""
    return (
        Key(
            "base_method",
            next(iter(METHODS)),
            "Federated optimisation method that GGEUR is combined with.",
            one_of(*METHODS),
            shared=True,
        ),
        Key(
            "augmentation",
            "ggeur",
            "What is done to embeddings in training: ggeur, as ggeur.steps says; none; "
            "or, in GGEUR's place, a baseline augmentation.",
            one_of(*AUGMENTATIONS.taken, *AUGMENTATIONS),
            shared=True,
        ),
        Key(
            "closed_form",
            "none",
            "A head worked out from the statistics of round 0: none, or a closed form.",
            one_of("none", *CLOSED_FORMS),
            shared=True,
        ),
    )


def _of_parts(taken: set[str]) -> Iterator[Key]:
    for registry in REGISTRIES:
        for name, part in registry.items():
            if not part.SETTINGS or getattr(part, "SECTION", ""):
                continue
            if name in taken:
                raise ConfigError(
                    f"ggeur.{name}: the {registry.kind} '{name}' has settings that "
                    "would stand there, but so have others; register it by another name"
                )
            taken.add(name)
            yield from _below(name, part.SETTINGS)


def _below(name: str, settings: Iterable[Key]) -> list[Key]:
    return [replace(key, name=f"{name}.{key.name}") for key in settings]


def describe_keys() -> str:
    """Every key with its default and meaning, for a person."""
    lines = ["ggeur.use = False", "    True switches the plugin on."]
    for key in all_keys():
        lines += [f"ggeur.{key.name} = {_shown(key.default)}", f"    {key.meaning}"]
        for registry in REGISTRIES:
            if registry.field.endswith(key.name):
                lines += _parts_of(registry)
    # What is named by keys of FederatedScope's.
    lines += [READERS.field, *_parts_of(READERS), *_parts_of(IMAGE_READERS)]
    lines += [SPLITTERS.field, *_parts_of(SPLITTERS)]
    for registry in REGISTRIES:
        for part in registry.values():
            if getattr(part, "SECTION", ""):
                for key in part.SETTINGS:
                    default = "" if key.default is None else f" = {_shown(key.default)}"
                    lines.append(f"{part.SECTION}.{key.name}{default}")
                    lines.append(f"    {part.name}: {key.meaning}")
    return "\n".join(lines)


def _parts_of(registry: Registry) -> list[str]:
    return [f"      {name}: {part.meaning}" for name, part in registry.items()]


def _shown(default: object) -> str:
    is_whole = isinstance(default, float) and default.is_integer()
    return str(int(default)) if is_whole else str(default)


def extend_ggeur_cfg(cfg) -> None:
    """Add what is missing of `cfg.ggeur` to a yacs `CfgNode` or an FS `CN`."""
    add_key(cfg, "ggeur.use", False)
    for key in all_keys():
        add_key(cfg, f"ggeur.{key.name}", key.default)


def add_key(node, dotted: str, default: object) -> None:
    """Give a config a key at its default, and the sections above it, if it has none."""
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
