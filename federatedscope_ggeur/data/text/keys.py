"""The key `ggeur.text.templates`: the texts into which class names are put."""

from __future__ import annotations

from federatedscope_ggeur.settings.key import Key

from .templates import LISTS

#: The most templates, and the most characters of a template.
_MOST, _LONGEST = 1000, 300


def _templates(value: object) -> str:
    if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= _MOST:
        return f"must be a list of 1 to {_MOST} templates or names of lists"
    for text in value:
        if not isinstance(text, str) or len(text) > _LONGEST:
            return f"must hold texts of at most {_LONGEST} characters"
        if text not in LISTS and text.count("{}") != 1:
            return (
                f"'{text}' is neither one of {', '.join(LISTS)} nor a template with "
                "one {} for a class's name"
            )
    return ""


TEXT_KEYS = (
    Key(
        "text.templates",
        ["one"],
        "Prompts. The text features of a class are the mean over them. Each is a "
        "template with {} for the name of the class, or one (a photo of a {}.), or "
        "imagenet80, the 80 of OpenAI.",
        _templates,
        shared=True,
    ),
)
