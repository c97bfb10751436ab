"""Write a comparison as tables for LaTeX."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from federatedscope_ggeur.printable import LINE, printable

from .sheets import Sheet, SheetCell, across_sheets, explained, sheets
from .table import Table

PREAMBLE = """\
% Tables by ggeur report. In the preamble of the document:
%   \\usepackage{booktabs}
%   \\usepackage{graphicx} % for \\resizebox, where a table is too wide"""
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
_SIGNED = re.compile(r"(?<![\w.])([-+])(?=\d)")
_LEGEND = r"\textbf{bold}", r"\textit{italic}"
_MARKED = {"": "{}", "best": r"\textbf{{{}}}", "top": r"\textit{{{}}}"}


def as_latex(
    tables: Sequence[Table],
    notes: Sequence[str],
    target: float | None,
    title: str,
) -> str:
    """Make a ``table`` environment for each sheet, with the best of a column in bold.

    `title` is that of the studies. Captions begin with it.

    The text is ASCII for all names. A letter that LaTeX does not have becomes its code,
    such as ``U+4E2D``.
    """
    parts, taken = [PREAMBLE], set[str]()
    for sheet in across_sheets(tables):
        parts.append(_environment(sheet, title, taken))
    for table in tables:
        for sheet in sheets(table, target):
            parts.append(_environment(sheet, title, taken))
        parts += [f"% note: {_comment(note)}" for note in table.notes]
    parts += [f"% note: {_comment(note)}" for note in notes]
    return "\n\n".join(parts) + "\n"


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


def _comment(text: str) -> str:
    return printable(text, LINE).encode("ascii", "replace").decode()


def caption_of(title: str, rest: str) -> str:
    """A caption in LaTeX that begins with the `title` of the studies, if any."""
    return escaped(f"{title}. {rest}" if title else rest)


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


def _environment(sheet: Sheet, title: str, taken: set[str]) -> str:
    rows = [
        " & ".join([escaped(name), *map(_cell, cells)]) + r" \\"
        for name, cells in sheet.rows
    ]
    return environment(
        "l" + "r" * (len(sheet.columns) - 1),
        [" & ".join(map(escaped, sheet.columns)) + r" \\"],
        rows,
        caption=caption_of(title, sheet.full_title),
        label=label_of(f"{title} {sheet.full_title}", taken),
        notes=sheet.notes,
    )


def environment(
    columns: str,
    heads: Sequence[str],
    rows: Sequence[str],
    *,
    caption: str,
    kind: str = "table",
    place: str = "htbp",
    label: str = "",
    notes: Sequence[str] = (),
) -> str:
    """A LaTeX table with the lines `heads`, `rows` and, under the table, `notes`."""
    told = [explained(escaped(note), *_LEGEND) for note in notes]
    below = [
        r"\par\smallskip\begin{minipage}{\linewidth}\footnotesize",
        " \\\\\n".join(told),
        r"\end{minipage}",
    ]
    return "\n".join(
        [
            rf"\begin{{{kind}}}[{place}]",
            r"\centering",
            rf"\caption{{{caption}}}",
            *([rf"\label{{{label}}}"] if label else []),
            # A wide table is scaled down to the text; none is scaled up.
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            *heads,
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}}",
            *(below if told else []),
            rf"\end{{{kind}}}",
        ]
    )


def _cell(cell: SheetCell) -> str:
    text = _MARKED[cell.mark].format(_number(cell.text))
    return f"{text} {_number(cell.behind)}".strip()


def _number(text: str) -> str:
    """A number in LaTeX, with its signs in mathematical form."""
    return _SIGNED.sub(r"$\1$", escaped(text))
