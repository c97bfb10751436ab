"""Read and check a study file (YAML)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from federatedscope_ggeur.cfg_ggeur.yaml_file import literal, read_tree
from federatedscope_ggeur.errors import ConfigError, did_you_mean, shown
from federatedscope_ggeur.examples import find_config, find_study
from federatedscope_ggeur.settings import flatten

from .paper import paper_table
from .plan import PlannedPoint, StudyPlan, slug
from .study import Point

_KEYS = (
    "base", "settings", "axes", "seeds", "columns", "baseline", "paper", "workers",
)  # fmt: skip
#: Settings that differ between cells, so that a study file must not set them.
TAKEN = ("seed", "outdir", "expname", "expname_tag")


def load_study(name: str | Path, overrides: Sequence[str] = ()) -> StudyPlan:
    """Read a study file, whose format docs/studies.md describes.

    Parameters
    ----------
    name : str or path
        A file, or the name of a bundled study.
    overrides : sequence of str
        ``["KEY", "VALUE", ...]``: settings that replace or extend those of every cell.

    Raises
    ------
    ConfigError
        The file cannot be read, or it is wrong. The settings of its cells are not
        checked here; `load_config` checks them.
    """
    path = find_study(name)
    tree, text = read_tree(path)
    try:
        return _plan(path, tree, text, overrides)
    except _BadFile as error:
        raise ConfigError(f"{path}: {error}") from error


class _BadFile(ValueError):
    """A problem in a study file; the text describes it."""


def _plan(path: Path, tree: Mapping, text: str, overrides: Sequence[str]) -> StudyPlan:
    unknown = [key for key in tree if key not in _KEYS]
    if unknown:
        raise _BadFile(
            f"unknown key {shown(unknown[0])}; a study has {', '.join(_KEYS)}"
            f"{did_you_mean(unknown[0], _KEYS)}"
        )
    if "base" not in tree:
        raise _BadFile("base: is missing; name the config that the runs start from")
    axes, tune = _axes(tree.get("axes"), path)
    last = _overrides(overrides)
    _check_last(last, axes)
    first = text.lstrip().partition("\n")[0]
    title = first.lstrip("# ").rstrip() if first.startswith("#") else path.name
    plan = StudyPlan(
        path=path,
        title=path.stem if title == path.name else title,
        base=_base(tree["base"], path),
        settings=_settings(tree.get("settings"), "settings"),
        axes=axes,
        tune=tune,
        last=last,
        seeds=_seeds(tree.get("seeds", [0])),
        columns=tuple(_columns(tree.get("columns"), axes)),
        baseline=_baseline(tree.get("baseline"), axes),
        paper=_paper(tree.get("paper")),
        workers=_workers(tree.get("workers")),
    )
    _check_folders(plan)
    return plan


def _axes(
    given: object, path: Path
) -> tuple[tuple[tuple[str, tuple[PlannedPoint, ...]], ...], dict[str, list]]:
    """Read the axes, and the values that tuning tries for every cell."""
    axes, tune = [], {}
    for name, points in _mapping(given, "axes").items():
        where = f"axes.{name}"
        if name == "tune":
            tune = _tune(points, where)
        elif isinstance(points, list):
            axes.append((name, _values(name, points)))
        else:
            named = _mapping(points, where).items()
            if not named:
                raise _BadFile(f"{where}: the axis has no points; add one or remove it")
            made = [_point(p, said, f"{where}.{p}", path) for p, said in named]
            axes.append((name, tuple(made)))
    return tuple(axes), tune


def _values(key: str, values: list) -> tuple[PlannedPoint, ...]:
    if not values:
        raise _BadFile(f"axes.{key}: the list is empty; add values or remove the axis")
    if "." not in key:
        raise _BadFile(
            f"axes.{key}: an axis with a list of values must be called like a setting, "
            "such as train.optimizer.lr; an axis with another name must hold lines "
            "such as 'point: {KEY: VALUE}'"
        )
    names = [str(value) for value in values]
    if len(set(names)) < len(names):
        raise _BadFile(f"axes.{key}: a value appears twice; remove one of the two")
    short = key.rpartition(".")[2]
    return tuple(
        PlannedPoint(name, slug(f"{short}_{name}"), {key: value})
        for name, value in zip(names, values)
    )


def _point(name: object, said: object, where: str, path: Path) -> PlannedPoint:
    settings = dict(_mapping(said, where))
    base, tune = settings.pop("base", None), settings.pop("tune", None)
    return PlannedPoint(
        str(name),
        slug(str(name)),
        _settings(settings, where),
        None if base is None else _base(base, path),
        _tune(tune, f"{where}.tune"),
    )


def _tune(given: object, where: str) -> dict[str, list]:
    tune = {}
    for key, values in flatten(_mapping(given, where)):
        if not isinstance(values, list) or not values:
            raise _BadFile(
                f"{where}.{key}: must be a list of at least one value to try"
            )
        tune[key] = values
    _check_own(tune, where)
    return tune


def _settings(given: object, where: str) -> dict[str, Any]:
    settings = dict(flatten(_mapping(given, where), keep_empty=True))
    _check_own(settings, where)
    return settings


def _check_own(settings: Mapping[str, Any], where: str) -> None:
    taken = [key for key in TAKEN if key in settings]
    if taken:
        instead = "the key seeds" if taken[0] == "seed" else "the command's --out"
        raise _BadFile(
            f"{where}.{taken[0]}: differs between the runs of a study; remove it here "
            f"and use {instead}"
        )


def _overrides(words: Sequence[str]) -> dict[str, Any]:
    if len(words) % 2:
        raise _BadFile(
            f"command line: {words[-1]!r} has no value; write settings as KEY VALUE "
            "pairs"
        )
    return _settings(
        {key: literal(value) for key, value in zip(words[::2], words[1::2])},
        "command line",
    )


def _check_last(last: Mapping[str, Any], axes: Sequence) -> None:
    """Raise `_BadFile` if a setting of the command line is an axis.

    The runs would have the names of values that they do not use.
    """
    for key in (name for name, _ in axes if name in last):
        raise _BadFile(
            f"command line: {key} is an axis of this study, so each run has its own "
            "value; leave it out, or change the axis in the file"
        )


def _mapping(given: object, where: str) -> Mapping:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise _BadFile(f"{where}: must hold 'name: value' lines, got {shown(given)}")
    return given


def _base(given: object, path: Path) -> Path:
    """Find the config called `given`.

    A file beside the study comes first, with or without ``.yaml`` in `given`. Otherwise
    `find_config` looks for the config.
    """
    if not isinstance(given, str):
        raise _BadFile(f"base: must be the name of a config, got {shown(given)}")
    beside = (path.parent / name for name in (given, f"{given}.yaml"))
    return next(filter(Path.is_file, beside), None) or find_config(given)


def _seeds(given: object) -> tuple[int, ...]:
    seeds = given if isinstance(given, list) else []
    whole = [s for s in seeds if isinstance(s, int) and not isinstance(s, bool)]
    if not seeds or whole != seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise _BadFile(
            "seeds: must be a list of different whole numbers, none below 0, such as "
            f"[0, 1, 2]; got {shown(given)}"
        )
    return tuple(seeds)


def _paper(given: object) -> str | None:
    """The table of the paper. Without this check only the report would refuse it."""
    if given is None:
        return None
    if not isinstance(given, str):
        raise _BadFile(f"paper: must be the name of a table, got {shown(given)}")
    try:
        return paper_table(given).name
    except ConfigError as error:
        raise _BadFile(f"paper: {error}") from error


def _columns(given: object, axes: Sequence) -> list[str]:
    columns = [] if given is None else given
    names = [name for name, _ in axes]
    if not isinstance(columns, list) or [name for name in columns if name not in names]:
        raise _BadFile(
            "columns: must be a list of axes of this study "
            f"({', '.join(names) or 'there are none'}), got {shown(given)}"
        )
    if names and names[0] in columns:
        raise _BadFile(
            f"columns: '{names[0]}' is the first axis, which makes the rows of tables; "
            "name other axes"
        )
    return columns


def _baseline(given: object, axes: Sequence) -> Point | None:
    if given is None:
        return None
    known = {name: [point.name for point in points] for name, points in axes}
    if not isinstance(given, Mapping) or len(given) != 1:
        raise _BadFile(f"baseline: must be one 'AXIS: POINT', got {shown(given)}")
    axis, name = (str(part) for part in next(iter(given.items())))
    if name not in known.get(axis, ()):
        have = ", ".join(known.get(axis, known)) or "none"
        raise _BadFile(
            f"baseline: the axis '{axis}' has no point '{name}'; name one of: {have}"
        )
    return Point(axis, name)


def _workers(given: object) -> int | None:
    if given is None:
        return None
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise _BadFile(f"workers: must be a whole number above 0, got {shown(given)}")
    return given


def _check_folders(plan: StudyPlan) -> None:
    """Raise `_BadFile` if two points of an axis would share a folder."""
    for axis, points in plan.axes:
        seen: dict[str, str] = {}
        for point in points:
            other = seen.setdefault(point.folder, point.name)
            if other != point.name:
                raise _BadFile(
                    f"axes.{axis}: '{other}' and '{point.name}' would share the folder "
                    f"'{point.folder}'; give one another name"
                )
