"""``ggeur check``: each fault is found and named before a site joins.

The site is a folder with a file, as ``ggeur certificates`` makes it. The server is the
transport's.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import yaml
from own_process import in_turn
from processes import free_port

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines.sites import site_check
from federatedscope_ggeur.engines.sites.roles import role_config, transport_settings
from federatedscope_ggeur.engines.sites.transport import Hub, certificates

CLASSES = [f"kind {number}" for number in range(12)]
PLAN = {
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


@contextmanager
def served(own: Path) -> Iterator[Hub]:
    """The hub of the server with the folder `own`."""
    with pytest.MonkeyPatch.context() as there:
        there.chdir(own)
        cfg = role_config("server.yaml", "server")
        hub = Hub("127.0.0.1", 0, 2, transport_settings(cfg))
    yield hub
    hub.close(grace=0.5)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    """The folders of a federation."""
    for package in ("grpc", "cryptography"):
        pytest.importorskip(package)
    place = tmp_path_factory.mktemp("federation")
    plan = place / "plan.yaml"
    plan.write_text(yaml.safe_dump(PLAN))
    assert main(["certificates", str(plan), "--out", str(place / "made")]) == 0
    return place / "made"


@pytest.fixture(scope="module")
def server(folders):
    with served(folders / "server") as one:
        yield one


@pytest.fixture
def site(server, folders, embeddings_folder, tmp_path) -> Path:
    """The folder of paris, with data."""
    place = tmp_path / "paris"
    shutil.copytree(folders / "paris", place)
    data = place / "data"
    data.mkdir()
    shutil.copy(embeddings_folder / "photo.npz", data)
    (data / "encoder.txt").write_text("an encoder")
    (data / "class_names.txt").write_text("\n".join(CLASSES))
    change(place, "distribute", server_port=server.port)
    return place


def change(site: Path, section: str, **settings) -> None:
    """Change settings of a section in the site's file."""
    path = site / "site.yaml"
    content = yaml.safe_load(path.read_text())
    content[section].update(settings)
    path.write_text(yaml.safe_dump(content))


def problems_in(said: str) -> dict[str, str]:
    return dict(re.findall(r"^PROBLEM ([^:]*): (.*)$", said, re.MULTILINE))


@pytest.fixture
def check(site, monkeypatch, capsys):
    """The exit status of the command, its problems by what they are of, and all."""

    def check() -> tuple[int, dict[str, str], str]:
        monkeypatch.chdir(site.parent)
        capsys.readouterr()
        status = main(["check", "--cfg", "paris/site.yaml"])
        said = capsys.readouterr().out
        return status, problems_in(said), said

    return check


def test_a_site_that_fits_passes_and_does_not_join(server, check):
    status, problems, said = check()
    assert (status, problems) == (0, {}), said
    for line in (
        "data: 'data': rows: train 76, val 10, test 10",
        "classes: 12; rows to train on: kind 0 ",
        "embeddings: 16 dimensions, by an encoder",
        "min_samples 5 withholds",
        "server: localhost:",
        "TLS: the server's certificate is valid for 364 days",
        "token: of client 2",
        "ready to join",
    ):
        assert line in said, line
    assert server.receive(0.1) is None


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
    change(site, "distribute", server_port=free_port())


def wrong_authority(site):
    (site / "authority.pem").write_bytes(certificates.make_authority("another")[0])


def another_name(site):
    change(site, "distribute", server_host="127.1")  # 127.0.0.1, for the system


def token_of_another(site):
    (site / "token").write_text(f"1:{'0' * 64}")


def no_authority(site):
    (site / "authority.pem").write_text("")


def file_in_the_way(site):
    (site / "runs").touch()


def other_release(site):
    agreed = {"class_names": CLASSES, "release": "0.0.7, messages of version 3"}
    change(site, "ggeur", agreed=agreed)


def wrong_setting(site):
    change(site, "ggeur", closed_form="nothing")


#: By fault, what the problem is of, and parts of its text.
FAULTS = {
    other_classes: ("data", "another kind"),
    other_dimension: ("data", "embedding_dim"),
    other_weights: ("data", "an encoder, id 12345678"),
    too_few_rows: ("threshold", "this site would send nothing", "more rows"),
    wrong_setting: ("settings", "ggeur.closed_form"),
    file_in_the_way: ("outdir", "runs' is not a folder", "set 'outdir'"),
    other_release: ("settings", "runs federatedscope-ggeur 0.0.7, messages of version"),
    closed_port: ("server", "nothing listens there"),
    wrong_authority: ("TLS", "not signed by the authority in ggeur.tls.authority"),
    no_authority: ("TLS", "ggeur.tls.authority"),
    another_name: ("TLS", "is not for '127.1'"),
    token_of_another: ("token", "it is that of client 1, but this is client 2"),
}


def check_found(found: tuple[int, dict[str, str], str], told: tuple[str, ...]) -> None:
    status, problems, said = found
    what, *parts = told
    assert status == 1
    assert list(problems) == [what], said
    for part in parts:
        assert part in problems[what]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_fault_is_found_with_what_to_do(site, check, fault):
    fault(site)
    check_found(check(), FAULTS[fault])


#: A command whose outdir is on a file system that it alone sees.
MOUNTED = """\
import ctypes, subprocess, sys
from federatedscope_ggeur.cli import main
options, place, *words = sys.argv[1:]
if ctypes.CDLL(None).unshare(0x20000):  # CLONE_NEWNS
    sys.exit("may not mount")
for mount in (["--make-rprivate", "/"], ["-t", "tmpfs", "-o", options, "none", place]):
    subprocess.run(["mount", *mount], check=True)
sys.exit(main(words))
"""


@pytest.mark.slow
def test_a_read_only_disk_is_found_and_ends_a_run_with_one_line(site):
    file, place = site / "site.yaml", site / "mounted"
    place.mkdir()
    file.write_text(file.read_text().replace("outdir: runs", "outdir: mounted"))
    calls = [
        ["-c", MOUNTED, "ro", str(place), command, "--cfg", str(file)]
        for command in ("check", "join")
    ]
    (status, said), run = in_turn(calls, site)
    if "may not mount" in said:
        pytest.skip("this process may not mount a file system")
    told = ("outdir", "Read-only file system", "set 'outdir'")
    check_found((status, problems_in(said), said), told)
    assert run[0] == 1
    (line,) = run[1].splitlines()
    assert "cannot make a folder for the run in 'mounted" in line
    assert "Read-only file system; set 'outdir'" in line


def test_a_certificate_that_ends_soon_is_named(site, check, monkeypatch):
    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=340)

    monkeypatch.setattr(site_check, "datetime", Later)
    status, problems, said = check()
    assert (status, problems) == (0, {}), said
    soon = "valid for 24 days, so ask for a new one now"
    assert f"the server's certificate is {soon}; this site's is {soon}" in said


def test_a_file_without_the_server_s_address_is_checked_at_home_alone(site, check):
    """Flower's SuperNode has the address."""
    path = site / "site.yaml"
    content = yaml.safe_load(path.read_text())
    del content["distribute"]
    path.write_text(yaml.safe_dump(content))
    status, problems, said = check()
    assert (status, problems) == (0, {}), said
    assert "server: not asked, because the file has no distribute.server_host" in said


def test_a_file_that_does_not_say_who_it_is_is_for_a_folder_alone(quickstart, ggeur):
    words = ["--cfg", quickstart.name]
    said = ggeur("check", *words).out
    assert "settings: the file has no ggeur.client_number; join --folder gets" in said
    assert said.endswith("ready to join by --folder alone\n")
    error = ggeur("join", *words, status=1).err
    assert "wrong settings:\n  ggeur.client_number: must be set" in error


def test_a_site_with_a_server_needs_a_number(site, check):
    path = site / "site.yaml"
    content = yaml.safe_load(path.read_text())
    del content["ggeur"]["client_number"]
    path.write_text(yaml.safe_dump(content))
    status, problems, said = check()
    assert status == 1, said
    assert "ggeur.client_number: must be set" in problems["settings"]
