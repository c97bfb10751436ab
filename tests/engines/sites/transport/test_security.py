"""Who may join: certificates and tokens.

Tests of transport/probe.py, too: a handshake that fails is told with the reason.
"""

import time

import pytest

from federatedscope_ggeur.engines.sites.transport import (
    ConnectionLost,
    Refused,
    Security,
    check_token,
    make_token,
)
from federatedscope_ggeur.engines.sites.transport.probe import handshake_problem
from federatedscope_ggeur.errors import ConfigError

SECRET = b"0123456789abcdef"


@pytest.fixture
def files(tmp_path):
    """The server's secret and the tokens of clients 1 to 3."""
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    for number in (1, 2, 3):
        (tmp_path / f"token{number}").write_text(make_token(SECRET, number) + "\n")
    return lambda name: str(tmp_path / name)


@pytest.mark.parametrize(
    ("files", "key", "file"),
    [
        (("server.pem", "", ""), "ggeur.tls.key", "server.pem"),
        (("", "server.key", ""), "ggeur.tls.certificate", "server.key"),
        (("missing", "server.key", ""), "ggeur.tls.certificate", "missing"),
        (("garbage", "server.key", ""), "ggeur.tls.certificate", "garbage"),
        (("server.key", "server.key", ""), "ggeur.tls.certificate", "server.key"),
        (("server.pem", "missing", ""), "ggeur.tls.key", "missing"),
        (("server.pem", "garbage", ""), "ggeur.tls.key", "garbage"),
        (("server.pem", "other.key", ""), "ggeur.tls.key", "other.key"),
        (("server.pem", "locked.key", ""), "ggeur.tls.key", "locked.key"),
        (("server.pem", "server.key", "missing"), "ggeur.tls.authority", "missing"),
        (("server.pem", "server.key", "garbage"), "ggeur.tls.authority", "garbage"),
        (("server.pem", "server.key", "."), "ggeur.tls.authority", "."),
    ],
)
def test_files_that_cannot_be_used_are_named(make_hub, pem, files, key, file):
    with pytest.raises(ConfigError) as caught:
        make_hub(security=Security(*map(pem, files)))
    assert key in str(caught.value)
    assert file in str(caught.value)


def test_each_side_needs_its_own_half(make_hub, hub, join, pem):
    with pytest.raises(ConfigError, match=r"set without ggeur\.tls\.certificate"):
        make_hub(security=Security(authority=pem("authority.pem")))
    with pytest.raises(ConfigError, match=r"set without ggeur\.tls\.authority"):
        join(hub, 1, security=Security(pem("server.pem"), pem("server.key")))
    with pytest.raises(ConfigError, match=r"ggeur\.tls\.authority.*missing"):
        join(hub, 1, security=Security(authority=pem("missing")))


def test_a_client_with_its_token_joins(make_hub, joined, files):
    hub = make_hub(security=Security(join_secret=files("secret")))
    for number in (1, 2, 3):
        token = files(f"token{number}")
        joined(hub, number, security=Security(join_token=token))


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (None, r"client 1 sent no token.*ggeur\.join_token"),
        (make_token(SECRET, 2), "client 1 sent the token of client 2"),
        (
            make_token(b"another secret 16", 1),
            r"not made from this server's ggeur\.join_secret",
        ),
    ],
)
def test_a_client_without_its_token_is_refused(
    make_hub, join, files, tmp_path, token, said
):
    hub, path = make_hub(security=Security(join_secret=files("secret"))), ""
    if token:
        path = tmp_path / "token"
        path.write_text(token)
    with pytest.raises(Refused, match=said):
        join(hub, 1, security=Security(join_token=str(path)))
    assert hub.receive(0.0) is None


def test_a_server_without_a_secret_ignores_tokens(hub, joined, files):
    joined(hub, 1, security=Security(join_token=files("token2")))


@pytest.mark.parametrize("content", [None, b"", b"short", b" " * 40])
def test_a_secret_that_is_none_is_an_error(make_hub, tmp_path, content):
    path = tmp_path / "bad_secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"ggeur\.join_secret.*bad_secret"):
        make_hub(security=Security(join_secret=str(path)))


@pytest.mark.parametrize(
    "content", [None, b"", b"3", b"\xff\xfe", b"0:" + b"a" * 64, b"3:" + b"g" * 64]
)
def test_a_token_that_is_none_is_an_error(hub, join, tmp_path, content):
    path = tmp_path / "bad_token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"ggeur\.join_token.*bad_token"):
        join(hub, 3, security=Security(join_token=str(path)))


def test_a_token_is_for_one_client_and_one_secret():
    token = make_token(SECRET, 3)
    assert token.startswith("3:")
    assert check_token(SECRET, 3, token) == ""
    assert check_token(SECRET, 13, "1" + token)
    assert check_token(SECRET, 3, token.upper())
    assert check_token(SECRET, 3, token + "\ud800")
    assert check_token(SECRET + b"x", 3, token)
    assert SECRET.decode() not in token


#: Seconds that joining may take; a fault is told long before.
DEADLINE = 1200.0


def side(pem, name: str, authority: str = "authority.pem") -> Security:
    own = (f"{name}.pem", f"{name}.key") if name else ("", "")
    return Security(*map(pem, (*own, authority)))


def test_who_has_a_certificate_joins(make_hub, joined, pem):
    hub = make_hub(security=side(pem, "server"))
    joined(hub, 3, security=side(pem, "client_3"))
    address = f"127.0.0.1:{hub.port}"
    assert handshake_problem(address, side(pem, "client_3")) == ""
    hub = make_hub(security=side(pem, "server", ""))
    joined(hub, 3, security=side(pem, ""))
    assert handshake_problem(f"localhost:{hub.port}", side(pem, "")) == ""


OTHERS = ("not signed by the authority in ggeur.tls.authority", "other.pem")
NAME = ("ggeur.tls.certificate is not for '127.0.0.1'", "distribute.server_host")
OLD = ("has expired", "authority.pem", "make a new ggeur.tls.certificate")
PLAIN = ("the server does not use TLS", "ggeur.tls.authority", "authority.pem")
STRANGER = ("refuses this client's ggeur.tls.certificate", "stranger.pem")
KNOWN = ("", "authority.pem")


def slow(*case):
    """A second each; two of them say it fast."""
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("server", "client", "reasons"),
    [
        (("server", ""), ("", "other.pem"), OTHERS),
        (("server", KNOWN[1]), ("stranger", KNOWN[1]), STRANGER),
        slow(("old", ""), KNOWN, OLD),
        slow(("elsewhere", ""), KNOWN, NAME),
        slow(("server", ""), ("", ""), ("requires TLS", "ggeur.tls.authority")),
        slow(("", ""), KNOWN, PLAIN),
        slow(("server", KNOWN[1]), KNOWN, ("certificates of clients", "ggeur.tls.key")),
    ],
)
def test_a_failed_handshake_is_told_at_once(
    make_hub, join, pem, server, client, reasons
):
    hub = make_hub(security=side(pem, *server))
    began = time.monotonic()
    with pytest.raises(ConnectionLost) as caught:
        join(hub, 1, security=side(pem, *client), join_deadline=DEADLINE)
    assert time.monotonic() - began < DEADLINE / 4
    for reason in reasons:
        assert reason in str(caught.value)
    assert hub.receive(0.0) is None


def test_a_plain_server_and_none_at_all_are_no_problem(make_hub):
    hub = make_hub()
    assert handshake_problem(f"127.0.0.1:{hub.port}", Security()) == ""
    hub.close()
    assert handshake_problem(f"127.0.0.1:{hub.port}", Security()) == ""
    assert handshake_problem("nowhere", Security()) == ""
