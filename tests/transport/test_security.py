"""Who may join: TLS with certificates made here, and tokens."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.transport import (
    ConnectionLost,
    Refused,
    Security,
    check_token,
    make_token,
)

SECRET = b"0123456789abcdef"
PATIENCE = 20.0


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    """Two authorities (a, b), each with a certificate for localhost, as PEM files."""
    if shutil.which("openssl") is None:
        pytest.skip("the program openssl, which makes the certificates, is missing")
    folder = tmp_path_factory.mktemp("pem")

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    for a in "ab":
        openssl(
            "req", "-x509", *curve, "-days", "2", "-subj", f"/CN=authority {a}",
            "-keyout", f"ca_{a}.key", "-out", f"ca_{a}.pem",
        )  # fmt: skip
        openssl(
            "req", *curve, "-subj", "/CN=localhost",
            "-keyout", f"{a}.key", "-out", f"{a}.csr",
        )  # fmt: skip
        openssl(
            "x509", "-req", "-in", f"{a}.csr", "-CA", f"ca_{a}.pem",
            "-CAkey", f"ca_{a}.key", "-CAcreateserial", "-days", "2",
            "-extfile", "names", "-out", f"{a}.pem",
        )  # fmt: skip
    openssl("ec", "-in", "a.key", "-aes128", "-passout", "pass:x", "-out", "locked.key")
    (folder / "garbage").write_bytes(b"\x80\x04garbage")
    return lambda name: str(folder / name) if name else ""


@pytest.fixture
def files(tmp_path):
    """The server's secret and the tokens of clients 1 to 3."""
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    for number in (1, 2, 3):
        (tmp_path / f"token{number}").write_text(make_token(SECRET, number) + "\n")
    return lambda name: str(tmp_path / name)


def test_tls_with_certificates_of_both_sides(make_hub, joined, pem):
    sides = Security(pem("a.pem"), pem("a.key"), pem("ca_a.pem"))
    hub = make_hub(security=sides)
    link = joined(hub, 1, security=sides)
    link.close()
    assert hub.receive(PATIENCE).envelope is None


def test_tls_with_a_certificate_of_the_server_only(make_hub, joined, pem):
    hub = make_hub(security=Security(pem("a.pem"), pem("a.key")))
    joined(hub, 1, security=Security(authority=pem("ca_a.pem")))


@pytest.mark.parametrize(
    "client",
    [
        (),
        ("", "", "ca_b.pem"),
        ("", "", "ca_a.pem"),
        ("b.pem", "b.key", "ca_a.pem"),
    ],
    ids=["no TLS", "another authority", "no certificate", "another's certificate"],
)
def test_tls_admits_nobody_else(make_hub, join, pem, client):
    hub = make_hub(security=Security(pem("a.pem"), pem("a.key"), pem("ca_a.pem")))
    security = Security(*map(pem, client))
    with pytest.raises(ConnectionLost, match=r"ggeur\.tls"):
        join(hub, 1, security=security, join_deadline=0.5)
    assert hub.receive(0.0) is None


def test_a_tls_client_does_not_talk_to_a_plain_server(hub, join, pem):
    with pytest.raises(ConnectionLost, match=r"ggeur\.tls"):
        join(hub, 1, security=Security(authority=pem("ca_a.pem")), join_deadline=0.5)


@pytest.mark.parametrize(
    ("files", "key", "file"),
    [
        (("a.pem", "", ""), "ggeur.tls.key", "a.pem"),
        (("", "a.key", ""), "ggeur.tls.certificate", "a.key"),
        (("missing", "a.key", ""), "ggeur.tls.certificate", "missing"),
        (("garbage", "a.key", ""), "ggeur.tls.certificate", "garbage"),
        (("a.key", "a.key", ""), "ggeur.tls.certificate", "a.key"),
        (("a.pem", "missing", ""), "ggeur.tls.key", "missing"),
        (("a.pem", "garbage", ""), "ggeur.tls.key", "garbage"),
        (("a.pem", "b.key", ""), "ggeur.tls.key", "b.key"),
        (("a.pem", "locked.key", ""), "ggeur.tls.key", "locked.key"),
        (("a.pem", "a.key", "missing"), "ggeur.tls.authority", "missing"),
        (("a.pem", "a.key", "garbage"), "ggeur.tls.authority", "garbage"),
        (("a.pem", "a.key", "."), "ggeur.tls.authority", "."),
    ],
)
def test_files_that_cannot_be_used_are_named(make_hub, pem, files, key, file):
    with pytest.raises(ConfigError) as caught:
        make_hub(security=Security(*map(pem, files)))
    assert key in str(caught.value)
    assert file in str(caught.value)


def test_each_side_needs_its_own_half(make_hub, hub, join, pem):
    with pytest.raises(ConfigError, match=r"set without ggeur\.tls\.certificate"):
        make_hub(security=Security(authority=pem("ca_a.pem")))
    with pytest.raises(ConfigError, match=r"set without ggeur\.tls\.authority"):
        join(hub, 1, security=Security(pem("a.pem"), pem("a.key")))
    with pytest.raises(ConfigError, match=r"ggeur\.tls\.authority.*missing"):
        join(hub, 1, security=Security(authority=pem("missing")))


def test_a_client_with_its_token_joins(make_hub, joined, files):
    hub = make_hub(security=Security(join_secret=files("secret")))
    for number in (1, 2, 3):
        token = files(f"token{number}")
        joined(hub, number, security=Security(join_token=token))


def test_a_client_without_a_token_is_refused(make_hub, join, files):
    hub = make_hub(security=Security(join_secret=files("secret")))
    with pytest.raises(Refused, match=r"client 1 sent no token.*ggeur\.join_token"):
        join(hub, 1)
    assert hub.receive(0.0) is None


def test_a_client_with_the_token_of_another_is_refused(make_hub, join, files):
    hub = make_hub(security=Security(join_secret=files("secret")))
    with pytest.raises(Refused, match="client 1 sent the token of client 2"):
        join(hub, 1, security=Security(join_token=files("token2")))
    assert hub.receive(0.0) is None


def test_a_token_of_another_secret_is_refused(make_hub, join, tmp_path, files):
    hub = make_hub(security=Security(join_secret=files("secret")))
    stale = tmp_path / "stale"
    stale.write_text(make_token(b"another secret 16", 1))
    with pytest.raises(
        Refused, match=r"not made from this server's ggeur\.join_secret"
    ):
        join(hub, 1, security=Security(join_token=str(stale)))


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
