"""``ggeur check``: each fault is found and named before a site joins.

The server is a real one of the transport, with the facts of a membership; the site is
a folder with a file, as ``ggeur certificates`` makes it.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
import yaml
from wire_tap import recording

from federatedscope_ggeur.cfg_ggeur.check import given_handshake
from federatedscope_ggeur.cfg_ggeur.method_settings import agreed_settings
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines import facts
from federatedscope_ggeur.engines.facts import facts_of
from federatedscope_ggeur.engines.roles import role_config
from federatedscope_ggeur.engines.streams import transport_settings
from federatedscope_ggeur.federation.course.membership import Membership
from federatedscope_ggeur.transport import Hub, certificates, make_token

CLASSES = [f"kind {number}" for number in range(12)]
PLAN = {
    "server": ["127.0.0.1"],
    "sites": ["berlin", "paris"],
    "settings": {
        "data": {"type": "embeddings@ggeur"},
        "ggeur": {
            "embedding_dim": 16,
            "agreed": {"class_names": CLASSES, "encoder": "an encoder"},
        },
    },
}
pytestmark = pytest.mark.usefixtures("federatedscope")


@pytest.fixture
def folders(embeddings_folder, tmp_path, monkeypatch) -> Path:
    """Folders of a server and two sites, with data in that of paris."""
    for package in ("grpc", "cryptography"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    Path("plan.yaml").write_text(yaml.safe_dump(PLAN))
    assert main(["certificates", "plan.yaml"]) == 0
    data = tmp_path / "federation" / "paris" / "data"
    data.mkdir()
    shutil.copy(embeddings_folder / "photo.npz", data)
    (data / "encoder.txt").write_text("an encoder")
    (data / "class_names.txt").write_text("\n".join(CLASSES))
    return tmp_path / "federation"


@pytest.fixture
def change():
    """Change settings, by dotted key, in a YAML file."""

    def change(path: Path, **settings) -> None:
        content = yaml.safe_load(path.read_text())
        for key, value in settings.items():
            *sections, name = key.split("__")
            node = content
            for section in sections:
                node = node.setdefault(section, {})
            node[name] = value
        path.write_text(yaml.safe_dump(content))

    return change


@pytest.fixture
def serve(folders, change, monkeypatch):
    """Start the server of the folders; its port goes into the site's file."""
    hubs = []

    def start() -> Hub:
        cfg = role_config(str(folders / "server" / "server.yaml"), "server")
        hubs.append(Hub("127.0.0.1", 0, 2, transport_settings(cfg)))
        given = given_handshake(cfg.ggeur)
        members = Membership(2, settings=agreed_settings(cfg), given=given)
        hubs[-1].facts = facts_of(members)
        monkeypatch.chdir(folders)
        port = hubs[-1].port
        change(folders / "paris" / "site.yaml", distribute__server_port=port)
        return hubs[-1]

    yield start
    for hub in hubs:
        hub.close(grace=0.5)


@pytest.fixture
def check(folders, monkeypatch, capsys):
    """The exit status of the command, and its problems by what they are of."""

    def check() -> tuple[int, dict[str, str]]:
        monkeypatch.chdir(folders)
        capsys.readouterr()
        status = main(["check", "--cfg", "paris/site.yaml"])
        said = capsys.readouterr().out
        print(said)
        found = re.findall(r"^PROBLEM ([^:]*): (.*)$", said, re.MULTILINE)
        return status, dict(found)

    return check


def test_a_site_that_fits_passes_and_takes_no_place(serve, check, capsys):
    hub = serve()
    assert check() == (0, {})
    said = capsys.readouterr().out
    for line in (
        "data: 'data': rows: train 76, val 10, test 10",
        "classes: 12; rows to train on: kind 0 ",
        "embeddings: 16 dimensions, by an encoder",
        "min_samples 5 withholds",
        "disk: ",
        "server: 127.0.0.1:",
        "TLS: the server's certificate is valid for 364 days",
        "token: accepted",
        "place: client 2 can join",
        "class list: as agreed",
        "dimension: as agreed",
        "encoder: as agreed",
        "settings: as agreed",
        "ready to join",
    ):
        assert line in said, line
    assert hub.connected() == set()
    assert hub.receive(0.1) is None


def other_classes(folders, change):
    change(folders / "paris" / "site.yaml", ggeur__agreed={})
    names = ["another kind", *CLASSES[1:]]
    (folders / "paris" / "data" / "class_names.txt").write_text("\n".join(names))


def other_dimension(folders, change):
    change(folders / "paris" / "site.yaml", ggeur__embedding_dim=-1)
    path = folders / "paris" / "data" / "photo.npz"
    held = dict(np.load(path))
    np.savez(path, features=held["features"][:, :9], labels=held["labels"])


def other_weights(folders, change):
    change(folders / "paris" / "site.yaml", ggeur__agreed={})
    (folders / "paris" / "data" / "encoder.txt").write_text("an encoder, id 12345678")


def closed_port(folders, change):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    change(folders / "paris" / "site.yaml", distribute__server_port=port)


def wrong_authority(folders, change):
    own = folders / "paris" / "authority.pem"
    own.write_bytes(certificates.make_authority("another")[0])


def wrong_token(folders, change):
    token = folders / "paris" / "token"
    token.write_text(make_token(b"another secret!!", 2))


def too_few_rows(folders, change):
    path = folders / "paris" / "data" / "photo.npz"
    held = dict(np.load(path))
    np.savez(path, features=held["features"][:36], labels=held["labels"][:36])


FAULTS = {
    other_classes: (
        "class list",
        "'another kind' here",
        "must be the same on all sites",
    ),
    other_dimension: ("dimension", "dim is 16 there and 9 here"),
    other_weights: ("encoder", "'an encoder, id 12345678' here"),
    closed_port: ("server", "nothing listens there"),
    wrong_authority: ("TLS", "not signed by the authority in ggeur.tls.authority"),
    wrong_token: ("token", "was not made from this server's", "for a new one"),
    too_few_rows: ("threshold", "this site would send nothing", "more rows"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_fault_is_found_with_what_to_do(folders, serve, check, change, fault):
    serve()
    fault(folders, change)
    status, problems = check()
    what, *parts = FAULTS[fault]
    assert status == 1
    assert list(problems) == [what]
    for part in parts:
        assert part in problems[what]


@pytest.mark.slow
def test_no_space_left_is_found(folders, serve, change):
    """On a file system of 1 MB, in a process that alone sees it."""
    full = folders / "paris" / "full"
    full.mkdir()
    mount = ["unshare", "--mount", "sh", "-ec"]
    on_it = f"mount -t tmpfs -o size=1m none '{full}'; exec \"$@\""
    if (
        not shutil.which("unshare")
        or subprocess.run(
            [*mount, on_it, "sh", "true"], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("this process may not mount a file system")
    change(folders / "paris" / "site.yaml", outdir="full")
    serve()
    program = [sys.executable, "-m", "federatedscope_ggeur", "check"]
    done = subprocess.run(
        [*mount, on_it, "sh", *program, "--cfg", str(folders / "paris" / "site.yaml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    (line,) = [one for one in done.stdout.split("\n") if one.startswith("PROBLEM")]
    assert line.startswith("PROBLEM disk: 1.05 MB are free, about 20 MB needed")
    assert "free some" in line


def test_an_expired_certificate_is_found(folders, serve, check, monkeypatch):
    """Of the server's, made three days ago for one day."""

    class Earlier(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) - timedelta(days=3)

    with monkeypatch.context() as then:
        then.setattr(certificates, "datetime", Earlier)
        own = folders / "authority"
        authority = tuple(
            (own / name).read_bytes() for name in ("authority.pem", "authority.key")
        )
        files = certificates.make_certificate("server", authority, 1, ["127.0.0.1"])
    for name, data in zip(("server.pem", "server.key"), files):
        (folders / "server" / name).write_bytes(data)
    serve()
    status, problems = check()
    assert status == 1
    assert list(problems) == ["TLS"]
    assert "has expired" in problems["TLS"]
    assert Earlier.now(timezone.utc) < datetime.now(timezone.utc)


def test_another_release_is_found(serve, check, monkeypatch):
    hub = serve()
    with monkeypatch.context() as there:
        there.setattr(facts, "__version__", "0.0.7")
        answer = hub.facts(2, False)
    hub.facts = lambda number, is_taken: answer
    status, problems = check()
    assert status == 1
    assert list(problems) == ["version"]
    assert "federatedscope-ggeur==0.0.7" in problems["version"]


def test_a_wrong_setting_is_one_line(folders, serve, check, change):
    serve()
    change(folders / "paris" / "site.yaml", ggeur__closed_form="nothing")
    status, problems = check()
    assert status == 1
    assert list(problems) == ["settings"]
    assert "ggeur.closed_form" in problems["settings"]


def test_a_server_s_answer_cannot_write_lines_of_its_own(serve, check, capsys):
    hub = serve()
    hub.facts = lambda number, is_taken: b'{"package": "1\\nok forged", "agreed": 3}'
    status, problems = check()
    assert (status, list(problems)) == (1, ["version"])


def test_nothing_of_the_data_is_sent(folders, serve, check, change):
    """Without TLS, so that all bytes can be read on their way."""
    for place, own in (("server", "server"), ("paris", "site")):
        change(folders / place / f"{own}.yaml", ggeur__tls={})
    hub = serve()
    port, heard = recording(hub.port)
    change(folders / "paris" / "site.yaml", distribute__server_port=port)
    assert check() == (0, {})
    # Two openings (port, TLS), then HTTP/2 with one header: number and token.
    token = (folders / "paris" / "token").read_bytes().strip()
    assert token in heard
    assert b'"sizes": []' in heard
    assert len(heard) < 2000
    held = np.load(folders / "paris" / "data" / "photo.npz")
    rows = held["features"]
    for secret in (
        b"photo",
        b"kind 1",
        b"an encoder",
        *(row[:4].tobytes() for row in rows),
        *(str(float(row[0]))[:7].encode() for row in rows),
    ):
        assert secret not in heard
