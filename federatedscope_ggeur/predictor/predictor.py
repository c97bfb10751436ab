"""Predict the classes of new images with a run's encoder and head."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from yacs.config import CfgNode

from federatedscope_ggeur.cfg_ggeur import all_keys, foreign
from federatedscope_ggeur.cfg_ggeur.plugins import load_plugins
from federatedscope_ggeur.cfg_ggeur.run_settings import encoding_settings
from federatedscope_ggeur.data import (
    SUFFIX,
    EncodingSettings,
    Expected,
    Rows,
    encoders,
    is_image_type,
)
from federatedscope_ggeur.data.extraction import Unreadable, prepared
from federatedscope_ggeur.data.images import Images
from federatedscope_ggeur.data.images.files import FileLoader, is_image_name
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.machine import torch_threads
from federatedscope_ggeur.models import Model
from federatedscope_ggeur.models.closed_forms.left_out import confidence_edges
from federatedscope_ggeur.reporting import Results

from .left_models import LeftModels


@dataclass(frozen=True)
class Prediction:
    """The predicted classes of one image or embedding.

    Attributes
    ----------
    image : str
        The path of the image. For an embedding ``file[row]``, with rows numbered from
        0.
    classes : tuple of (str, float)
        The names and probabilities of the likeliest classes, the likeliest first.
    problem : str
        Why there are no classes; else "".
    confidence : float or None
        The largest probability.
    """

    image: str
    classes: tuple[tuple[str, float], ...]
    problem: str = ""
    confidence: float | None = None


class Predictor:
    """The classifier that a run left: its head and, for a run on images, its encoder.

    Attributes
    ----------
    encoder : Encoder or None
        None for a run on embeddings, which predicts only embeddings.
    calibrated_by : str or None
        The method that calibrated the probabilities, see `Final.calibrated_by`. None if
        they are not calibrated.

    Parameters
    ----------
    folder : path
        The folder of a run on any engine. After a distributed run in which every client
        keeps its own model, the folder of that client.
    pretrained, device : str
        These replace the run's ``ggeur.encoder.pretrained`` and
        ``ggeur.encoder.device``; "" keeps the run's value. `pretrained` must be the
        same weights at another place.
    plugins : sequence of str
        The plugins that the run needs. These modules are imported first, from the
        current folder or from Python's search path. The names of plugins in the run's
        own settings are never imported.
    trust : bool
        Whether to read files outside the run's folder that the run's settings name, and
        to download weights that are not on this machine.

    Raises
    ------
    ConfigError
        The folder is not a run's. Or the encoder cannot be obtained, or only with
        `trust`. Or a plugin cannot be imported, or the run needs a plugin that
        `plugins` does not name.
    DataError
        A file of the run is damaged, or the encoder is not the encoder of the run.
    """

    encoder: encoders.Encoder | None
    calibrated_by: str | None = None
    _confidence_bins: Sequence[int] | None = None

    def __init__(
        self,
        folder: str | Path,
        pretrained: str = "",
        device: str = "",
        plugins: Sequence[str] = (),
        trust: bool = False,
    ):
        load_plugins(plugins, Path.cwd(), asked_by="--plugins")
        self._left = LeftModels(folder)
        results = self._left.results
        self.class_names = results.class_names
        self.calibrated_by = results.final.calibrated_by
        solved = results.closed_form
        if results.final.head == "closed_form" and solved is not None:
            self._confidence_bins = (solved.details or {}).get("confidence_bins")
        self._with_models: Results | None = None
        cfg = foreign.config_left(results)
        if _is_of_embeddings(cfg.data.type):
            self.encoder = None
            return
        settings = _encoding(cfg, pretrained, device)
        _check_known(settings.encoder)
        if not trust:
            own = {"ggeur.encoder.pretrained"} if pretrained else set()
            places = (p for p in foreign.places_of_encoder(cfg) if p[0] not in own)
            foreign.check_places(self._left.folder, places)
        with foreign.downloads_if(trust):
            self.encoder = encoders.build_encoder_called(
                settings.encoder, encoders.pick_device(settings.device), results.encoder
            )
        if self.encoder.name != results.encoder:
            raise DataError(
                f"the head in '{folder}' was trained on embeddings by "
                f"{results.encoder}, but the encoder here is {self.encoder.name}; use "
                "the weights of the run (--pretrained FILE), and the same version of "
                "the encoder's package"
            )
        self._models = self._left.on(self.encoder.dim)
        self._extraction = settings.extraction

    def predict(
        self,
        images: Sequence[str],
        top: int = 1,
        clients: int | Sequence[int] | None = None,
    ) -> Iterator[Prediction]:
        """Yield the `top` likeliest classes of each image file, in the order of the
        files.

        For a file that cannot be read as an image, `Prediction.problem` tells why.

        Parameters
        ----------
        images : sequence of str
        top : int
        clients : int or sequence of int, optional
            The number of the client whose model predicts: one number for all images, or
            one for each image. 0 is the global model. Required if every client has its
            own model.

        Raises
        ------
        DataError
            `clients` is wrong or missing, or a client's model is damaged or not in the
            folder.
        """
        if self.encoder is None:
            made = self._left.results.encoder
            raise ConfigError(
                f"'{images[0]}' is read as an image, but the run was on embeddings "
                f"(made by: {made}) and has no encoder for images; name files of "
                "embeddings (.npz, .npy or .csv) instead, or name a run on images, "
                "with a data.type such as image_folder@ggeur"
            )
        numbers = self._left.numbers(clients, len(images))
        return self._predictions(images, top, numbers)

    def predict_proba(self, features: Any, clients: Any = None) -> np.ndarray:
        """The probability of each class for rows of embeddings.

        See `Results.predict_proba`.

        Raises
        ------
        DataError
            The rows do not fit the head, or `Results.predict_proba` raises it.
        """
        rows = Rows.of(features, where="features")
        return self._results(rows).predict_proba(features, clients)

    def predict_rows(
        self,
        features: Any,
        top: int = 1,
        clients: int | Sequence[int] | None = None,
        path: str = "",
    ) -> Iterator[Prediction]:
        """Yield the `top` likeliest classes of each embedding, in the order of the
        rows.

        Parameters
        ----------
        features : Rows, or array, Tensor or data frame of shape (n, D)
        top, clients : as for `predict`
        path : str
            The file of the embeddings, for `Prediction.image`.

        Raises
        ------
        DataError
            As for `predict_proba`.
        """
        rows = features if isinstance(features, Rows) else Rows.of(features, where=path)
        results = self._results(rows)
        # In float64, classes with different logits get different probabilities.
        shares = Model.probabilities(results.logits(rows, clients).double())
        for row, one in enumerate(shares):
            yield self._prediction(f"{path}[{row}]", one, top)

    @property
    def expected(self) -> Expected:
        """What the head expects of rows of embeddings."""
        return self._left.expected

    def _results(self, rows: Rows) -> Results:
        """The run's results with its models, for rows with the shape of `rows`."""
        if self._with_models is None:
            try:
                dim = rows.features.shape[1]
                self._with_models = self._left.results_with_models(dim)
            except DataError as error:
                raise DataError(
                    f"{rows.where}: rows of shape {list(rows.features.shape)} do not "
                    f"fit: {error}"
                ) from error
        return self._with_models

    def confidence_at(self, quantile: float) -> float:
        """A quantile of the confidences of rows that clients left out.

        The run recorded a histogram of these confidences. The result is the edge of a
        bin: the one with the share of confidences below it that is nearest to
        `quantile`.

        Raises
        ------
        ConfigError
            `quantile` is not between 0 and 1, or the run recorded no confidences.
        """
        if not 0 < quantile < 1:
            raise ConfigError(f"--flag-below: must lie between 0 and 1, got {quantile}")
        if not self._confidence_bins or not sum(self._confidence_bins):
            raise ConfigError(
                "--flag-below: the run recorded no confidences; name a run that had "
                "ggeur.confidences True and left a head in closed form"
            )
        counts = torch.tensor([0, *self._confidence_bins], dtype=torch.float64)
        shares = counts.cumsum(0) / counts.sum()
        nearest = int((shares - quantile).abs().argmin())
        edges = confidence_edges().tolist()
        return [0.0, *edges][nearest]

    def _predictions(
        self, paths: Sequence[str], top: int, numbers: Tensor
    ) -> Iterator[Prediction]:
        encoder, extraction = self.encoder, self._extraction
        assert encoder is not None, "a run on embeddings predicts no images"
        none = np.zeros(len(paths), np.int64)
        images = Images(none, tuple(paths), ("",) * len(paths), FileLoader(paths))
        threads = extraction.num_threads or torch.get_num_threads()
        done = 0
        with closing(prepared(encoder, images, extraction)) as batches:
            for batch in batches:
                read = torch.tensor([isinstance(one, Tensor) for one in batch])
                theirs = numbers[done : done + len(batch)][read]
                with torch_threads(threads):
                    scores = self._classify(batch, theirs)
                for path, one in zip(paths[done : done + len(batch)], batch):
                    if isinstance(one, Unreadable):
                        yield Prediction(path, (), one.message)
                    else:
                        yield self._prediction(path, next(scores), top)
                done += len(batch)

    def _classify(self, batch: Sequence[Any], clients: Tensor) -> Iterator[Tensor]:
        """The class probabilities of each image of a batch that could be loaded."""
        assert self.encoder is not None, "a run on embeddings predicts no images"
        read = [one for one in batch if isinstance(one, Tensor)]
        if not read:
            return iter(())
        with torch.no_grad():
            features = self.encoder.encode(torch.stack(read)).cpu()
            return iter(Model.probabilities(self._models.logits(features, clients)))

    def _prediction(self, path: str, scores: Tensor, top: int) -> Prediction:
        if not torch.isfinite(scores).all():
            return Prediction(path, (), f"{path}: the embedding is not finite")
        best = scores.topk(min(top, len(scores)))
        pairs = zip(best.indices.tolist(), best.values.tolist())
        named = tuple((self.class_names[c], p) for c, p in pairs)
        return Prediction(path, named, "", float(best.values[0]))


def find_images(places: Sequence[str]) -> list[str]:
    """The paths of the image files in `places`, which are files and folders.

    Folders are searched with all folders inside them. The result has their files with
    an image's extension, sorted by path, without hidden files. A file that `places`
    names itself is taken whatever its extension is.

    Raises
    ------
    ConfigError
        A place does not exist, or is a folder without images.
    """
    paths: list[str] = []
    for place in places:
        if os.path.isdir(place):
            inside = sorted(_inside(place))
            if not inside:
                raise ConfigError(f"the folder '{place}' holds no image files")
            paths += inside
        elif os.path.exists(place):
            paths.append(place)
        else:
            raise ConfigError(f"'{place}' does not exist; name an image or a folder")
    return paths


def _inside(folder: str) -> Iterator[str]:
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (os.path.join(where, name) for name in files if is_image_name(name))


def _check_known(settings: encoders.EncoderSettings) -> None:
    try:
        encoders.check_encoder(settings)
    except ConfigError as error:
        raise ConfigError(
            f"{str(error).rstrip('.')}. If the run's encoder came from a plugin, name "
            "the module that registers it: --plugins MODULE"
        ) from error


def _encoding(cfg: CfgNode, pretrained: str, device: str) -> EncodingSettings:
    settings = encoding_settings(cfg.ggeur)
    rule = next(key.rule for key in all_keys() if key.name == "encoder.device")
    if device and (problem := rule(device)):
        raise ConfigError(f"--device: {problem}")
    encoder = settings.encoder
    if pretrained:
        encoder = replace(encoder, pretrained=pretrained)
    return replace(settings, encoder=encoder, device=device or settings.device)


def _is_of_embeddings(data_type: str) -> bool:
    """Whether `data_type` is a type of embeddings.

    False for a user's own type that is not registered.
    """
    try:
        return not data_type.endswith(SUFFIX) or not is_image_type(data_type)
    except ConfigError:
        return False
