"""Read the models in a run's folder: the global model, and clients' own models."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from federatedscope_ggeur import models, reporting
from federatedscope_ggeur.cfg_ggeur.foreign import config_left
from federatedscope_ggeur.cfg_ggeur.run_settings import model_settings, scored_settings
from federatedscope_ggeur.cfg_ggeur.transform import expected_rows
from federatedscope_ggeur.data import Expected, Given, transform_rows
from federatedscope_ggeur.data.rows import NOT_KNOWN
from federatedscope_ggeur.downloads import sha256_file
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.files import check_regular
from federatedscope_ggeur.machine import plain_torch
from federatedscope_ggeur.reporting import HEAD_FILE, OWN_FOLDER, RESULTS_FILE, Results

Tensors = Mapping[str, Tensor]


class LeftModels:
    """The models in a run's folder, or in the folder of one client of a distributed
    run.

    Parameters
    ----------
    folder : path

    Attributes
    ----------
    results : Results
        The run's results. In a client's folder, the part that the client knows.
    must_say : bool
        Whether a caller must say which client's model predicts.
    has_own : bool
        Whether clients have their own models.

    Raises
    ------
    ConfigError
        The folder is neither of the two, or there is no model in it.
    DataError
        A file is damaged, or belongs to another run.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.results = _read_results(self.folder)
        round0 = self.results.round0
        personal = round0 is not None and round0.personal is not None
        self.must_say = self.results.final.scored == "clients"
        self.has_own = self.must_say or personal
        self._head: Tensors | None = None
        if (self.folder / HEAD_FILE).is_file() or not self.must_say:
            self._head = self._read(self.folder / HEAD_FILE)[0]

    def on(self, dim: int) -> models.OwnModels:
        """The models for rows of `dim` dimensions.

        A client's own model is read from its file when it is used.

        Raises
        ------
        ConfigError
            The run's settings are wrong, or name a plugin that is not loaded.
        DataError
            The global model does not fit the run's settings.
        """
        cfg = config_left(self.results)
        settings = scored_settings(cfg, model_settings(cfg))
        model = models.build_model(dim, len(self.results.class_names), settings)
        if self._head is not None:
            try:
                model.load_state_dict(self._head)
            except RuntimeError as error:
                width = _width_of(self._head, model, dim)
                problem = (
                    f"the head takes rows of {width} columns, not {dim}"
                    if width is not None
                    else "the head does not fit the run's settings: "
                    + " ".join(str(error).split())
                )
                raise DataError(f"{self.folder / HEAD_FILE}: {problem}") from error
        return models.OwnModels(model.eval(), _OwnFiles(self), self._head is not None)

    @property
    def expected(self) -> Expected:
        """What the run's head expects of rows."""
        results = self.results
        given = NOT_KNOWN if results.given is None else Given.of_plain(results.given)
        cfg = config_left(results)
        return expected_rows(cfg, results.class_names, results.encoder, given)

    @plain_torch()
    def results_with_models(self, dim: int) -> Results:
        """The run's results together with its models, as the run itself returned them.

        `dim` is the number of dimensions of rows before the run's transform. It matters
        only if the run did not record it.

        Raises
        ------
        ConfigError, DataError
            As for `on` and `own`.
        """
        expected = self.expected
        zeros = torch.zeros(1, expected.given.dim or dim)
        left = self.on(transform_rows(zeros, expected.given.transform).shape[1])
        held = left.tensors if self.has_own else ()
        own = {number: self.own(number) for number in held}
        return replace(
            self.results,
            model=left.model if left.shared else None,
            own_models=models.OwnModels(left.model, own, left.shared) if own else None,
            prepare=expected.take,
        )

    def numbers(self, clients: Any, rows: int, name: str = "clients") -> Tensor:
        """For each row, the number of the client whose model predicts; see
        `numbers_of_rows`.

        All numbers are 0 if one model serves all clients.

        Raises
        ------
        DataError
            `clients` is wrong, or a client's model is not in the folder.
        """
        known, shared = self.results.clients, self._head is not None
        if clients is None and not self.must_say:
            return torch.zeros(rows, dtype=torch.int64)
        numbers = reporting.numbers_of_rows(clients, rows, known, shared, name)
        if not self.has_own:
            return torch.zeros(rows, dtype=torch.int64)
        for number in filter(None, set(numbers.tolist())):
            self._own_file(number, name)
        return torch.from_numpy(numbers)

    def _own_file(self, number: int, name: str = "clients") -> Path:
        path = reporting.own_file(self.folder, number)
        if not path.is_file():
            raise DataError(
                f"{name}: client {number}'s own model is not in '{self.folder}'. "
                "After a distributed run, name the folder in which the client ran; "
                f"the model is in {OWN_FOLDER} there"
            )
        return path

    def own(self, number: int) -> Tensors:
        """The tensors in which a client's model differs from the global model.

        Raises
        ------
        DataError
            The client's file is missing or damaged, or belongs to another client or
            another global model.
        """
        path, head = self._own_file(number), self.folder / HEAD_FILE
        tensors, metadata = self._read(path)
        if metadata.get("client") != str(number):
            raise DataError(
                f"{path}: the file holds the model of another client than {number}; "
                "was it renamed?"
            )
        digest = None if self._head is None else sha256_file(head)
        if metadata.get(models.OF_HEAD) != digest:
            raise _of_two_runs(path, HEAD_FILE)
        return tensors

    def _read(self, path: Path) -> tuple[Tensors, Mapping[str, str]]:
        tensors, metadata = _read_tensors(path)
        classes = json.dumps(self.results.class_names)
        recorded = {"encoder": self.results.encoder, "class_names": classes}
        if any(metadata.get(key) != value for key, value in recorded.items()):
            raise _of_two_runs(path, f"{RESULTS_FILE} (encoder or classes differ)")
        return tensors, metadata


def write_with_models(folder: str | Path, results: Results) -> None:
    """Write a run's results and its models into a folder, for `LeftModels` to read.

    Raises
    ------
    ConfigError
        A file cannot be written.
    """
    about = results.class_names, results.encoder
    head = None if results.model is None else models.head_bytes(results.model, *about)
    tensors = {} if results.own_models is None else results.own_models.tensors
    own = (
        (k.number, models.own_bytes(tensor, k.number, k.domain, head, *about))
        for k in results.clients
        if (tensor := tensors.get(k.number)) is not None
    )
    reporting.write_left(folder, results, head, own)


class _OwnFiles(Mapping):
    """The tensors of clients' own models by client number.

    Each file is read when its tensors are used.
    """

    def __init__(self, left: LeftModels):
        self._left = left

    def __getitem__(self, number: int) -> Tensors:
        return self._left.own(number)

    def __iter__(self) -> Iterator[int]:
        return (info.number for info in self._left.results.clients)

    def __len__(self) -> int:
        return len(self._left.results.clients)


def _read_tensors(path: Path) -> tuple[Tensors, Mapping[str, str]]:
    try:
        check_regular(path)
        with safe_open(str(path), "pt") as file:
            tensors = {name: file.get_tensor(name) for name in list(file.keys())}
            return tensors, file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path}: the file is damaged: {error}") from error


def _of_two_runs(path: Path, other: str) -> DataError:
    return DataError(
        f"{path}: this file and {other} are not from the same run; take both files "
        "from one run"
    )


def _read_results(folder: Path) -> Results:
    if problem := reporting.cut_off(folder):
        raise ConfigError(problem)
    if not (folder / RESULTS_FILE).is_file():
        raise ConfigError(
            f"there is no {RESULTS_FILE} in '{folder}'. Name the folder that "
            "the run printed at its start (outdir/expname); the run must have finished "
            "at least one round, and not been killed."
        )
    results = reporting.read_results(folder)
    if results.final.scored == "global" and not (folder / HEAD_FILE).is_file():
        raise ConfigError(
            f"'{folder}' holds no {HEAD_FILE}, which was removed, so the run "
            "has no head to predict with; name another run."
        )
    return results


def _width_of(held: Tensors, model: models.Model, dim: int) -> int | None:
    """The columns of the rows that a head takes; None if the head differs in more.

    `model` is the model for rows of `dim` columns.
    """
    made = model.state_dict()
    if held.keys() != made.keys():
        return None
    widths = set()
    for name, tensor in made.items():
        *others, last = held[name].shape
        if held[name].shape == tensor.shape:
            continue
        if [*others, dim] != list(tensor.shape):
            return None
        widths.add(last)
    return widths.pop() if len(widths) == 1 else None
