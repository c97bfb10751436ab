"""Runs by folder: sides that run once, a poor carrier, lateness, lost stores.

That a run by folder gives the numbers of the embedded engine is tested with all engines
in `tests/engines/contract/`; here what a folder alone has to do.
"""

import shutil
import threading

import pytest
import yaml
from folder_world import LEAVE_ONE_OUT, OWN_HEADS, check_as_embedded
from pictures import write_images
from private_words import NOISE, SUMS

from federatedscope_ggeur.engines.sites import server as server_module
from federatedscope_ggeur.engines.sites.keys import make_identity, unusable
from federatedscope_ggeur.errors import ConfigError, GGEURError
from federatedscope_ggeur.lock import locked
from federatedscope_ggeur.reporting import read_results

LDA = ("ggeur.closed_form", "lda", "ggeur.init", "random", "ggeur.keep", "trained")
CHARGED = (*NOISE, "ggeur.privacy.dp.ledger", "ledger")
SCAFFOLD = ("ggeur.base_method", "scaffold", "federate.total_round_num", 3)


@pytest.mark.slow
def test_one_upload_takes_a_few_turns_and_says_what_comes_next(world, embedded):
    here = world(*OWN_HEADS)
    assert here.turn(here.sites[0]) == "nothing has come yet; awaited: hearts"
    assert here.turn(here.server) == "the sites join; awaited: s1, s2, s3"
    here.turn(here.sites[0])
    assert here.turn(here.server) == "the sites join; awaited: s2, s3"
    for site in here.sites[1:]:
        here.turn(site)
    assert here.turn(here.server) == "statistics, round 0; awaited: s1, s2, s3"
    line = here.turn(here.sites[2])
    assert line == "answered statistics, round 0; awaited: hearts"
    assert here.turn(here.server) == "statistics, round 0; awaited: s1, s2"
    here.run()
    check_as_embedded(here, embedded(*OWN_HEADS))
    # Once more changes nothing, not even a time of a file.
    kept = {p: p.stat().st_mtime_ns for p in here.server.shared.rglob("*.msg")}
    for side in here.sides:
        assert "the run is over" in here.turn(side)
    assert kept == {p: p.stat().st_mtime_ns for p in here.server.shared.rglob("*.msg")}


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [LEAVE_ONE_OUT, SCAFFOLD], ids=["auto", "scaffold"]
)
def test_a_carrier_that_delays_repeats_and_shuffles(settings, world, embedded):
    here = world(*settings, apart=True)
    here.run_apart(seed=len(settings))
    check_as_embedded(here, embedded(*settings))


def test_one_that_is_late_is_left_out_once_and_for_all(world, monkeypatch):
    """By the wall clock: an answer that is found first is in time."""
    now = [1e9]
    monkeypatch.setattr(server_module.time, "time", lambda: now[0])
    here = world(
        *("ggeur.quorum", 2, "ggeur.deadline.round0", 3600), *LDA,
        "ggeur.deadline.join", 86400,
    )  # fmt: skip
    here.turn(here.server)
    for site in here.sites:
        here.turn(site)
    now[0] += 80000
    line = "statistics, round 0; awaited: s1, s2, s3"
    assert here.turn(here.server) == line
    for site in here.sites[:2]:
        here.turn(site)
    now[0] += 3601
    line = "evaluate, round 0; awaited: s1, s2"
    assert here.turn(here.server) == line
    here.turn(here.sites[2])
    now[0] -= 3601  # what was decided stays so
    assert here.turn(here.server) == line
    here.go_on_without_the_last()
    here.run()
    results = read_results(here.server.left)
    assert results.round0.clients == [1, 2]
    assert (here.server.left / "config.yaml").exists()


@pytest.mark.parametrize(
    ("how", "side"),
    [
        ("missing", "site"),
        ("older", "site"),
        pytest.param("missing", "server", marks=pytest.mark.slow),
        pytest.param("older", "server", marks=pytest.mark.slow),
    ],
)
def test_a_store_that_is_missing_or_older_than_the_folder(how, side, world):
    here = world(*LDA)
    one = here.server if side == "server" else here.sites[0]
    for _ in range(2):
        here.turns()
        (store,) = one.keys.glob("run_*")
        shutil.copytree(store, one.folder / "backup", dirs_exist_ok=True)
        if how == "missing":
            break
    here.turn(here.server)
    here.turn(here.sites[0])
    shutil.rmtree(store)
    if how == "older":
        shutil.copytree(one.folder / "backup", store)
    with pytest.raises(ConfigError, match="never restored from a backup"):
        here.turn(one)


def test_a_file_that_was_taken_and_then_changed_ends_the_run(world):
    here = world(*LDA)
    here.turns(1)
    (store,) = here.server.keys.glob("run_*")
    here.turn(here.server)
    taken = max((store / "taken" / "s1").iterdir())
    taken.chmod(0o600)
    taken.write_bytes(taken.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="of s1 is missing or was changed"):
        here.turn(here.server)


def test_a_site_answers_one_run_in_a_folder(world):
    here = world(*LDA)
    for side in here.sides[:2]:
        here.turn(side)
    shutil.rmtree(*here.server.keys.glob("run_*"))
    for way in here.server.shared.iterdir():
        shutil.rmtree(way)
    here.turn(here.server)
    with pytest.raises(ConfigError, match="holds another run than before"):
        here.turn(here.sites[0])


def test_a_site_of_images_may_lack_a_class(world, embedded, tmp_path):
    tree = write_images(tmp_path / "tree", per_class=8)
    shutil.rmtree(tree / "night" / "cross")
    (tree / "class_names.txt").write_text("circle\ncross\nsquare\n")
    settings = (
        *("data.type", "image_folder@ggeur", "federate.client_num", 2),
        *("data.splitter", "iid", "data.splitter_args", "[]"),
        *("ggeur.encoder.name", "hog", "ggeur.encoder.num_workers", 1),
        *("ggeur.encoder.cache", str(tmp_path / "cache"), "ggeur.embedding_dim", 1764),
    )
    wanted = embedded(*settings, "data.root", str(tree))
    here = world(*settings, sites=2)
    for number, (site, name) in enumerate(zip(here.sites, ("day", "night")), 1):
        root = site.folder / "data"
        shutil.copytree(tree / name, root / name)
        shutil.copy(tree / "class_names.txt", root)
        said = yaml.safe_load((site.folder / "side.yaml").read_text())
        said["data"]["root"] = "data"
        said["distribute"]["data_idx"] = -1
        said["ggeur"].update(domain=name, client_number=number)
        (site.folder / "side.yaml").write_text(yaml.safe_dump(said))
    here.run()
    check_as_embedded(here, wanted)
    assert "cross" in read_results(here.sites[1].left).class_names


@pytest.mark.slow
def test_rows_that_have_changed_since_the_run_began(world, embeddings_folder):
    here = world(*LDA)
    here.turns(2)
    (embeddings_folder / "art.npz").unlink()
    with pytest.raises(GGEURError):
        here.turn(here.sites[0])


@pytest.mark.parametrize("settings", [SUMS, CHARGED])
def test_what_does_not_go_by_folder_is_refused_by_name(settings, world):
    here = world("ggeur.closed_form", "lda", *settings)
    message = f"--folder cannot go with {settings[0][:17]}"
    with pytest.raises(ConfigError, match=message):
        here.turn(here.server)


@pytest.mark.slow
def test_a_site_that_is_put_out_by_one_line(world):
    here = world(*LDA, "ggeur.quorum", 2)
    here.turns(2)
    here.server.pin("s3 out from 3")
    here.go_on_without_the_last()
    here.run()
    assert read_results(here.server.left).round0.clients == [1, 2]


@pytest.mark.slow
def test_a_key_that_changes_from_a_number_on(world, embedded):
    here = world(*LDA)
    here.turns()
    site = here.sites[1]
    (site.keys / "identity.json").rename(site.folder / "lost")
    line = make_identity(site.keys, site.name).line
    site.compare()
    here.server.pin(f"{line} from 3")
    here.run()
    check_as_embedded(here, embedded(*LDA))


def test_beside_another_process_a_site_leaves_the_status_as_it_is(world):
    here = world(*LDA)
    site = here.sites[0]
    here.turn(here.server)
    here.turn(site)
    status = site.left / "status.json"
    status.write_text(said := '{"doing": "what the other process does"}')
    (store,) = site.keys.glob("run_*")
    with locked(store / "lock", "this run", unusable):
        before = set(threading.enumerate())
        assert "another process" in here.turn(site)
        assert set(threading.enumerate()) <= before  # nothing writes it later, either
    assert status.read_text() == said
