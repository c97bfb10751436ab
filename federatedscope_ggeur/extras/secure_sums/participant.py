"""A client's side of secure sums: its answers and its refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from federatedscope_ggeur.crypto import digest, new_secret, public_key, shared_secret
from federatedscope_ggeur.errors import ConfigError, GGEURError, MessageError, setting
from federatedscope_ggeur.federation.kept_file import RowDigests, row_digests
from federatedscope_ggeur.printable import get_logger

from .journal import Current, Journal, PastSum
from .limits import SERVER, SLACK
from .messages import (
    ASKED_SETTINGS,
    MaskedRequest,
    MaskedVector,
    SumKey,
    SumKeysRequest,
)
from .settings import COUNTS, MEANS, Adder, SumSettings
from .trust import (
    Signer,
    check_signatures,
    confirm,
    require_terminal,
    tells_of_few,
    verifying_keys,
)
from .vectors import ClientRows, Named, added, fingerprint, mask

logger = get_logger(__name__)

_NO_COMMITMENT = bytes(32)


class Participant:
    """Answers requests of secure sums for one client.

    In each stage of a session it makes one masked upload, and saves it before the
    client sends it.

    Parameters
    ----------
    number : int
    features, labels : Tensor of shape (n, D) and (n,)
    settings : SumSettings
        The client's own settings.
    make_secret : callable () -> bytes
        Draws the secret of a mask key. Tests pass a fixed one.

    Raises
    ------
    ConfigError
        Two classes have the same name, or a file of the settings cannot be used.
    """

    def __init__(
        self,
        number: int,
        features: Tensor,
        labels: Tensor,
        settings: SumSettings,
        make_secret: Callable[[], bytes] = new_secret,
    ):
        names = settings.class_names
        assert len(names) == settings.num_classes, "every class needs a name"
        if len(set(names)) < len(names):
            raise ConfigError(
                f"{setting('secure_sums')}: two classes have the same name. Give "
                "each class its own name, because a client recognises by names "
                "whether its rows were summed before"
            )
        self._number, self._settings = number, settings
        self._rows = ClientRows(features, labels, settings)
        summand = settings.summand
        self._adder: Adder | None = None
        if summand is not None:
            self._adder = summand.of_client(number, features, labels)
        self._make_secret = make_secret
        self._journal = Journal(settings.store, number)
        self._named: Named | None = None
        self._shared: dict[int, bytes] = {}
        self._trusted: dict[int, bytes] | None = None
        self._signer: Signer | None = None
        if settings.trust != SERVER:
            self._trusted = verifying_keys(settings.trust)
            self._signer = Signer(settings.signing_key, number)
            if self._trusted.get(number) != self._signer.public:
                raise ConfigError(
                    f"{setting('secure_sums_trust')}: '{settings.trust}' lacks the "
                    f"public key of client {number} that belongs to "
                    f"{setting('secure_sums_signing_key')}; add it there on all sides"
                )

    def key(self, request: SumKeysRequest) -> SumKey:
        """Make the key for a session; a second request gets the same key.

        Raises
        ------
        MessageError
            The request does not fit the client's own settings or its earlier uploads.
        GGEURError
            The client has too many rows, or a row is longer than the settings allow.
        """
        now = self._journal.current
        if now is not None and now.session == request.session:
            self._check_begun(now, request.roster)
            return self._answer(now)
        if self._settings.confirm:
            require_terminal(self._number)
        self._check_settings(request)
        self._check_roster(request.roster)
        if self._adder is None:
            self._check_rows()
            self._check_past(request.roster)
        secret = self._make_secret()
        key = public_key(secret)
        signature = b""
        if self._signer is not None:
            said = self._commitment
            signature = self._signer.sign(request.session, key, said)
        chain = self._begin(request)
        self._shared, self._named = {}, None
        self._journal.keep(
            Current(
                session=request.session,
                roster=request.roster,
                secret=secret,
                key=key,
                signature=signature,
                chain=chain,
                about=self._about,
            )
        )
        return self._answer(self._journal.current)

    def _check_rows(self) -> None:
        """Raise an error if rows are too many or too long for exact sums."""
        if len(self._rows.labels) > self._settings.max_rows:
            raise GGEURError(
                f"client {self._number}: the client alone has more rows than "
                f"{setting('secure_sums_max_rows')} {self._settings.max_rows} allows "
                "all clients together; raise it on all sides"
            )
        if not self._rows.fits:
            # The norm goes only to the client's own log; the server gets the error.
            logger.error(
                "client %d: its longest row has the norm %.4g",
                self._number,
                self._rows.longest_norm(),
            )
            raise GGEURError(
                f"client {self._number}: a row is longer than "
                f"{setting('secure_sums_radius')} {self._settings.radius:g} allows; "
                "raise it on all sides, or scale the embeddings"
            )

    def masked(self, request: MaskedRequest) -> MaskedVector:
        """The client's masked vector of a stage.

        The same request gets the same bytes.

        Raises
        ------
        MessageError
            This is not the next request of the session, or the server changed an
            earlier message.
        """
        now = self._journal.current
        if now is None or now.session != request.session:
            raise _refusal(
                "session",
                "this client has sent no key for this session; to continue after a "
                f"restart, a client needs {setting('secure_sums_store')}",
            )
        self._check_begun(now, request.roster)
        stage = request.stage
        bound = _bound(now.chain, request)
        if stage in now.vectors:
            if now.requests[stage] != _contents(request):
                problem = f"stage '{stage}' was asked for before, with other contents"
                raise _refusal("stage", problem)
            return MaskedVector(self._number, now.session, stage, now.vectors[stage])
        stages = self._settings.stages
        following = stages[len(now.vectors)] if len(now.vectors) < len(stages) else ""
        if stage != following:
            raise _refusal("stage", f"expected '{following}', got '{stage}'")
        self._check_peers(request, now)
        vector = self._vector(request, now)
        limbs = self._settings.limbs(stage)
        if stage == stages[0] and self._settings.confirm:
            confirm(self._number, request.roster, request.keys)
        masks = mask(
            self._number,
            self._with_peers(request, now),
            now.session,
            stage,
            bound,
            len(vector),
            limbs,
        )
        sent = torch.from_numpy(added(vector, masks, limbs).view(np.int64))
        with self._journal.alone():
            if self._adder is not None:
                self._adder.charge(now.session, stage)
            self._note(request, now, bound, sent)
        return MaskedVector(self._number, now.session, stage, sent)

    def _log_keys(self, request: MaskedRequest) -> None:
        """Log the fingerprint of all keys, which people compare between machines.

        Clients without a journal's folder are on one machine: one line serves them all.
        """
        roster, who = list(request.roster), fingerprint(request.roster, request.keys)
        if self._settings.store:
            logger.info(
                "client %d: keys of the roster %s: %s", self._number, roster, who
            )
        elif self._number == min(roster):
            logger.info("keys of the roster %s: %s", roster, who)

    # what the journal stores

    def _note(
        self, request: MaskedRequest, now: Current, bound: bytes, sent: Tensor
    ) -> None:
        stage, past = request.stage, list(self._journal.past)
        if stage == COUNTS:
            own = self._summed(now, _commitments(request))
            past = [*(one for one in past if not one.repeated_by(own)), own]
        if stage == self._settings.stages[0]:
            self._log_keys(request)
        if stage == MEANS and self._named is not None:
            own = replace(past[-1], named=self._by_name(self._named))
            past = [*(one for one in past[:-1] if not one.repeated_by(own)), own]
        vectors = {**now.vectors, stage: sent}
        is_last = len(vectors) == len(self._settings.stages)
        self._journal.keep(
            replace(
                now,
                secret=b"" if is_last else now.secret,
                chain=bound,
                requests={**now.requests, stage: _contents(request)},
                vectors=vectors,
                peers=_peers(request),
            ),
            past,
        )
        if is_last:
            self._shared = {}

    def _answer(self, now: Current | None) -> SumKey:
        assert now is not None, "no session has begun"
        said = self._commitment
        return SumKey(self._number, now.session, now.key, said, now.signature)

    def _with_peers(self, request: MaskedRequest, now: Current) -> dict[int, bytes]:
        """The secrets shared with each other client, made once in a session."""
        if not self._shared:
            self._shared = {
                j: shared_secret(now.secret, key)
                for j, key in zip(request.roster, request.keys)
                if j != self._number
            }
        return self._shared

    @cached_property
    def _digests(self) -> RowDigests:
        held, names = self._rows, self._settings.class_names
        return row_digests(held.features, held.labels, names, self._journal.salt)

    @property
    def _commitment(self) -> bytes:
        """The commitment to the client's rows for others; zeros with a summand."""
        return self._digests.whole if self._adder is None else _NO_COMMITMENT

    @property
    def _totals_of(self) -> str:
        """A digest of the settings that change a total over the same rows."""
        own = self._settings
        numbers = own.min_samples, own.radius, own.max_rows, own.fraction_bits
        return digest("totals", *map(float, numbers), own.num_classes).hex()

    @property
    def _about(self) -> bytes:
        """A digest of the rows, classes and settings behind a session's answers."""
        own = self._settings
        fields: list[bytes | str | int] = [self._digests.whole, self._totals_of]
        fields += [own.agreed, own.sends_shape, *own.stages, "classes"]
        return digest("about", *fields, *own.class_names)

    def _summed(self, now: Current, commitments: dict[int, bytes]) -> PastSum:
        """The current session as the journal's `PastSum`."""
        rows = self._digests.rows
        return PastSum(now.session.hex(), commitments, self._totals_of, rows)

    def _by_name(self, named: Named) -> dict[str, int]:
        names = self._settings.class_names
        return {names[c]: rows for c, rows in zip(named.classes, named.counts)}

    def _begin(self, request: SumKeysRequest) -> bytes:
        """The first digest of the chain: the terms of the session."""
        limits = [request.radius, request.max_rows, request.fraction_bits]
        fields: list[bytes | str | int | float] = [
            "keys",
            request.session,
            *request.roster,
            request.min_clients,
        ]
        fields += [request.min_samples, *limits, self._settings.agreed, "classes"]
        return digest(*fields, *self._settings.class_names)

    # vectors

    def _vector(self, request: MaskedRequest, now: Current) -> np.ndarray:
        if self._adder is not None:
            clients, origin = len(now.roster), request.origin
            return self._adder.vector(request.stage, clients, origin).view(np.uint64)
        if request.stage == COUNTS:
            self._check_past(now.roster, _commitments(request))
            return self._rows.counts()
        if request.stage == MEANS:
            self._named = self._check_named(request, now)
            return self._rows.means(self._named)
        named = self._named or self._named_before()
        norm = float(request.origin.double().norm())
        if not norm <= self._settings.radius * (1 + SLACK):
            raise _refusal("origin", "the origin is too long to be a mean of rows")
        return self._rows.pooled(named, request.origin)

    def _named_before(self) -> Named:
        held = self._journal.past[-1].named
        assert held is not None, "the stage of means comes first"
        classes = sorted(map(self._settings.class_names.index, held))
        counts = (held[self._settings.class_names[c]] for c in classes)
        return Named(tuple(classes), tuple(counts))

    # refusals

    def _check_settings(self, request: SumKeysRequest) -> None:
        own = self._settings
        for name in ASKED_SETTINGS:
            asked, wanted = getattr(request, name), getattr(own, name)
            if asked != wanted:
                raise _refusal(
                    name,
                    f"the server has {asked:g}, but this client's settings have "
                    f"{wanted:g}; set the same on all sides",
                )

    def _check_roster(self, roster: tuple[int, ...]) -> None:
        least = self._settings.min_clients
        if self._number not in roster:
            raise _refusal("roster", f"client {self._number} is missing in the roster")
        if len(roster) < least:
            raise _refusal(
                "roster",
                f"{len(roster)} clients, but {setting('secure_sums_min_clients')} "
                f"needs {least}, because a sum over fewer reveals too much about each",
            )
        summand = self._settings.summand
        if summand is not None and (problem := summand.problem_with(roster)):
            raise _refusal("roster", problem)

    def _check_begun(self, now: Current, roster: tuple[int, ...]) -> None:
        """Refuse if roster, rows or settings have changed since the session began.

        Rows and settings may change when a client restarts.
        """
        if roster != now.roster:
            raise _refusal("roster", "the roster has changed during this session")
        if now.about != self._about:
            raise _refusal(
                "session",
                "this client's rows, classes or settings have changed since it "
                "began this session; begin the run again",
            )

    def _check_past(
        self, roster: tuple[int, ...], commitments: Mapping[int, bytes] | None = None
    ) -> None:
        """Refuse a sum that differs from an earlier one by only a few clients.

        Only earlier sums over this client's rows count. With `commitments`, clients
        whose rows have changed count as different, too.
        """
        for one in self._journal.past:
            if not one.rows & self._digests.rows:
                continue
            where = (
                f"; the journal in {setting('secure_sums_store')} shows this (name "
                "another folder only for rows that are no secret)"
            )
            if one.commitments[self._number] != self._digests.whole:
                raise _refusal(
                    "session",
                    "this client's rows overlap with those of an earlier sum, but "
                    "differ in some rows or classes: the difference of the two sums "
                    f"would reveal single rows{where}",
                )
            if one.settings != self._totals_of:
                raise _refusal(
                    "session",
                    "these rows were summed before with another threshold, radius, "
                    "largest number of rows, precision or number of classes; set "
                    f"the earlier values{where}",
                )
            self._check_difference(one, roster, commitments or one.commitments, where)
        self._check_span(roster, commitments)

    def _check_span(
        self, roster: tuple[int, ...], commitments: Mapping[int, bytes] | None
    ) -> None:
        """Refuse a roster if this sum with earlier ones reveals a sum over few clients.

        The check covers all combinations of this sum and of earlier sums over this
        client's rows.
        """
        past = [
            one.commitments
            for one in self._journal.past
            if one.rows & self._digests.rows
        ]
        # If a client's commitment is unknown yet, assume that it has its last rows.
        last = {k: held for one in past for k, held in one.items()}
        now = commitments or {k: last.get(k, b"") for k in roster}
        if tells_of_few(
            [set(one.items()) for one in (*past, now)], self._settings.min_clients
        ):
            raise _refusal(
                "roster",
                f"{list(roster)!s:.100}: together with earlier sums over the same "
                "rows, this sum would reveal a sum over fewer than "
                f"{self._settings.min_clients} clients",
            )

    def _check_difference(
        self,
        one: PastSum,
        roster: tuple[int, ...],
        commitments: Mapping[int, bytes],
        where: str,
    ) -> None:
        """Refuse a roster that differs from that of an earlier sum by too few clients.

        `one` is the earlier sum.
        """
        before, now = set(one.commitments), set(roster)
        both = before & now
        changed = {k for k in both if commitments[k] != one.commitments[k]}
        groups = {
            "joined": now - before,
            "left": before - now,
            "have other rows, or have lost their journal": changed,
        }
        who = "; ".join(
            f"clients {sorted(some)} {what}" for what, some in groups.items() if some
        )
        if not who:
            return
        if not self._settings.new_roster:
            raise _refusal(
                "roster",
                "the roster differs from that of an earlier sum over the same rows "
                f"({who}). The difference of the two sums would reveal statistics of "
                "these clients alone. To allow this, set "
                f"{setting('secure_sums_new_roster')}: True{where}",
            )
        least = self._settings.min_clients
        if any(
            0 < len(some | changed) < least for some in (now - before, before - now)
        ):
            raise _refusal(
                "roster",
                f"{who} since an earlier sum over the same rows. The difference of "
                f"the two sums would reveal statistics of fewer than {least} "
                f"clients{where}",
            )

    def _check_peers(self, request: MaskedRequest, now: Current) -> None:
        at = request.roster.index(self._number)
        if request.keys[at] != now.key:
            raise _refusal(
                "keys", f"the server has changed the key of client {self._number}"
            )
        if len(set(request.keys)) < len(request.keys):
            raise _refusal("keys", "two clients have the same key")
        if request.commitments[at] != self._commitment:
            raise _refusal(
                "commitments",
                f"the server has changed the commitment of client {self._number}",
            )
        if now.peers and now.peers != _peers(request):
            raise _refusal("keys", "the keys have changed during this session")
        if self._trusted is not None:
            check_signatures(self._trusted, request)

    def _check_named(self, request: MaskedRequest, now: Current) -> Named:
        """Check that the server has named exactly the classes with enough rows."""
        vectors = request.vectors.contiguous().numpy()
        own = vectors[request.roster.index(self._number)]
        if not np.array_equal(own, now.vectors[COUNTS].numpy()):
            raise _refusal(
                "vectors",
                "the server has changed the vector that this client sent before",
            )
        totals = vectors.view(np.uint64).sum(axis=0, dtype=np.uint64).view(np.int64)
        most = self._settings.max_rows
        # Do not compare with the client's own rows: refusals would tell a lying server
        # about them.
        if (totals < 0).any() or (totals > most).any() or totals.sum() > most:
            raise _refusal(
                "vectors", "the vectors do not sum to possible numbers of rows"
            )
        named = Named.of_totals(totals, self._settings.min_samples)
        asked = Named(tuple(request.classes.tolist()), tuple(request.counts.tolist()))
        if asked != named:
            raise _refusal(
                "classes",
                f"expected the classes with at least {self._settings.min_samples} "
                "rows over all clients and their rows, "
                f"{list(named.classes)!s:.100}, got {list(asked.classes)!s:.100}",
            )
        own = self._summed(now, _commitments(request))
        for one in self._journal.past[:-1]:
            if one.is_alike(own) and one.named not in (None, self._by_name(named)):
                raise _refusal(
                    "classes",
                    "the classes differ from those of an earlier sum over the same "
                    "clients. So another client has other rows, and the difference "
                    "of the two sums would reveal them",
                )
        return named


def _bound(chain: bytes, request: MaskedRequest) -> bytes:
    """A digest of everything that the server has sent so far.

    Masks depend on this digest. If two clients got different requests, their masks do
    not cancel.
    """
    fields: list[bytes | str | int] = [chain, request.stage, *request.roster]
    fields += [*request.keys, *request.commitments, *request.signatures, "classes"]
    fields += [*request.classes.tolist(), *request.counts.tolist(), "vectors"]
    fields += [request.vectors.contiguous().numpy().tobytes(), "origin"]
    return digest(*fields, request.origin.contiguous().numpy().tobytes())


def _commitments(request: MaskedRequest) -> dict[int, bytes]:
    return dict(zip(request.roster, request.commitments))


def _peers(request: MaskedRequest) -> bytes:
    return b"".join([*request.keys, *request.commitments])


def _contents(request: MaskedRequest) -> str:
    """A digest of the whole request."""
    return digest("request", request.to_bytes()).hex()


def _refusal(field: str, problem: str) -> MessageError:
    return MessageError(problem, field=field, sender="the server")
