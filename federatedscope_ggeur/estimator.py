"""Arrays in, classifier out: a federation as an estimator of scikit-learn."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from federatedscope_ggeur.cfg_ggeur.keys import get_key
from federatedscope_ggeur.cfg_ggeur.load import default_config, load_config
from federatedscope_ggeur.cfg_ggeur.transform import row_preparation
from federatedscope_ggeur.data import (
    DataSet,
    Domain,
    Embeddings,
    FederatedData,
    validation_share,
)
from federatedscope_ggeur.data.partition import ALL, as_array, column_of
from federatedscope_ggeur.engines.run import divide, run
from federatedscope_ggeur.errors import ConfigError, DataError, listed
from federatedscope_ggeur.files import write_atomically
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.predictor.left_models import LeftModels, write_with_models
from federatedscope_ggeur.settings import flatten

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    import sklearn

    raise ImportError(
        "FederatedClassifier needs scikit-learn 1.6 or newer, and this is "
        f"{sklearn.__version__}; everything else of this package works with it"
    ) from error

#: What `auto` does; other methods change it.
_CONFIG = "ggeur_own_embeddings.yaml"
_TRAINED = {
    "ggeur.closed_form": "none",
    "ggeur.init": "random",
    "ggeur.keep": "trained",
}
_FILE = "classifier.json"
_ENCODER = "arrays"


class FederatedClassifier(ClassifierMixin, BaseEstimator):
    """A head on embeddings that clients train together, in one process.

    Parameters
    ----------
    method : str
        ``"auto"``: what ``ggeur_own_embeddings.yaml`` does, a one-shot (closed-form)
        head, and training where that head does not suffice. ``"ggeur"``: GGEUR with
        FedAvg. Or the name of a closed form (``"lda"``, ...), of a base method
        (``"fedavg"``, ``"scaffold"``, ...) or of an augmentation (``"fedmix"``, ...).
    settings : dict, optional
        More settings by their YAML names, such as ``{"ggeur.space": "raw"}``; nested
        dicts are taken, too. They go before those of `method`.
    random_state : int, RandomState or None
        An int is the ``seed`` of the run. None takes a new one at each fit.
    splitter : str, optional
        With a number of clients in `fit`: how rows are dealt to them
        (``data.splitter``); by default ``"iid"``.
    splitter_args : list of dict, optional
        Its ``data.splitter_args``, such as ``[{"alpha": 0.1}]``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    clients_ : list
        The label of each client, in the order of their numbers from 1. Where `clients`
        and `domains` divide rows differently it is a pair of both.
    results_ : Results
        Table, rounds, bytes, privacy and notes of the run.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only if `X` has names.

    Notes
    -----
    Each row of `X` is an embedding. Rows are rounded to float32, as in all runs.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> site = np.arange(len(y)) % 5
    >>> classifier = FederatedClassifier("lda").fit(X[:1000], y[:1000], site[:1000])
    >>> classifier.score(X[1000:], y[1000:]) > 0.9
    True
    """

    # By these names `fit` takes them in pipelines and in cross-validation.
    __metadata_request__fit: ClassVar = {"clients": True, "domains": True}

    def __init__(
        self,
        method: str = "auto",
        settings: Mapping | None = None,
        random_state: Any = 0,
        splitter: str | None = None,
        splitter_args: Sequence | None = None,
    ):
        self.method = method
        self.settings = settings
        self.random_state = random_state
        self.splitter = splitter
        self.splitter_args = splitter_args

    def fit(self, X, y, clients=None, domains=None) -> FederatedClassifier:
        """Run the federation on these rows.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            An array, a Tensor or a data frame.
        y : array of shape (n_samples,)
            Labels of any kind.
        clients : array of shape (n_samples,), or int, optional
            Who holds each row; or how many clients the rows are dealt to. Without it
            one client holds all rows, and no min-count threshold applies unless
            `settings` names one.
        domains : array of shape (n_samples,), optional
            The domain of each row; by default all are of one. The rows of a client in
            two domains count as two clients.

        Raises
        ------
        ValueError
            Wrong `X` or `y`.
        ConfigError, DataError
            Wrong settings, an unknown method; wrong `clients` or `domains`.
        """
        X, y = validate_data(self, _as_numpy(X), _as_numpy(y), dtype=np.float32)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            found = self.classes_[0]
            raise ValueError(f"y has one class, {found!r}; a classifier needs two")
        cfg = load_config(_CONFIG, self._overrides(clients, domains))
        prepare = row_preparation(cfg)
        rows = torch.from_numpy(X.copy())
        rows = rows if prepare is None else prepare(rows)
        data = self._divided(cfg, rows, torch.from_numpy(codes), clients, domains)
        with torch.random.fork_rng(devices=[]):
            self.results_ = run(cfg, data)
        self._warn(cfg, data)
        return self

    def predict(self, X, clients=None) -> np.ndarray:
        """The class of each row of `X`.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        clients : label, or array of shape (n_samples,), optional
            Whose model predicts, by labels in `clients_`. Only methods that leave
            clients models of their own need it.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        codes = self._scores(X, clients, "predict")
        return self.classes_[codes]

    def predict_proba(self, X, clients=None) -> np.ndarray:
        """The probability of each class of `classes_`.

        ``results_.final.calibrated_by`` says what makes it honest; None means that it
        is not calibrated.

        Parameters
        ----------
        X, clients : as `predict`

        Returns
        -------
        ndarray of shape (n_samples, n_classes), float32
        """
        return self._scores(X, clients, "predict_proba")

    def save(self, folder: str | Path) -> None:
        """Write the fitted classifier into a new folder.

        `load` reads it, and so does ``ggeur predict --run``.

        Raises
        ------
        FileExistsError
            There is a file or folder of this name.
        TypeError
            The labels are neither str, int, float nor bool, or a parameter is not
            plain.
        """
        check_is_fitted(self)
        folder = Path(folder)
        if folder.exists():
            raise FileExistsError(f"'{folder}' is there already; name a new folder")
        known = {
            "parameters": self.get_params(),
            "classes": _plain(self.classes_),
            "clients": [_plain_label(label) for label in self.clients_],
            "n_features_in": self.n_features_in_,
            "feature_names_in": getattr(self, "feature_names_in_", None),
        }
        text = json.dumps(known, indent=2, default=_refuse)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as beside:
            made = Path(beside, "made")
            made.mkdir()
            write_with_models(made, self.results_)
            write_atomically(made / _FILE, text + "\n")
            made.rename(folder)

    @classmethod
    def load(cls, folder: str | Path) -> FederatedClassifier:
        """The fitted classifier that `save` wrote.

        Raises
        ------
        ConfigError, DataError
            It is no such folder, or a file in it is damaged.
        """
        path = Path(folder) / _FILE
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            made = cls(**known["parameters"])
            made.classes_ = np.array(known["classes"])
            made.clients_ = [_from_plain(label) for label in known["clients"]]
            made.n_features_in_ = int(known["n_features_in"])
            names = known["feature_names_in"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"'{path}': is not what FederatedClassifier.save writes: {error}"
            ) from None
        if names is not None:
            made.feature_names_in_ = np.array(names, dtype=object)
        made.results_ = LeftModels(folder).results_with_models(made.n_features_in_)
        return made

    def _overrides(self, clients: Any, domains: Any) -> dict[str, Any]:
        """The settings behind the file: what `fit` knows, the method's, the user's."""
        seed = self.random_state
        if not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31 - 1)
        known: dict[str, Any] = {"seed": int(seed)}
        if clients is None:
            known["ggeur.privacy.min_samples"] = 1
        elif _is_number(clients):
            known["federate.client_num"] = int(clients)
            known["data.splitter"] = self.splitter or "iid"
            known["data.splitter_args"] = list(self.splitter_args or [])
        if not _is_number(clients) and (self.splitter or self.splitter_args):
            raise ConfigError(
                "splitter: needs a number of clients to deal the rows to, such as "
                "fit(X, y, clients=10)"
            )
        several = domains is not None and len(np.unique(as_array(domains))) > 1
        known.update(_of_method(self.method, several))
        return {**known, **dict(flatten(self.settings or {}))}

    def _divided(
        self, cfg, rows: torch.Tensor, codes: torch.Tensor, clients: Any, domains: Any
    ) -> FederatedData:
        names = tuple(map(str, self.classes_.tolist()))
        domain_of = column_of("domains", domains, len(rows), ALL).astype(str)
        if _is_number(clients):
            found = sorted(set(domain_of.tolist()))
            held = [_select(rows, codes, domain_of == name, name) for name in found]
            parts = [Domain(one.domain, one, one.select([])) for one in held]
            self.clients_: list[Any] = list(range(1, int(clients) + 1))
            return divide(cfg, DataSet(tuple(parts), names, _ENCODER))
        client_of = column_of("clients", clients, len(rows), 1)
        pairs = sorted(set(zip(client_of.tolist(), domain_of.tolist())))
        holders = [client for client, _ in pairs]
        is_split = len(set(holders)) < len(holders)
        self.clients_ = pairs if is_split else holders
        place = {pair: number for number, pair in enumerate(pairs, 1)}
        numbers = [place[pair] for pair in zip(client_of.tolist(), domain_of.tolist())]
        data = FederatedData.from_arrays(
            rows, codes, numbers, domain_of, class_names=names, encoder=_ENCODER
        )
        share = validation_share(cfg.data.splits)
        if not share:
            return data
        held = tuple(client.hold_out(share, cfg.seed) for client in data.clients)
        return replace(data, clients=held)

    def _warn(self, cfg, data: FederatedData) -> None:
        """Warn of what the run noted, and of classes that cannot be predicted."""
        for note in self.results_.notes:
            warnings.warn(note, UserWarning, stacklevel=3)
        # Of secure sums a note has said it.
        sums = cfg.ggeur.privacy.secure_sums != "none"
        if self.results_.final.head != "closed_form" or sums:
            return
        least = cfg.ggeur.privacy.min_samples
        each = [
            torch.bincount(client.train.labels, minlength=data.num_classes)
            for client in data.clients
        ]
        sent = (torch.stack(each) >= least).any(dim=0).numpy()
        unknown = self.classes_[~sent]
        if len(unknown):
            warnings.warn(
                f"{len(unknown)} of {len(sent)} classes cannot be predicted, "
                f"{listed([repr(c) for c in unknown.tolist()], 5)}: no client has "
                f"{least:g} rows of them; lower ggeur.privacy.min_samples",
                UserWarning,
                stacklevel=3,
            )

    def _scores(self, X: Any, clients: Any, method: str) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, _as_numpy(X), dtype=np.float32, reset=False)
        numbers = None if clients is None else self._numbers(clients, len(X))
        return getattr(self.results_, method)(X, numbers)

    def _numbers(self, clients: Any, rows: int) -> np.ndarray:
        """The numbers of clients by their labels."""
        if isinstance(clients, (str, tuple)) or np.ndim(clients) == 0:
            clients = [clients] * rows
        labels = clients.tolist() if hasattr(clients, "tolist") else list(clients)
        if len(labels) != rows:
            raise ValueError(f"clients: {len(labels)} labels for {rows} rows")
        place = {label: number for number, label in enumerate(self.clients_, 1)}
        unknown = [label for label in labels if label not in place]
        if unknown:
            raise ValueError(f"clients: {unknown[0]!r} is not in clients_")
        return np.array([place[label] for label in labels])


def _of_method(method: str, several_domains: bool) -> dict[str, Any]:
    """The settings of a method by its name."""
    if method == "auto":
        return {}
    if method == "ggeur":
        default, names = default_config(), ("steps", "geometry", "step1_size")
        paper = {f"ggeur.{n}": get_key(default, f"ggeur.{n}") for n in names}
        # Step 2 draws around the prototypes of other domains.
        steps = {} if several_domains else {"ggeur.steps": [1]}
        return {**_TRAINED, **paper, **steps}
    if method in CLOSED_FORMS:
        return {**_TRAINED, "ggeur.closed_form": method}
    if method in METHODS:
        return {**_TRAINED, "ggeur.steps": [], "ggeur.base_method": method}
    if method in AUGMENTATIONS:
        return {**_TRAINED, "ggeur.steps": [], "ggeur.augmentation": method}
    known = ["auto", "ggeur", *CLOSED_FORMS, *METHODS, *AUGMENTATIONS]
    raise ConfigError(f"method: {method!r} is unknown; known: {', '.join(known)}")


def _as_numpy(values: Any) -> Any:
    if isinstance(values, torch.Tensor):
        return values.detach().cpu().numpy()
    return values


def _is_number(clients: Any) -> bool:
    return isinstance(clients, (int, np.integer)) and not isinstance(clients, bool)


def _select(
    rows: torch.Tensor, codes: torch.Tensor, mask: np.ndarray, domain: str
) -> Embeddings:
    mine = torch.from_numpy(mask)
    return Embeddings(rows[mine], codes[mine], domain)


def _plain(labels: np.ndarray) -> list:
    if labels.dtype.kind not in "UOiufb":
        raise TypeError(f"labels of type {labels.dtype} cannot be saved")
    return [_plain_label(label) for label in labels.tolist()]


def _plain_label(label: Any) -> Any:
    if isinstance(label, tuple):
        return [_plain_label(one) for one in label]
    if not isinstance(label, (str, int, float, bool)):
        raise TypeError(
            "labels that are saved must be str, int, float or bool, and this is "
            f"{label!r}"
        )
    return label


def _from_plain(label: Any) -> Any:
    return tuple(label) if isinstance(label, list) else label


def _refuse(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"only plain values can be saved, and this is {value!r}")
