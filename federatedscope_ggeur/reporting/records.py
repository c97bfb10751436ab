"""What a run records: its clients, each round, the score at its end.

docs/results.md describes every field.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, Optional

from federatedscope_ggeur.reporting.json_values import Seconds, Share


@dataclass(frozen=True)
class ClientInfo:
    """One client: its data index, its domain, and how many rows it holds.

    The rows are None where only the client knows them.
    """

    number: int
    domain: str
    train_rows: Optional[int]
    test_rows: Optional[int]
    val_rows: Optional[int] = None


@dataclass(frozen=True)
class ProbabilityScores:
    """How well the probabilities of a head are calibrated, over all test rows.

    Attributes
    ----------
    ece : float
        Expected calibration error, in 15 bins.
    log_loss : float
        In nats a row.
    brier : float
        The mean squared distance of the probabilities from the label, 0 to 2.
    """

    ece: Share
    log_loss: float
    brier: float


@dataclass(frozen=True)
class Probabilities:
    """Scores of a head's probabilities with its temperature, and without.

    Attributes
    ----------
    after : ProbabilityScores
        With the temperature, if there is one.
    before : ProbabilityScores or None
        Without the temperature; None if there is none.
    """

    after: ProbabilityScores
    before: Optional[ProbabilityScores] = None


@dataclass(frozen=True)
class TemperatureScaling:
    """The temperature of the trained head, chosen by validation rows.

    Attributes
    ----------
    temperature : float
    rows : int
        The validation rows.
    loss, loss_before : float
        Their log-loss at the temperature and without it, in nats a row.
    probabilities : Probabilities or None
        On the test rows.
    seconds : float
    bytes_up, bytes_down : int
    """

    temperature: float
    rows: int
    loss: float
    loss_before: float
    probabilities: Optional[Probabilities]
    seconds: Seconds
    bytes_up: int
    bytes_down: int


@dataclass(frozen=True)
class WorstClient:
    """The client that the head serves worst.

    Attributes
    ----------
    client : int
    accuracy : float
        On its test rows.
    mean : float
        The mean accuracy over clients; all clients count alike.
    """

    client: int
    accuracy: Share
    mean: Share


@dataclass(frozen=True)
class SharedScores:
    """The whole federation's table in a site's folder (``ggeur.share_results``).

    Attributes
    ----------
    accuracy : dict of str to float
        For each domain that was scored, as in the server's `Final`.
    avg, std : float or None
        `average` of `accuracy`.
    """

    accuracy: dict[str, Share]
    avg: Optional[Share]
    std: Optional[Share]


@dataclass(frozen=True)
class RoundRecord:
    """One round, or a head that was made without rounds, and its scores.

    Attributes
    ----------
    round : int
        From 1; 0 for a head in closed form; the one after the last for a calibrated
        head.
    clients : list of int
        The numbers of the clients that trained; empty for a head without rounds.
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
        As `accuracy`, for the clients that are only evaluated
        (``federate.unseen_clients_rate``); None if there are none.
    method : str or None
        What made a head without rounds: ``"lda"``, ``"ccvr"``, ...; None for a round.
    details : dict or None
        For a head without rounds, what was chosen, such as the shrinkage. For a round,
        what its method reports, such as FedPG's ``virtual_accuracy``; None if nothing.
    metrics : dict of str to float, or None
        FederatedScope's metrics (``"val_loss"``, ``"test_acc"``, ...), averaged over
        clients. Early stopping and the choice of a round use them. None when the round
        was not evaluated.
    exchanges : dict of str to dict
        By name, what the exchanges of plugins record.
    probabilities : Probabilities or None
        The scores of the head's probabilities; None when the round was not evaluated.
    worst_client : WorstClient or None
        Among the clients with test rows; None if nobody knows each client's accuracy.
    client_accuracy : dict of str to float, or None
        The accuracy of each client with test rows, by number as text; None for a round.
    """

    round: int
    clients: list[int]
    accuracy: Optional[dict[str, Optional[Share]]]
    avg: Optional[Share]
    std: Optional[Share]
    loss: Optional[float]
    seconds: Seconds
    bytes_up: int
    bytes_down: int
    unseen_clients: Optional[dict[str, Optional[Share]]] = None
    method: Optional[str] = None
    details: Optional[dict[str, Any]] = None
    metrics: Optional[dict[str, float]] = None
    exchanges: dict[str, dict[str, Any]] = field(default_factory=dict)
    probabilities: Optional[Probabilities] = None
    worst_client: Optional[WorstClient] = None
    client_accuracy: Optional[dict[str, Share]] = None

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
        The share of the trace of its scatter W that the directions kept do not hold.
    covariance_error : float or None
        ``|W' - W| / |W'|``, W' being what the server works with (Frobenius norms).
    rounding_error : float or None
        The part of that error that rounding made: ``|W' - W''| / |W'|``, where W'' is
        unrounded.
    mean_error : float or None
        How far compression moved the class means, relative to their distance from the
        overall mean; both are root mean squares over rows.
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
        As for one client, over all clients.
    """

    clients: dict[str, ClientCompression]
    left_out: Optional[float]


@dataclass(frozen=True)
class SumsRecord:
    """Secure sums of the statistics (``ggeur.privacy.secure_sums``).

    Attributes
    ----------
    roster : list of int
        The clients that are in them.
    threshold : int
        Rows of a class over all of them, below which it is not summed.
    numbers : dict of str to int
        For each stage, how many numbers a client sent under its masks.
    classes : list of int
        The classes that were summed.
    kept_back : list of int
        The summed classes in which one client owns nearly all rows. The server keeps
        their means to itself.
    withheld_rows : int
        Rows of all other classes, over all clients.
    """

    roster: list[int]
    threshold: int
    numbers: dict[str, int]
    classes: list[int]
    kept_back: list[int]
    withheld_rows: int


@dataclass(frozen=True)
class NoiseRecord:
    """The release of the statistics under differential privacy, as it was made.

    Attributes
    ----------
    clients : int
        K, those that took part.
    tolerated : int
        t: so many of them may tell the server what they sent.
    dim : int
        Dimensions of the rows that were released.
    square : bool
        Whether the second moment was released.
    mu : float
        The whole release is mu-GDP.
    shares, deviations : dict of str to float
        For each block its share of mu^2, and the standard deviation of all noise.
    epsilon_against : dict of str to (float or None)
        By observer; None: none.
    private : bool
        False if a test seed drew the noise: nothing is protected then.
    """

    clients: int
    tolerated: int
    dim: int
    square: bool
    mu: float
    shares: dict[str, Share]
    deviations: dict[str, float]
    epsilon_against: dict[str, Optional[float]]
    private: bool


@dataclass(frozen=True)
class DifferentialPrivacy:
    """What a run claims of differential privacy, by its settings alone.

    Attributes
    ----------
    mechanism, adjacency : str
    epsilon, delta : float
        For one row more or less.
    epsilon_replaced : float
        A bound for one row replaced by another.
    noise_by : "distributed", "server" or "client"
    not_covered : list of str
    """

    mechanism: str
    adjacency: str
    epsilon: float
    delta: float
    epsilon_replaced: float
    noise_by: str
    not_covered: list[str]


@dataclass(frozen=True)
class Privacy:
    """Which guarantee a run gives, and who sees what.

    Attributes
    ----------
    guarantee : "none", "sums" or "statistics"
        sums: the server learns only totals over clients from the statistics of round
        0, as long as no client tells it its own. statistics: they are released under
        differential privacy, see `dp`.
    covers : list of str
        What the guarantee covers; all else is as without one.
    against : list of str
        Against whom it holds; against nobody else.
    threshold : int
        The min-count threshold.
    threshold_on : "client" or "sum"
        Which rows of a class are compared with it: one client's, or all clients'.
    server_sees, clients_see : list of str
    warnings : list of str
        What a reader might think is hidden, and is not.
    keys : str
        With sums, whom clients trust for the keys of others; "" without sums.
    dp : DifferentialPrivacy or None
    """

    guarantee: str
    covers: list[str]
    against: list[str]
    threshold: int
    threshold_on: str
    server_sees: list[str]
    clients_see: list[str]
    warnings: list[str]
    keys: str = ""
    dp: Optional[DifferentialPrivacy] = None


#: What screening compares.
About = Literal["declared", "statistics", "weight", "update"]


@dataclass(frozen=True)
class Finding:
    """What screening has found of one client (``ggeur.screen``).

    Attributes
    ----------
    client : int
    about : About
        Which of its messages differ from what all others sent.
    problem : str
        As screening first found it.
    round : int
        The first round with the finding; 0 before training.
    rounds : int
        The number of rounds with it.
    refused : bool
        Whether the server put the client out for it.
    """

    client: int
    about: About
    problem: str
    round: int
    rounds: int
    refused: bool


@dataclass(frozen=True)
class Screening:
    """Clients whose messages differ from what all others sent (``ggeur.screen``).

    Attributes
    ----------
    findings : list of Finding
        By client.
    blind_to : list of str
        What could not be screened, and what follows from that.
    """

    findings: list[Finding] = field(default_factory=list)
    blind_to: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PooledRows:
    """The rows that one place trains on (``centralised``), before they were pooled.

    Attributes
    ----------
    clients : int
        The clients that would have to send their rows.
    rows : int
        Rows for training and validation.
    bytes_up : int
        The bytes of their features and labels.
    """

    clients: int
    rows: int
    bytes_up: int


@dataclass(frozen=True)
class PersonalRecord:
    """Clients' own one-shot heads (``ggeur.personal.head``), on their own test rows.

    Attributes
    ----------
    kappa : float or None
        The weight of the merged class means beside a client's own, in rows. None:
        infinite, so that all clients have the same head.
    temperature : float
    prior : {"global", "own"}
    accuracy : dict of str to (float or None)
        For each domain.
    avg, std : float or None
        As for a round.
    uniform : float or None
        The mean over clients of their accuracy if all classes with test rows counted
        alike.
    seconds : float
    bytes_up, bytes_down : int
    """

    kappa: Optional[float]
    temperature: float
    prior: Literal["global", "own"]
    accuracy: dict[str, Optional[Share]]
    avg: Optional[Share]
    std: Optional[Share]
    uniform: Optional[Share]
    seconds: Seconds
    bytes_up: int
    bytes_down: int


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
        Pairs with rows that the min-count threshold withheld. None where nobody can
        know: a client does not tell the server which classes it withholds.
    prepare_bytes_up : int
        The clients' answers when they are ready to train, summed over clients: their
        aggregation weights, and what the method sends up once.
    init_broadcast_bytes_down : int
        What the method (FedMix) sends back, summed over clients.
    totals_bytes_up, space_bytes_down : int
        Totals of rows, and the space made from them, summed over clients.
    space : dict or None
        The space of training (``ggeur.space``): its ``kind``. The standard space adds
        the root mean square ``distance`` of rows from its centre, and ``scales``:
        "one" for all dimensions, or "each". None for raw embeddings, and where every
        client has a space of its own.
    closed_form : RoundRecord or None
        The head in closed form (``ggeur.closed_form``); its bytes and seconds are not
        in the numbers above.
    personal : PersonalRecord or None
        Clients' own one-shot heads; None if there are none.
    compression : CompressionRecord or None
        What compression of the statistics cost; None without compression.
    sums : SumsRecord or None
        What was summed under masks; None if each client sent its own statistics.
    noise : NoiseRecord or None
        The noisy release; None without differential privacy.
    exchanges : dict of str to dict
        By name, what the exchanges of plugins record.
    exchanges_bytes_up, exchanges_bytes_down : int
        Bytes of the exchanges of plugins, summed over clients.
    """

    clients: list[int]
    seconds: Seconds
    statistics_bytes_up: dict[str, int]
    geometry_bytes_down: int
    prototypes_bytes_down: int
    uploaded_pairs: int
    withheld_pairs: Optional[int]
    prepare_bytes_up: int = 0
    init_broadcast_bytes_down: int = 0
    totals_bytes_up: int = 0
    space_bytes_down: int = 0
    space: Optional[dict[str, Any]] = None
    closed_form: Optional[RoundRecord] = None
    personal: Optional[PersonalRecord] = None
    compression: Optional[CompressionRecord] = None
    sums: Optional[SumsRecord] = None
    noise: Optional[NoiseRecord] = None
    exchanges: dict[str, dict[str, Any]] = field(default_factory=dict)
    exchanges_bytes_up: int = 0
    exchanges_bytes_down: int = 0

    @property
    def bytes_up(self) -> int:
        """All bytes from clients to the server before scores."""
        statistics = sum(self.statistics_bytes_up.values())
        up = statistics + self.totals_bytes_up + self.prepare_bytes_up
        return up + self.exchanges_bytes_up

    @property
    def bytes_down(self) -> int:
        """All bytes from the server to clients before scores."""
        down = self.geometry_bytes_down + self.prototypes_bytes_down
        down += self.space_bytes_down + self.init_broadcast_bytes_down
        return down + self.exchanges_bytes_down


@dataclass(frozen=True)
class Chosen:
    """The round that validation rows choose, and its test scores.

    Attributes
    ----------
    round : int
        The first of the best rounds.
    key : str
        The metric that chooses, such as ``"val_loss"``.
    value : float
    accuracy : dict of str to (float or None)
    avg, std : float or None
        As in its record.
    """

    round: int
    key: str
    value: float
    accuracy: dict[str, Optional[Share]]
    avg: Optional[Share]
    std: Optional[Share]


@dataclass(frozen=True)
class Kept:
    """Which of two heads a run leaves (``ggeur.keep: best``).

    Attributes
    ----------
    head : {"closed_form", "trained"}
    by : {"validation", "leave_one_out", "confounded", "withheld", "default"}
        What decided. validation: accuracy on validation rows. leave_one_out: rows left
        out chose the head in closed form. confounded: labels and domains are
        confounded, so neither can decide. withheld: only the trained head has seen the
        withheld rows. default: nothing decided.
    closed_form, trained : float or None
        Accuracy on validation rows, after the last round that was evaluated.
    """

    head: Literal["closed_form", "trained"]
    by: Literal["validation", "leave_one_out", "confounded", "withheld", "default"]
    closed_form: Optional[Share]
    trained: Optional[Share]


@dataclass(frozen=True)
class Final:
    """The score of a run; made by `summary.summarise`.

    Attributes
    ----------
    head : {"trained", "calibrated", "closed_form"}
        Which head the score is for; "trained" is the mean over the last rounds.
    rounds : list of int
        The evaluated rounds that the score is the mean of, with "trained".
    accuracy : dict of str to (float or None)
        For each domain its mean accuracy over `rounds`, or that of the head.
    avg, std : float or None
        `average` of `accuracy`.
    bytes_up, bytes_down : int
        Totals of the run, round 0 and rows that are pooled included.
    seconds : float
        Total of round 0 and all rounds.
    chosen : Chosen or None
        What validation chooses; None without validation rows or rounds.
    kept : Kept or None
        Which of two heads the run leaves; None where there was no choice.
    scored : {"global", "clients"}
        Which models are scored and left: the global one, or each client's own on its
        own rows. The global model is always scored on unseen domains.
    head_sha256 : str or None
        The hash of the file of the global head; None if there is no such head.
    probabilities : Probabilities or None
        The scores of that head's probabilities.
    calibrated_by : {"leave_one_out", "validation", "start"} or None
        Where its temperature comes from: rows left out, validation rows, or the start
        of training, which had the temperature folded in. None: not calibrated.
    worst_client : WorstClient or None
        As in the record of that head.
    client_accuracy : dict of str to float, or None
        The accuracy of each client with test rows, by number as text. None if nobody
        knows each client's accuracy, or if the run was restored after its last round.
    """

    head: Literal["trained", "calibrated", "closed_form"]
    rounds: list[int]
    accuracy: dict[str, Optional[Share]]
    avg: Optional[Share]
    std: Optional[Share]
    bytes_up: int
    bytes_down: int
    seconds: Seconds
    chosen: Optional[Chosen] = None
    kept: Optional[Kept] = None
    scored: Literal["global", "clients"] = "global"
    head_sha256: Optional[str] = None
    probabilities: Optional[Probabilities] = None
    calibrated_by: Optional[Literal["leave_one_out", "validation", "start"]] = None
    worst_client: Optional[WorstClient] = None
    client_accuracy: Optional[dict[str, Share]] = None


@dataclass(frozen=True)
class Divergence:
    """Training that diverged and stayed finite.

    Attributes
    ----------
    round : int
        The first round from which on every evaluated round is diverged.
    client : int or None
        The client of that round with the largest weights or, where weights stay with
        the clients, with the largest loss. None if the server's step diverged.
    rate : float or None
        The clients' learning rate.
    loss, first_loss : float or None
        The mean loss after that round, and after the first evaluated round. It is of
        the test rows, or of validation rows if test rows are not scored.
    largest_weight : float or None
        The largest weight in that round's updates and in the global model after it.
        None where weights stay with the clients.
    """

    round: int
    client: Optional[int]
    rate: Optional[float]
    loss: Optional[float]
    first_loss: Optional[float]
    largest_weight: Optional[float]
