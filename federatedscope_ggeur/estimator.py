"""Federated classification as a scikit-learn estimator: arrays in, classifier out."""

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

from federatedscope_ggeur.cfg_ggeur.demands import demands_of
from federatedscope_ggeur.cfg_ggeur.keys import get_key, read
from federatedscope_ggeur.cfg_ggeur.load import default_config, load_config
from federatedscope_ggeur.cfg_ggeur.plugins import check_loaded, load_plugins
from federatedscope_ggeur.cfg_ggeur.run_settings import held_for_validation
from federatedscope_ggeur.cfg_ggeur.yaml_file import read_yaml
from federatedscope_ggeur.data import (
    ClientData,
    DataSet,
    Domain,
    FederatedData,
    class_counts,
)
from federatedscope_ggeur.data.labels import NAMES, as_array, matched, of_one_kind
from federatedscope_ggeur.data.partition import ALL
from federatedscope_ggeur.data.rows import column_of, entries_of
from federatedscope_ggeur.engines.run import Run, divide, unused_notes
from federatedscope_ggeur.errors import (
    ConfigError,
    DataError,
    StatisticsError,
    did_you_mean,
    listed,
    shown,
)
from federatedscope_ggeur.examples import find_config
from federatedscope_ggeur.federation.exchanges.closed_form.keys import ClosedFormKeys
from federatedscope_ggeur.federation.exchanges.statistics.keys import StatisticsKeys
from federatedscope_ggeur.files import path_below, read_regular, write_atomically
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.predictor.left_models import LeftModels, write_with_models
from federatedscope_ggeur.printable import Lines
from federatedscope_ggeur.settings import flatten

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        _check_sample_weight,
        check_is_fitted,
        validate_data,
    )
except ImportError as error:
    import sklearn

    raise ImportError(
        "FederatedClassifier needs scikit-learn 1.6 or newer, but this is version "
        f"{sklearn.__version__}. Update scikit-learn: the rest of this package works "
        "with either"
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
_SETTING = "settings__"


class FederatedClassifier(ClassifierMixin, BaseEstimator):
    """A head on embeddings that clients train together, in one process.

    Parameters
    ----------
    method : str
        ``"auto"`` does what ``ggeur_own_embeddings.yaml`` does: a one-shot
        (closed-form) head, and training if that head does not suffice. ``"ggeur"`` is
        GGEUR with FedAvg. The name of a closed form (``"lda"``, ...), a base method
        (``"fedavg"``, ``"scaffold"``, ...) or an augmentation (``"fedmix"``, ...)
        chooses that part.
    settings : dict, optional
        More settings by their YAML names, such as ``{"ggeur.space": "raw"}``. Nested
        dicts are allowed, too. These settings override those of `method`.
    random_state : int, RandomState or None
        An int is the ``seed`` of the run. None draws a new seed at each fit.
    splitter : str, optional
        How rows are divided (``data.splitter``) if `fit` gets a number of clients. The
        default is ``"iid"``.
    splitter_args : list of dict, optional
        The arguments of `splitter` (``data.splitter_args``), such as ``[{"alpha":
        0.1}]``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    clients_ : list
        The label of each client, in the order of the client numbers from 1. If a client
        has rows in several domains, each label is a pair (client, domain).
    results_ : Results
        The results of the run: table, rounds, bytes, privacy and notes.
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

    # Pipelines and cross-validation pass these arguments of `fit` by name.
    __metadata_request__fit: ClassVar = {"clients": True, "domains": True}
    # The clients of left-out rows may be unknown to `fit`.
    __metadata_request__score: ClassVar = {"clients": False}

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

    def fit(
        self, X, y, clients=None, domains=None, sample_weight=None
    ) -> FederatedClassifier:
        """Run the federation on these rows.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            An array, a Tensor or a data frame.
        y : array of shape (n_samples,)
            Whole numbers, texts, truth values or dates. Bytes are read as texts.
        clients : array of shape (n_samples,), or int, optional
            The client that holds each row, or the number of clients that share the
            rows. By default one client holds all rows. There is no min-count threshold
            then, unless `settings` sets one.
        domains : array of shape (n_samples,), optional
            The domain of each row. By default all rows are in one domain. A client with
            rows in two domains counts as two clients.
        sample_weight : array of shape (n_samples,), optional
            What each row counts for in statistics, for the methods ``"lda"``,
            ``"ridge"`` and ``"ncm"``: a row of weight 2 counts as two rows, and one of
            weight 0 is left out. Thresholds count rows, never weights. Where left-out
            rows choose, a row is left out with all its weight.

        Raises
        ------
        ValueError
            `X`, `y` or `sample_weight` is wrong.
        ConfigError, DataError
            The settings, the method, `clients` or `domains` are wrong, or the method
            knows no weights.
        StatisticsError
            No client has enough rows of any class (``ggeur.privacy.min_samples``) for a
            one-shot head. With "auto", no client has that many rows in total. The error
            says what to do.
        """
        given = _as_numpy(X, "X"), _labels(y)
        X, y = validate_data(self, *given, dtype=np.float32)
        check_classification_targets(y)
        if sample_weight is not None:
            weights = _weights(sample_weight, X)
            kept = weights > 0
            X, y, sample_weight = X[kept], y[kept], weights[kept]
            clients, domains = _kept(clients, kept), _kept(domains, kept)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            (only,) = self.classes_.tolist()
            raise ValueError(
                f"y has only one class, {only!r}; give rows of at least two"
            )
        least = min(len(X), 2 * len(self.classes_))
        if sample_weight is not None and sample_weight.sum() < least:
            raise ValueError(
                f"sample_weight: all weights sum to {sample_weight.sum():g}, but there "
                f"are {len(self.classes_)} classes. A row of weight 2 counts as two "
                "rows: scale the weights, for instance to the mean 1"
            )
        # As a dict, so that an error does not name a file that the user never saw.
        tree = dict(read_yaml(find_config(_CONFIG)))
        cfg = load_config(tree, self._overrides(clients, domains))
        labels = _names(self.classes_)[codes]
        data = self._divided(cfg, X, labels, clients, domains, sample_weight)
        needs_head = read(cfg.ggeur, ClosedFormKeys).closed_form != "none"
        if needs_head and _all_clients_are_small(cfg, data):
            raise StatisticsError(_nothing_sent(cfg))
        try:
            notes = unused_notes(cfg, data, is_divided=not _is_number(clients))
            if "outdir" in _flat(self.settings):
                notes.append("outdir has no effect, since fit writes no files")
            self.results_ = Run(cfg, data, notes).follow(lambda record: None)
        except StatisticsError:
            if not needs_head or _sent_classes(cfg, data).any():
                raise
            raise StatisticsError(_nothing_sent(cfg)) from None
        self._warn(cfg, data)
        return self

    def predict(self, X, clients=None) -> np.ndarray:
        """The class of each row of `X`.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        clients : label, or array of shape (n_samples,), optional
            The clients whose models predict, by their labels in `clients_`. Needed only
            if clients have models of their own.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        codes = self._scores(X, clients, "predict")
        return self.classes_[np.argsort(self._places)[codes]]

    def predict_proba(self, X, clients=None) -> np.ndarray:
        """The probability of each class of `classes_`, for each row of `X`.

        ``results_.final.calibrated_by`` names the calibration. None there means that
        the probabilities are not calibrated.

        Parameters
        ----------
        X, clients : as `predict`

        Returns
        -------
        ndarray of shape (n_samples, n_classes), float32
        """
        return self._scores(X, clients, "predict_proba")[:, self._places]

    def predict_log_proba(self, X, clients=None) -> np.ndarray:
        """The logarithm of `predict_proba`.

        Parameters
        ----------
        X, clients : as `predict`

        Returns
        -------
        ndarray of shape (n_samples, n_classes), float32
        """
        return np.log(self.predict_proba(X, clients))

    def decision_function(self, X, clients=None) -> np.ndarray:
        """The logit of each class of `classes_`, for each row of `X`.

        Softmax of them is `predict_proba` before its smoothing. They are computed in
        float64: scikit-learn's metrics and calibration compare rows one by one.

        Parameters
        ----------
        X, clients : as `predict`

        Returns
        -------
        ndarray of shape (n_samples, n_classes), float64
            With two classes the shape is (n_samples,): the logit of ``classes_[1]``
            less that of ``classes_[0]``.
        """
        logits = self._scores(X, clients, "logits", exact=True).numpy()[:, self._places]
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def score(self, X, y, sample_weight=None, clients=None) -> float:
        """The share of rows of `X` whose class is predicted, as `y` says it.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        sample_weight : array of shape (n_samples,), optional
            What each row counts for.
        clients : as `predict`

        Returns
        -------
        float
        """
        # Imported here: it imports scipy.stats.
        from sklearn.metrics import accuracy_score

        predicted = self.predict(X, clients)
        return accuracy_score(_labels(y), predicted, sample_weight=sample_weight)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; with `deep` each setting, too, as
        ``settings__<name>``."""
        params = super().get_params(deep)
        if deep and isinstance(self.settings, Mapping):
            params |= {f"{_SETTING}{k}": v for k, v in flatten(self.settings)}
        return params

    def set_params(self, **params) -> FederatedClassifier:
        """Set parameters; ``settings__<name>`` sets one setting, for a grid search.

        Raises
        ------
        ValueError
            A parameter is unknown, ``settings`` is no dict, or a setting has no name.
            If it is about settings, nothing was set.
        """
        own = {k: v for k, v in params.items() if not k.startswith(_SETTING)}
        if len(own) < len(params):
            named = {
                key[len(_SETTING) :]: value
                for key, value in params.items()
                if key not in own
            }
            if "" in named:
                raise ConfigError(
                    f"'{_SETTING}' names no setting; write its YAML name behind it, "
                    f"such as '{_SETTING}ggeur.space'"
                )
            given = own.get("settings", self.settings)
            own["settings"] = {**_flat(given), **named}
        super().set_params(**own)
        return self

    def save(self, folder: str | Path) -> None:
        """Write the fitted classifier into a new folder.

        `load` and ``ggeur predict --run`` read this folder.

        Raises
        ------
        FileExistsError
            `folder` exists already.
        TypeError
            A label is not a str, int, float or bool, or JSON cannot hold a parameter.
        """
        check_is_fitted(self)
        folder = Path(folder)
        if folder.exists():
            raise FileExistsError(f"'{folder}' exists already; name a new folder")
        known = {
            "parameters": self.get_params(deep=False),
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
            `save` did not write this folder, or a file in it is damaged.
        """
        path = Path(folder) / _FILE
        try:
            known = json.loads(read_regular(path))
            # Earlier files also have each setting by its own name.
            parameters = dict(known["parameters"]).items()
            made = cls(**{k: v for k, v in parameters if not k.startswith(_SETTING)})
            made.classes_ = np.array(known["classes"])
            made.clients_ = [_from_plain(label) for label in known["clients"]]
            made.n_features_in_ = int(known["n_features_in"])
            names = known["feature_names_in"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"'{path}': FederatedClassifier.save did not write this file: {error}"
            ) from None
        if names is not None:
            made.feature_names_in_ = np.array(names, dtype=object)
        made.results_ = LeftModels(folder).results_with_models(made.n_features_in_)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """The state as plain values and arrays, for pickle and for skops.

        Results and heads are the files that `save` writes. So whoever reads the state
        needs to trust no type but this class.
        """
        state = dict(super().__getstate__())
        if "results_" in state:
            with tempfile.TemporaryDirectory() as folder:
                write_with_models(Path(folder), state["results_"])
                state["results_"] = {
                    path.relative_to(folder).as_posix(): np.fromfile(path, np.uint8)
                    for path in sorted(Path(folder).rglob("*"))
                    if path.is_file()
                }
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        state = dict(state)
        files = state.pop("results_", {})
        super().__setstate__(state)
        if files:
            with tempfile.TemporaryDirectory() as folder:
                for name, content in files.items():
                    path = path_below(Path(folder), name)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content.tobytes())
                left = LeftModels(folder)
                self.results_ = left.results_with_models(self.n_features_in_)

    def _overrides(self, clients: Any, domains: Any) -> dict[str, Any]:
        """All settings on top of the config file. The user's override all others."""
        seed = self.random_state
        if not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31 - 1)
        known: dict[str, Any] = {"seed": int(seed)}
        if clients is None:
            known["ggeur.privacy.min_samples"] = 1
        elif _is_number(clients):
            if clients < 1:
                raise ConfigError(
                    "clients: must be a number from 1, or an array with the client of "
                    f"each row, got {clients}"
                )
            known["federate.client_num"] = int(clients)
            known["data.splitter"] = self.splitter or "iid"
            known["data.splitter_args"] = list(self.splitter_args or [])
        if not _is_number(clients) and (self.splitter or self.splitter_args):
            raise ConfigError(
                "splitter: needs the number of clients that share the rows; give it to "
                "fit, such as fit(X, y, clients=10)"
            )
        own = _flat(self.settings)
        load_plugins()  # those of installed packages, which may bring the method
        check_loaded(own.items())
        names = [] if domains is None else as_array(domains).astype(str)
        known.update(_of_method(self.method, len(np.unique(names)) > 1))
        return {**known, **own}

    def _divided(
        self,
        cfg,
        X: np.ndarray,
        labels: np.ndarray,
        clients: Any,
        domains: Any,
        weights: np.ndarray | None,
    ) -> FederatedData:
        domain_of = column_of("domains", domains, len(X), ALL).astype(str)
        if _is_number(clients):
            # Of each domain first, which are then divided.
            pairs = [(name, name) for name in sorted(set(domain_of.tolist()))]
            numbers = np.searchsorted([name for name, _ in pairs], domain_of) + 1
        else:
            client_of = column_of("clients", clients, len(X), 1)
            rows = list(zip(entries_of(client_of), domain_of.tolist()))
            pairs = sorted(set(rows))
            place = {pair: number for number, pair in enumerate(pairs, 1)}
            numbers = np.array([place[pair] for pair in rows])
        data = FederatedData.from_arrays(
            X, labels, numbers, domain_of, weights=weights, encoder=_ENCODER
        )
        titles = getattr(self, "feature_names_in_", None)
        known = None if titles is None else tuple(map(str, titles))
        given = replace(data.given, titles=known)
        if _is_number(clients):
            self.clients_: list[Any] = list(range(1, int(clients) + 1))
            parts = [Domain(c.domain, c.train, c.test) for c in data.clients]
            names = data.class_names
            return divide(cfg, DataSet(tuple(parts), names, _ENCODER, given=given))
        holders = [client for client, _ in pairs]
        self.clients_ = pairs if len(set(holders)) < len(holders) else holders
        share = held_for_validation(cfg)
        held: Sequence[ClientData] = data.clients
        if share:
            held = tuple(client.hold_out(share, cfg.seed) for client in held)
        return replace(data, clients=held, given=given)

    def _warn(self, cfg, data: FederatedData) -> None:
        """Warn of the run's notes, and of classes that cannot be predicted."""
        for note in self.results_.notes:
            warnings.warn(note, UserWarning, stacklevel=3)
        # If the server sees only totals, a note of the run says this already.
        totals = demands_of(cfg).only_totals
        if self.results_.final.head != "closed_form" or totals:
            return
        least = read(cfg.ggeur, StatisticsKeys).min_samples
        sent = _sent_classes(cfg, data)
        unknown = self.classes_[~sent[self._places]]
        if len(unknown):
            warnings.warn(
                f"{len(unknown)} of {len(sent)} classes cannot be predicted, "
                f"{listed([repr(c) for c in unknown.tolist()], 5)}: no client has "
                f"{least:g} rows of any of them. Lower ggeur.privacy.min_samples",
                UserWarning,
                stacklevel=3,
            )

    @property
    def _places(self) -> np.ndarray:
        """The number of each class of `classes_` in the run: names in another order."""
        return matched(_names(self.classes_), self.results_.class_names, NAMES)

    def _scores(self, X: Any, clients: Any, method: str, **options) -> Any:
        check_is_fitted(self)
        X = validate_data(self, _as_numpy(X, "X"), dtype=np.float32, reset=False)
        must_say = self.results_.final.scored == "clients" and len(self.clients_) > 1
        if clients is None and must_say:
            raise ValueError(
                "clients: every client has a model of its own; say whose predicts, by "
                f"its label in clients_, such as clients={self.clients_[0]!r}"
            )
        numbers = None if clients is None else self._numbers(clients, len(X))
        return getattr(self.results_, method)(X, numbers, **options)

    def _numbers(self, clients: Any, rows: int) -> np.ndarray:
        """The client number of each row, found by the clients' labels."""
        if isinstance(clients, (str, tuple)) or np.ndim(clients) == 0:
            clients = [clients] * rows
        labels = entries_of(clients)
        if len(labels) != rows:
            raise ValueError(
                f"clients: got {len(labels)} labels for {rows} rows; give one client "
                "for each row"
            )
        place = {label: number for number, label in enumerate(self.clients_, 1)}
        unknown = [label for label in labels if label not in place]
        if unknown:
            raise ValueError(
                f"clients: {unknown[0]!r} is unknown; clients_ lists the clients"
            )
        return np.array([place[label] for label in labels])


def _flat(settings: Any) -> dict[str, Any]:
    """The parameter `settings` as one value for each YAML name."""
    if not isinstance(settings, (Mapping, type(None))):
        raise ConfigError(
            "settings: must be a dict of settings by their YAML names, such as "
            f'{{"ggeur.space": "raw"}}, got {shown(settings)}'
        )
    return dict(flatten(settings or {}))


def _of_method(method: str, several_domains: bool) -> dict[str, Any]:
    """The settings that a method's name stands for."""
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
    known = dict.fromkeys(["auto", "ggeur", *CLOSED_FORMS, *METHODS, *AUGMENTATIONS])
    raise ConfigError(
        f"method: {method!r} is unknown; known: {', '.join(known)}"
        f"{did_you_mean(method, known)}; import the module of one of your own first"
    )


def _sent_classes(cfg, data: FederatedData) -> np.ndarray:
    """Whether any client has enough rows to send statistics: bool array [C]."""
    counts = class_counts(data.clients, data.num_classes)
    least = read(cfg.ggeur, StatisticsKeys).min_samples
    return (counts >= least).any(axis=0)


def _all_clients_are_small(cfg, data: FederatedData) -> bool:
    """Whether all clients have fewer rows than the threshold: none may tell how its
    rows are scaled, so no rate fits."""
    least = read(cfg.ggeur, StatisticsKeys).min_samples
    return max(len(client.train) for client in data.clients) < least


def _nothing_sent(cfg) -> Lines:
    """What a user can do if all clients have too few rows for statistics."""
    least = read(cfg.ggeur, StatisticsKeys).min_samples
    return Lines(
        [
            f"no client has {least} rows of any class, so no client may send "
            "statistics and there is no one-shot head. Choose one:",
            "- FederatedClassifier(method='fedavg') trains a head on all rows, but "
            "updates of a client with few rows can reveal them",
            "- fit(X, y, clients=...) with fewer clients, each with more rows",
            "- settings={'ggeur.privacy.min_samples': 1} lets clients send statistics "
            "of single rows, which are the rows",
        ]
    )


def _as_numpy(values: Any, name: str) -> Any:
    """Tensors as arrays; scikit-learn would look past the mask of a masked array."""
    if isinstance(values, (torch.Tensor, np.ma.MaskedArray)):
        return as_array(values, name)
    return values


def _labels(y: Any) -> Any:
    """Labels as scikit-learn takes them; other objects than texts become numbers, truth
    values or texts, as in files."""
    given = _as_numpy(y, "y")
    array = as_array(given, "y")
    if array.ndim != 1 or array.dtype.kind not in "OS":
        return given
    read = of_one_kind(array, "y")
    return given if all(isinstance(label, str) for label in array) else read


def _weights(sample_weight: Any, X: np.ndarray) -> np.ndarray:
    """Checked weights of the rows `X`: float64 array of shape [n]."""
    given = _as_numpy(sample_weight, "sample_weight")
    return _check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True)


def _kept(column: Any, kept: np.ndarray) -> Any:
    """The entries of `column` of the rows that are kept; a number stays."""
    if column is None or np.shape(column)[:1] != kept.shape:
        return column  # a wrong length is refused by its own name
    return as_array(column)[kept]


def _is_number(clients: Any) -> bool:
    return isinstance(clients, (int, np.integer)) and not isinstance(clients, bool)


def _names(classes: np.ndarray) -> np.ndarray:
    """The names of the classes: those that other doors give to the same labels."""
    labels = classes.tolist()
    wholes = [isinstance(c, float) and c.is_integer() for c in labels]
    return np.array([str(int(c) if w else c) for c, w in zip(labels, wholes)])


def _plain(labels: np.ndarray) -> list:
    if labels.dtype.kind not in "UOiufb":
        raise TypeError(
            f"labels of type {labels.dtype} cannot be saved; use str or int"
        )
    return [_plain_label(label) for label in labels.tolist()]


def _plain_label(label: Any) -> Any:
    if isinstance(label, tuple):
        return [_plain_label(one) for one in label]
    if not isinstance(label, (str, int, float, bool)):
        raise TypeError(
            "a label must be a str, int, float or bool to be saved, but one is "
            f"{label!r}"
        )
    return label


def _from_plain(label: Any) -> Any:
    return tuple(label) if isinstance(label, list) else label


def _refuse(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"JSON cannot hold {value!r}, so it cannot be saved")
