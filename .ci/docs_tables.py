"""Write what the docs list of registered parts, from these.

    python .ci/docs_tables.py

A table stands below ``<!-- table: NAME -->``; NAME is the key that chooses one of its
rows.
"""

from __future__ import annotations

import re
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.fs_keys import section_of
from federatedscope_ggeur.data import (
    ENCODERS,
    IMAGE_READERS,
    READERS,
    SPLITTERS,
    SUFFIX,
)
from federatedscope_ggeur.extras.networks.keys import NETWORKS
from federatedscope_ggeur.extras.text.keys import TEXT_MODELS
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS, Method
from federatedscope_ggeur.models import CLOSED_FORMS, ClosedForm
from federatedscope_ggeur.settings import Registry

ROOT = Path(__file__).parent.parent
DOCS = (
    "methods.md",
    "heads.md",
    "data.md",
    "networks.md",
    "text.md",
)
FILES = tuple(ROOT / "docs" / name for name in DOCS)
REGISTRIES = {r.field: r for r in (METHODS, AUGMENTATIONS, CLOSED_FORMS)}
DATA = {
    READERS.field: {**READERS, **IMAGE_READERS},
    ENCODERS.field: ENCODERS,
    SPLITTERS.field: SPLITTERS,
}
_COLUMNS = (
    "what it does",
    "settings and defaults",
    "beside the model",
    "source",
)
#: A part with more settings than these has its own command in their place.
_MOST = 6


def table(registry: Registry) -> str:
    """A Markdown table with a row for each part."""
    rows = _of_closed_forms() if registry is CLOSED_FORMS else _of_methods(registry)
    return _markdown(rows)


def network_table() -> str:
    """The same of the networks."""
    return _markdown(
        [
            (f"`ggeur.{NETWORKS.field}`", "what it is", "source"),
            ("---",) * 3,
            *((f"`{name}`", p.meaning, p.source) for name, p in NETWORKS.items()),
        ]
    )


def text_table() -> str:
    """The same of the text models."""
    heads = (f"`ggeur.{TEXT_MODELS.field}`", "what is trained", "settings", "source")
    rows = [
        (f"`{name}`", p.meaning, _own_settings(p), p.source)
        for name, p in sorted(TEXT_MODELS.items())
    ]
    return _markdown([heads, ("---",) * 4, *rows])


def _markdown(rows) -> str:
    lines = [f"| {' | '.join(_cell(text) for text in row)} |" for row in rows]
    return re.sub(r" +\|", " |", "\n".join(lines))


def _of_closed_forms() -> list[tuple[str, ...]]:
    return [
        ("`ggeur.closed_form`", "head", "settings and defaults", "needs", "source"),
        ("---",) * 5,
        *(
            (f"`{name}`", form.meaning, settings(form), _needs(form), form.source)
            for name, form in CLOSED_FORMS.items()
        ),
    ]


def _needs(form: type[ClosedForm]) -> str:
    return form.NEEDS if form.asks else "nothing"


def _of_methods(registry: Registry[type[Method]]) -> list[tuple[str, ...]]:
    return [
        (f"`ggeur.{registry.field}`", *_COLUMNS),
        ("---",) * (len(_COLUMNS) + 1),
        *(
            (f"`{name}`", p.meaning, settings(p), _travels(p), p.source)
            for name, p in registry.items()
        ),
    ]


def _travels(method: type[Method]) -> str:
    ways = {"up": method.sends, "down": method.receives}
    return "; ".join(f"{way}: {what}" for way, what in ways.items() if what)


def data_table(field: str) -> str:
    """A Markdown table of the readers, encoders or splitters that `field` chooses."""
    rows = [(f"`{field}`", "what it does (its settings and defaults)"), ("---",) * 2]
    for name, part in DATA[field].items():
        shown = f"`{name}{SUFFIX}`" if field == READERS.field else f"`{name}`"
        settings = _own_settings(part)
        rows.append(
            (shown, f"{part.meaning} ({settings})" if settings else part.meaning)
        )
    return _markdown(rows)


def _own_settings(part) -> str:
    section = getattr(part, "SECTION", f"ggeur.{part.name}")
    prefix = "" if section == "data.splitter_args" else f"{section}."
    found = []
    for key in part.SETTINGS:
        default = "" if key.in_config is None else f" {_plain(key.in_config)}"
        found.append(f"`{prefix}{key.name}`{default}")
    return ", ".join(found)


def _plain(default: object) -> object:
    is_whole = isinstance(default, float) and default.is_integer()
    return int(default) if is_whole else default


def settings(part: type[Method] | type[ClosedForm]) -> str:
    """The settings of `part` with their defaults, the section said once."""
    found, section = [], f"ggeur.{part.name}"
    if issubclass(part, Method):
        section = section_of(part)
    if len(part.SETTINGS) > _MOST:
        return f"`{section}.*`: `ggeur keys {part.name}`"
    for key in part.SETTINGS:
        has_default = key.in_config is not None
        default = f" {_shown(key.default)}" if has_default else ""
        found.append(f"`{section}.{key.name}`{default}")
        section = ""
    others = [o for o in getattr(part, "READS", ()) if CLOSED_FORMS[o].SETTINGS]
    found += [f"those of `{other}`" for other in others]
    return ", ".join(found)


def _shown(value: object) -> object:
    """A value as FederatedScope's dialect writes it, which knows no None."""
    return -1 if value is None else value


def _cell(text: str) -> str:
    """`text` as it is written: outside of code, ``<name>`` would be an element."""
    shown = re.sub(r"(`+).*?\1|<", lambda m: "&lt;" if m[0] == "<" else m[0], text)
    return shown.replace("|", r"\|")


def updated(content: str) -> str:
    """`content` with its tables as the registry has them."""
    tables = {field: data_table(field) for field in DATA}
    tables |= {NETWORKS.field: network_table(), TEXT_MODELS.field: text_table()}
    tables |= {field: table(registry) for field, registry in REGISTRIES.items()}
    for field, new in tables.items():
        mark = re.escape(f"<!-- table: {field} -->")
        content = re.sub(
            rf"({mark}\n)(?:\|.*\n)*", lambda m, new=new: f"{m[1]}{new}\n", content
        )
    return content


if __name__ == "__main__":
    for file in FILES:
        file.write_text(updated(file.read_text(encoding="utf-8")), encoding="utf-8")
