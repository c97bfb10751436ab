"""Every `ggeur.*` key: its default, what it means, and what values it takes.

`extend_ggeur_cfg(cfg)` adds the keys to a config of yacs or of FederatedScope (FS);
`check_ggeur_cfg(cfg)` refuses impossible and contradictory settings, all in one error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from federatedscope_ggeur.errors import ConfigError

BASE_METHODS = ("fedavg",)
#: The paper's sizes: 2000 with step 1 alone, 500 and 500 with both (Section 3.2).
SINGLE_DOMAIN_SIZE, MULTI_DOMAIN_SIZE, PROTOTYPE_SIZE = 2000, 500, 500
NOT_SET = -1.0
_TOTALS = ("step1_size", "step2_size")
_PER_ANCHOR = (
    "num_generated_per_sample",
    "num_generated_per_prototype",
    "target_size_per_class",
)

Rule = Callable[[object], str]  # what is wrong with a value, "" if nothing


@dataclass(frozen=True)
class Key:
    """One `ggeur.*` key; `name` is without the prefix."""

    name: str
    default: object
    meaning: str
    rule: Rule


def _whole(
    minimum: int, not_set_allowed: bool = False, maximum: int = 2**31 - 1
) -> Rule:
    """A whole number. Its default is a float: FS cuts 2.5 to 2 for an int default,
    before any check can see it."""

    def rule(value) -> str:
        if not_set_allowed and value == NOT_SET:
            return ""
        number = isinstance(value, (int, float)) and value == value // 1
        if number and minimum <= value <= maximum:
            return ""
        unset = " (or -1, not set)" if not_set_allowed else ""
        return f"must be a whole number in {minimum}..{maximum}{unset}, got {value!r}"

    return rule


def one_of(*choices) -> Rule:
    """The rule that a value is one of `choices`."""

    def rule(value) -> str:
        if value in choices:
            return ""
        return f"must be one of {', '.join(map(str, choices))}; got {value!r}"

    return rule


def _steps(value) -> str:
    if isinstance(value, (list, tuple)) and list(value) in ([], [1], [2], [1, 2]):
        return ""
    return f"must be [], [1], [2] or [1, 2], got {value!r}"


def _names(value) -> str:
    if isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value):
        return ""
    return f"must be a list of domain names, got {value!r}"


def _not_negative(value) -> str:
    return "" if value >= 0 else f"must not be negative, got {value!r}"


KEYS = (
    Key(
        "base_method",
        "fedavg",
        "Federated optimisation method that GGEUR is combined with.",
        one_of(*BASE_METHODS),
    ),
    Key(
        "steps",
        [1, 2],
        "Augmentation: [] none, [1] single-domain, [1, 2] multi-domain, [2] prototypes "
        "alone.",
        _steps,
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
        _whole(0, not_set_allowed=True),
    ),
    Key(
        "step2_size",
        NOT_SET,
        "New rows for each prototype in step 2; -1: 500.",
        _whole(0, not_set_allowed=True),
    ),
    Key(
        "num_generated_per_sample",
        NOT_SET,
        "Instead of step1_size: new rows around each embedding; -1: not used.",
        _whole(0, not_set_allowed=True),
    ),
    Key(
        "num_generated_per_prototype",
        NOT_SET,
        "Instead of step2_size: new rows around each prototype; -1: not used.",
        _whole(0, not_set_allowed=True),
    ),
    Key(
        "target_size_per_class",
        NOT_SET,
        "With the two above: rows of a class that a random cut leaves, originals "
        "included; -1: no cut.",
        _whole(1, not_set_allowed=True),
    ),
    Key(
        "mlp_hidden_dim",
        0.0,
        "Hidden units of the head (dropout: model.dropout); 0: a linear head.",
        _whole(0),
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
        _whole(1),
    ),
    Key(
        "unseen_domains",
        [],
        "Domains that no client holds and every evaluation scores (leave one out).",
        _names,
    ),
    Key(
        "round0_window",
        8.0,
        "Clients asked for their statistics at a time.",
        _whole(1),
    ),
    Key("num_threads", 1.0, "torch threads of each process.", _whole(1, maximum=1024)),
    Key(
        "memory_limit",
        1e9,
        "Bytes of augmented sets that a process keeps; the rest is redrawn each round.",
        _not_negative,
    ),
)


def describe_keys() -> str:
    """Every key with its default and meaning, for a person."""
    lines = ["ggeur.use = False\n    True switches the plugin on."]
    lines += [f"ggeur.{k.name} = {_shown(k.default)}\n    {k.meaning}" for k in KEYS]
    return "\n".join(lines)


def _shown(default: object) -> str:
    whole = isinstance(default, float) and default.is_integer()
    return str(int(default)) if whole else str(default)


def extend_ggeur_cfg(cfg) -> None:
    """Add `cfg.ggeur` with all its keys to a yacs `CfgNode` or an FS `CN`."""
    node = type(cfg)
    cfg.ggeur = node()
    cfg.ggeur.use = False
    for key in KEYS:
        parent = cfg.ggeur
        *path, name = key.name.split(".")
        for part in path:
            if part not in parent:
                parent[part] = node()
            parent = parent[part]
        default = key.default
        parent[name] = list(default) if isinstance(default, list) else default
    if hasattr(cfg, "register_cfg_check_fun"):
        cfg.register_cfg_check_fun(check_ggeur_cfg)


def check_ggeur_cfg(cfg) -> None:
    """Refuse wrong `ggeur.*` settings.

    Raises
    ------
    ConfigError
        One line for each wrong or contradictory key.
    """
    problems = ggeur_problems(cfg)
    if problems:
        raise ConfigError("\n".join(["wrong settings:", *problems]))


def ggeur_problems(cfg) -> list[str]:
    """What `check_ggeur_cfg` would complain of, a line each."""
    used = cfg.ggeur.use
    if not used:
        # FS strips the other keys of a section that is not in use.
        if cfg.federate.method == "ggeur":
            return ["  ggeur.use: must be True with federate.method: ggeur"]
        return []
    problems = [
        f"  ggeur.{key.name}: {problem}"
        for key in KEYS
        if (problem := key.rule(get_key(cfg.ggeur, key.name)))
    ]
    if cfg.federate.method != "ggeur":
        problems.append(
            f"  federate.method: must be ggeur with ggeur.use: True, got "
            f"{cfg.federate.method!r}"
        )
    wrong = {problem.split(":")[0].strip() for problem in problems}
    sizes = {f"ggeur.{name}" for name in (*_TOTALS, *_PER_ANCHOR, "steps")}
    return problems if wrong & sizes else problems + _contradictions(cfg.ggeur)


def _contradictions(ggeur) -> list[str]:
    totals, per_anchor = _set_among(ggeur, *_TOTALS), _set_among(ggeur, *_PER_ANCHOR)
    problems = []
    if totals and per_anchor:
        problems.append(
            f"  {' and '.join(totals)}: cannot go with {' and '.join(per_anchor)}; say "
            "sizes in one of the two ways"
        )
    if per_anchor:
        for step, name in enumerate(_PER_ANCHOR[:2], start=1):
            if step in ggeur.steps and ggeur[name] == NOT_SET:
                problems.append(
                    f"  ggeur.{name}: must be set, because {' and '.join(per_anchor)} "
                    f"is set and ggeur.steps holds {step}"
                )
    return problems


def _set_among(ggeur, *names: str) -> list[str]:
    return [f"ggeur.{name}" for name in names if ggeur[name] != NOT_SET]


def get_key(node, dotted: str):
    """The value of e.g. ``"federate.client_num"`` in a config."""
    for part in dotted.split("."):
        node = node[part]
    return node
