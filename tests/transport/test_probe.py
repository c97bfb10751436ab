"""TLS that fails is told long before the deadline, with the reason and the file."""

from __future__ import annotations

import time

import pytest

from federatedscope_ggeur.transport import ConnectionLost, Security
from federatedscope_ggeur.transport.probe import handshake_problem

#: Seconds that joining may take; a fault is told long before.
DEADLINE = 1200.0


def side(pem, name: str, authority: str = "authority.pem") -> Security:
    own = (f"{name}.pem", f"{name}.key") if name else ("", "")
    return Security(*map(pem, (*own, authority)))


def test_the_recipe_of_the_docs_works(make_hub, joined, pem):
    hub = make_hub(security=side(pem, "server"))
    joined(hub, 3, security=side(pem, "client_3"))
    address = f"127.0.0.1:{hub.port}"
    assert handshake_problem(address, side(pem, "client_3")) == ""
    hub = make_hub(security=side(pem, "server", ""))
    joined(hub, 3, security=side(pem, ""))
    assert handshake_problem(f"localhost:{hub.port}", side(pem, "")) == ""


@pytest.mark.parametrize(
    ("server", "client", "reasons"),
    [
        (
            ("server", ""),
            ("", "other.pem"),
            ("not signed by the authority in ggeur.tls.authority", "other.pem"),
        ),
        (
            ("old", ""),
            ("", "authority.pem"),
            ("has expired", "authority.pem", "make a new ggeur.tls.certificate"),
        ),
        (
            ("elsewhere", ""),
            ("", "authority.pem"),
            ("ggeur.tls.certificate is not for '127.0.0.1'", "distribute.server_host"),
        ),
        (("server", ""), ("", ""), ("requires TLS", "ggeur.tls.authority")),
        (
            ("", ""),
            ("", "authority.pem"),
            ("the server does not use TLS", "ggeur.tls.authority", "authority.pem"),
        ),
        (
            ("server", "authority.pem"),
            ("", "authority.pem"),
            ("requires certificates of clients", "ggeur.tls.key"),
        ),
        (
            ("server", "authority.pem"),
            ("stranger", "authority.pem"),
            ("refuses this client's ggeur.tls.certificate", "stranger.pem"),
        ),
    ],
    ids=[
        "another authority",
        "expired",
        "another name",
        "TLS at the server alone",
        "TLS at the client alone",
        "no certificate of the client",
        "a client of another authority",
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
