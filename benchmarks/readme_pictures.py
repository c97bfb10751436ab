"""The README's two pictures, as SVG for light and dark pages.

    python benchmarks/readme_pictures.py

draws both. To measure anew:

    ggeur study accuracy_against_bytes
    python benchmarks/readme_pictures.py --study exp/accuracy_against_bytes

The second picture is drawn from results/accuracy_against_bytes.csv, which ``--study``
writes. Its rows stand here, whatever they score; the study has more.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from federatedscope_ggeur.extras.studies.comparison import Comparison
from federatedscope_ggeur.extras.studies.comparison.runs import AVG, COSTS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
NUMBERS = ROOT / "benchmarks" / "results" / "accuracy_against_bytes.csv"
#: Rows of the study that are drawn: what each is called, its kind, and on which side of
#: its point that stands.
DRAWN = {
    "FedAvg": ("FedAvg", "rival", "left"),
    "SCAFFOLD": ("SCAFFOLD", "rival", "above right"),
    "NCM": ("NCM (class means)", "rival", "above"),
    "GGEUR": ("GGEUR", "ours", "right"),
    "GGEUR, compressed": ("GGEUR, compressed", "ours", "below left"),
    "LDA": ("one upload (LDA)", "ours", "above"),
    "LDA, compressed": ("one upload, compressed (LDA)", "ours", "right"),
    "centralised": ("all rows in one place", "bound", "below"),
}
_LABEL = {
    "right": (11, 4, "start"),
    "left": (-11, 4, "end"),
    "above": (0, -12, "middle"),
    "above right": (6, -4, "start"),
    "below": (0, 22, "middle"),
    "below left": (16, 20, "end"),
}
_STYLE = """\
svg { color-scheme: light dark; font-family: system-ui, sans-serif; font-size: 14px; }
.page { fill: #ffffff; } .text { fill: #1f2328; } .soft { fill: #59636e; }
.box { fill: #f6f8fa; stroke: #59636e; } .grid { stroke: #d8dee4; }
.line { stroke: #59636e; fill: none; stroke-width: 1.5; } .head { fill: #59636e; }
.strong { font-weight: 600; } .small { font-size: 12px; }
.ours { fill: #0072b2; stroke: #0072b2; } .rival { fill: #b34700; stroke: #b34700; }
.bound { fill: #59636e; stroke: #59636e; }
text.ours, text.rival, text.bound { stroke: none; }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; } .text { fill: #f0f6fc; } .soft { fill: #9198a1; }
  .box { fill: #151b23; stroke: #9198a1; } .grid { stroke: #2f3742; }
  .line { stroke: #9198a1; } .head { fill: #9198a1; }
  .ours { fill: #58b0e8; stroke: #58b0e8; } .rival { fill: #f0883e; stroke: #f0883e; }
  .bound { fill: #9198a1; stroke: #9198a1; }
}"""


class Point(NamedTuple):
    """A row of the study: MB up a client, AVG in % and its standard error."""

    row: str
    sent: float
    accuracy: float
    error: float


def read_points() -> list[Point]:
    """What `NUMBERS` holds."""
    with NUMBERS.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    return [
        Point(one["row"], *(float(one[name]) for name in Point._fields[1:]))
        for one in lines
    ]


def write_points(study: Path) -> None:
    """Write `NUMBERS` from the runs of a study."""
    (table,) = Comparison.of([study]).tables
    lines = [",".join(Point._fields)]
    for name in DRAWN:
        row = table.rows[name]
        sent, accuracy = row.spread(COSTS[0]), row.spread(AVG)
        numbers = (sent.mean / 1e6, 100 * accuracy.mean, 100 * accuracy.error)
        lines.append(",".join([f'"{name}"', *(f"{number:.6f}" for number in numbers)]))
    NUMBERS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def overview() -> str:
    """Clients, what each sends once, what the server makes of it."""
    parts = []
    for number, y in enumerate((34, 112, 190), 1):
        parts += [
            _box(16, y, 190, 62),
            _text(111, y + 26, f"client {number}", "text strong"),
            _text(111, y + 47, "its rows never leave it", "soft small"),
            _arrow(f"M206 {y + 31} L384 {y + 31 + (143 - y - 31) * 0.72:.0f}"),
        ]
    parts += [
        _text(306, 30, "one upload", "text strong"),
        _text(306, 50, "count, mean, covariance", "soft small"),
        _text(306, 67, "of each class", "soft small"),
        _box(390, 96, 170, 94),
        _text(475, 126, "server", "text strong"),
        _text(475, 149, "adds them up exactly", "soft small"),
        _text(475, 168, "(as if pooled)", "soft small"),
        _arrow("M560 143 L620 143"),
        _box(626, 96, 158, 94),
        _text(705, 126, "head", "text strong"),
        _text(705, 149, "a classifier,", "soft small"),
        _text(705, 168, "no training round", "soft small"),
        _arrow("M475 190 L475 276 L118 276 L118 258", dashed=True),
        _text(
            300, 296, "GGEUR, if you want rounds: class shapes go back,", "soft small"
        ),
        _text(
            300, 312, "clients draw new embeddings from them and train", "soft small"
        ),
    ]
    title = "Clients send statistics once; the server makes a head of their sum."
    return _svg(800, 326, title, parts)


def accuracy_against_bytes(points: Sequence[Point]) -> str:
    """AVG against MB a client has sent, with standard errors."""
    left, right, top, bottom = 70, 770, 50, 330
    x_low, x_high, y_low, y_high = 0.01, 2.0, 76.0, 88.0

    def x(sent: float) -> float:
        share = math.log(sent / x_low) / math.log(x_high / x_low)
        return left + share * (right - left)

    def y(accuracy: float) -> float:
        return bottom - (accuracy - y_low) / (y_high - y_low) * (bottom - top)

    parts = []
    for accuracy in range(76, 89, 2):
        at = y(accuracy)
        parts.append(f'<path class="grid" d="M{left} {at:.1f} H{right}"/>')
        parts.append(_text(left - 10, at + 5, str(accuracy), "soft small", "end"))
    for sent, name in ((0.01, "10 kB"), (0.03, "30 kB"), (0.1, "100 kB"),
                       (0.3, "300 kB"), (1.0, "1 MB")):  # fmt: skip
        parts.append(f'<path class="grid" d="M{x(sent):.1f} {top} V{bottom}"/>')
        parts.append(_text(x(sent), bottom + 20, name, "soft small"))
    for point in points:
        label, kind, side = DRAWN[point.row]
        across, down, anchor = _LABEL[side]
        at, low = x(point.sent), y(point.accuracy - point.error)
        high, middle = y(point.accuracy + point.error), y(point.accuracy)
        ends = f"M{at - 4:.1f} {low:.1f} h8 M{at - 4:.1f} {high:.1f} h8"
        bar = f"M{at:.1f} {low:.1f} V{high:.1f} {ends}"
        beside = middle
        if side.startswith(("above", "below")):
            beside = high if side.startswith("above") else low
        parts += [
            f'<path class="{kind}" d="{bar}"/>',
            f'<circle class="{kind}" cx="{at:.1f}" cy="{middle:.1f}" r="5"/>',
            _text(at + across, beside + down, label, f"{kind} small", anchor),
        ]
    said = "accuracy in % (mean over 4 domains and 5 seeds, standard error)"
    below = "sent by each client, all rounds"
    parts.append(_text(left, 28, said, "text", "start"))
    parts.append(_text((left + right) / 2, bottom + 44, below, "text"))
    kinds = {"ours": "ours", "rival": "rivals", "bound": "no federation"}
    for i, (kind, name) in enumerate(kinds.items()):
        dot = f'cx="{right - 112}" cy="{bottom - 58 + 20 * i}" r="5"'
        parts.append(f'<circle class="{kind}" {dot}/>')
        y_text = bottom - 53 + 20 * i
        parts.append(_text(right - 100, y_text, name, "soft small", "start"))
    title = "Accuracy against bytes sent on the bundled digits, domain skew."
    return _svg(800, 390, title, parts)


def _svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-labelledby="title">',
        f'<title id="title">{title}</title>',
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="page" width="{width}" height="{height}" rx="6"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _box(x: float, y: float, width: float, height: float) -> str:
    size = f'width="{width}" height="{height}"'
    return f'<rect class="box" x="{x}" y="{y}" {size} rx="8"/>'


def _text(x: float, y: float, text: str, look: str, anchor: str = "middle") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{look}" {place}>{text}</text>'


def _arrow(path: str, dashed: bool = False) -> str:
    """A line with a head at its end, turned as its last piece is."""
    words = path.replace("M", "").replace("L", "").split()
    x0, y0, x1, y1 = map(float, words[-4:])
    turn = math.degrees(math.atan2(y1 - y0, x1 - x0))
    dashes = ' stroke-dasharray="5 4"' * dashed
    tip = f"translate({x1:g} {y1:g}) rotate({turn:.1f})"
    return (
        f'<path class="line" d="{path}"{dashes}/>'
        f'<path class="head" d="M5 0 L-6 -5 L-6 5 Z" transform="{tip}"/>'
    )


def pictures() -> dict[str, str]:
    """The files of `FOLDER`, by name."""
    return {
        "overview.svg": overview(),
        "accuracy_against_bytes.svg": accuracy_against_bytes(read_points()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--study", type=Path, help="a folder of the study's runs")
    args = parser.parse_args()
    if args.study is not None:
        write_points(args.study)
    FOLDER.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
