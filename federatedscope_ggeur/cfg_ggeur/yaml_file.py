"""Keys and values as a YAML file and a command line give them."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from federatedscope_ggeur.errors import ConfigError


def read_yaml(path: str | Path) -> Iterator[tuple[str, object]]:
    """The keys in the file at `path`, with dots, and their values.

    Raises
    ------
    ConfigError
        It cannot be read, or is no YAML file of keys.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        content = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the config file {path}: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if content is None:
        return
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold 'key: value' lines, not {content!r}")
    yield from flatten(content)


def flatten(content: Mapping, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Nested keys, with dots, and their values."""
    for key, value in content.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def literal(value: object) -> object:
    """Texts that look like Python literals become them, as in yacs (1e-3, [1, 2])."""
    if not isinstance(value, str):
        return value
    try:
        return literal_eval(value)
    except (ValueError, SyntaxError):
        return value


def to_plain(cfg: Mapping) -> dict:
    """The config as nested plain dicts."""
    return {k: to_plain(v) if isinstance(v, Mapping) else v for k, v in cfg.items()}
