"""``federatedscope-ggeur predict``: the classes of images, by a run's head."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence

from federatedscope_ggeur.commands.console import shown_on_console
from federatedscope_ggeur.commands.parsing import command_parser
from federatedscope_ggeur.commands.prediction import (
    Prediction,
    Predictor,
    find_images,
)


def predict(arguments: Sequence[str]) -> int:
    """Print the likeliest classes of each image.

    A broken image is named on the standard error stream, and in the output with what is
    wrong with it; the others are predicted all the same.

    Returns
    -------
    int
        Exit status: 0, or 1 if any image could not be read.

    Raises
    ------
    ConfigError, DataError
        As `Predictor` and `find_images`.
    """
    options = _parser().parse_args(arguments)
    images = find_images(options.images)
    with shown_on_console(verbose=False):
        predictor = Predictor(
            options.run, options.pretrained, options.device, options.plugins
        )
        broken: list[Prediction] = []
        found = _naming_broken(predictor.predict(images, options.top), broken)
        _PRINTERS[options.form](found)
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("predict")
    parser.add_argument(
        "--run", metavar="FOLDER", required=True, help="the run's folder"
    )
    parser.add_argument(
        "images",
        nargs="+",
        metavar="IMAGE_OR_FOLDER",
        help="image files, and folders to search for some",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json", dest="form", action="store_const", const="json", help="print JSON"
    )
    form.add_argument(
        "--csv", dest="form", action="store_const", const="csv", help="print CSV"
    )
    form.set_defaults(form="text")
    parser.add_argument(
        "--top",
        type=_positive,
        default=1,
        metavar="N",
        help="likeliest classes to print (default: 1)",
    )
    parser.add_argument(
        "--pretrained",
        default="",
        metavar="FILE",
        help="where the encoder's weights are, if not where the run had them",
    )
    parser.add_argument(
        "--device",
        default="",
        help="where the encoder computes: auto, cpu, cuda, cuda:1 (default: the run's)",
    )
    parser.add_argument(
        "--plugins",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module of your own that registers the run's encoder; may be repeated "
        "(none is ever imported because a results file names it)",
    )
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, got {text!r}")
    return int(text)


def _naming_broken(
    found: Iterable[Prediction], broken: list[Prediction]
) -> Iterator[Prediction]:
    for one in found:
        if one.problem:
            print(f"error: {one.problem}", file=sys.stderr)
            broken.append(one)
        yield one


def _print_text(found: Iterable[Prediction]) -> None:
    for one in found:
        shown = ", ".join(f"{name} {share:.3f}" for name, share in one.classes)
        print(f"{one.image}: {shown or 'cannot be read'}", flush=True)


def _print_json(found: Iterable[Prediction]) -> None:
    rows = [
        {
            "image": one.image,
            "classes": [{"class": c, "probability": p} for c, p in one.classes],
            "error": one.problem or None,
        }
        for one in found
    ]
    print(json.dumps(rows, indent=2, ensure_ascii=False))


def _print_csv(found: Iterable[Prediction]) -> None:
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["image", "rank", "class", "probability", "error"])
    for one in found:
        if one.problem:
            table.writerow([one.image, "", "", "", one.problem])
        for rank, (name, share) in enumerate(one.classes, 1):
            table.writerow([one.image, rank, name, share, ""])


_PRINTERS = {"text": _print_text, "json": _print_json, "csv": _print_csv}
