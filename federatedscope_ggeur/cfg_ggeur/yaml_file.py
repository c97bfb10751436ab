"""Keys and values from a YAML file or a command line."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from federatedscope_ggeur.errors import ConfigError, shown
from federatedscope_ggeur.settings import flatten

#: Limits that no config comes near, against files made to do harm.
LARGEST_FILE, LARGEST_TREE, DEEPEST = 2**20, 10_000, 20


def read_yaml(path: str | Path) -> Iterator[tuple[str, object]]:
    """The keys in the file at `path`, with dots, and their values.

    Raises as `read_tree`.
    """
    yield from flatten(read_tree(path)[0], keep_empty=True)


def read_tree(path: str | Path) -> tuple[dict, str]:
    """What the YAML file at `path` holds, and its text.

    Raises
    ------
    ConfigError
        It cannot be read, is no YAML file of keys, names a key twice, or unfolds to
        more than a config holds.
    """
    try:
        if Path(path).is_file() and Path(path).stat().st_size > LARGEST_FILE:
            raise ConfigError(f"{path} is no config: it is longer than 1 MiB")
        text = Path(path).read_text(encoding="utf-8")
        tree = yaml.compose(text, yaml.SafeLoader)
        _check_tree(tree, path)
        content = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the config file {path}: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {shown(error, 400)}") from error
    except RecursionError as error:
        raise ConfigError(f"{path} is no config: it is nested too deeply") from error
    except (ValueError, TypeError) as error:  # a date that is none, a key of no kind
        raise ConfigError(f"{path} is not valid YAML: {shown(error, 400)}") from error
    if content is None:
        return {}, text
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold 'key: value' lines, not {shown(content)}")
    return content, text


def _check_tree(root: yaml.Node | None, path: str | Path) -> None:
    """Walk the nodes as they unfold, aliases included."""
    ahead = [] if root is None else [(root, "", 0, frozenset())]
    seen = 0
    while ahead:
        node, where, depth, above = ahead.pop()
        seen += 1
        line = node.start_mark.line + 1
        if id(node) in above:
            raise ConfigError(f"{path}, line {line}: {where!r} holds itself")
        if depth > DEEPEST:
            raise ConfigError(
                f"{path}, line {line}: nested more than {DEEPEST} deep at {where!r:.80}"
            )
        if seen > LARGEST_TREE:
            raise ConfigError(
                f"{path} is no config: it unfolds to more than {LARGEST_TREE} values"
            )
        inside = above | {id(node)}
        if isinstance(node, yaml.SequenceNode):
            ahead += [(child, where, depth + 1, inside) for child in node.value]
        elif isinstance(node, yaml.MappingNode):
            names: set[str] = set()
            for key, child in node.value:
                name = str(key.value)
                if name in names and isinstance(key, yaml.ScalarNode):
                    raise ConfigError(
                        f"{path}, line {key.start_mark.line + 1}: the key "
                        f"'{where}{name}' stands there twice; keep one of the two"
                    )
                names.add(name)
                ahead.append((child, f"{where}{name}.", depth + 1, inside))


def literal(value: object) -> object:
    """Texts that look like Python literals become them, as in yacs (1e-3, [1, 2])."""
    if not isinstance(value, str):
        return value
    try:
        return literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return value


def to_plain(cfg: Mapping) -> dict:
    """The config as nested plain dicts."""
    return {k: to_plain(v) if isinstance(v, Mapping) else v for k, v in cfg.items()}
