"""TLS that fails is told within seconds, with the reason and the file.

The certificates are made as docs/federatedscope.md says.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from federatedscope_ggeur.transport import ConnectionLost, Security
from federatedscope_ggeur.transport.probe import handshake_problem

DOCS = Path(__file__).parents[2] / "docs" / "federatedscope.md"
CURVE = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
#: Seconds that joining may take; a fault is told long before.
DEADLINE = 60.0
#: More files: another authority, an expired certificate and one for another name.
MORE = f"""
openssl req -x509 {CURVE} -days 2 -subj "/CN=others" -keyout other.key -out other.pem
openssl req {CURVE} -subj "/CN=server" -keyout old.key -out old.csr
openssl x509 -req -in old.csr -CA authority.pem -CAkey authority.key -CAcreateserial \
    -days -1 -extfile names.txt -out old.pem
printf 'subjectAltName=DNS:elsewhere.example.org' > elsewhere.txt
openssl req {CURVE} -subj "/CN=server" -keyout elsewhere.key -out elsewhere.csr
openssl x509 -req -in elsewhere.csr -CA authority.pem -CAkey authority.key \
    -CAcreateserial -days 2 -extfile elsewhere.txt -out elsewhere.pem
openssl req {CURVE} -subj "/CN=c" -keyout stranger.key -out stranger.csr
openssl x509 -req -in stranger.csr -CA other.pem -CAkey other.key -CAcreateserial \
    -days 2 -out stranger.pem
"""


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    for program in ("openssl", "bash"):
        if shutil.which(program) is None:
            pytest.skip(f"the program {program}, which the recipe takes, is missing")
    folder = tmp_path_factory.mktemp("recipe")
    blocks = re.findall(r"```bash\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    (recipe,) = [block for block in blocks if "openssl req -x509" in block]
    for commands in (recipe, MORE):
        command = ["bash", "-e", "-c", commands]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return lambda name: str(folder / name) if name else ""


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
    # A bound of the issue's: the deadline, not the speed of this machine, is tested.
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
