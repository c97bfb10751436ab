"""The results of a run as one versioned schema of plain numbers.

docs/results.md describes every field. Accuracies are fractions in [0, 1], sizes are
bytes, times are seconds. Where a number does not exist, it is None, never NaN.
"""

import json
import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal, Optional

import federatedscope_ggeur
from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.reporting.plain import as_json_value, from_json_value

if TYPE_CHECKING:
    import numpy as np

SCHEMA_VERSION = 5
Status = Literal["finished", "interrupted", "failed"]
_REPORTED_PACKAGES = ("torch", "numpy", "scikit-learn", "scikit-image", "safetensors")
_OUTPUT_KEYS = ("outdir", "expname", "expname_tag")


@dataclass(frozen=True)
class ClientInfo:
    """One client: its data index, its domain, and how many rows it holds.

    The rows are None where only the client knows them.
    """

    number: int
    domain: str
    train_rows: Optional[int]
    test_rows: Optional[int]


@dataclass(frozen=True)
class RoundRecord:
    """One round, or a head that was made in one go, and its scores.

    Attributes
    ----------
    round : int
        From 1; 0 for a head in closed form; the one after the last for a calibrated
        head.
    clients : list of int
        The numbers of the clients that trained; none for a head made in one go.
    accuracy : dict of str to (float or None), or None
        Test accuracy for each domain; None for a domain without test rows. The whole
        is None when the round was not evaluated, and so are `avg`, `std` and `loss`.
    avg, std : float or None
        See `summary.average`.
    loss : float or None
        Mean cross-entropy over all test rows.
    seconds : float
    bytes_up, bytes_down : int
        From and to the clients, summed over them.
    unseen_clients : dict of str to (float or None), or None
        As `accuracy`, of the clients that take part in evaluation only
        (``federate.unseen_clients_rate``); None where there are none.
    method : str or None
        What made a head in one go: ``"lda"``, ``"ccvr"``, ...; None for a round.
    details : dict or None
        What was chosen on the way, such as the shrinkage; None for a round.
    """

    round: int
    clients: list[int]
    accuracy: Optional[dict[str, Optional[float]]]
    avg: Optional[float]
    std: Optional[float]
    loss: Optional[float]
    seconds: float
    bytes_up: int
    bytes_down: int
    unseen_clients: Optional[dict[str, Optional[float]]] = None
    method: Optional[str] = None
    details: Optional[dict[str, Any]] = None

    @property
    def evaluated(self) -> bool:
        """Whether the round was evaluated."""
        return self.accuracy is not None


@dataclass(frozen=True)
class ClientCompression:
    """What compression changed in the statistics of one client, exactly.

    Shares and norms are relative; None where there is nothing to relate them to.

    Attributes
    ----------
    left_out : float or None
        Share of the trace of its scatter W beyond the directions kept.
    covariance_error : float or None
        ``|W' - W| / |W'|``, W' being what the server works with (Frobenius norms).
    rounding_error : float or None
        The part of it that rounding made: ``|W' - W''| / |W'|``, W'' unrounded.
    mean_error : float or None
        Root mean square over rows of how far their class mean was moved, over that of
        how far it lies from the mean of all.
    """

    left_out: Optional[float]
    covariance_error: Optional[float]
    rounding_error: Optional[float]
    mean_error: Optional[float]


@dataclass(frozen=True)
class CompressionRecord:
    """What compression of the statistics (``ggeur.statistics: compressed``) cost.

    Attributes
    ----------
    clients : dict of str to ClientCompression
        By the client's number.
    left_out : float or None
        As of a client, over all of them.
    covariance_error_limit, mean_error_limit : float or None
        The most that a client's figures of these names can be of the merged statistics.
    head_error_limit : float or None
        The most that the weights of the head in closed form are off by, ``|w' - w| /
        |w'|`` over all classes; None for a head of which this cannot be told, or not
        to be below 1.
    """

    clients: dict[str, ClientCompression]
    left_out: Optional[float]
    covariance_error_limit: Optional[float]
    mean_error_limit: Optional[float]
    head_error_limit: Optional[float]


@dataclass(frozen=True)
class Round0:
    """What travelled before the first round of training.

    Attributes
    ----------
    clients : list of int
        The numbers of the clients that took part.
    seconds : float
    statistics_bytes_up : dict of str to int
        For each client's number, as text, the bytes of its statistics.
    geometry_bytes_down, prototypes_bytes_down : int
        Shapes and prototypes sent to clients, summed over clients.
    uploaded_pairs : int
        (client, class) pairs whose statistics were uploaded.
    withheld_pairs : int or None
        Pairs with samples that the min-count threshold held back. None where nobody
        can know: a client that withholds a class does not tell the server so.
    prepare_bytes_up : int
        The clients' answers when they are ready to train (what they count for, what
        the method sends up once), over clients.
    init_broadcast_bytes_down : int
        What the method (FedMix) sends back of it, over clients.
    closed_form : RoundRecord or None
        The head in closed form (``ggeur.closed_form``); its bytes and seconds are not
        in the numbers above.
    compression : CompressionRecord or None
        What it cost to compress the statistics; None if they were not.
    """

    clients: list[int]
    seconds: float
    statistics_bytes_up: dict[str, int]
    geometry_bytes_down: int
    prototypes_bytes_down: int
    uploaded_pairs: int
    withheld_pairs: Optional[int]
    prepare_bytes_up: int = 0
    init_broadcast_bytes_down: int = 0
    closed_form: Optional[RoundRecord] = None
    compression: Optional[CompressionRecord] = None

    @property
    def bytes_up(self) -> int:
        """All bytes from clients to the server before scores."""
        return sum(self.statistics_bytes_up.values()) + self.prepare_bytes_up

    @property
    def bytes_down(self) -> int:
        """All bytes from the server to clients before scores."""
        down = self.geometry_bytes_down + self.prototypes_bytes_down
        return down + self.init_broadcast_bytes_down


@dataclass(frozen=True)
class Final:
    """The score of a run; made by `summary.summarise`.

    Attributes
    ----------
    head : {"trained", "calibrated", "closed_form"}
        Whose score it is: of the last rounds, or of the one head named.
    rounds : list of int
        The evaluated rounds that the score is the mean of, with "trained".
    accuracy : dict of str to (float or None)
        For each domain its mean accuracy over `rounds`, or that of the head.
    avg, std : float or None
        `average` of `accuracy`.
    bytes_up, bytes_down : int
        Totals of the run, round 0 included.
    seconds : float
        Total of round 0 and all rounds.
    """

    head: Literal["trained", "calibrated", "closed_form"]
    rounds: list[int]
    accuracy: dict[str, Optional[float]]
    avg: Optional[float]
    std: Optional[float]
    bytes_up: int
    bytes_down: int
    seconds: float


@dataclass(frozen=True)
class Results:
    """Everything that a run leaves in ``results.json``.

    Attributes
    ----------
    schema_version : int
        `SCHEMA_VERSION`.
    engine : str
        Who ran it, e.g. ``"embedded"``.
    status : str
        ``"finished"``, ``"interrupted"`` (by a person or a scheduler) or ``"failed"``;
        for the last two, `rounds` are those that were over by then.
    config, versions : dict
        The whole configuration, and the version of each package that mattered.
    seed : int
    domains, unseen_domains : list of str
        Every domain that is scored, and those among them that no client holds.
    class_names : list of str
    encoder : str
        What made the embeddings.
    clients : list of ClientInfo
    round0 : Round0 or None
        None when nothing was exchanged before training.
    rounds : list of RoundRecord
        In order.
    calibrated : RoundRecord or None
        The head calibrated after the last round (``ggeur.calibrate``).
    final : Final
    model : Model or None
        The trained model; not part of the file, of equality, or of a run in which every
        client keeps its own.
    """

    schema_version: int
    engine: str
    status: Status
    config: dict[str, Any]
    versions: dict[str, str]
    seed: int
    domains: list[str]
    unseen_domains: list[str]
    class_names: list[str]
    encoder: str
    clients: list[ClientInfo]
    round0: Optional[Round0]
    rounds: list[RoundRecord]
    calibrated: Optional[RoundRecord]
    final: Final
    model: Any = field(default=None, repr=False, compare=False)

    @classmethod
    def begun(cls, **known: Any) -> "Results":
        """Of a run that begins: what is `known` of it, and no round yet."""
        return cls(
            SCHEMA_VERSION,
            status="failed",
            versions=_versions(),
            round0=None,
            rounds=[],
            calibrated=None,
            final=Final("trained", [], {}, None, None, 0, 0, 0.0),
            **known,
        )

    @property
    def closed_form(self) -> Optional[RoundRecord]:
        """The head in closed form, if there was one."""
        return self.round0.closed_form if self.round0 else None

    def predict(self, features: Any) -> "np.ndarray":
        """The class number of each row of `features`: int64 array of shape [n].

        `class_names` has their names. Parameters and errors as `predict_proba`.
        """
        return self._logits(features).argmax(dim=1).numpy()

    def predict_proba(self, features: Any) -> "np.ndarray":
        """The probability of each class: float32 array of shape [n, C].

        Parameters
        ----------
        features : array or Tensor of shape [n, D]
            Embeddings of the encoder that the run was on.

        Raises
        ------
        DataError
            There is no model, or `features` are of another shape or not finite.
        """
        return self._logits(features).softmax(dim=1).numpy()

    def _logits(self, features: Any) -> Any:
        if self.model is None:
            raise DataError(
                "model: these results have none: they were read from a file (predict "
                "with its run's folder, `Predictor`), or every client kept its own"
            )
        # Imported here: to read and write results takes neither.
        import numpy as np
        import torch

        try:
            if not isinstance(features, torch.Tensor):
                features = torch.tensor(np.asarray(features))
            rows = features.detach().to("cpu", torch.float32)
        except (TypeError, ValueError) as error:
            raise DataError(f"features: must be an array of numbers: {error}") from None
        wanted = self.model.in_features
        if rows.ndim != 2 or rows.shape[1] != wanted:
            raise DataError(
                f"features: must be of shape [n, {wanted}], as the run's embeddings, "
                f"got {list(rows.shape)}"
            )
        if not torch.isfinite(rows).all():
            raise DataError("features: must be finite in float32, but some are not")
        with torch.no_grad():
            return self.model(rows)

    def _repr_html_(self) -> str:
        """The results as a notebook shows them; see `results_html`."""
        from federatedscope_ggeur.reporting.tables import results_html

        return results_html(self)

    def to_json(self) -> str:
        """The results as strict JSON: every float to the bit, keys in a fixed order.

        Raises
        ------
        DataError
            If a value is not a plain, finite one; its path is named.
        """
        return (
            json.dumps(as_json_value(self, "results"), indent=2, allow_nan=False) + "\n"
        )

    @staticmethod
    def from_json(text: str) -> "Results":
        """The results that `to_json` wrote.

        Raises
        ------
        DataError
            If `text` is not JSON, has another schema version, or a field is missing,
            unknown or of another type.
        """
        raw = _parse(text)
        found = raw.get("schema_version") if isinstance(raw, dict) else None
        if found != SCHEMA_VERSION:
            raise DataError(
                f"results.schema_version: this version of federatedscope-ggeur reads "
                f"{SCHEMA_VERSION}, found {found!r}; use the version that wrote it"
            )
        return from_json_value(Results, raw, "results")


def numbers(results: Results) -> dict:
    """All of `results` that two runs of one configuration and seed must have equal.

    Left out are times, versions, and the settings that say where output goes.
    """
    plain = as_json_value(results, "results")
    del plain["versions"]
    for key in _OUTPUT_KEYS:
        plain["config"].pop(key, None)
    round0 = plain["round0"]
    timed = [plain["final"], plain["calibrated"], round0, *plain["rounds"]]
    for part in [*timed, round0 and round0["closed_form"]]:
        if part is not None:
            del part["seconds"]
    return plain


def _parse(text: str) -> Any:
    def refuse(name):
        raise DataError(f"results: {name} is not JSON; the file was changed")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise DataError(f"results: not JSON ({error}); is the file whole?") from error


def _versions() -> dict[str, str]:
    found = {
        "federatedscope_ggeur": federatedscope_ggeur.__version__,
        "python": platform.python_version(),
    }
    for name in _REPORTED_PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
