"""``ggeur certificates``: folders that work, for their owners alone."""

import shutil
import ssl
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from own_process import PATIENCE

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines.sites.roles import release_text
from federatedscope_ggeur.engines.sites.transport import (
    Envelope,
    Hub,
    Security,
    open_link,
)
from federatedscope_ggeur.engines.sites.transport.settings import TransportSettings

PLAN = """\
server: [localhost, 127.0.0.1]
port: 53123
sites:
  - {name: berlin, domain: art}
  - paris
settings:
  federate: {total_round_num: 3}
  data: {type: embeddings@ggeur}
"""


@pytest.fixture
def folders(tmp_path, monkeypatch):
    pytest.importorskip("cryptography")
    monkeypatch.chdir(tmp_path)
    Path("plan.yaml").write_text(PLAN)
    assert main(["certificates", "plan.yaml"]) == 0
    return tmp_path / "federation"


def security(folder: Path, own: str, **names: str) -> Security:
    files = {"certificate": f"{own}.pem", "key": f"{own}.key", **names}
    files.setdefault("authority", "authority.pem")
    return Security(**{field: str(folder / name) for field, name in files.items()})


def test_a_site_joins_by_what_its_folder_holds(folders):
    pytest.importorskip("grpc")
    there = security(folders / "server", "server", join_secret="join_secret")
    settings = {"max_message": 2**20, "join_deadline": PATIENCE}
    listening = TransportSettings(security=there, **settings)
    with closing(Hub("127.0.0.1", 0, 2, listening)) as hub:
        for number, name in ((1, "berlin"), (2, "paris")):
            own = security(folders / name, "site", join_token="token")
            how = TransportSettings(security=own, **settings)
            for host in ("localhost", "127.0.0.1"):
                address, join = f"{host}:{hub.port}", Envelope("join_in")
                with closing(open_link(address, number, join, how)):
                    assert hub.receive(PATIENCE).number == number
                assert hub.receive(PATIENCE).envelope is None


def test_files_say_who_is_who_and_what_all_have_alike(folders):
    server = yaml.safe_load((folders / "server" / "server.yaml").read_text())
    kept = {"save_to": "checkpoint/state"}  # from which a killed server goes on
    assert server["federate"] == {"total_round_num": 3, "client_num": 2, **kept}
    assert server["distribute"] == {"server_host": "0.0.0.0", "server_port": 53123}
    agreed = {"release": release_text()}
    assert server["ggeur"]["agreed"] == agreed
    for number, name, domain in ((1, "berlin", "art"), (2, "paris", "paris")):
        site = yaml.safe_load((folders / name / "site.yaml").read_text())
        assert site["federate"] == {"total_round_num": 3, "client_num": 2}
        assert site["ggeur"]["agreed"] == agreed
        assert site["distribute"]["server_host"] == "localhost"
        assert (site["ggeur"]["client_number"], site["ggeur"]["domain"]) == (
            number,
            domain,
        )
        for key in ("certificate", "key", "authority"):
            assert (folders / name / site["ggeur"]["tls"][key]).is_file()


def test_files_are_for_their_owner_alone(folders):
    paths = [folders, *folders.rglob("*")]
    assert len(paths) > 15
    assert not [path for path in paths if path.stat().st_mode & 0o077]


def test_certificates_are_of_one_authority_and_its_key_stays(folders):
    for name, own in (("server", "server"), ("berlin", "site"), ("paris", "site")):
        context = ssl.create_default_context(cafile=folders / name / "authority.pem")
        context.load_cert_chain(
            folders / name / f"{own}.pem", folders / name / f"{own}.key"
        )
    holders = [path.parent.name for path in folders.rglob("authority.key")]
    assert holders == ["authority"]
    assert [path.parent.name for path in folders.rglob("join_secret")] == ["server"]


def test_nothing_is_written_over_and_a_site_may_be_added(folders, ggeur):
    written = [path for path in folders.rglob("*.*") if path.name != "numbers.json"]
    before = {path: path.read_bytes() for path in written}
    Path("plan.yaml").write_text(PLAN.replace("  - paris\n", "  - paris\n  - rome\n"))
    said = ggeur("certificates", "plan.yaml").out
    assert "rome: made for client 3" in said
    assert "set federate.client_num to 3" in said
    assert {path: path.read_bytes() for path in before} == before
    authority = (folders / "authority" / "authority.pem").read_bytes()
    assert (folders / "rome" / "authority.pem").read_bytes() == authority


def test_a_number_and_its_token_are_given_once(folders, ggeur):
    """A site goes, one comes in the middle of the list, and one moves."""
    before = {
        name: (folders / name / "token").read_bytes() for name in ("berlin", "paris")
    }
    path = Path("plan.yaml")
    path.write_text(PLAN.replace("  - {name: berlin, domain: art}\n", "  - rome\n"))
    assert "rome: made for client 3" in ggeur("certificates", "plan.yaml").out
    path.write_text(PLAN.replace("  - paris\n", "  - oslo\n  - rome\n  - paris\n"))
    for name in ("paris", "rome"):
        shutil.rmtree(folders / name)
    said = ggeur("certificates", "plan.yaml").out
    for name, number in (("paris", 2), ("rome", 3), ("oslo", 4)):
        assert f"{name}: made for client {number}" in said
        site = yaml.safe_load((folders / name / "site.yaml").read_text())
        assert site["ggeur"]["client_number"] == number
        assert site["federate"]["client_num"] == 4
    assert {n: (folders / n / "token").read_bytes() for n in before} == before


def test_without_the_ledger_no_number_is_given(folders, ggeur):
    (folders / "authority" / "numbers.json").unlink()
    said = ggeur("certificates", "plan.yaml", status=1).err
    assert "numbers.json': cannot be read" in said


def test_a_withdrawn_token_is_refused_and_its_number_is_not_given_again(folders, ggeur):
    own = Security(join_secret=str(folders / "server" / "join_secret"))
    tokens = {
        n: (folders / n / "token").read_text().strip() for n in ("berlin", "paris")
    }
    assert own.refusal(1, tokens["berlin"]) == ""
    assert main(["certificates", "plan.yaml", "--withdraw", "berlin"]) == 0
    assert "the token of client 1 has been withdrawn" in own.refusal(
        1, tokens["berlin"]
    )
    assert own.refusal(2, tokens["paris"]) == ""
    before = (folders / "authority" / "numbers.json").read_text()
    for more in ((), ("--renew", "berlin")):
        said = ggeur("certificates", "plan.yaml", *more, status=1).err
        assert "sites: berlin: has no number, as after --withdraw" in said
    assert (folders / "authority" / "numbers.json").read_text() == before
    shutil.rmtree(folders / "berlin")
    assert "berlin: made for client 3" in ggeur("certificates", "plan.yaml").out
    said = ggeur("certificates", "plan.yaml", "--withdraw", "berlim", status=1).err
    assert "did you mean berlin" in said
    Path(own.join_secret + ".denied").write_text("someone\n")
    assert "cannot read which tokens are withdrawn" in own.refusal(2, tokens["paris"])


@pytest.mark.parametrize(("name", "own"), [("server", "server"), ("paris", "site")])
def test_a_certificate_is_renewed_in_a_folder_of_its_own(folders, name, own):
    before = (folders / name / f"{own}.pem").read_bytes()
    assert main(["certificates", "plan.yaml", "--renew", name]) == 0
    (made,) = folders.glob(f"renewed_{name}_*")
    context = ssl.create_default_context(cafile=folders / name / "authority.pem")
    context.load_cert_chain(made / f"{own}.pem", made / f"{own}.key")
    assert (made / f"{own}.pem").read_bytes() != before
    assert (folders / name / f"{own}.pem").read_bytes() == before
    assert main(["certificates", "plan.yaml", "--renew", "rome"]) == 1


def test_with_flower_each_site_has_a_key_that_the_server_knows(tmp_path, monkeypatch):
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization

    monkeypatch.chdir(tmp_path)
    Path("plan.yaml").write_text(f"engine: flower\n{PLAN}")
    assert main(["certificates", "plan.yaml"]) == 0
    folders = tmp_path / "federation"
    nodes = folders / "server" / "nodes"
    for name in ("berlin", "paris"):
        site = yaml.safe_load((folders / name / "site.yaml").read_text())
        path = folders / name / "node.key"
        assert path.stat().st_mode & 0o077 == 0
        key = serialization.load_ssh_private_key(path.read_bytes(), None)
        public = serialization.load_ssh_public_key((nodes / f"{name}.pub").read_bytes())
        assert key.public_key() == public
        assert "tls" not in site["ggeur"]  # the SuperNode's command names what it needs
        assert "distribute" not in site
    assert len(list(nodes.iterdir())) == 2
    # A folder that is gone is not made anew beside a key that the server has.
    for path in (folders / "paris").iterdir():
        path.unlink()
    (folders / "paris").rmdir()
    assert main(["certificates", "plan.yaml"]) == 1
    assert not (folders / "paris").exists()


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("sites:", "places:", "'places': is not one of"),
        ("- paris", "- ../paris", "'../paris'"),
        ("- paris", "- Berlin", "two sites have the name 'berlin'"),
        ("- paris", "- server", "two sites have the name 'server'"),
        (
            "port: 53123",
            "engine: none",
            "engine: must be one of federatedscope, flower",
        ),
        ("port: 53123", "port: 0", "port: must be a whole number in 1..65535"),
        ("[localhost, 127.0.0.1]", "'a b'", "server: must list names"),
        ("[localhost, 127.0.0.1]", "[]", "server: must list names"),
        ("total_round_num: 3", "total_rounds: 3", "settings.federate.total_rounds"),
        (PLAN, "- x", "plan.yaml must hold 'key: value' lines"),
        (PLAN, "x: [", "plan.yaml is not valid YAML: line 1: expected"),
    ],
)
def test_a_wrong_plan_is_named_and_nothing_is_made(
    tmp_path, monkeypatch, ggeur, old, new, named
):
    pytest.importorskip("cryptography")
    monkeypatch.chdir(tmp_path)
    Path("plan.yaml").write_text(PLAN.replace(old, new))
    assert named in ggeur("certificates", "plan.yaml", status=1).err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.yaml"]
