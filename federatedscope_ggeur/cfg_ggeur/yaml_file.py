"""Read keys and values from a YAML file or a command line."""

from __future__ import annotations

import os
from ast import literal_eval
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from federatedscope_ggeur.errors import ConfigError, shown
from federatedscope_ggeur.files import check_regular
from federatedscope_ggeur.settings import flatten

#: Limits against malicious files. No real config comes near them.
LARGEST_FILE, LARGEST_TREE, DEEPEST = 2**20, 10_000, 20
#: Files that this process has open: a shell names a pipe so.
_OPEN_FILES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")


def read_yaml(path: str | Path) -> Iterator[tuple[str, object]]:
    """Yield each key (with dots) and its value from the YAML file at `path`.

    Raises the errors of `read_tree`.
    """
    yield from flatten(read_tree(path)[0], keep_empty=True)


def read_tree(path: str | Path) -> tuple[dict, str]:
    """Read the YAML file at `path`.

    Returns
    -------
    tree : dict
        The content as nested dicts.
    text : str
        The text of the file.

    Raises
    ------
    ConfigError
        The file cannot be read, is no YAML file of keys, or names a key twice. Or it is
        larger than any config, also after its aliases are replaced.
    """
    try:
        if not os.fspath(path).startswith(_OPEN_FILES):
            check_regular(path)
        if Path(path).is_file() and Path(path).stat().st_size > LARGEST_FILE:
            raise ConfigError(f"{path} is no config: the file is longer than 1 MiB")
        text = Path(path).read_text(encoding="utf-8")
        tree = yaml.compose(text, yaml.SafeLoader)
        _check_tree(tree, path)
        content = yaml.SafeLoader("").construct_document(tree) if tree else None
    except ConfigError:  # it is a ValueError, too
        raise
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no config: it is no text in UTF-8") from None
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {_problem(error)}") from error
    except RecursionError as error:
        raise ConfigError(f"{path} is no config: it is nested too deeply") from error
    except (ValueError, TypeError) as error:  # an impossible date, an unusable key
        raise ConfigError(f"{path} is not valid YAML: {shown(error, 400)}") from error
    if content is None:
        raise ConfigError(f"{path} is empty: it has no settings")
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold 'key: value' lines, got {shown(content)}")
    return content, text


def _problem(error: yaml.YAMLError) -> str:
    """The problem in one line, with its line in the file if that is known."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return shown(error, 400)
    problem = f"line {mark.line + 1}: {error.problem}"
    begun = error.context_mark
    return f"{problem}, {error.context} of line {begun.line + 1}" if begun else problem


def _check_tree(root: yaml.Node | None, path: str | Path) -> None:
    """Check the size and the keys of a YAML tree, with its aliases replaced."""
    ahead = [] if root is None else [(root, "", 0, frozenset())]
    seen = 0
    while ahead:
        node, where, depth, above = ahead.pop()
        seen += 1
        line = node.start_mark.line + 1
        if id(node) in above:
            raise ConfigError(f"{path}, line {line}: the key {where!r} contains itself")
        if depth > DEEPEST:
            raise ConfigError(
                f"{path}, line {line}: more than {DEEPEST} nested levels at "
                f"{where!r:.80}"
            )
        if seen > LARGEST_TREE:
            raise ConfigError(
                f"{path} is no config: with its aliases replaced it holds more than "
                f"{LARGEST_TREE} values"
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
                        f"'{where}{name}' appears twice; remove one of the two"
                    )
                names.add(name)
                ahead.append((child, f"{where}{name}.", depth + 1, inside))


def literal(value: object) -> object:
    """Convert a text that looks like a Python literal, such as 1e-3, to its value.

    Other texts and values are returned unchanged. yacs does the same.
    """
    if not isinstance(value, str):
        return value
    try:
        return literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return value


def to_plain(cfg: Mapping) -> dict:
    """Convert a config to nested plain dicts."""
    return {k: to_plain(v) if isinstance(v, Mapping) else v for k, v in cfg.items()}


def plain_config(cfg) -> dict:
    """Convert a config as `to_plain` does, without the entries that FS adds to it."""
    if hasattr(cfg, "clear_aux_info"):
        cfg = cfg.clone()
        cfg.defrost()
        cfg.clear_aux_info()
    return to_plain(cfg)
