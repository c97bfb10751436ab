"""``ggeur predict``: predict the classes of images or embeddings."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from federatedscope_ggeur.data import Rows, is_row_file
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.predictor.predictor import Prediction, Predictor, find_images
from federatedscope_ggeur.printable import say, say_json
from federatedscope_ggeur.reporting.tables import csv_text

from . import (
    add_console_options,
    add_folder_options,
    add_labels_option,
    add_options,
    command_parser,
)
from .console import shown_on_console

_READ = """
--run FOLDER: the run's folder; if clients of a distributed run keep their own models,
  the folder of the client
--clients NUMBERS: if every client has its own model: the clients whose models predict,
  one number for all images, or one for each, such as 1,1,2 (0: the global model)
images FILE_OR_FOLDER...: image files, folders of images, or files of embeddings: npz
  with features, npy, or csv of numbers (with labels, the accuracy is printed)
"""
_PREDICTED = """
--top N: how many of the likeliest classes to print (default: 1)
--pretrained FILE: the file of the encoder's weights, if it is not where the run had it
--device DEVICE: the device of the encoder: auto, cpu, cuda, cuda:1 (default: the run's)
--flag-below Q: mark an image if the head's confidence is below this quantile, such as
  0.05, of its confidence on clients' left-out rows (needs a run with ggeur.confidences
  True)
"""


def predict(arguments: Sequence[str]) -> int:
    """Print the likeliest classes of each image; returns 1 if an image is unreadable.

    An unreadable image is named on standard error and in the output, with its problem.
    The other images are predicted.
    """
    options = _parser().parse_args(arguments)
    tables = [path for path in options.images if is_row_file(path)]
    images = find_images([path for path in options.images if path not in tables])
    with shown_on_console(options.log_level or "warning"):
        predictor = Predictor(
            options.run,
            options.pretrained,
            options.device,
            options.plugins,
            options.trust,
        )
        least = None
        if options.flag_below is not None:
            least = predictor.confidence_at(options.flag_below)
        broken: list[Prediction] = []
        titles = predictor.expected.given.titles if tables else None
        rows = [Rows.of_file(path, titles) for path in tables]
        top, clients = options.top, options.clients
        _check_clients(clients, images, rows)
        predictions: list[Iterable[Prediction]] = []
        if images:
            predictions.append(predictor.predict(images, top, clients))
        right: dict[str, int] = {}
        said: list[str] = []
        for one in rows:
            predictor.expected.take(one)  # so that no output is cut off by a fault
            predicted = predictor.predict_rows(one, top, clients, one.where)
            if one.labels is not None:
                expected = predictor.expected
                numbers = expected.numbers(one, options.labels)
                said.append(expected.unknown(one, numbers))
                labels = [*expected.class_names, None]
                named = [labels[n] for n in numbers]
                predicted = _counting(predicted, named, one.where, right)
            predictions.append(predicted)
        _PRINTERS[options.form](
            _naming_broken(chain.from_iterable(predictions), broken),
            least,
            predictor.calibrated_by,
        )
        for one in rows:
            if one.labels is not None:
                _say_accuracy(one, right[one.where], options.form)
        for line in filter(None, said):
            say(f"note: {line}; they count as wrong", file=sys.stderr)
    return 1 if broken else 0


def _check_clients(clients: object, images: list[str], rows: list[Rows]) -> None:
    several = len(rows) + bool(images) > 1
    if isinstance(clients, list) and several:
        raise ConfigError(
            "--clients: several numbers need a single file of rows, one number for "
            "each row, and no images"
        )


def _counting(
    predictions: Iterable[Prediction],
    labels: Sequence[str | None],
    path: str,
    right: dict[str, int],
) -> Iterator[Prediction]:
    """Pass predictions on, and count in `right` those that equal the rows' labels."""
    right[path] = 0
    for one, label in zip(predictions, labels):
        right[path] += bool(one.classes) and one.classes[0][0] == label
        yield one


def _say_accuracy(rows: Rows, right: int, form: str) -> None:
    """Print the accuracy below text output, or on standard error with JSON or CSV."""
    share = right / len(rows)
    line = f"{rows.where}: accuracy {share:.2%}, {right} of {len(rows)} rows"
    say(line, file=sys.stdout if form == "text" else sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("predict")
    add_options(parser, _READ, run={"required": True}, clients={"type": _numbers})
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json", dest="form", action="store_const", const="json", help="print JSON"
    )
    form.add_argument(
        "--csv", dest="form", action="store_const", const="csv", help="print CSV"
    )
    form.set_defaults(form="text")
    add_options(
        parser,
        _PREDICTED,
        top={"type": _positive, "default": 1},
        pretrained={"default": ""},
        device={"default": ""},
        flag_below={"type": float},
    )
    add_labels_option(parser)
    add_folder_options(parser)
    add_console_options(parser)
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, got {text!r}")
    return int(text)


def _numbers(text: str) -> int | list[int]:
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise argparse.ArgumentTypeError(
            f"must be client numbers separated by commas, got {text!r}"
        )
    return int(text) if len(words) == 1 else [int(word) for word in words]


def _naming_broken(
    predictions: Iterable[Prediction], broken: list[Prediction]
) -> Iterator[Prediction]:
    for one in predictions:
        if one.problem:
            say(f"error: {one.problem}", file=sys.stderr)
            broken.append(one)
        yield one


def _is_flagged(one: Prediction, least: float | None) -> bool:
    return least is not None and one.confidence is not None and one.confidence < least


def _print_text(
    predictions: Iterable[Prediction], least: float | None, calibrated_by: str | None
) -> None:
    for one in predictions:
        shown = ", ".join(f"{name} {share:.3f}" for name, share in one.classes)
        flag = " (flagged)" if _is_flagged(one, least) else ""
        say(f"{one.image}: {shown or 'cannot be read'}{flag}")


def _print_json(
    predictions: Iterable[Prediction], least: float | None, calibrated_by: str | None
) -> None:
    rows = [
        {
            "image": one.image,
            "classes": [{"class": c, "probability": p} for c, p in one.classes],
            "calibrated_by": calibrated_by,
            "confidence": one.confidence,
            "flagged": None if least is None else _is_flagged(one, least),
            "error": one.problem or None,
        }
        for one in predictions
    ]
    say_json(rows)


def _print_csv(
    predictions: Iterable[Prediction], least: float | None, calibrated_by: str | None
) -> None:
    def show(*cells: object) -> None:
        print(csv_text([cells]), end="", flush=True)

    titles = ["image", "rank", "class", "probability", "error", "confidence"]
    show(*titles, "flagged")
    for one in predictions:
        if one.problem:
            show(one.image, "", "", "", one.problem, "", "")
        for rank, (name, share) in enumerate(one.classes, 1):
            flag = "" if least is None else int(_is_flagged(one, least))
            show(one.image, rank, name, share, "", one.confidence, flag)


_PRINTERS = {"text": _print_text, "csv": _print_csv, "json": _print_json}
