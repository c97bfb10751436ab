"""The records of a run: its clients, each round, and the score at its end."""

from dataclasses import dataclass, field
from typing import Any, Literal, Optional

from .json_values import Seconds, Share


@dataclass(frozen=True)
class ClientInfo:
    """One client.

    Attributes
    ----------
    number : int
        Its data index.
    domain : str
    train_rows, test_rows, val_rows : int or None
        Its numbers of rows, without augmentation. Rows for validation are not among
        those for training. None if only the client knows them.
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
        The mean log-loss of a row, in nats.
    brier : float
        The mean squared distance of the probabilities from the label, 0 to 2.
    """

    ece: Share
    log_loss: float
    brier: float


@dataclass(frozen=True)
class AbsentClasses:
    """The test rows of classes that nobody sent, and the scores of all other rows.

    Attributes
    ----------
    classes : int
        The number of classes that nobody sent statistics of.
    rows : int
        Their test rows, as far as clients tell. A client with too few of them counts
        them with the others.
    accuracy : float or None
        The accuracy on these rows; None without rows.
    accuracy_of_others : float or None
        The accuracy on all other test rows.
    others : ProbabilityScores or None
        The scores of the probabilities, with the temperature, on all other test rows.
    """

    classes: int
    rows: int
    accuracy: Optional[Share]
    accuracy_of_others: Optional[Share]
    others: Optional[ProbabilityScores]


@dataclass(frozen=True)
class Probabilities:
    """Scores of a head's probabilities with its temperature and floor, and without.

    Attributes
    ----------
    after : ProbabilityScores
        The scores with temperature and floor, if there are any.
    before : ProbabilityScores or None
        The scores without them. None if there are none.
    absent : AbsentClasses or None
        The scores with them, without rows of classes that nobody sent. None if a
        one-shot head has statistics of every class, and without such a head.
    floor : float
        The part of the probabilities that is equal for all classes (``ggeur.keep:
        average``).
    """

    after: ProbabilityScores
    before: Optional[ProbabilityScores] = None
    absent: Optional[AbsentClasses] = None
    floor: Share = 0.0


@dataclass(frozen=True)
class TemperatureScaling:
    """The temperature of the trained head, chosen by rows that it was not trained on.

    Attributes
    ----------
    temperature : float
    rows : int
        The number of these rows: for validation, or held out.
    loss, loss_before : float
        The mean log-loss of these rows with the temperature and without it, in nats.
    probabilities : Probabilities or None
        The scores of the probabilities on the test rows.
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
    """The client with the lowest accuracy.

    Attributes
    ----------
    client : int
    accuracy : float
        The accuracy on the client's test rows.
    mean : float
        The mean accuracy over clients. All clients have equal weight.
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
        The accuracy of each domain that was scored, as in the server's `Final`.
    avg, std : float or None
        The result of `average` for `accuracy`.
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
        The number of the round, from 1. A head in closed form has 0. A calibrated head
        has the number after the last round.
    clients : list of int
        The numbers of the clients that trained. Empty for a head without rounds.
    accuracy : dict of str to (float or None), or None
        The test accuracy of each domain; None for a domain without test rows. If the
        round was not evaluated, `accuracy`, `avg`, `std` and `loss` are None.
    avg, std : float or None
        See `lines.average`.
    loss : float or None
        The mean cross-entropy over all test rows.
    seconds : float
    bytes_up, bytes_down : int
        The bytes from and to the clients, summed over clients.
    unseen_clients : dict of str to (float or None), or None
        The accuracies, as in `accuracy`, of the clients that are only evaluated
        (``federate.unseen_clients_rate``). None if there are none.
    method : str or None
        The method that made a head without rounds: ``"lda"``, ``"ccvr"``, .... None for
        a round.
    details : dict or None
        For a round, the numbers that its method reports. For a head without rounds,
        what it was made of. ``rows`` and ``classes`` stand behind the statistics,
        ``left_out`` classes do not. Chosen values have names such as ``shrinkage`` and
        ``shrinkage_rule``. Where leave-one-out chose: ``chosen_by``,
        ``confounded_share``, ``scored_rows`` and ``candidates``, each with its
        ``hits``. Of the probabilities: ``temperature``, ``temperature_rows`` or
        ``temperature_by``, ``left_out_loss`` and ``left_out_loss_before``, or the
        reason in ``not_calibrated``. ``floor`` where floors were tried. None if there
        are none.
    metrics : dict of str to float, or None
        FederatedScope's metrics (``"val_loss"``, ``"test_acc"``, ...), averaged over
        clients. Early stopping and the choice of a round use them. None if the round
        was not evaluated.
    exchanges : dict of str to dict
        The records of plugins' exchanges, by name.
    probabilities : Probabilities or None
        The scores of the head's probabilities. None if the round was not evaluated.
    worst_client : WorstClient or None
        The worst of the clients with test rows. None if nobody knows each client's
        accuracy.
    client_accuracy : dict of str to float, or None
        The accuracy of each client with test rows, by its number as text. None for a
        round.
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

    @property
    def share(self) -> Optional[float]:
        """The one-shot head's share in a mean, if rows chose it."""
        return (self.details or {}).get("share")

    @property
    def title_after(self) -> str:
        """The title of a head that was made after the last round."""
        return "both heads" if self.method == "average" else f"calibrated {self.method}"


@dataclass(frozen=True)
class SumsRecord:
    """Secure sums of the statistics (``ggeur.privacy.secure_sums``).

    Attributes
    ----------
    roster : list of int
        The numbers of the clients in the sums.
    threshold : int
        A class with fewer rows than this, over all clients, is not summed.
    numbers : dict of str to int
        The number of masked values that a client sent in each stage.
    classes : list of int
        The classes that were summed.
    kept_back : list of int
        The summed classes in which one client owns nearly all rows. The server keeps
        their means to itself.
    withheld_rows : int
        The number of rows of all other classes, over all clients.
    """

    roster: list[int]
    threshold: int
    numbers: dict[str, int]
    classes: list[int]
    kept_back: list[int]
    withheld_rows: int


@dataclass(frozen=True)
class NoiseRecord:
    """The release of the statistics under differential privacy.

    Attributes
    ----------
    clients : int
        K, the number of clients that took part.
    tolerated : int
        t, the number of clients that may tell the server what they sent.
    dim : int
        The dimension of the rows that were released.
    square : bool
        Whether the second moment was released.
    mu : float
        The whole release is mu-GDP.
    shares, deviations : dict of str to float
        The share of mu^2 of each block, and the standard deviation of all its noise.
    epsilon_against : dict of str to (float or None)
        The epsilon against each observer. None means no protection.
    private : bool
        False if a test seed drew the noise. Nothing is protected then.
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
    """The differential privacy that a run claims, from its settings alone.

    Attributes
    ----------
    mechanism, adjacency : str
    epsilon, delta : float
        The guarantee for data sets of which one has a row more.
    epsilon_replaced : float
        A bound of epsilon for data sets that differ in the value of one row.
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
    """The guarantee that a run gives, and who sees what.

    Attributes
    ----------
    guarantee : "none", "sums" or "statistics"
        "sums": from the statistics of round 0 the server learns only totals over
        clients, unless a client tells the server its own. "statistics": the statistics
        are released under differential privacy, see `dp`.
    covers : list of str
        The values that the guarantee covers. It says nothing about others.
    against : list of str
        The parties against which the guarantee holds. It holds against nobody else.
    threshold : int
        The min-count threshold; 0 if rows are pooled, where none holds.
    threshold_on : "client" or "sum"
        The rows of a class that are compared with the threshold: one client's, or all
        clients'.
    server_sees, clients_see : list of str
    warnings : list of str
        Values that a reader might think are hidden, but are not.
    keys : str
        With sums, the party whom clients trust for the keys of other clients. ""
        without sums.
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


#: The parts of messages that screening compares.
About = Literal["declared", "statistics", "weight", "update"]


@dataclass(frozen=True)
class Finding:
    """One finding of screening about a client (``ggeur.screen``).

    Attributes
    ----------
    client : int
    about : About
        The part of its messages that differs from what all others sent.
    problem : str
        A description of the finding when it was first made.
    round : int
        The first round with the finding; 0 before training.
    rounds : int
        The number of rounds with the finding.
    refused : bool
        Whether the server excluded the client because of it.
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
        The findings, sorted by client.
    blind_to : list of str
        The parts that could not be screened, and what follows from that.
    """

    findings: list[Finding] = field(default_factory=list)
    blind_to: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PooledRows:
    """The rows of all clients that one client trains on (``centralised``).

    Attributes
    ----------
    clients : int
        The number of clients that would have to send their rows.
    rows : int
        The number of rows for training and validation.
    bytes_up : int
        The bytes of the rows' features and labels.
    """

    clients: int
    rows: int
    bytes_up: int


@dataclass(frozen=True)
class PersonalRecord:
    """The scores of clients' own one-shot heads (``ggeur.personal.head``).

    Each head is scored on its client's own test rows.

    Attributes
    ----------
    kappa : float or None
        The weight, in rows, of the merged class means relative to a client's own means.
        None means infinite: all clients have the same head.
    temperature : float
    prior : {"global", "own"}
    accuracy : dict of str to (float or None)
        The accuracy of each domain.
    avg, std : float or None
        The average and the deviation over domains, as for a round.
    uniform : float or None
        The mean over clients of an accuracy in which all classes with test rows have
        equal weight.
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
    """The messages and results before the first round of training.

    Attributes
    ----------
    clients : list of int
        The numbers of the clients that took part.
    seconds : float
    statistics_bytes_up : dict of str to int
        The bytes of each client's statistics, by its number as text.
    geometry_bytes_down, prototypes_bytes_down : int
        The bytes of shapes and of prototypes sent to clients, summed over clients.
    uploaded_pairs : int
        The number of (client, class) pairs whose statistics were sent.
    withheld_pairs : int or None
        The number of pairs with rows that the min-count threshold withheld. None if
        nobody can know: a client does not tell the server which classes it withholds.
    prepare_bytes_up : int
        The bytes of the clients' answers when they are ready to train, summed over
        clients. The answers hold aggregation weights, and tensors that the method sends
        once.
    init_broadcast_bytes_down : int
        The bytes that the method (FedMix) sends back, summed over clients.
    totals_bytes_up, space_bytes_down : int
        The bytes of totals of rows, and of the space made from them, summed over
        clients.
    offsets_bytes_down : int
        The bytes of what clients make the one-shot head's scores of their rows from,
        summed over clients. They are the offsets in training, and choose the shares of
        two heads.
    space : dict or None
        The space of training (``ggeur.space``), with its ``kind``. The standard space
        adds the root mean square ``distance`` of rows from its centre, and ``scales``:
        "one" for all dimensions, or "each". None for raw embeddings, and if every
        client has its own space.
    closed_form : RoundRecord or None
        The head in closed form (``ggeur.closed_form``). Its bytes and seconds are not
        in the numbers above.
    personal : PersonalRecord or None
        Clients' own one-shot heads. None if there are none.
    compression : dict or None
        None. Earlier releases recorded here what compression changed.
    sums : SumsRecord or None
        The secure sums. None if each client sent its own statistics.
    noise : NoiseRecord or None
        The noisy release. None without differential privacy.
    exchanges : dict of str to dict
        The records of plugins' exchanges, by name.
    exchanges_bytes_up, exchanges_bytes_down : int
        The bytes of plugins' exchanges, summed over clients.
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
    offsets_bytes_down: int = 0
    space: Optional[dict[str, Any]] = None
    closed_form: Optional[RoundRecord] = None
    personal: Optional[PersonalRecord] = None
    compression: Optional[dict[str, Any]] = None
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
        down += self.offsets_bytes_down
        return down + self.exchanges_bytes_down


@dataclass(frozen=True)
class Chosen:
    """The round that validation chooses, and its test scores.

    Attributes
    ----------
    round : int
        The first of the best rounds.
    key : str
        The metric that chooses, such as ``"val_loss"``.
    value : float
    accuracy : dict of str to (float or None)
    avg, std : float or None
        The test scores of that round, as in its record.
    """

    round: int
    key: str
    value: float
    accuracy: dict[str, Optional[Share]]
    avg: Optional[Share]
    std: Optional[Share]


@dataclass(frozen=True)
class Kept:
    """Which of two heads a run keeps (``ggeur.keep: best``), and why.

    Attributes
    ----------
    head : {"closed_form", "trained", "average"}
        "average" is the mean of the probabilities of both heads.
    by : str
        The reason. "validation": accuracy on validation rows. "log_loss": log-loss on
        rows that training did not see chose the shares of both heads. "leave_one_out":
        rows left out chose the head in closed form. "right": it is right on nearly all
        of these rows. "apart": it is a mixture, and clients or domains differ so much
        that the trained head would be far behind. "confounded": labels and domains are
        or may be confounded, so neither can decide. "absent": only the trained head has
        seen the classes that nobody sent. "withheld": only the trained head has seen
        the withheld rows, and the mean of both is kept. "columns": rows have so few
        columns or classes that an MLP helps, and the mean of both is kept. "default":
        nothing decided.
    closed_form, trained : float or None
        The accuracy of each head on validation rows, after the last evaluated round.
    """

    head: Literal["closed_form", "trained", "average"]
    by: Literal[
        "validation",
        "log_loss",
        "leave_one_out",
        "right",
        "apart",
        "confounded",
        "absent",
        "withheld",
        "columns",
        "default",
    ]
    closed_form: Optional[Share]
    trained: Optional[Share]


#: What gave a head its temperature.
CalibratedBy = Literal["leave_one_out", "totals", "validation", "start", "held_out"]


@dataclass(frozen=True)
class Final:
    """The score of a run, made by `lines.summarise`.

    Attributes
    ----------
    head : {"trained", "calibrated", "closed_form"}
        The head that the score is for. "trained" is the mean over the last rounds. If
        ``kept.head`` is "average", the score is that of the mean of both heads, and it
        is "calibrated" if log-loss chose their shares.
    rounds : list of int
        With "trained", the evaluated rounds whose mean is the score.
    accuracy : dict of str to (float or None)
        The accuracy of each domain: its mean over `rounds`, or that of the head.
    avg, std : float or None
        The result of `average` for `accuracy`.
    bytes_up, bytes_down : int
        The total bytes of the run, including round 0 and rows that are pooled.
    seconds : float
        The total time of round 0 and all rounds.
    chosen : Chosen or None
        The round that validation chooses. None without validation rows or rounds.
    kept : Kept or None
        Which of two heads the run keeps. None if there was no choice.
    scored : {"global", "clients"}
        The models that are scored and saved: the global model, or each client's own
        model on its own rows. On unseen domains the global model is always scored.
    head_sha256 : str or None
        The hash of the file of the global head; None if there is no such head.
    probabilities : Probabilities or None
        The scores of that head's probabilities.
    calibrated_by : CalibratedBy or None
        The source of its temperature. None means not calibrated. "totals" are those of
        secure sums or a book, "held_out" rows that training did not see. "start":
        training began at a head that was divided by its temperature.
    worst_client : WorstClient or None
        The worst client, as in the record of that head.
    client_accuracy : dict of str to float, or None
        The accuracy of each client with test rows, by its number as text. None if
        nobody knows each client's accuracy, or if the run was restored after its last
        round.
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
    calibrated_by: Optional[CalibratedBy] = None
    worst_client: Optional[WorstClient] = None
    client_accuracy: Optional[dict[str, Share]] = None


@dataclass(frozen=True)
class Divergence:
    """Describes training that diverged but stayed finite.

    Attributes
    ----------
    round : int
        The first round since which every evaluated round is diverged.
    client : int or None
        The client of that round with the largest weights. If weights stay with the
        clients, the client with the largest loss. None if the server's step diverged.
    rate : float or None
        The clients' learning rate.
    loss, first_loss : float or None
        The mean loss after that round, and after the first evaluated round. It is on
        test rows, or on validation rows if test rows are not scored.
    largest_weight : float or None
        The largest weight in that round's updates and in the global model after it.
        None if weights stay with the clients.
    """

    round: int
    client: Optional[int]
    rate: Optional[float]
    loss: Optional[float]
    first_loss: Optional[float]
    largest_weight: Optional[float]
