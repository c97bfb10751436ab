"""The `ggeur.*` keys: the run's own, and those that registered parts bring."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from federatedscope_ggeur.cfg_ggeur.distributed_keys import DISTRIBUTED_KEYS
from federatedscope_ggeur.cfg_ggeur.fs_keys import section_of
from federatedscope_ggeur.cfg_ggeur.privacy_keys import PRIVACY_KEYS
from federatedscope_ggeur.cfg_ggeur.secure_sums import SECURE_SUMS_KEYS
from federatedscope_ggeur.cfg_ggeur.statistics_form import STATISTICS_KEYS
from federatedscope_ggeur.data import ENCODERS, IMAGE_READERS, READERS, SPLITTERS
from federatedscope_ggeur.data.encoders.keys import ENCODER_KEYS
from federatedscope_ggeur.data.text import TEXT_KEYS
from federatedscope_ggeur.errors import ConfigError, name_settings
from federatedscope_ggeur.federation.screening import SCREENS
from federatedscope_ggeur.geometry import SPACES, SpaceSettings
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS
from federatedscope_ggeur.models import (
    CLOSED_FORMS,
    TEXT_MODELS,
    calibration_draws,
)
from federatedscope_ggeur.models.networks.keys import NETWORK_KEYS
from federatedscope_ggeur.models.text import TEXT_USE_KEYS
from federatedscope_ggeur.settings import (
    NOT_SET,
    Key,
    Registry,
    Rule,
    alike,
    names,
    not_negative,
    one_of,
    positive_share,
    positive_up_to,
    steps,
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
    TEXT_MODELS,
)

PLUGINS = Key(
    "plugins",
    [],
    "Modules with parts of your own (`register_method` and its siblings), sought "
    "beside the YAML file, then where Python finds modules.",
    names("module names"),
)


def _choice(
    name: str, choices: Sequence[str], meaning: str, shared: bool = False
) -> Key:
    """A key whose default is the first of its choices."""
    return Key(name, choices[0], meaning, one_of(*choices), shared)


_RUN_KEYS = (
    Key(
        "steps",
        [1, 2],
        "Augmentation by GGEUR: [] none, [1] single-domain, [1, 2] multi-domain, [2] "
        "prototypes alone.",
        steps,
        shared=True,
    ),
    _choice(
        "space",
        SPACES,
        "Coordinates that are trained in, made from totals of the clients' rows: "
        "standard, centred and scaled so that one rate suits all embeddings; raw, the "
        "embeddings as they are; whitened, equally wide in all directions within "
        "classes. The model is one on raw embeddings afterwards.",
        shared=True,
    ),
    Key(
        "whitened.shrinkage",
        SpaceSettings.shrinkage,
        "The whitened space: share of the spherical covariance in the common one of "
        "classes, above 0 and at most 1.",
        positive_share,
        shared=True,
    ),
    _choice(
        "scale",
        ("covariance", "eigenvalue"),
        "Length of the noise along direction m: covariance sqrt(lambda_m), eigenvalue "
        "lambda_m (the paper's formula).",
    ),
    _choice(
        "noise",
        ("fixed", "fresh"),
        "fixed: the same augmented set every round; fresh: new noise every round.",
    ),
    _choice(
        "prototypes",
        ("domain", "client", "others"),
        "Anchors of step 2: one for each class and other domain, or other client, or "
        "one over all other clients (with privacy.secure_sums).",
    ),
    _choice(
        "sizes",
        ("auto", "paper", "release", "document"),
        "How many rows a class gets. paper: step 1 fills it up to step1_size, step 2 "
        "adds step2_size for each prototype; with more rows than that of its own it "
        "keeps them all, and step 1 adds none. release, the published code: the same "
        "with steps [1] and no target_size_per_class; otherwise step1_size new rows "
        "however many it has, step2_size for each prototype, and a cut to "
        "target_size_per_class. document, the plugin document: new rows for each row "
        "and each prototype, and a cut to target_size_per_class if that is set. A cut "
        "keeps own rows while they fit (else as many at random) and new ones at random "
        "in the places left. auto: document where one of its keys is set, else paper.",
    ),
    *alike(
        NOT_SET,
        whole(0, not_set_allowed=True, maximum=10**9),
        step1_size="paper: rows of a class after step 1, originals included; -1: 2000 "
        "with steps [1], else 500. release: the same with steps [1] and no target, "
        "otherwise new rows of a class in step 1; -1: 500.",
        step2_size="paper, release: new rows for each prototype in step 2; -1: 500, "
        "and 600 with prototypes: others, of which a class has one.",
        num_generated_per_sample="document: new rows around each embedding in step 1; "
        "-1: 50.",
        num_generated_per_prototype="document: new rows for each prototype in step 2; "
        "-1: 50.",
    ),
    Key(
        "target_size_per_class",
        NOT_SET,
        "release, document: rows of a class that a cut leaves, originals included; -1: "
        "2000 with release and step 2, otherwise no cut.",
        whole(1, not_set_allowed=True),
    ),
    Key(
        "mlp_hidden_dim",
        0.0,
        "Hidden units of the head, of which training drops model.dropout (0.5 by FS's "
        "default, 0 in the example configs); 0: a linear head.",
        whole(0, maximum=2**16),
        shared=True,
    ),
    Key(
        "embedding_dim",
        NOT_SET,
        "Dimensions that the embeddings must have; -1: whatever they have.",
        whole(1, not_set_allowed=True),
    ),
    _choice(
        "weight",
        ("augmented", "original", "statistics"),
        "Rows that a client counts for in averages, and so tells the server of: "
        "augmented, its original ones, or those that it sends statistics of, which "
        "says nothing of withheld ones.",
    ),
    Key(
        "max_share",
        1.0,
        "The largest share of an average of updates that one client has: what a client "
        "counts for is cut to it; 1: any. The log names the largest share.",
        positive_share,
    ),
    _choice(
        "screen",
        SCREENS,
        "What a client sends that is unlike all that the others do (class means, "
        "spreads, updates, weights, rows; compared with the others' medians, from "
        "three clients up): warn names it in the log, refuse puts the client out.",
    ),
    *PRIVACY_KEYS,
    *SECURE_SUMS_KEYS,
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
    *DISTRIBUTED_KEYS,
    _choice(
        "init",
        ("random", "closed_form"),
        "Where training starts: random, or closed_form, at the head that "
        "ggeur.closed_form names. With random a closed form is the whole run: there "
        "are no rounds of training.",
        shared=True,
    ),
    _choice(
        "keep",
        ("trained", "best"),
        "With init: closed_form, the head that the run leaves: trained, or best, the "
        "one of the head in closed form and the trained one that validation rows or "
        "leave-one-out prefer.",
        shared=True,
    ),
    *STATISTICS_KEYS,
    _choice(
        "calibrate",
        ("none", "ccvr"),
        "After the last round: none, or ccvr, the last layer trained again on draws "
        "from the clients' merged class statistics of what it takes in.",
        shared=True,
    ),
    Key(
        "checkpoint_every",
        60.0,
        "Seconds between two checkpoints in the run folder, which are written where "
        "federate.save_to names no file: after round 0, then so often at most, at the "
        "end, and when the run is stopped; -1: none. Where a method keeps a state on "
        "clients, FederatedScope's engines write one after every round.",
        positive_up_to(1e9, not_set_allowed=True),
    ),
    Key("num_threads", 1.0, "torch threads of each process.", whole(1, maximum=1024)),
    Key(
        "memory_limit",
        1e9,
        "Bytes of augmented sets that a process keeps; the rest is redrawn each round.",
        not_negative,
    ),
    Key(
        "tensorboard",
        False,
        "Write each round's scores into the run folder for TensorBoard, too.",
        one_of(True, False),
    ),
    PLUGINS,
)


#: Keys of parts that there were, and what there is instead.
_REMOVED = {
    "fisher.steps": "the head is trained to its optimum now; leave this key out "
    "(ggeur.fisher.penalty bounds its weights)",
}
#: Those of encoders, networks and text, which stand with them.
_OF_ROOMS = (*ENCODER_KEYS, *NETWORK_KEYS, *TEXT_KEYS, *TEXT_USE_KEYS)

# Which key each field is that rooms below name in messages.
name_settings(
    {
        **{key.name: f"ggeur.{key.name}" for key in (*_RUN_KEYS, *_OF_ROOMS)},
        "batch_size": "dataloader.batch_size",
        "client_num": "federate.client_num",
        "closed_form": "ggeur.closed_form",
        "deadline": "ggeur.deadline.*",
        "drop_last": "dataloader.drop_last",
        "grad_clip": "grad.grad_clip",
        "local_update_steps": "train.local_update_steps",
        "min_samples": "ggeur.privacy.min_samples",
        **{key.name.partition(".")[2]: f"ggeur.{key.name}" for key in SECURE_SUMS_KEYS},
        "optimizer.lr": "train.optimizer.lr",
        "restore_from": "federate.restore_from",
        "save_to": "federate.save_to",
        "total_rounds": "federate.total_round_num",
        "unseen_client_num": "federate.unseen_clients_rate",
        "wandb": "wandb.use",
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
    own = (*_choices(), *_RUN_KEYS, *_OF_ROOMS, *draws)
    return (*own, *_of_parts({"use", *(key.name.split(".")[0] for key in own)}))


def _choices() -> tuple[Key, ...]:
    """The keys that name a registered part."""
    return (
        _choice(
            "base_method",
            tuple(METHODS),
            "Federated optimisation method that GGEUR is combined with.",
            shared=True,
        ),
        _choice(
            "augmentation",
            (*AUGMENTATIONS.taken, *AUGMENTATIONS),
            "What is done to embeddings in training: ggeur, as ggeur.steps says; none; "
            "or, in GGEUR's place, a baseline augmentation.",
            shared=True,
        ),
        Key(
            "closed_form",
            "none",
            "A head worked out from the statistics of round 0: none, or a closed form.",
            _closed_form_rule(),
            shared=True,
        ),
    )


def _closed_form_rule() -> Rule:
    known = one_of("none", *CLOSED_FORMS)

    def rule(value: object) -> str:
        return CLOSED_FORMS.removed(value) or known(value)

    rule.choices = known.choices  # type: ignore[attr-defined]
    return rule


def removed_key(dotted: str) -> str:
    """What to say of a key that there was; "" of any other."""
    ggeur, _, rest = dotted.partition(".")
    if ggeur != "ggeur":
        return ""
    return _REMOVED.get(rest, "") or CLOSED_FORMS.removed(rest.partition(".")[0])


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


def extend_ggeur_cfg(cfg) -> None:
    """Add what is missing of `cfg.ggeur` to a yacs `CfgNode` or an FS `CN`."""
    add_key(cfg, "ggeur.use", False)
    for key in all_keys():
        add_key(cfg, f"ggeur.{key.name}", key.default)
    for part in (*METHODS.values(), *AUGMENTATIONS.values()):
        own = {
            f"{part.name}.{k.name}": f"{section_of(part)}.{k.name}"
            for k in part.SETTINGS
        }
        name_settings(own)


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
