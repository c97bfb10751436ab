"""The results of a run as one versioned schema of plain numbers, and as a table.

Accuracies are fractions in [0, 1], sizes are bytes, times are seconds. A
number that does not exist is None, never NaN.
"""

import copy
import platform
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, distributions, version
from typing import TYPE_CHECKING, Any, Literal, Optional

from federatedscope_ggeur.errors import DataError, shown
from federatedscope_ggeur.machine import plain_torch
from federatedscope_ggeur.printable import Lines, as_html, printable
from federatedscope_ggeur.settings import ENTRY_POINTS
from federatedscope_ggeur.version import __version__

from . import records
from .json_values import as_json_value, from_json_value, json_text, parse_json
from .lines import (
    absent_line,
    average,
    divergence_line,
    kept_line,
    numbers_of_rows,
    percent,
    pooled_line,
    privacy_line,
    probabilities_line,
    screening_lines,
    summarise,
    worst_client_line,
)
from .provenance import Provenance
from .tables import csv_text, html_table, text_table

if TYPE_CHECKING:
    import numpy as np

SCHEMA_VERSION = 11
#: Schema 10 has no `given`, `Probabilities.absent` and `DataFingerprint.pool`.
_READABLE = (10, SCHEMA_VERSION)
Status = Literal["finished", "interrupted", "failed"]
_REPORTED_PACKAGES = ("torch", "numpy", "scikit-learn", "scikit-image", "safetensors")
_OUTPUT_KEYS = ("outdir", "expname", "expname_tag")

#: What the table adds where the global model was not scored.
_SCORED_OWN = (
    "scored: each client's own model, on its own test rows; the model is where the "
    "client ran, in heads/client_<number>.safetensors"
)


@dataclass(frozen=True)
class Results:
    """Everything that a run leaves in ``results.json``.

    Attributes
    ----------
    schema_version : int
        `SCHEMA_VERSION`.
    engine : str
        The engine that ran it, e.g. ``"embedded"``.
    status : str
        ``"finished"``, ``"interrupted"`` (by a person or a scheduler) or ``"failed"``.
        After the last two, `rounds` holds the rounds that were over.
    config, versions : dict
        The whole configuration, and the version of each package that mattered.
    seed : int
    domains, unseen_domains : list of str
        All domains that are scored, and those of them that no client holds.
    class_names : list of str
    encoder : str
        The encoder that made the embeddings.
    clients : list of ClientInfo
    round0 : Round0 or None
        None when nothing was exchanged before training.
    rounds : list of RoundRecord
        In order.
    calibrated : RoundRecord or None
        The head made after the last round. It is calibrated (``ggeur.calibrate``), or a
        mean of two heads whose shares log-loss chose (``ggeur.keep``).
    temperature_scaling : TemperatureScaling or None
        The temperature of the trained head; None if validation rows chose none.
    final : Final
    diverged : Divergence or None
        None where training did not diverge.
    stopped_early : int or None
        The round after which ``early_stop`` ended the run.
    privacy : Privacy or None
        Which guarantee it gives, and who sees what; None if that is not known.
    screening : Screening
        Clients whose messages differ from what all others sent.
    pooled : PooledRows or None
        The rows that were pooled to train on; None if rows stay with the clients.
    notes : list of str
        The notes of the run, at its start and in round 0.
    provenance : Provenance or None
        Where and how the run was made.
    given : dict or None
        How the run's rows were given: fields of `data.Given`. None for a run of an
        older release.
    shared : SharedScores or None
        In a site's folder: the table of the whole federation, if the server shares it.
        All other fields have only what the site itself knows.
    model : Model or None
        The trained model; None if there is no global one. The file does not hold it,
        and equality ignores it. The same is true of the next three.
    own_models : OwnModels or None
        The models that clients keep as their own, if they ran in this process.
    prepare : callable (rows, pixels) -> Tensor [n, D], or None
        Turns rows of any kind into what the model takes, see `Expected.take`.
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
    clients: list[records.ClientInfo]
    round0: Optional[records.Round0]
    rounds: list[records.RoundRecord]
    calibrated: Optional[records.RoundRecord]
    final: records.Final
    diverged: Optional[records.Divergence] = None
    stopped_early: Optional[int] = None
    privacy: Optional[records.Privacy] = None
    screening: records.Screening = field(default_factory=records.Screening)
    pooled: Optional[records.PooledRows] = None
    notes: list[str] = field(default_factory=list)
    provenance: Optional[Provenance] = None
    temperature_scaling: Optional[records.TemperatureScaling] = None
    shared: Optional[records.SharedScores] = None
    given: Optional[dict[str, Any]] = None
    model: Any = field(default=None, repr=False, compare=False)
    own_models: Any = field(default=None, repr=False, compare=False)
    prepare: Any = field(default=None, repr=False, compare=False)

    @classmethod
    def begun(cls, **known: Any) -> "Results":
        """The results of a run that has begun: the `known` fields, and no rounds."""
        return cls(
            SCHEMA_VERSION,
            status="failed",
            versions=dict(_versions()),
            round0=None,
            rounds=[],
            calibrated=None,
            final=records.Final("trained", [], {}, None, None, 0, 0, 0.0),
            **known,
        )

    @property
    def closed_form(self) -> Optional[records.RoundRecord]:
        """The head in closed form, if there was one."""
        return self.round0.closed_form if self.round0 else None

    def predict(self, features: Any, clients: Any = None) -> "np.ndarray":
        """The class number of each row of `features`: int64 array of shape [n].

        `class_names` has their names. Parameters and errors as `predict_proba`.
        """
        return self.logits(features, clients).argmax(dim=1).numpy()

    def predict_proba(self, features: Any, clients: Any = None) -> "np.ndarray":
        """The probability of each class: float32 array of shape [n, C].

        No probability is below 0.001 / C; see `Model.probabilities`.

        Parameters
        ----------
        features : array, Tensor or data frame of shape [n, D]
            Embeddings of the run's encoder; the run's ``data.transform`` is applied to
            them. Columns with titles are put in the order of the run's own titles. For
            a network, pixels: uint8, or floats in 0..1.
        clients : int or sequence of int, optional
            The client whose model predicts: one number for all rows, or one for each
            row; 0 is the global model. It is needed if every client has a model of its
            own (`final.scored`). It also selects clients' own one-shot heads
            (``ggeur.personal.head``). In other runs all clients have the same model.

        Raises
        ------
        DataError
            There is no model, `features` are of another shape or not finite, or
            `clients` does not say whose model predicts.
        """
        logits = self.logits(features, clients)
        model = self.own_models.model if self.model is None else self.model
        return model.probabilities(logits).numpy()

    @plain_torch()
    def logits(self, features: Any, clients: Any = None, exact: bool = False) -> Any:
        """The logits of each class: float32 Tensor of shape [n, C].

        With `exact` they are computed in float64, so that a row's logits hardly depend
        on the other rows. Other parameters and errors as `predict_proba`.
        """
        own, model = self.own_models, self.model
        must_say = self.final.scored == "clients"
        has_own = must_say or (clients is not None and own is not None)
        if (own if has_own else model) is None:
            raise DataError(
                "model: these results were read from a file, which holds no model; "
                "predict with the run's folder (`Predictor`)"
            )
        model = own.model if has_own else model
        import torch

        rows = self._rows(features, model)
        if exact:
            rows, model = rows.double(), copy.deepcopy(model).double()
            own = type(own)(model, own.tensors, own.shared) if has_own else None
        if clients is None and not has_own:
            return model.in_chunks(model, rows)
        shared = own.shared if has_own else True
        numbers = numbers_of_rows(clients, len(rows), self.clients, shared, "clients")
        if not has_own:
            return model.in_chunks(model, rows)
        return own.logits(rows, torch.from_numpy(numbers))

    def _rows(self, features: Any, model: Any) -> Any:
        """`features` as `model` takes them, checked."""
        rows = self.prepare(features, model.takes_images)
        wanted = model.in_features
        if rows.ndim != 2 or rows.shape[1] != wanted:
            raise DataError(
                f"features: must have shape [n, {wanted}], like the run's embeddings; "
                f"got {list(rows.shape)}"
            )
        return rows

    def __repr__(self) -> str:
        score = "" if self.final.avg is None else f", AVG {100 * self.final.avg:.2f}%"
        return f"Results({self.status}, seed {self.seed}{score})"

    def _repr_html_(self) -> str:
        """The HTML that a notebook shows for these results; see `results_html`."""
        return results_html(self)

    def to_json(self) -> str:
        """The results as strict JSON, with exact floats and with keys in a fixed order.

        Raises
        ------
        DataError
            A value is not plain, or not finite; the message names its path.
        """
        return json_text(as_json_value(self, "results"))

    @staticmethod
    def from_json(text: str) -> "Results":
        """Read results from the `text` that `to_json` wrote.

        Raises
        ------
        DataError
            `text` is not JSON or has another schema version; or a field is missing,
            unknown or of another type.
        """
        try:
            raw = parse_json(text)
        except DataError as error:
            raise DataError(f"results: {error}") from error
        schema = raw.get("schema_version") if isinstance(raw, dict) else None
        if schema not in _READABLE:
            raise DataError(
                f"results.schema_version: this version of federatedscope-ggeur reads "
                f"{' and '.join(map(str, _READABLE))}, found {shown(schema)}; use the "
                "version that wrote it"
            )
        return from_json_value(Results, raw, "results")


def results_table(results: Results) -> str:
    """The table that a run prints at its end.

    It has a row for each domain (a star marks domains that no client holds), then AVG
    and STD over domains, all in percent. Lines below it give the bytes (1 MB = 10^6)
    and the time, and say where training diverged or the run broke off. A number that
    does not exist is "-". Without test rows there is no table.
    """
    remarks = _remarks(results)
    if _is_unscored(results):
        return Lines(remarks)
    head, rows, summary = _cells(results)
    table = text_table([head], rows, summary, ruled=True)
    return Lines([*table, *remarks])


def results_html(results: Results) -> str:
    """The content of `results_table`, as an HTML table and a paragraph."""
    remarks = "<br>".join(map(as_html, _remarks(results)))
    if _is_unscored(results):
        return f"<p>{remarks}</p>"
    head, rows, summary = _cells(results)
    return f"{html_table(head, rows + summary)}\n<p>{remarks}</p>"


def _is_unscored(results: Results) -> bool:
    """Whether there were no rows to score a head on."""
    # If the server scores, clients hold no test rows either.
    if any(score is not None for _, of in _columns(results) for score in of.values()):
        return False
    held = [client.test_rows for client in results.clients]
    return bool(held) and set(held) == {0} and not results.unseen_domains


def _cells(results: Results) -> tuple[tuple, list[tuple], list[tuple]]:
    """Titles, a row for each domain, and the rows AVG and STD, all as texts."""
    columns = _columns(results)
    averages = [average(scores) for _, scores in columns]
    rows = [
        (_marked(domain, results), *(percent(s.get(domain)) for _, s in columns))
        for domain in results.domains
    ]
    summary = [
        ("AVG", *(percent(avg) for avg, _ in averages)),
        ("STD", *(percent(std) for _, std in averages)),
    ]
    return ("accuracy in %", *(title for title, _ in columns)), rows, summary


def _remarks(results: Results) -> list[str]:
    """The lines below the table."""
    final, lines = results.final, []
    if _is_unscored(results):
        lines.append("there are no test rows, so nothing is scored")
    if results.unseen_domains:
        lines.append("* unseen: held by no client")
    lines.append(
        f"sent {final.bytes_up / 1e6:.2f} MB up, {final.bytes_down / 1e6:.2f} MB down"
        f"{' (round 0 included)' if results.round0 else ''}; {final.seconds:.1f} s"
    )
    if results.pooled is not None:
        lines.append(pooled_line(results.pooled))
    if final.kept is not None:
        solved = results.closed_form
        about = (solved.details if solved else None) or {}
        share = results.calibrated.share if results.calibrated else None
        adds = bool(getattr(results.model, "offset", False))
        lines.append(kept_line(final.kept, about.get("averaged", False), share, adds))
    if final.probabilities is not None:
        lines.append(probabilities_line(final))
        if final.probabilities.absent is not None:
            least = results.privacy.threshold if results.privacy else 1
            lines.append(absent_line(final.probabilities.absent, least))
    if final.worst_client is not None:
        lines.append(worst_client_line(final.worst_client))
    if final.scored == "clients":
        others = "; unseen domains: the global one" if results.unseen_domains else ""
        lines.append(_SCORED_OWN + others)
    if results.privacy is not None:
        lines.append(privacy_line(results.privacy))
    lines += screening_lines(results.screening)
    if results.diverged is not None:
        lines.append(divergence_line(results.diverged))
    if results.stopped_early is not None:
        lines.append(f"stopped early, after round {results.stopped_early}")
    if results.status != "finished":
        done = results.rounds[-1].round if results.rounds else 0
        lines.append(f"{results.status} after round {done}")
    return lines


def _columns(results: Results) -> list[tuple[str, dict[str, Optional[float]]]]:
    """Title and accuracies of each head that the run scored at its end."""
    columns, closed_form = [], results.closed_form
    if closed_form is not None:
        columns.append((f"closed form {closed_form.method}", closed_form.accuracy))
    evaluated = [record for record in results.rounds if record.evaluated]
    if evaluated or not (columns or results.calibrated):
        trained = summarise(results.rounds)
        last = evaluated[-1] if evaluated else None
        columns += [
            (f"round {last.round}" if last else "last round", last and last.accuracy),
            (f"mean of last {len(trained.rounds)} evaluated", trained.accuracy),
        ]
    chosen = results.final.chosen
    if chosen is not None:
        columns.append((f"round {chosen.round} by {chosen.key}", chosen.accuracy))
    if results.calibrated is not None:
        columns.append((results.calibrated.title_after, results.calibrated.accuracy))
    return [(title, scores or {}) for title, scores in columns]


def metrics_csv(results: Results) -> str:
    """One row for each round, floats to the bit.

    A head in closed form has a row, as round 0. A round that was not evaluated has
    empty cells.

    Columns: round, avg, std, loss, seconds, bytes_up, bytes_down and, for each
    domain, accuracy_<domain>. Accuracies are fractions in [0, 1].
    """
    names = ["round", "avg", "std", "loss", "seconds", "bytes_up", "bytes_down"]
    lines = [names + [f"accuracy_{domain}" for domain in results.domains]]
    for record in (results.closed_form, *results.rounds):
        if record is not None:
            scores = record.accuracy or {}
            row = [getattr(record, name) for name in names]
            lines.append(row + [scores.get(domain) for domain in results.domains])
    return csv_text(lines)


def _marked(domain: str, results: Results) -> str:
    star = " *" if domain in results.unseen_domains else ""
    return f"{printable(domain)}{star}"


def numbers(results: Results) -> dict:
    """The part of `results` that two runs of one configuration and seed have equal.

    It leaves out times, versions, provenance, and the settings of where output goes.
    """
    plain = as_json_value(results, "results")
    del plain["versions"], plain["provenance"]
    for key in _OUTPUT_KEYS:
        plain["config"].pop(key, None)
    round0 = plain["round0"]
    timed = [plain["final"], plain["calibrated"], round0, *plain["rounds"]]
    timed.append(plain["temperature_scaling"])
    heads = [round0[name] for name in ("closed_form", "personal")] if round0 else []
    for part in [*timed, *heads]:
        if part is not None:
            del part["seconds"]
    return plain


@cache
def _versions() -> dict[str, str]:
    """The versions of this package, Python and others, read once a process."""
    versions = {"federatedscope_ggeur": __version__}
    versions["python"] = platform.python_version()
    for name in _REPORTED_PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {**versions, **_packages_with_plugins()}


def _packages_with_plugins() -> dict[str, str]:
    """Installed packages whose plugins every run loads, and their versions."""
    return {
        package.metadata["Name"]: package.version
        for package in distributions()
        if any(point.group == ENTRY_POINTS for point in package.entry_points)
    }
