"""Write what the docs list of registered parts, from the registries themselves.

    python .ci/docs_tables.py

A table stands below ``<!-- table: NAME -->``, a list of names behind
``<!-- names: NAME -->``; NAME is the key that chooses one of them.
"""

from __future__ import annotations

import re
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.fs_keys import section_of
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS, Method
from federatedscope_ggeur.models import CLOSED_FORMS, ClosedForm
from federatedscope_ggeur.settings import Registry

ROOT = Path(__file__).parent.parent
FILES = (ROOT / "README.md", ROOT / "docs" / "methods.md", ROOT / "docs" / "heads.md")
REGISTRIES = {r.field: r for r in (METHODS, AUGMENTATIONS, CLOSED_FORMS)}
_COLUMNS = (
    "what it does",
    "settings and defaults",
    "up, beside the model",
    "down, beside the model",
    "source",
)


def table(registry: Registry) -> str:
    """A Markdown table with a row for each part."""
    rows = _of_closed_forms() if registry is CLOSED_FORMS else _of_methods(registry)
    lines = [f"| {' | '.join(_cell(text) for text in row)} |" for row in rows]
    return re.sub(r" +\|", " |", "\n".join(lines))


def _of_closed_forms() -> list[tuple[str, ...]]:
    return [
        ("`ggeur.closed_form`", "head", "settings and defaults", "needs", "source"),
        ("---",) * 5,
        *(
            (f"`{name}`", form.meaning, settings(form), form.NEEDS, form.source)
            for name, form in CLOSED_FORMS.items()
        ),
    ]


def _of_methods(registry: Registry[type[Method]]) -> list[tuple[str, ...]]:
    return [
        (f"`ggeur.{registry.field}`", *_COLUMNS),
        ("---",) * (len(_COLUMNS) + 1),
        *(
            (f"`{name}`", p.meaning, settings(p), p.sends, p.receives, p.source)
            for name, p in registry.items()
        ),
    ]


def settings(part: type[Method] | type[ClosedForm]) -> str:
    """The settings of `part` with their defaults, the section said once."""
    found, section = [], f"ggeur.{part.name}"
    if issubclass(part, Method):
        section = section_of(part)
    for key in part.SETTINGS:
        note = key.meaning[0].lower() + key.meaning[1:].rstrip(".")
        default = f"({note})" if key.default is None else key.read(key.default)
        default = -1 if default is None else default
        found.append(f"`{section}.{key.name}` {default}")
        section = ""
    others = [o for o in getattr(part, "READS", ()) if CLOSED_FORMS[o].SETTINGS]
    found += [f"those of `{other}`" for other in others]
    return ", ".join(found)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def updated(content: str) -> str:
    """`content` with its tables and lists of names as the registry has them."""
    for field, registry in REGISTRIES.items():
        mark = re.escape(f"<!-- table: {field} -->")
        new = table(registry)
        content = re.sub(
            rf"({mark}\n)(?:\|.*\n)*", lambda m, new=new: f"{m[1]}{new}\n", content
        )
        mark = re.escape(f"<!-- names: {field} -->")
        new = ", ".join(f"`{name}`" for name in registry)
        content = re.sub(
            rf"({mark})(?:`\w+`(?:, )?)*", lambda m, new=new: f"{m[1]}{new}", content
        )
    return content


if __name__ == "__main__":
    for file in FILES:
        file.write_text(updated(file.read_text(encoding="utf-8")), encoding="utf-8")
