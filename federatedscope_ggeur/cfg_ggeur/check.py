"""Adding the `ggeur.*` keys to a config, and refusing impossible settings."""

from __future__ import annotations

from federatedscope_ggeur.cfg_ggeur.keys import KEYS
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.settings.rules import NOT_SET

_TOTALS = ("step1_size", "step2_size")
_PER_ANCHOR = (
    "num_generated_per_sample",
    "num_generated_per_prototype",
    "target_size_per_class",
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
    heads = {"closed_form", "init", "statistics", "calibrate", "mlp_hidden_dim"}
    if not wrong & {f"ggeur.{name}" for name in heads}:
        problems += _head_contradictions(cfg.ggeur)
    return problems if wrong & sizes else problems + _contradictions(cfg.ggeur)


def _head_contradictions(ggeur) -> list[str]:
    """What cannot go with a head in closed form, or without one."""
    kind, starts = ggeur.closed_form, ggeur.init == "closed_form"
    alone = kind != "none" and not starts
    summed = ggeur.statistics == "summed"
    uses_shapes = ggeur.augmentation == "ggeur" and bool(ggeur.steps) and not alone
    contradictions = (
        (
            starts and kind == "none",
            "ggeur.init: closed_form needs ggeur.closed_form: ncm, lda or ridge",
        ),
        (
            starts and kind == "qda",
            "ggeur.init: cannot be closed_form with ggeur.closed_form: qda, whose head "
            "is not one that training goes on with",
        ),
        (
            kind != "none" and ggeur.mlp_hidden_dim != 0,
            f"ggeur.mlp_hidden_dim: must be 0 with ggeur.closed_form: {kind}, which "
            "has no hidden layer",
        ),
        (
            summed and kind == "none",
            "ggeur.statistics: summed is for ggeur.closed_form: ncm, lda or ridge",
        ),
        (
            summed and kind == "qda",
            "ggeur.statistics: must be class with ggeur.closed_form: qda, which needs "
            "the covariance of each class",
        ),
        (
            summed and starts and uses_shapes,
            "ggeur.statistics: must be class with ggeur.steps that are not [], which "
            "need the covariance of each class",
        ),
        (
            summed and starts and ggeur.calibrate != "none",
            "ggeur.statistics: must be class with ggeur.calibrate: "
            f"{ggeur.calibrate}, which needs the covariance of each class",
        ),
        (
            alone and ggeur.calibrate != "none",
            "ggeur.calibrate: must be none with a head in closed form that is not "
            "trained (ggeur.init: random)",
        ),
    )
    return [f"  {problem}" for applies, problem in contradictions if applies]


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
    # FS wraps some values, with a description, until its config is ready to run.
    return node.value if hasattr(node, "description") else node
