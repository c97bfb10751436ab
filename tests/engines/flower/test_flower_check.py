"""``ggeur check`` before a site joins through Flower, against a real SuperLink."""

from __future__ import annotations

import re
import shutil
import ssl
from pathlib import Path

import numpy as np
import pytest
import yaml
from wire_tap import recording

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.transport.certificates import make_authority, make_node_key

pytestmark = pytest.mark.slow

CLASSES = [f"kind {number}" for number in range(12)]
PLAN = {
    "engine": "flower",
    "server": ["localhost"],
    "sites": ["berlin", "paris"],
    "settings": {
        "data": {"type": "embeddings@ggeur"},
        "ggeur": {
            "embedding_dim": 16,
            "agreed": {"class_names": CLASSES, "encoder": "an encoder"},
        },
    },
}


@pytest.fixture(scope="module")
def made(flower, tmp_path_factory):
    """The folders of a federation, and the port of its SuperLink."""
    from federatedscope_ggeur.engines.flower.programs import (
        Programs,
        SuperLink,
        free_port,
    )
    from federatedscope_ggeur.transport import Security

    folder = tmp_path_factory.mktemp("flower")
    plan = folder / "plan.yaml"
    plan.write_text(yaml.safe_dump(PLAN))
    assert main(["certificates", str(plan), "--out", str(folder / "f")]) == 0
    own, port = folder / "f" / "server", free_port()
    names = "server.pem", "server.key", "authority.pem"
    security = Security(*(str(own / name) for name in names))
    keys = sorted((own / "nodes").glob("*.pub"))
    assert [key.stem for key in keys] == ["berlin", "paris"]
    with Programs() as programs:
        SuperLink(programs, "127.0.0.1", port, security, keys).start()
        yield folder / "f", port


@pytest.fixture
def site(made, embeddings_folder, tmp_path) -> Path:
    """The folder of paris, with data."""
    folders, port = made
    place = tmp_path / "paris"
    shutil.copytree(folders / "paris", place)
    data = place / "data"
    data.mkdir()
    shutil.copy(embeddings_folder / "photo.npz", data)
    (data / "encoder.txt").write_text("an encoder")
    (data / "class_names.txt").write_text("\n".join(CLASSES))
    change(place, "distribute", server_port=port)
    return place


def change(site: Path, section: str, **settings) -> None:
    path = site / "site.yaml"
    content = yaml.safe_load(path.read_text())
    content[section].update(settings)
    path.write_text(yaml.safe_dump(content))


@pytest.fixture
def check(site, monkeypatch, capsys):
    """The exit status of the command, its problems by what they are of, and all."""

    def check() -> tuple[int, dict[str, str], str]:
        monkeypatch.chdir(site.parent)
        capsys.readouterr()
        status = main(["check", "--cfg", "paris/site.yaml"])
        said = capsys.readouterr().out
        found = re.findall(r"^PROBLEM ([^:]*): (.*)$", said, re.MULTILINE)
        return status, dict(found), said

    return check


def test_a_site_that_fits_passes_again_and_again(check):
    """Again: the SuperLink holds no place for it."""
    for _ in range(2):
        status, problems, said = check()
        assert (status, problems) == (0, {}), said
    for line in (
        "Flower: flwr 1.",
        "data: 'data': rows: train 76, val 10, test 10",
        "embeddings: 16 dimensions, by an encoder",
        "min_samples 5 withholds",
        "disk: ",
        "node key: 'node.key', for its owner alone",
        "token: of client 2",
        "server: localhost:",
        "TLS: the server's certificate is valid for 364 days",
        "key: the SuperLink knows it",
        "ready to join",
    ):
        assert line in said, line


def other_classes(site):
    names = ["another kind", *CLASSES[1:]]
    (site / "data" / "class_names.txt").write_text("\n".join(names))


def other_dimension(site):
    path = site / "data" / "photo.npz"
    held = dict(np.load(path))
    np.savez(path, features=held["features"][:, :9], labels=held["labels"])


def other_weights(site):
    (site / "data" / "encoder.txt").write_text("an encoder, id 12345678")


def too_few_rows(site):
    path = site / "data" / "photo.npz"
    held = dict(np.load(path))
    np.savez(path, features=held["features"][:36], labels=held["labels"][:36])


def closed_port(site):
    change(site, "distribute", server_port=1)


def wrong_authority(site):
    (site / "authority.pem").write_bytes(make_authority("another")[0])


def another_name(site):
    change(site, "distribute", server_host="127.1")  # 127.0.0.1, for the system


def unknown_key(site):
    (site / "node.key").write_bytes(make_node_key()[0])


def no_key(site):
    (site / "node.key").write_text("garbage")


def open_key(site):
    (site / "node.key").chmod(0o644)


def wrong_token(site):
    (site / "token").write_text(f"1:{'0' * 64}")


def no_authority(site):
    (site / "authority.pem").write_text("")


FAULTS = {
    other_classes: ("data", "another kind"),
    other_dimension: ("data", "embedding_dim"),
    other_weights: ("data", "an encoder, id 12345678"),
    too_few_rows: ("threshold", "this site would send nothing"),
    closed_port: ("server", "nothing listens there"),
    wrong_authority: ("TLS", "was not signed by the authority in"),
    another_name: ("TLS", "is not for '127.1'"),
    unknown_key: ("key", "does not know this site's key"),
    no_key: ("node key", "holds no private key of a SuperNode"),
    open_key: ("node key", "chmod 600"),
    wrong_token: ("token", "it is that of client 1, but this is client 2"),
    no_authority: ("TLS", "ggeur.tls.authority"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_fault_is_found_with_what_to_do(site, check, fault):
    fault(site)
    status, problems, said = check()
    what, part = FAULTS[fault]
    assert status == 1
    assert list(problems) == [what], said
    assert part in problems[what]


def test_nothing_of_the_data_is_sent(made, site, check):
    """A way that takes TLS away, with the server's own certificate."""
    folders, port = made
    near = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own = folders / "server"
    near.load_cert_chain(own / "server.pem", own / "server.key")
    far = ssl.create_default_context(cafile=own / "authority.pem")
    door, heard = recording(
        port,
        lambda one: near.wrap_socket(one, server_side=True),
        lambda one: far.wrap_socket(one, server_hostname="localhost"),
    )
    change(site, "distribute", server_port=door)
    status, problems, said = check()
    assert (status, problems) == (0, {}), said
    assert b"/v1/fleet/activate-node" in heard
    assert heard.count(b"HTTP/1.1") == 1
    assert len(heard) < 3000
    held = np.load(site / "data" / "photo.npz")
    rows = held["features"]
    token = (site / "token").read_bytes().strip()
    for secret in (
        token,
        b"photo",
        b"kind 1",
        b"an encoder",
        *(row[:4].tobytes() for row in rows),
        *(str(float(row[0]))[:7].encode() for row in rows),
    ):
        assert secret not in heard
