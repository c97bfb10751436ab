"""Keys with dots in the nested nodes of a config, of yacs or of FederatedScope."""

from __future__ import annotations

from collections.abc import Mapping


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


def to_plain(cfg: Mapping) -> dict:
    """The config as nested plain dicts."""
    return {k: to_plain(v) if isinstance(v, Mapping) else v for k, v in cfg.items()}
