"""The models that a run left in its folder: the global one, and clients' own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from federatedscope_ggeur.cfg_ggeur.foreign import config_left
from federatedscope_ggeur.cfg_ggeur.run_settings import scored_settings
from federatedscope_ggeur.cfg_ggeur.transform import row_preparation
from federatedscope_ggeur.downloads import sha256_file
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.models import (
    OF_HEAD,
    OwnModels,
    build_model,
    head_bytes,
    own_bytes,
)
from federatedscope_ggeur.models.strangeness import Strangeness
from federatedscope_ggeur.reporting import (
    HEAD_FILE,
    OWN_FOLDER,
    RESULTS_FILE,
    STRANGENESS_FILE,
    Results,
    numbers_of_rows,
    own_file,
    read_results,
    write_left,
)

Tensors = Mapping[str, Tensor]


class LeftModels:
    """The models in a run's folder, or in that of a client of a distributed run.

    Parameters
    ----------
    folder : path

    Attributes
    ----------
    results : Results
        In a client's folder, what the client knows of the run.

    Raises
    ------
    ConfigError
        It is neither kind of folder, or there is no model in it.
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

    def on(self, dim: int) -> OwnModels:
        """The models for rows of `dim` dimensions; clients' own are read when used.

        Raises
        ------
        ConfigError
            The run's settings are wrong, or name a plugin that is not loaded.
        DataError
            The global model does not fit the run's settings.
        """
        settings = scored_settings(config_left(self.results))
        model = build_model(dim, len(self.results.class_names), settings)
        if self._head is not None:
            try:
                model.load_state_dict(self._head)
            except RuntimeError as error:
                raise DataError(
                    f"{self.folder / HEAD_FILE}: does not fit the run's settings: "
                    f"{' '.join(str(error).split())}"
                ) from error
        return OwnModels(model.eval(), _OwnFiles(self), self._head is not None)

    @property
    def _prepare(self) -> Callable[[Tensor], Tensor] | None:
        return row_preparation(config_left(self.results), self.results.encoder)

    def prepared(self, dim: int) -> int:
        """The dimensions that the models take, of rows of `dim` dimensions.

        Raises
        ------
        DataError
            The run projects rows of other dimensions.
        """
        prepare = self._prepare
        return dim if prepare is None else prepare(torch.zeros(1, dim)).shape[1]

    def results_with_models(self, dim: int) -> Results:
        """The results with the models, as the run returned them, for rows of `dim`
        dimensions, once they are prepared.

        Raises
        ------
        ConfigError, DataError
            As `on` and `own`.
        """
        left = self.on(dim)
        held = left.tensors if self.has_own else ()
        own = {number: self.own(number) for number in held}
        return replace(
            self.results,
            model=left.model if left.shared else None,
            own_models=OwnModels(left.model, own, left.shared) if own else None,
            strange=self.strangeness(),
            prepare=self._prepare,
        )

    def numbers(self, clients: Any, rows: int, name: str = "clients") -> Tensor:
        """The client whose model predicts each row; see `numbers_of_rows`.

        All are 0 if there is one model for all.

        Raises
        ------
        DataError
            `clients` is wrong, or a client's model is not in the folder.
        """
        if clients is None and not self.must_say:
            return torch.zeros(rows, dtype=torch.int64)
        known, shared = self.results.clients, self._head is not None
        found = torch.from_numpy(numbers_of_rows(clients, rows, known, shared, name))
        if not self.has_own:
            return torch.zeros_like(found)
        for number in found.unique().tolist():
            if number and not own_file(self.folder, number).is_file():
                raise DataError(
                    f"{name}: client {number}'s own model is not in '{self.folder}': "
                    f"in distributed mode it is in {OWN_FOLDER} of the folder in which "
                    "the client ran; name that folder"
                )
        return found

    def own(self, number: int) -> Tensors:
        """The tensors of a client's model that replace those of the global one.

        Raises
        ------
        DataError
            Its file is damaged, or belongs to another client or another global model.
        """
        path, head = own_file(self.folder, number), self.folder / HEAD_FILE
        tensors, metadata = self._read(path)
        if metadata.get("client") != str(number):
            raise DataError(f"{path}: is not the model of client {number}")
        digest = None if self._head is None else sha256_file(head)
        if metadata.get(OF_HEAD) != digest:
            raise _of_two_runs(path, HEAD_FILE)
        return tensors

    def strangeness(self) -> Strangeness | None:
        """The measure of how unlike all classes a row is; None if the run left none.

        Raises
        ------
        DataError
            Its file is damaged, or belongs to another head.
        """
        path = self.folder / STRANGENESS_FILE
        if not path.is_file() or self._head is None:
            return None
        tensors, metadata = _read_tensors(path)
        try:
            found = Strangeness.of_tensors(tensors)
        except KeyError as error:
            raise DataError(f"{path}: is damaged: {error}") from error
        if metadata.get(OF_HEAD) != sha256_file(self.folder / HEAD_FILE):
            raise _of_two_runs(path, HEAD_FILE)
        return found

    def _read(self, path: Path) -> tuple[Tensors, Mapping[str, str]]:
        tensors, metadata = _read_tensors(path)
        classes = json.dumps(self.results.class_names)
        recorded = {"encoder": self.results.encoder, "class_names": classes}
        if any(metadata.get(key) != value for key, value in recorded.items()):
            raise _of_two_runs(path, f"{RESULTS_FILE} (encoder or classes differ)")
        return tensors, metadata


def write_with_models(folder: str | Path, results: Results) -> None:
    """Write results that have their models, so that `LeftModels` reads them.

    Raises
    ------
    ConfigError
        A file cannot be written.
    """
    about = results.class_names, results.encoder
    head = None if results.model is None else head_bytes(results.model, *about)
    tensors = {} if results.own_models is None else results.own_models.tensors
    holders = [info for info in results.clients if info.number in tensors]
    own = (
        (k.number, own_bytes(tensors[k.number], k.number, k.domain, head, *about))
        for k in holders
    )
    write_left(folder, results, head, own)


class _OwnFiles(Mapping):
    """Clients' own tensors by number, each read when it is used."""

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
        with safe_open(str(path), "pt") as file:
            tensors = {name: file.get_tensor(name) for name in list(file.keys())}
            return tensors, file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path}: is damaged: {error}") from error


def _of_two_runs(path: Path, other: str) -> DataError:
    return DataError(
        f"{path}: is not of the same run as {other}; take both from one run"
    )


def _read_results(folder: Path) -> Results:
    if not (folder / RESULTS_FILE).is_file():
        raise ConfigError(
            f"--run: '{folder}' is not the folder of a run that got beyond its first "
            f"round: it holds no {RESULTS_FILE}. Name the folder that the run printed "
            "at its start (outdir/expname)."
        )
    results = read_results(folder)
    if results.final.scored == "global" and not (folder / HEAD_FILE).is_file():
        raise ConfigError(
            f"--run: the run in '{folder}' has no head to predict with: it holds no "
            f"{HEAD_FILE}. The file was taken away; name another run."
        )
    return results
