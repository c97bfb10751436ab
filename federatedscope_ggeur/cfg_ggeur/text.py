"""Tell whether a config uses text features of the classes."""

from __future__ import annotations

from collections.abc import Iterator

from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.models.text import TEXT_USE_KEYS


def uses_text(ggeur) -> bool:
    """Whether `cfg.ggeur` uses text features; if not, a run computes none."""
    form = CLOSED_FORMS.get(ggeur.closed_form)
    if form is not None and form.needs_known:
        return True
    return any(ggeur.text[name] != default for name, default in _uses())


def _uses() -> Iterator[tuple[str, object]]:
    for key in TEXT_USE_KEYS:
        yield key.name.partition(".")[2], key.default
