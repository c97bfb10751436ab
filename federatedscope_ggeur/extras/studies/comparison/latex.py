"""Write any text for LaTeX."""

from __future__ import annotations

import re
import unicodedata

from federatedscope_ggeur.printable import LINE, printable

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "`": "{`}",
    # At the start of a line LaTeX would read these as arguments of the line end before.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    **{character: f"\\{character}" for character in "_%&#${}"},
}
_MATHS = {
    "±": r"\pm", "×": r"\times", "→": r"\to", "≤": r"\le", "≥": r"\ge", "∞": r"\infty",
    "α": r"\alpha", "β": r"\beta", "γ": r"\gamma", "δ": r"\delta", "ε": r"\epsilon",
    "ζ": r"\zeta", "η": r"\eta", "θ": r"\theta", "κ": r"\kappa", "λ": r"\lambda",
    "μ": r"\mu", "µ": r"\mu", "ν": r"\nu", "ξ": r"\xi", "π": r"\pi", "ρ": r"\rho",
    "σ": r"\sigma", "τ": r"\tau", "φ": r"\phi", "χ": r"\chi", "ψ": r"\psi",
    "ω": r"\omega", "Σ": r"\Sigma", "Δ": r"\Delta", "−": "-", "·": r"\cdot",
}  # fmt: skip
_PLAIN = {
    "–": r"\textendash{}", "—": r"\textemdash{}", "…": "...", "’": "'", "‘": "{`}",
    "“": "``", "”": "''", "ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "ø": r"\o{}",
    "Ø": r"\O{}", "ł": r"\l{}", "Ł": r"\L{}", "œ": r"\oe{}", "ı": r"\i{}",
}  # fmt: skip
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"',
    "\u0304": "=", "\u0307": ".", "\u0306": "u", "\u030c": "v", "\u030b": "H",
    "\u030a": "r", "\u0327": "c", "\u0328": "k", "\u0323": "d",
}  # fmt: skip


def escaped(text: str) -> str:
    """`text` in LaTeX, escaped so that it prints as it is."""
    composed = unicodedata.normalize("NFC", printable(text, LINE))
    # LaTeX prints two hyphens as one dash.
    return "".join(map(_letter, composed)).replace("--", "-{}-")


def _letter(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if character in _MATHS:
        return f"${_MATHS[character]}$"
    if character in _PLAIN:
        return _PLAIN[character]
    if " " <= character <= "~":
        return character
    base, *marks = unicodedata.normalize("NFD", character)
    if base.isascii() and base.isalpha() and len(marks) == 1 and marks[0] in _ACCENTS:
        return f"\\{_ACCENTS[marks[0]]}{{{base}}}"
    return f"U+{ord(character):04X}"


def label_of(title: str, taken: set[str]) -> str:
    """Make a LaTeX label from the title, different from all labels in `taken`."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    stem = "tab:" + (re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-") or "runs")
    label, number = stem, 1
    while label in taken:
        number += 1
        label = f"{stem}-{number}"
    taken.add(label)
    return label
