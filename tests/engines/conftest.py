"""FederatedScope and sites in processes of their own, for tests of all engines."""

import os
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parent / name) for name in ("fs", "flower", "sites")]


@pytest.fixture(scope="session")
def fork_server(federatedscope):
    """What forks workers; it has imported FederatedScope already."""
    from processes import ForkServer

    pytest.importorskip("grpc", reason="distributed mode needs grpcio")
    if not hasattr(os, "fork"):
        pytest.skip("workers are forked, which this system cannot")
    one = ForkServer(Path(federatedscope.__file__).parents[3])
    yield one
    one.close()


@pytest.fixture
def flower_here(flower, monkeypatch, tmp_path):
    """This process as one of Flower's, which may make messages."""
    monkeypatch.chdir(tmp_path)
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:  # an earlier release, where every process may
        return
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Earlier(datetime):
    """The clock of three days ago."""

    @classmethod
    def now(cls, tz=None):
        return datetime.now(tz) - timedelta(days=3)


@pytest.fixture(scope="session")
def pem(tmp_path_factory):
    """Certificates, good and bad ones, by the names of their files."""
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization as forms

    # Imported here: the engine may be taken out.
    from federatedscope_ggeur.engines.sites.transport import certificates

    folder, names = tmp_path_factory.mktemp("pem"), ["localhost", "127.0.0.1"]

    def write(name: str, pair: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        (folder / f"{name}.pem").write_bytes(pair[0])
        (folder / f"{name}.key").write_bytes(pair[1])
        return pair

    ours = write("authority", certificates.make_authority("our federation"))
    other = write("other", certificates.make_authority("others"))
    _, key = write("server", certificates.make_certificate("server", ours, 365, names))
    write("client_3", certificates.make_certificate("client 3", ours, 365))
    with pytest.MonkeyPatch.context() as then:
        then.setattr(certificates, "datetime", Earlier)
        write("old", certificates.make_certificate("server", ours, 1, names))
    write(
        "elsewhere",
        certificates.make_certificate("server", ours, 2, ["elsewhere.example.org"]),
    )
    write("stranger", certificates.make_certificate("a client", other, 2))
    locked = forms.load_pem_private_key(key, None).private_bytes(
        forms.Encoding.PEM,
        forms.PrivateFormat.TraditionalOpenSSL,
        forms.BestAvailableEncryption(b"x"),
    )
    (folder / "locked.key").write_bytes(locked)
    (folder / "garbage").write_bytes(key[:20])
    return lambda name: str(folder / name) if name else ""
