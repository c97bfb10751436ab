"""``ggeur export``: writes a run's head as an ONNX file, and a model card.

The graph computes what `predict` computes, in the same order: the run's transform of
rows, the head, softmax, and the smoothing of probabilities. A temperature is part of
the head's numbers already. All is computed in float64: in float32 two programs differ
by much where logits are in the thousands.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from federatedscope_ggeur.cfg_ggeur.demands import other_model_of
from federatedscope_ggeur.cfg_ggeur.foreign import config_left
from federatedscope_ggeur.cfg_ggeur.plugins import load_plugins
from federatedscope_ggeur.commands import (
    add_options,
    add_plugins_option,
    command_parser,
)
from federatedscope_ggeur.data import Rows
from federatedscope_ggeur.data.transforms import (
    LIFT,
    NO_TRANSFORM,
    PROJECTED,
    TRANSFORMS,
    lift_directions,
    random_projection,
)
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.files import write_once
from federatedscope_ggeur.models import Model
from federatedscope_ggeur.models.base import OFFSET_SHARE, SMOOTHING
from federatedscope_ggeur.models.folding import AverageHead
from federatedscope_ggeur.models.heads import LinearHead, MixtureHead, MLPHead
from federatedscope_ggeur.predictor.left_models import LeftModels
from federatedscope_ggeur.printable import markdown, printable, say
from federatedscope_ggeur.reporting import Results
from federatedscope_ggeur.reporting.lines import (
    percent,
    privacy_line,
    probabilities_line,
)

INSTALL = "pip install 'federatedscope-ggeur[onnx]'"
#: The largest difference of a probability to that of `predict`.
WITHIN = 1e-5
_OPSET, _IR = 17, 8  # read by onnxruntime 1.13 and later
_CHECKED = 256  # rows drawn to compare

_OPTIONS = """
run RUN: the folder of a run
--onnx FILE: write the head here
--card FILE: write a model card here, as Markdown
--rows FILE: embeddings on which the ONNX file is compared with `predict` (default:
  drawn ones)
"""


def export(arguments: Sequence[str]) -> int:
    """Write the files that the options name."""
    parser = command_parser(
        "export",
        "The ONNX file takes rows of embeddings [n, D] and gives `class`, "
        "`probabilities` and `logits`.",
    )
    add_options(parser, _OPTIONS)
    add_plugins_option(parser)
    options = parser.parse_args(arguments)
    if not (options.onnx or options.card):
        parser.error("name a file to write: --onnx FILE, --card FILE")
    for name in filter(None, (options.onnx, options.card)):
        if os.path.lexists(name):
            raise ConfigError(f"'{name}' exists already; name another file")
    load_plugins(options.plugins, Path.cwd(), asked_by="--plugins")
    left = _left(options.run)
    if options.onnx:
        width, titles = _width(left), left.expected.given.titles
        rows = None if options.rows is None else Rows.of_file(options.rows, titles)
        data, said = onnx_bytes(left.results_with_models(width), rows)
        write_once(Path(options.onnx), data)
        say(f"{options.onnx}: {len(data) / 1e6:.2f} MB; {said}")
    if options.card:
        write_once(Path(options.card), model_card(left.results))
        say(options.card)
    return 0


def _left(folder: str) -> LeftModels:
    """A run's models; refuses heads that belong to single clients."""
    left = LeftModels(folder)
    if left.must_say:
        raise ConfigError(
            f"'{folder}': every client has a model of its own, and none is for all. "
            "Export takes the head of a federation; predict with "
            f"`ggeur predict --run {folder} --clients N`"
        )
    return left


def _width(left: LeftModels) -> int:
    """The columns of the rows that a run's head takes; refuses networks."""
    if network := _network(left.results):
        raise ConfigError(
            f"--onnx: '{left.folder}' holds a model of images ({network}), which "
            "cannot be exported; heads on embeddings can. --card alone can be written"
        )
    width = left.expected.given.dim
    if width is None:
        raise ConfigError(
            f"--onnx: an older release made the run '{left.folder}', and did not "
            "record how wide its rows are; run it again"
        )
    return width


def _network(results: Results) -> str:
    """The words for a model of images in place of a head; "" if it is a head."""
    other = other_model_of(config_left(results))
    return other.told if other is not None and other.takes_images else ""


# the graph


class _Graph:
    """Nodes and constants of a graph; a value is the name that `add` returns."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operation: str, *inputs: str, name: str = "", **attributes) -> str:
        name, make = name or f"value_{len(self.nodes)}", self._onnx.helper.make_node
        self.nodes.append(make(operation, inputs, [name], **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        name = f"constant_{len(self.constants)}"
        array = np.ascontiguousarray(np.asarray(value, dtype))
        self.constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def cast(self, value: str, kind: str, name: str = "") -> str:
        number = self._onnx.TensorProto.DataType.Value(kind)
        return self.add("Cast", value, name=name, to=number)

    def parameter(self, tensor: Tensor) -> str:
        """A head's float32 numbers; half as long in the file as float64."""
        stored = self.constant(tensor.detach().numpy(), np.float32)
        return self.cast(stored, "DOUBLE")

    def names(self, texts: Sequence[str]) -> str:
        raw, kind = [text.encode() for text in texts], self._onnx.TensorProto.STRING
        made = self._onnx.helper.make_tensor("class_names", kind, [len(raw)], raw)
        self.constants.append(made)
        return made.name


def onnx_bytes(results: Results, rows: Rows | None = None) -> tuple[bytes, str]:
    """The head of `results` as the bytes of an ONNX file, and what was compared.

    Raises
    ------
    ConfigError
        onnx is not installed, or the head or the transform has no graph here.
    DataError
        onnxruntime cannot compute the graph, or gives other probabilities than
        `predict`.
    """
    try:
        import onnx
    except ImportError as error:
        raise ConfigError(f"--onnx: needs the package onnx: {INSTALL}") from error
    helper, numbers = onnx.helper, onnx.TensorProto.FLOAT
    make_info = helper.make_tensor_value_info
    given = results.given or {}
    transform, width = given.get("transform") or NO_TRANSFORM, given["dim"]
    graph = _Graph(onnx)
    features = _transformed(graph, "features", transform, width)
    logits = _logits(graph, results.model, graph.cast(features, "DOUBLE"))
    count = len(results.class_names)
    graph.cast(logits, "FLOAT", name="logits")
    graph.cast(_probabilities(graph, logits, count), "FLOAT", name="probabilities")
    best = graph.add("ArgMax", logits, axis=1, keepdims=0)
    graph.add("Gather", graph.names(results.class_names), best, name="class")
    made = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "head",
            [make_info("features", numbers, ["n", width])],
            [
                make_info("class", onnx.TensorProto.STRING, ["n"]),
                make_info("probabilities", numbers, ["n", count]),
                make_info("logits", numbers, ["n", count]),
            ],
            graph.constants,
        ),
        producer_name="federatedscope_ggeur",
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
    )
    about = {
        "class_names": json.dumps(results.class_names),
        "encoder": results.encoder,
        "transform": transform,
        "columns": json.dumps(given.get("titles")),
        "calibrated_by": results.final.calibrated_by or "",
        "config_sha256": config_digest(results),
    }
    helper.set_model_props(made, about)
    onnx.checker.check_model(made)
    data = made.SerializeToString()
    return data, _compared(data, results, width, rows)


def _transformed(graph: _Graph, rows: str, transform: str, width: int) -> str:
    """The rows after one of `data.transforms.TRANSFORMS`, or after a projection."""
    if transform == NO_TRANSFORM:
        return rows
    name, *numbers = transform.split(":")
    if name not in (*TRANSFORMS, PROJECTED):
        raise ConfigError(f"--onnx: the transform {transform!r} cannot be exported")
    exact = graph.cast(rows, "DOUBLE")
    if name == LIFT:
        directions = graph.constant(lift_directions(width).numpy())
        added = graph.add("Relu", graph.add("MatMul", exact, directions))
        added = graph.cast(added, "FLOAT")
        return graph.add("Concat", rows, added, axis=1)
    if name == "sqrt_l2":
        root = graph.add("Sqrt", graph.add("Abs", exact))
        exact = graph.add("Mul", graph.add("Sign", exact), root)
    exact = _of_length_1(graph, exact)
    kept, seed = map(int, numbers or (0, 0))
    if 0 < kept < width:
        matrix = random_projection(width, kept, seed).T.numpy()
        exact = graph.add("MatMul", exact, graph.constant(matrix))
        exact = _of_length_1(graph, exact)
    return graph.cast(exact, "FLOAT")


def _of_length_1(graph: _Graph, rows: str) -> str:
    """Rows divided by their length, after their largest entry; zeros stay."""
    zero, one = graph.constant(0), graph.constant(1)
    axes = graph.constant([1], np.int64)

    def divided(rows: str, sizes: str) -> str:
        is_zero = graph.add("Equal", sizes, zero)
        return graph.add("Div", rows, graph.add("Where", is_zero, one, sizes))

    rows = divided(rows, graph.add("ReduceMax", graph.add("Abs", rows), axes=[1]))
    squares = graph.add("ReduceSum", graph.add("Mul", rows, rows), axes)
    return divided(rows, graph.add("Sqrt", squares))


def _logits(graph: _Graph, model: Model, rows: str) -> str:
    """The logits [n, C] of a head."""
    if type(model) is LinearHead:
        return _affine(graph, rows, model.classifier.weight, model.classifier.bias)
    if type(model) is MLPHead:
        hidden = _affine(graph, rows, model.hidden.weight, model.hidden.bias)
        units = graph.add("Relu", hidden)
        return _affine(graph, units, model.classifier.weight, model.classifier.bias)
    if type(model) is MixtureHead:
        return _logits_of_mixture(graph, model, rows)
    if type(model) is AverageHead:
        return _logits_of_average(graph, model, rows)
    raise ConfigError(
        f"--onnx: heads of the kind {type(model).__name__} cannot be exported; "
        "linear, MLP and mixture heads can, and the mean of two"
    )


def _probabilities(graph: _Graph, logits: str, classes: int) -> str:
    """The published probabilities; see `Model.probabilities`."""
    return _with_equal_part(graph, logits, classes, SMOOTHING)


def _with_equal_part(graph: _Graph, logits: str, classes: int, part: float) -> str:
    """Softmax of the logits, of which this part is shared equally by all classes."""
    shares = graph.add("Softmax", logits, axis=1)
    shares = graph.add("Mul", shares, graph.constant(1 - part))
    return graph.add("Add", shares, graph.constant(part / classes))


def _affine(graph: _Graph, rows: str, weight: Any, bias: Any) -> str:
    numbers = graph.parameter(weight), graph.parameter(bias)
    return graph.add("Gemm", rows, *numbers, transB=1)


def _logits_of_mixture(graph: _Graph, model: MixtureHead, rows: str) -> str:
    centred = rows
    if model.centre is not None:
        centre = graph.parameter(model.centre[: model.in_features])
        centred = graph.add("Sub", rows, centre)
    # Each class gets as many places as the largest has components. Empty places get
    # -1e30, so they add nothing to the sum.
    of_class = model.classes.long()
    most = int(of_class.bincount().max())
    shape = (model.num_classes, most, model.in_features)
    weight, bias = model.weight.new_zeros(shape), model.bias.new_full(shape[:2], -1e30)
    for c in range(model.num_classes):
        mine = of_class == c
        weight[c, : mine.sum()] = model.weight.detach()[mine]
        bias[c, : mine.sum()] = model.bias.detach()[mine]
    scores = _affine(graph, centred, weight.flatten(0, 1), bias.flatten())
    places = graph.constant([-1, model.num_classes, most], np.int64)
    scores = graph.add("Reshape", scores, places)
    largest = graph.add("ReduceMax", scores, axes=[2])
    shares = graph.add("Exp", graph.add("Sub", scores, largest))
    summed = graph.add("ReduceSum", shares, graph.constant([2], np.int64))
    logits = graph.add("Add", graph.add("Log", summed), largest)
    logits = graph.add("Squeeze", logits, graph.constant([2], np.int64))
    if model.precisions is not None:
        logits = graph.add("Sub", logits, _half_squares(graph, model, centred))
    return graph.add("Mul", logits, graph.parameter(model.scale))


def _half_squares(graph: _Graph, model: MixtureHead, rows: str) -> str:
    """Half of ``z P_c z`` of each row z and class c: [n, C]."""
    assert model.precisions is not None
    columns = []
    for precision in model.precisions.detach() / 2:
        turned = graph.add("MatMul", rows, graph.parameter(precision))
        squares = graph.add("Mul", turned, rows)
        columns.append(graph.add("ReduceSum", squares, graph.constant([1], np.int64)))
    return graph.add("Concat", *columns, axis=1)


def _logits_of_average(graph: _Graph, model: AverageHead, rows: str) -> str:
    """The logarithm of the mean, summed from its larger part on, over the temperature;
    one part may be the whole."""
    share, unknown = model.share.item(), (model.known == 0).numpy()
    one_shot = trained = ""
    if share > 0 or model.offset:
        one_shot = _logits(graph, model.one_shot, rows)
    if share < 1 or unknown.any():
        trained = _logits(graph, model.trained, rows)
    if trained and model.offset:
        known = _probabilities(graph, one_shot, model.num_classes)
        share_of = graph.constant(OFFSET_SHARE)
        offsets = graph.add("Mul", graph.add("Log", known), share_of)
        trained = graph.add("Add", trained, offsets)
    if trained:
        trained = graph.add("LogSoftmax", trained, axis=1)
    if one_shot:
        one_shot = graph.add("LogSoftmax", one_shot, axis=1)
    if one_shot and unknown.any():
        one_shot = _completed(graph, one_shot, trained, unknown)
    logs = []
    for weight, log in ((share, one_shot), (1 - share, trained)):
        if weight > 0:
            logs.append(graph.add("Add", log, graph.constant(math.log(weight))))
    log = logs[0]
    if len(logs) == 2:
        largest = graph.add("Max", *logs)
        shares = (graph.add("Exp", graph.add("Sub", one, largest)) for one in logs)
        log = graph.add("Add", graph.add("Log", graph.add("Add", *shares)), largest)
    logits = graph.add("Div", log, graph.constant(model.temperature.item()))
    floor = model.floor.item()
    if not floor:
        return logits
    raised = _with_equal_part(graph, logits, model.num_classes, floor)
    return graph.add("Log", raised)


def _completed(graph: _Graph, one_shot: str, trained: str, unknown: Any) -> str:
    """The one-shot head's log-probabilities, completed by those of the trained head."""
    without = graph.constant(np.where(unknown, -1e30, 0.0))
    inside = graph.add("LogSoftmax", graph.add("Add", one_shot, without), axis=1)
    others = graph.add("Add", trained, without)
    whole = graph.add("ReduceLogSumExp", others, axes=[1], keepdims=1)
    known = graph.add("Add", inside, whole)
    return graph.add("Where", graph.constant(unknown, np.bool_), trained, known)


def _compared(data: bytes, results: Results, width: int, rows: Rows | None) -> str:
    """What onnxruntime gave, beside `predict`."""
    try:
        import onnxruntime
    except ImportError:
        return f"not compared with predict, since onnxruntime is missing: {INSTALL}"
    if rows is None:
        drawn = np.random.default_rng(0).normal(size=(_CHECKED, width))
        features = (drawn / math.sqrt(width)).astype(np.float32)
        which = f"{_CHECKED} drawn rows"
    else:
        titles = (results.given or {}).get("titles")
        features = np.asarray(rows.in_order_of(titles), np.float32)
        if not len(features):
            raise DataError(f"--rows: {rows.where} has no rows to compare on")
        which = f"{len(features)} rows of {rows.where}"
    expected = Model.probabilities(results.logits(features, exact=True)).numpy()
    try:
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        (computed,) = session.run(["probabilities"], {"features": features})
    except Exception as error:  # onnxruntime's errors have no other class in common
        raise DataError(
            f"--onnx: onnxruntime {onnxruntime.__version__} cannot compute it: "
            f"{printable(error, 500)}; nothing was written"
        ) from error
    apart = float(np.abs(computed - expected).max())
    if not apart <= WITHIN:
        raise DataError(
            f"--onnx: onnxruntime's probabilities differ from predict's by {apart:.1e} "
            f"on {which}, more than {WITHIN:g}; nothing was written"
        )
    return f"probabilities as predict's within {apart:.1e} on {which}"


# the card


def config_digest(results: Results) -> str:
    """SHA-256 of the run's settings, as JSON with sorted keys."""
    return hashlib.sha256(
        json.dumps(results.config, sort_keys=True).encode()
    ).hexdigest()


def model_card(results: Results) -> str:
    """A model card as Markdown, of what the run recorded and no more."""
    final, given, privacy = results.final, results.given or {}, results.privacy
    names = ", ".join(map(markdown, results.class_names))
    network, width = _network(results), given.get("dim")
    rows = f"images ({markdown(network)})" if network else "embeddings"
    rows += "" if width is None else f", {width} columns a row"
    about = (
        f"A classifier of {rows}. Encoder: "
        f"{markdown(results.encoder)}. Transform of rows: "
        f"{given.get('transform') or NO_TRANSFORM}. "
        f"{len(results.class_names)} classes: {names}."
    )
    errors = (
        "s.e.: the standard error from the number of test rows, in percentage points. "
        "This is one run; other seeds give other numbers."
    )
    by = final.calibrated_by
    probabilities = f"Not scored. {f'Calibrated by: {by}' if by else 'Not calibrated'}."
    if final.probabilities is not None:
        probabilities = probabilities_line(final)
    sent = f"{final.bytes_up / 1e6:.2f} MB up, {final.bytes_down / 1e6:.2f} MB down"
    versions = ", ".join(f"{name} {v}" for name, v in results.versions.items())
    origin = [
        f"- head: {final.head}; SHA-256 {final.head_sha256}",
        f"- settings: SHA-256 {config_digest(results)}; seed {results.seed}",
        f"- engine: {results.engine}; {sent}",
        f"- versions: {markdown(versions)}",
    ]
    parts = [
        f"# Model card: {markdown(results.config.get('expname') or 'a head')}",
        about,
        "## Data, and scores on test rows",
        "\n".join(_score_lines(results)),
        errors,
        "## Probabilities",
        probabilities,
        "## Privacy",
        "privacy: not known" if privacy is None else privacy_line(privacy),
        "## Where it is from",
        "\n".join(origin),
    ]
    if results.notes:
        notes = [f"- {markdown(note)}" for note in results.notes]
        parts += ["## Notes of the run", "\n".join(notes)]
    return "\n\n".join(parts) + "\n"


def _score_lines(results: Results) -> Iterator[str]:
    """Yield the lines of the table of domains."""
    final, errors = results.final, []
    yield "| domain | clients | rows to train on | test rows | accuracy in % (s.e.) |"
    yield "| --- | --- | --- | --- | --- |"
    for domain in results.domains:
        clients = [one for one in results.clients if one.domain == domain]
        train = _sum(one.train_rows for one in clients)
        test = _sum(one.test_rows for one in clients)
        accuracy = final.accuracy.get(domain)
        errors.append(_error(accuracy, test))
        yield (
            f"| {markdown(domain)} | {len(clients)} | {_shown(train)} | "
            f"{_shown(test)} | {percent(accuracy)}{_behind(errors[-1])} |"
        )
    whole = len(errors) > 0 and None not in errors
    error = math.hypot(*errors) / len(errors) if whole else None
    yield f"| AVG | | | | {percent(final.avg)}{_behind(error)} |"


def _sum(numbers) -> int | None:
    known = list(numbers)
    return None if None in known else sum(known)


def _shown(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _error(share: float | None, rows: int | None) -> float | None:
    """The standard error of a share of `rows` rows."""
    if share is None or not rows:
        return None
    return math.sqrt(share * (1 - share) / rows)


def _behind(error: float | None) -> str:
    return "" if error is None else f" ({100 * error:.2f})"
