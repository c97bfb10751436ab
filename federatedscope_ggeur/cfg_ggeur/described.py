"""Describe the `ggeur.*` keys and the parts that they choose from, as text."""

from __future__ import annotations

from collections.abc import Sequence

from federatedscope_ggeur.data import IMAGE_READERS, READERS, SPLITTERS
from federatedscope_ggeur.settings import Registry

from .keys import REGISTRIES, all_keys


def describe_keys(words: Sequence[str] = ()) -> str:
    """Text with the default and the meaning of every `ggeur.*` key.

    With `words`, it has only the keys whose name and meaning contain all words, in
    capitals or not.
    """
    lines = _all_lines()
    if not words:
        return "\n".join(lines)
    entries: list[list[str]] = []
    for line in lines:
        if line.startswith(" "):
            entries[-1].append(line)
        else:
            entries.append([line])
    wanted = [word.lower() for word in words]
    found = [
        entry
        for entry in entries
        if all(word in " ".join(entry).lower() for word in wanted)
    ]
    return "\n".join(line for entry in found for line in entry)


def _all_lines() -> list[str]:
    lines = ["ggeur.use = False", "    True switches the plugin on."]
    for key in all_keys():
        lines += [f"ggeur.{key.name} = {_shown(key.default)}", f"    {key.meaning}"]
        for registry in REGISTRIES:
            if registry.field.endswith(key.name):
                lines += _parts_of(registry)
    # Parts that FederatedScope's own keys name.
    lines += [READERS.field, *_parts_of(READERS), *_parts_of(IMAGE_READERS)]
    lines += [SPLITTERS.field, *_parts_of(SPLITTERS)]
    for registry in REGISTRIES:
        for part in registry.values():
            if getattr(part, "SECTION", ""):
                for key in part.SETTINGS:
                    default = "" if key.default is None else f" = {_shown(key.default)}"
                    lines.append(f"{part.SECTION}.{key.name}{default}")
                    lines.append(f"    {part.name}: {key.meaning}")
    return lines


def _parts_of(registry: Registry) -> list[str]:
    return [f"      {name}: {part.meaning}" for name, part in registry.items()]


def _shown(default: object) -> str:
    is_whole = isinstance(default, float) and default.is_integer()
    return str(int(default)) if is_whole else str(default)
