"""A site whose process ends after each answer: what it remembers, and for whom."""

from __future__ import annotations

import stat

import pytest
import torch
from private_words import LDA, NOISE

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.sites.leading import FAILED, FINISH, JOIN
from federatedscope_ggeur.engines.sites.site_folder import ResumedSite
from federatedscope_ggeur.engines.sites.transport import Envelope
from federatedscope_ggeur.errors import ConfigError, GGEURError, MessageError
from federatedscope_ggeur.extras.differential_privacy.ledger import (
    ledger_path,
    read_ledger,
)
from federatedscope_ggeur.extras.differential_privacy.uploads import ReleaseRequest
from federatedscope_ggeur.federation.course.client_handler import ClientStore
from federatedscope_ggeur.federation.exchanges.training.messages import Broadcast
from federatedscope_ggeur.federation.wire.handshake import Join
from federatedscope_ggeur.federation.wire.schema import Declared

SITE = [
    "federate.mode", "distributed",
    "distribute.role", "client",
    "distribute.data_idx", "2",
]  # fmt: skip
CHARGED = (*LDA, *NOISE, "ggeur.privacy.dp.ledger", "spent")


@pytest.fixture
def ask(config, tmp_path):
    """Ask site 2 messages of a run, each time as a new process would."""

    def once(*asked: Envelope, run: str = "1", settings=LDA) -> list[Envelope]:
        cfg = load_config(config(), [*SITE, *map(str, settings)], on_fs=True)
        return ResumedSite(cfg, tmp_path / "site", run, "test").answer(asked)

    return once


def join(goes_on: int = 0) -> Envelope:
    return Envelope(JOIN, goes_on)


def head(value: float) -> Envelope:
    return Envelope(
        "evaluate", 0, (Broadcast(0, torch.full((12 * 17,), value)).to_bytes(),)
    )


def test_what_is_answered_once_is_answered_once_by_all_its_processes(ask):
    ask(join())
    first = ask(head(0.0))
    assert [one.kind for one in first] == ["metrics"]
    assert ask(head(0.0)) == first
    with pytest.raises(MessageError, match="has only one"):
        ask(head(1.0))


def test_it_answers_the_run_that_it_has_joined(ask, tmp_path):
    with pytest.raises(MessageError, match="has not joined this run"):
        ask(Envelope("statistics_request"))
    ask(join())
    with pytest.raises(MessageError, match="has not joined this run"):
        ask(Envelope("statistics_request"), run="2")
    store = ClientStore(tmp_path / "site" / "private" / "state", 2)
    kept = {3: {"control": torch.ones(2)}}
    store.save(kept)
    ask(join(goes_on=1), run="2")
    assert store.load().keys() == kept.keys()
    ask(join(), run="3")
    assert store.load() == {}


def test_only_its_owner_can_read_what_it_remembers(ask, tmp_path):
    ask(join())
    ask(head(0.0))
    private = tmp_path / "site" / "private"
    paths = [private, *private.rglob("*")]
    assert len(paths) >= 4
    assert not [path for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_it_keeps_its_last_model_when_the_run_fails(ask, tmp_path):
    ask(join())
    ask(head(0.0))
    assert ask(Envelope(FAILED, 0, (b"the disk is full",))) == []
    assert (tmp_path / "site" / "head.safetensors").exists()
    assert (
        "the server says: the disk is full"
        in (tmp_path / "site" / "log.txt").read_text()
    )


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("rows", ()), ("os.system", ()), ("sum_counts_request", ()),
        ("statistics_request", (b"more",)), ("model_para", (b"no head",)),
        (FINISH, (b"no head",)),
    ],
)  # fmt: skip
def test_what_its_own_file_does_not_allow_is_refused(ask, kind, parts):
    ask(join())
    with pytest.raises(MessageError):
        ask(Envelope(kind, 0, parts))
    assert ask(Envelope("statistics_request"))[0].kind == "statistics"


def moments(session: bytes = b"s" * 16) -> Envelope:
    zeros = torch.zeros(16, dtype=torch.float64)
    request = ReleaseRequest(session, "moments", zeros)
    return Envelope("release_moments_request", 0, (request.to_bytes(),))


def test_a_release_is_charged_once_and_repeated_byte_by_byte(ask, tmp_path):
    (joined,) = ask(join(), settings=CHARGED)
    assert Join.from_bytes(joined.parts[0], "it").declared == Declared()
    first = ask(moments(), settings=CHARGED)
    assert first[0].kind == "released_moments"
    assert ask(moments(), settings=CHARGED) == first
    with pytest.raises(GGEURError, match="epsilon_total"):
        ask(moments(b"t" * 16), settings=CHARGED)
    with pytest.raises(MessageError, match="do not allow"):
        ask(Envelope("statistics_request"), settings=CHARGED)
    ledger = ledger_path(str(tmp_path / "site" / "private" / "spent"), 2)
    spent, _ = read_ledger(ledger)
    assert [entry.session for entry in spent.entries] == [(b"s" * 16).hex()]


def test_a_folder_that_cannot_be_used_is_named(ask, tmp_path):
    (tmp_path / "site").write_text("a file")
    with pytest.raises(ConfigError, match="cannot make the folder"):
        ask(join())
