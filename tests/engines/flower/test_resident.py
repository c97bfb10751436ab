"""A resident against whatever the server's code, the FAB, may send to its socket."""

from __future__ import annotations

import os
import secrets
import socket
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hostile_server import LIMITS, OURS, SITE, THEIRS, Hostile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.commands.flower_app import flower_app
from federatedscope_ggeur.commands.site import site
from federatedscope_ggeur.engines.flower.carried import (
    DONE,
    NOBODY,
    RESTARTED,
    SESSION,
    packed,
    unpacked,
)
from federatedscope_ggeur.engines.flower.pipe import exchange
from federatedscope_ggeur.engines.flower.resident import (
    RUN,
    SOCKET,
    Resident,
    serve_site,
)
from federatedscope_ggeur.engines.leading import FAILED, FINISH, JOIN
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.exchanges.noisy_release.messages import (
    ReleaseRequest,
)
from federatedscope_ggeur.federation.ledger import ledger_path, read_ledger
from federatedscope_ggeur.federation.wire.declared import Declared
from federatedscope_ggeur.federation.wire.handshake import Join
from federatedscope_ggeur.transport import Envelope, TransportSettings


@pytest.fixture
def start(config, tmp_path):
    """Start a resident with more settings in the site's file."""

    def begin(*settings) -> Hostile:
        cfg = load_config(config(), [*SITE, *map(str, settings)], on_fs=True)
        return Hostile(Resident(cfg, tmp_path))

    return begin


def refused(said: Envelope) -> str:
    assert said.kind == FAILED
    return said.parts[0].decode()


def test_a_folder_answers_one_run_also_after_a_restart(start, tmp_path):
    hostile = start()
    assert hostile.join()[1].kind == JOIN
    assert "answers the run 0123456789abcdef" in refused(hostile.join(THEIRS)[1])
    assert "answers the run 0123456789abcdef" in refused(start().join(THEIRS)[1])
    (tmp_path / RUN).unlink()  # what --new-run does
    assert start().join(THEIRS)[1].kind == JOIN


@pytest.mark.parametrize("run", [b"", b"../../etc", b"\xff" * 16])
def test_what_is_no_name_of_a_run_is_refused(start, tmp_path, run):
    assert "is not the id of a run" in refused(start().join(run)[1])
    assert not (tmp_path / RUN).exists()


def test_without_the_session_nothing_is_answered(start):
    hostile = start()
    for session in (NOBODY, secrets.token_bytes(SESSION)):
        _, (said,) = hostile.send(Envelope("statistics_request"), session=session)
        assert said == Envelope(RESTARTED)


def test_another_server_of_the_run_finds_a_new_session(start):
    hostile = start()
    first, again = hostile.join()[0], hostile.join()[0]
    other = hostile.join(server=bytes([1] * SESSION))[0]
    assert first == again != other


def test_under_secure_sums_a_clients_own_statistics_stay(start):
    """The other settings that a FAB may have of itself do not matter here."""
    sums = "ggeur.privacy.secure_sums", "statistics"
    more = "ggeur.privacy.secure_sums_fraction_bits", 20, "ggeur.closed_form", "lda"
    hostile = start(*sums, *more)
    said = refused(hostile.ask("statistics_request"))
    assert "this client's settings do not allow it to answer" in said
    assert "secure_sums" in said


NOISE = [
    "ggeur.closed_form", "lda",
    "ggeur.privacy.dp.epsilon", 4,
    "ggeur.privacy.dp.noise", "client",
    "ggeur.privacy.dp.rows_per_class", 20,
    "ggeur.privacy.dp.ledger", "spent",
    "ggeur.agreed.class_names", [str(c) for c in range(12)],
]  # fmt: skip


def moments(session=b"s" * 16):
    return ReleaseRequest(session, "moments", torch.zeros(16, dtype=torch.float64))


def test_a_release_is_charged_once_and_repeated_byte_by_byte(start, tmp_path):
    """The ledger is in the site's folder, and a resident that starts again knows it."""
    asked = moments().to_bytes()
    hostile = start(*NOISE)
    first = hostile.ask("release_moments_request", asked)
    assert first.kind == "released_moments"
    assert hostile.ask("release_moments_request", asked) == first
    assert start(*NOISE).ask("release_moments_request", asked) == first
    other = moments(b"t" * 16).to_bytes()
    assert "epsilon_total" in refused(
        start(*NOISE).ask("release_moments_request", other)
    )
    spent, _ = read_ledger(ledger_path(str(tmp_path / "spent"), 2))
    assert [entry.session for entry in spent.entries] == [(b"s" * 16).hex()]


def test_what_cannot_be_charged_is_not_sent(start, tmp_path, caplog):
    hostile = start(*NOISE)
    early = replace(moments(), stage="spread").to_bytes()
    assert "comes next" in refused(hostile.ask("release_spread_request", early))
    (tmp_path / "spent").rename(tmp_path / "away")
    (tmp_path / "spent").write_text("a file, where the folder was")
    said = refused(hostile.ask("release_moments_request", moments().to_bytes()))
    assert "Nothing was sent, because this file must record it first" in said
    assert str(tmp_path) not in said, "the server need not know the site's folders"
    assert str(tmp_path) in caplog.text


def test_a_site_under_noise_declares_nothing_of_its_rows(start):
    join = Join.from_bytes(start(*NOISE).join()[1].parts[0], "it")
    assert join.declared == Declared()
    assert "statistics" in refused(start(*NOISE).ask("statistics_request"))


@pytest.mark.parametrize(
    "kind", ["components", "sum_counts_request", "rows", "os.system", "statistics"]
)
def test_questions_that_the_sites_file_does_not_allow_are_refused(start, kind):
    hostile = start()
    assert "kind" in refused(hostile.ask(kind))
    assert hostile.ask("statistics_request").kind == "statistics"  # it goes on


def test_parts_that_do_not_belong_to_the_question_are_refused(start):
    assert "parts" in refused(start().ask("statistics_request", b"more"))
    assert "refused" in refused(start().ask("model_para", b"no head"))


def test_a_false_end_is_none(start):
    hostile = start()
    assert "refused" in refused(hostile.ask(FINISH, b"no head"))
    assert not hostile.resident.finished
    assert hostile.ask(FAILED, b"the server stops").kind == DONE
    assert not hostile.resident.finished


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    quick = load_config("ggeur_quickstart", SITE, on_fs=True)
    return Hostile(Resident(quick, tmp_path_factory.mktemp("site")))


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.booleans())
def test_garbage_is_refused_whatever_it_is(one, data, has_session):
    head = one.join()[0] if has_session else b""
    answer = one.resident.answer(head + data)
    for said in unpacked(answer, LIMITS, "the resident")[1]:
        assert said.kind in (FAILED, RESTARTED, DONE)


def test_a_message_above_the_sites_limit_is_refused(start):
    long = packed(NOBODY, [Envelope("x", 0, (bytes(2**21),))], TransportSettings(2**30))
    hostile = start()
    _, (said,) = unpacked(hostile.resident.answer(long), LIMITS, "it")
    assert "more than the limit" in refused(said)


@pytest.fixture
def begin(config, tmp_path):
    """Start `ggeur site` in a process of its own; its folder and socket."""
    if not hasattr(socket, "AF_UNIX"):
        pytest.skip("this system has no Unix sockets")
    folder, file, running = tmp_path / "s", tmp_path / "site.yaml", []

    def start(*words: str, path: Path = folder / SOCKET) -> tuple[Path, Path]:
        file.write_text(load_config(config(), SITE, on_fs=True).dump())
        command = [sys.executable, "-m", "federatedscope_ggeur", "site", *words]
        command += ["--cfg", str(file), "--folder", str(folder), "--socket", str(path)]
        one = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        running.append(one)
        until = time.monotonic() + 600
        while not path.exists() and time.monotonic() < until:
            assert one.poll() is None, one.stderr.read()
            time.sleep(0.1)
        return folder, path

    yield start
    for one in running:
        one.terminate()
        one.communicate()


@pytest.mark.slow
def test_the_socket_is_its_persons_and_survives_strangers(begin):
    folder, path = begin()
    assert stat.S_IMODE(os.stat(path).st_mode) & 0o077 == 0
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    for data in (b"", b"\xff" * 8, bytes(8), b"\0" * 7 + b"\x05abc"):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(path))
            stranger.sendall(data)
    asked = packed(NOBODY, [Envelope(JOIN, 0, (OURS, bytes(SESSION)))], LIMITS)
    _, (said,) = unpacked(exchange(str(path), asked), LIMITS, "it")
    assert said.kind == JOIN
    assert stat.S_IMODE(os.stat(folder / RUN).st_mode) == 0o600


@pytest.mark.slow
def test_a_group_may_connect_and_nobody_else(begin):
    if os.getuid() != 0:
        pytest.skip("only root may start a process of another user")
    group = pytest.importorskip("grp").getgrnam("daemon")
    with tempfile.TemporaryDirectory() as place:  # which others may enter
        os.chmod(place, 0o711)
        _, path = begin("--group", group.gr_name, path=Path(place, "socket"))
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
        connect = "import socket, sys; socket.socket(1).connect(sys.argv[1])"

        def reached(*groups: int) -> bool:
            command = ["/usr/bin/env", "python3", "-c", connect, str(path)]
            nobody = {"user": 65534, "group": 65534, "extra_groups": list(groups)}
            environ = {"PATH": "/usr/bin:/bin"}
            done = subprocess.run(
                command, env=environ, cwd="/", capture_output=True, text=True, **nobody
            )
            assert not done.returncode or "Permission denied" in done.stderr
            return not done.returncode

        assert reached(group.gr_gid)
        assert not reached()


def test_a_group_cannot_enter_the_sites_own_folder(config, tmp_path):
    cfg = load_config(config(), SITE, on_fs=True)
    before = os.umask(0o022)
    try:
        with pytest.raises(ConfigError, match="--socket"):
            serve_site(cfg, tmp_path / "s", group="daemon")
        assert os.umask(before) == 0o022  # the process has its own again
    finally:
        os.umask(before)
    assert list(tmp_path.glob("s")) == []


def test_a_site_whose_token_is_missing_says_so(start, tmp_path):
    with pytest.raises(ConfigError, match="join_token"):
        start("ggeur.join_token", tmp_path / "missing")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ([], "federate.mode: must be distributed"),
        ([*SITE, "distribute.role", "server"], "distribute.role: must be client"),
        ([*SITE, "distribute.data_idx", "-1"], "ggeur.client_number: must be set"),
    ],
)
def test_a_file_that_is_no_sites_is_refused(quickstart, tmp_path, settings, problem):
    with pytest.raises(ConfigError, match=problem):
        site(["--cfg", str(quickstart), "--folder", str(tmp_path), *settings])
    assert list(tmp_path.iterdir()) == []


def test_an_app_folder_is_made_once(quickstart, tmp_path):
    folder, words = tmp_path / "app", ["--cfg", str(quickstart)]
    server = ["federate.mode", "distributed", "distribute.role", "server"]
    assert flower_app([str(folder), *words, *server]) == 0
    made = load_config(folder / "ggeur_federation" / "federation.yaml", on_fs=True)
    assert made.federate.client_num == 4
    with pytest.raises(ConfigError, match="is not empty"):
        flower_app([str(folder), *words, *server])
    with pytest.raises(ConfigError, match="must be distributed"):
        flower_app([str(tmp_path / "other"), *words])
