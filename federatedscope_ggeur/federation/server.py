"""The server role: all that the server does, whatever engine carries its messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import torch
from torch import Tensor

from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.federation.calibration import Calibration
from federatedscope_ggeur.federation.evaluation import Score, evaluate
from federatedscope_ggeur.federation.messages import (
    Broadcast,
    ClientUpdate,
    Geometry,
    InitBroadcast,
    PrepareReply,
    Prototypes,
    ScoreReport,
    StatisticsUpload,
)
from federatedscope_ggeur.federation.messages.schema import MessageSchema
from federatedscope_ggeur.federation.messages.statistics_upload import empty_statistics
from federatedscope_ggeur.federation.messages.validation import Admission
from federatedscope_ggeur.federation.prototypes import PrototypeBook
from federatedscope_ggeur.federation.sampling import draw_clients, windows
from federatedscope_ggeur.federation.server_settings import ServerSettings
from federatedscope_ggeur.geometry import GeometricShape
from federatedscope_ggeur.methods import ServerContext, Update, initial_weights
from federatedscope_ggeur.models import (
    build_model,
    load_vector,
    to_vector,
)

#: Covariances come rounded to float32, which leaves noise of 1e-7 of the largest
#: eigenvalue at most.
TRAVEL_PRECISION = 4 * torch.finfo(torch.float32).eps


class Server:
    """The server.

    Parameters
    ----------
    roster : mapping from client number to domain
    settings : ServerSettings

    Attributes
    ----------
    contract : Contract
        To decode the clients' messages against.
    admission : Admission
        What can be taken from whom, beyond what decoding checks.
    unseen : list of int
        The clients that are only scored, drawn by seed.
    participants : list of int
        All others, ascending.
    params : Tensor of shape (P,)
        The global head's weights.
    statistics : ClassStatistics or SummedStatistics
        The merged statistics of all clients so far.
    uploaded : set of int
        The clients whose statistics are in it.
    calibration : Calibration or None
        The stage after the last round, where there is one.
    """

    def __init__(self, client_domains: Mapping[int, str], settings: ServerSettings):
        self.client_domains = dict(sorted(client_domains.items()))
        self.settings = settings
        self.unseen = draw_clients(
            list(self.client_domains),
            settings.unseen_client_num,
            settings.seed,
            "unseen",
        )
        self.participants = [k for k in self.client_domains if k not in self.unseen]
        self.model = build_model(settings.dim, settings.num_classes, settings.model)
        self.params = initial_weights(self.model, settings.seed)
        load_vector(self.model, self.params)
        self.schema = MessageSchema.of(self.model, settings.method, settings.statistics)
        self.statistics = empty_statistics(self.schema)
        self.admission = Admission(self.client_domains, settings.method, self.model)
        self.method_state: Mapping[str, Tensor] = {}
        self.calibration = self._calibration()
        self._prototypes = PrototypeBook(self.client_domains, settings.prototypes)
        self.uploaded: set[int] = set()
        self._prepare_replies: dict[int, PrepareReply] = {}

    @property
    def needs_statistics(self) -> bool:
        """Whether clients are asked for statistics in round 0."""
        return bool(self.settings.steps) or self.settings.closed_form is not None

    # round 0

    def windows(self, size: int) -> list[list[int]]:
        """Client numbers in order, in groups to ask for statistics one by one."""
        return windows(self.participants, size)

    def add_statistics(self, uploads: Iterable[StatisticsUpload]) -> None:
        """Fold in the uploads of one window, in client order (Eq. 4), all or none.

        Raises
        ------
        MessageError
            From a client that is not in the roster, has sent before, or names
            another domain than it joined with.
        """
        for upload in self.admission.window(uploads, self.uploaded):
            self.uploaded.add(upload.client)
            self.statistics = self.statistics + upload.statistics
            if 2 in self.settings.steps:
                self._prototypes.add(upload.client, upload.statistics)

    def geometry(self) -> Geometry:
        """The global shape of every class that anyone uploaded."""
        return Geometry(
            {
                c: GeometricShape.from_statistics(self.statistics, c, TRAVEL_PRECISION)
                for c in self.statistics.classes
            }
        )

    def prototypes(self, client: int) -> Prototypes | None:
        """Class means of all sources but the client's own; None without step 2."""
        if 2 not in self.settings.steps:
            return None
        return self._prototypes.around(client)

    def solve(self) -> Mapping[str, float | int | str]:
        """Take the head in closed form from the statistics; what was chosen for it.

        Raises
        ------
        StatisticsError
            The statistics do not allow that head; it says what to do.
        """
        solved = self.settings.closed_form.solve(self.statistics)
        self.params = to_vector(solved.model)
        return solved.report

    def add_prepare_reply(self, ready: PrepareReply, again: bool = False) -> None:
        """Note a client's weight and what its method shares.

        Parameters
        ----------
        ready : Ready
        again : bool
            It may be ready already and have lost the connection since; then it must
            come back with the weight it had.

        Raises
        ------
        MessageError
            From a client that is not in the roster, has sent before or comes back with
            another weight, or shares that are not what the method shares.
        """
        self.admission.ready(ready, self._prepare_replies.get(ready.client), again)
        self._prepare_replies.setdefault(ready.client, ready)

    def start(self, absent: Collection[int] = ()) -> InitBroadcast | None:
        """End round 0; what the method made of all shares, if anything, goes to all.

        Raises
        ------
        GGEURError
            Clients beside the `absent` ones are missing, or none has any data.
        """
        missing = sorted(set(self.participants) - self._prepare_replies.keys() - set(absent))
        if missing:
            raise GGEURError(f"round 0 cannot end: clients {missing} are not ready")
        if not any(ready.aggregation_weight for ready in self._prepare_replies.values()):
            raise GGEURError("no client has any rows to train on")
        method, context = self.settings.method, self._context(0)
        shared = method.aggregate_init(context.init_uploads)
        self.method_state = method.initial_state(self.params, context)
        return InitBroadcast(shared) if shared else None

    @property
    def prepare_replies(self) -> Mapping[int, PrepareReply]:
        """The clients that ended round 0, by number."""
        return dict(self._prepare_replies)

    def round0_tensors(self) -> dict[str, Tensor]:
        """What the server keeps of the statistics to serve a client that comes back."""
        return self._prototypes.tensors()

    def resume(
        self,
        ready: Mapping[int, PrepareReply],
        round0_tensors: Mapping[str, Tensor],
        params: Tensor,
        method_state: Mapping[str, Tensor],
    ) -> None:
        """Go on where a server of the same roster and settings was stopped."""
        self._prepare_replies = dict(ready)
        self._prototypes.load(round0_tensors)
        self.params, self.method_state = params, dict(method_state)

    # every round

    def sample(self, round_number: int, absent: Collection[int] = ()) -> list[int]:
        """Numbers of the clients that train in a round, ascending; no absent ones."""
        numbers = [k for k in self.participants if k not in absent]
        settings = self.settings
        wanted = settings.sample_client_num
        return draw_clients(numbers, wanted, settings.seed, "sample", round_number)

    def broadcast(self, round_number: int) -> Broadcast:
        method = self.settings.method
        params = self.params if method.federated else self.params[:0]
        return Broadcast(round_number, params, method.download(self.method_state))

    def step(
        self,
        round_number: int,
        updates: Iterable[ClientUpdate],
        drawn: Collection[int] | None = None,
    ) -> None:
        """The method's server step over the updates of a round, in client order.

        Parameters
        ----------
        round_number : int
        updates : iterable of ClientUpdate
        drawn : collection of int, optional
            Whom updates may come from; default: all of `sample(round_number)`.

        Raises
        ------
        MessageError
            An update of another round, a client that was not drawn, two of one, or
            tensors that are not what the method uploads.
        """
        drawn = self.sample(round_number) if drawn is None else drawn
        ordered = self.admission.in_client_order(updates)
        for update in ordered:
            self.admission.update(update, round_number, drawn)
        weights = self._weights()
        self.params, self.method_state = self.settings.method.step(
            self.params,
            [
                Update(u.client, weights[u.client], u.params, u.steps, u.upload)
                for u in ordered
            ],
            self.method_state,
            self._context(round_number),
        )

    def evaluates(self, round_number: int) -> bool:
        """Whether the head is scored after this round."""
        settings = self.settings
        due = round_number % settings.eval_every == 0
        return due or round_number == settings.total_rounds

    def aggregate_scores(
        self,
        round_number: int,
        reports: Iterable[ScoreReport],
        among: Collection[int] | None = None,
    ) -> dict[str, Score]:
        """Scores of this round by domain, of the clients `among` (default: all).

        Raises
        ------
        MessageError
            A report of another round, of no client of this run, or two of one.
        """
        among = self.client_domains if among is None else among
        domains = dict.fromkeys(d for k, d in self.client_domains.items() if k in among)
        scores = {domain: Score() for domain in domains}
        for report in self.admission.in_client_order(reports):
            self.admission.scores(report, round_number)
            if report.client not in among:
                continue
            scores[self.client_domains[report.client]] += Score(
                report.correct, report.total, report.loss_sum
            )
        return scores

    def score(self, features: Tensor, labels: Tensor) -> Score:
        """Score the global head on test rows [n, D], [n] that the server holds."""
        return evaluate(self.model, self.params, features, labels)

    # after the last round

    def calibrate(self) -> Mapping[str, int]:
        """Take the head as `calibration` makes it; what there was to draw from."""
        self.params, details = self.calibration.run(self.params)
        return details

    def _calibration(self) -> Calibration | None:
        settings = self.settings
        if settings.calibration is None:
            return None
        return Calibration(
            self.model,
            settings.calibration,
            self.admission,
            self.schema,
            settings.seed,
        )

    def _weights(self) -> dict[int, float]:
        equal = self.settings.ignore_weight
        return {
            k: float(self._prepare_replies[k].aggregation_weight > 0) if equal else self._prepare_replies[k].aggregation_weight
            for k in sorted(self._prepare_replies)
        }

    def _context(self, round_number: int) -> ServerContext:
        shares = {k: self._prepare_replies[k].init_upload for k in sorted(self._prepare_replies)}
        return ServerContext(
            round_number, self.model, self._weights(), shares, self.settings.seed
        )
