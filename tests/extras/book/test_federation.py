"""Clients join, leave, withdraw and are forgotten: the head is that of those there."""

import json
import os
import shutil
import signal
import sys
from signal import SIGINT

import numpy as np
import pytest
import torch
from books import CONFIG, DIM, NAMES, head_bits, new_book, rows_of

from federatedscope_ggeur.errors import ConfigError, DataError, StatisticsError
from federatedscope_ggeur.extras.book.federation import Federation
from federatedscope_ggeur.extras.book.folder import RunPlaces
from federatedscope_ggeur.extras.book.grid import Grid, GridStatistics
from federatedscope_ggeur.models import CLOSED_FORMS
from federatedscope_ggeur.reporting import read_results


def test_the_threshold_is_what_the_config_says(tmp_path):
    config = {"ggeur": {**CONFIG["ggeur"], "privacy": {"min_samples": 1}}}
    book = new_book(tmp_path / "a", config=config)
    assert book.min_samples == 1
    with pytest.raises(ConfigError, match=r"min_samples: is 5, but .* config is 1"):
        Federation.create(tmp_path / "d", NAMES, DIM, config, min_samples=5)
    book.join(1, *rows_of(1, each=1), "here")
    assert new_book(tmp_path / "c").min_samples == 5


def test_the_head_is_the_closed_form_of_the_rounded_rows(tmp_path):
    book = new_book(tmp_path / "a", (1, 2))
    parts = [rows_of(1), rows_of(2)]
    rows = torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])
    held = GridStatistics.of_rows(*rows, len(NAMES), Grid.of_steps([], DIM))
    form, total = CLOSED_FORMS["lda"](shrinkage=0.01), held.statistics()
    wanted, made = form.solve(total), book.head()
    temperature = form.temperature_of(wanted, total)
    wanted.model.cool(temperature)
    assert torch.equal(wanted.model(rows[0]), made.model(rows[0]))
    assert made.report["temperature"] == temperature != 1


def with_form(name, **settings):
    return {"ggeur": {"closed_form": name, **settings}, "seed": 3}


@pytest.mark.parametrize(
    ("config", "by"),
    [
        (with_form("lda"), "totals"),
        (with_form("ridge"), "totals"),
        (with_form("ncm"), None),
        (with_form("lda", temperature="none"), None),
    ],
)
def test_a_change_says_whether_its_head_has_a_temperature(tmp_path, config, by):
    book = new_book(tmp_path / "a", (1,), config)
    change = book.join(2, *rows_of(2), "here")
    assert read_results(change.folder).final.calibrated_by == by
    assert ("not calibrated" in "".join(change.said)) == (by is None)
    book.write_head(tmp_path / "part", [2])
    part = read_results(tmp_path / "part")
    assert part.final.calibrated_by == by
    assert ("not calibrated" in "".join(part.notes)) == (by is None)


def test_the_temperature_makes_new_rows_likelier(tmp_path):
    book = new_book(tmp_path / "a", (1, 2))
    rows, labels = rows_of(9, each=500)
    scores = book.head().model(rows)
    by = book.head().report["temperature"]
    losses = [
        torch.nn.functional.cross_entropy(s, labels) for s in (scores, scores * by)
    ]
    assert losses[0] < losses[1]


def test_books_from_before_temperatures_keep_their_heads(tmp_path):
    book = new_book(tmp_path / "a", (1,))
    about = {k: v for k, v in book._about.items() if k != "temperature"}
    with book._folder.opened():
        book._folder.change(book._state(book.links, about))
    book = Federation.load(book.path)
    book.join(2, *rows_of(2), "here")
    older = Federation.load(book.path)
    wanted = CLOSED_FORMS["lda"](shrinkage=0.01).solve(older.total().statistics())
    wanted = [p.detach().numpy().tobytes() for p in wanted.model.parameters()]
    assert head_bits(older) == wanted
    older.check_certificate(json.loads(json.dumps(older.certificate())))


def test_random_changes_leave_the_bits_of_those_who_stay(tmp_path):
    changes, clients = 60, 8
    rng, book = np.random.default_rng(changes), new_book(tmp_path / "a")
    held = {}
    for step in range(changes):
        k = int(rng.integers(1, clients + 1))
        if k not in held:
            held[k] = rows_of(1000 + step)
            book.join(k, *held[k], "here")
        elif rng.random() < 0.6:
            x, y = held[k]
            c = int(rng.choice(y.unique().numpy()))
            own = torch.nonzero(y == c).flatten()
            gone = own if len(own) < 10 or rng.random() < 0.3 else own[:5]
            stay = torch.ones(len(y), dtype=torch.bool)
            stay[gone] = False
            book.withdraw(k, x[gone], y[gone])
            held[k] = x[stay], y[stay]
            if not stay.any():
                del held[k]
        else:
            getattr(book, "leave" if rng.random() < 0.5 else "forget")(k)
            del held[k]
    assert book.clients == sorted(held)
    if not held:
        held = {1: rows_of(1)}
        book.join(1, *held[1], "here")
    fresh = new_book(tmp_path / "b")
    for k in sorted(held):
        fresh.join(k, *held[k], "here")
    assert fresh.total() == book.total()
    assert head_bits(fresh) == head_bits(book) == head_bits(Federation.load(book.path))


def test_new_classes_give_the_head_of_a_run_with_all_classes(tmp_path):
    book = new_book(tmp_path / "a", (1, 2), names=NAMES)
    book.add_classes(["dog"])
    late = rows_of(7, (1, 3))
    book.join(3, *late, "here")
    other = new_book(tmp_path / "b", (2,), names=[*NAMES, "dog"])
    other.join(3, *late, "here")
    other.join(1, *rows_of(1), "here")
    assert book.class_names == other.class_names
    assert head_bits(book) == head_bits(other)
    with pytest.raises(ConfigError, match="give each new class a name"):
        book.add_classes(["dog"])


def test_a_window_takes_out_what_came_before(tmp_path):
    book = new_book(tmp_path / "a", (1, 2))
    book.window(days=1)
    assert book.clients == [1, 2]
    book.window(days=0)
    assert book.clients == []
    assert book.join(2, *rows_of(2), "there").folder


def test_heads_of_parts_need_no_upload(tmp_path):
    book = new_book(tmp_path / "a", (1, 2, 3))
    alone = new_book(tmp_path / "b", (3, 1))
    assert head_bits(book, [3, 1]) == head_bits(alone) != head_bits(book)
    with pytest.raises(ConfigError, match="not in the book"):
        book.head([4])


def test_a_head_is_made_on_the_threads_of_the_run(tmp_path, monkeypatch):
    """Their number changes the rounding of decompositions, and so a certificate."""
    threads, form = [], CLOSED_FORMS["lda"]
    work_out = form.work_out

    def noted(self, seen):
        threads.append(torch.get_num_threads())
        return work_out(self, seen)

    monkeypatch.setattr(form, "work_out", noted)
    before = torch.get_num_threads()
    for own, number in (({}, 1), ({"num_threads": 2}, 2)):
        config = {"ggeur": {**CONFIG["ggeur"], **own}}
        new_book(tmp_path / str(number), (1, 2), config).head([1])
        assert set(threads) == {number}
        assert torch.get_num_threads() == before
        threads.clear()


def test_rules_of_joining(tmp_path):
    book = new_book(tmp_path / "a", (1,))
    small = rows_of(2, each=4)
    few = GridStatistics.of_rows(*small, len(NAMES), book.grid)
    other = GridStatistics.of_rows(*rows_of(2), len(NAMES), Grid((-20,) * DIM))
    for error, said, act, *given in (
        (ConfigError, "in the book already", book.join, 2, *rows_of(1), "here"),
        (ConfigError, "of domain here, not there", book.join, 1, *rows_of(5), "there"),
        (StatisticsError, "no class with at least 5 ", book.join, 2, *small, "here"),
        (StatisticsError, "fewer than 5 rows of a class", book.take, 2, few, "here"),
        (StatisticsError, "the grid or the classes", book.take, 2, other, "here"),
        (ConfigError, "client 9 is not in the book", book.leave, 9),
        (ConfigError, "never in the book", book.forget, 9),
        (ConfigError, "never in the book", book.receipt, 9),
        (ConfigError, "have numbers from 1", book.join, 0, *rows_of(5), "here"),
    ):
        with pytest.raises(error, match=said):
            act(*given)
    assert book.clients == [1]
    assert len(book.links) == 2


@pytest.mark.parametrize(
    ("going", "allowed"),
    [(4, False), (5, True), (7, True), (8, False), (11, False), (12, True)],
)
def test_rules_of_withdrawal(tmp_path, going, allowed):
    book, (x, y) = new_book(tmp_path / "a", (1, 2)), rows_of(1)
    before = head_bits(book)
    rows = x[y == 1][:going], y[y == 1][:going]
    if allowed:
        book.withdraw(1, *rows)
        assert int(book.total([1]).counts[1]) == 12 - going
    else:
        with pytest.raises(ConfigError, match="class 'bee'"):
            book.withdraw(1, *rows)
        assert head_bits(book) == before


def test_rows_that_were_never_sent_cannot_be_withdrawn(tmp_path):
    book = new_book(tmp_path / "a", (1, 2))
    x, y = rows_of(1)
    with pytest.raises(StatisticsError, match=r"no client can have sent|remove only"):
        book.withdraw(1, 30 * x[:6], y[:6])
    with pytest.raises(StatisticsError, match=r"'ant' would have -8 rows; remove only"):
        book.withdraw(1, *rows_of(3, each=20))


def test_a_withdrawal_says_that_sums_show_no_rows(tmp_path):
    """Others than the client's can be subtracted, too, where they look possible."""
    book, (x, y) = new_book(tmp_path / "a", (1, 2)), rows_of(1)
    said = "\n".join(book.withdraw(1, x[y == 1][:6] + 0.01, y[y == 1][:6]).said)
    assert "these rows were subtracted" in said
    assert "the book cannot check it" in said
    assert "forgotten" not in said
    assert "cannot be recalled" in said


def content(folder):
    """All bytes below a folder."""
    files = [p for p in folder.rglob("*") if p.is_file()]
    return b"".join(p.read_bytes() for p in files)


@pytest.mark.parametrize("leaves_first", [False, True])
def test_nothing_in_the_folder_tells_of_a_forgotten_client(tmp_path, leaves_first):
    book = new_book(tmp_path / "a", (1, 2, 3))
    number, entry = next(one for one in book._entries.items() if one[1].client == 2)
    secrets = [entry.salt.hex().encode(), entry.salt]
    secrets += [entry.statistics.sums[c].tobytes() for c in range(3)]
    secrets += [entry.statistics.high.tobytes(), entry.statistics.low.tobytes()]
    with_it = (book.total() - book.total([3])).sums, book.total().sums
    secrets += [sums[c].tobytes() for sums in with_it for c in range(3)]
    secrets += [head_bits(book, part)[0] for part in ([1, 2], [1, 2, 3])]
    before = content(book.path)
    assert sum(secret in before for secret in secrets) == len(secrets) - 7
    receipts = [book.receipt(k) for k in (1, 3)]
    if leaves_first:
        book.leave(2)
        assert secrets[-1] in content(book.path)
    said = "\n".join(book.forget(2).said)
    assert "cannot be recalled" in said
    assert "not calibrated" not in said
    assert book.domains == {1: "here", 3: "here"}
    after = content(book.path) + repr(receipts).encode()
    assert not any(secret in after for secret in secrets)
    assert book.links[number].commitment.encode() in after  # which nobody can test
    # What is left of runs: the head before client 2 came, and the heads without it.
    folders = sorted(p.name for p in (book.path / "runs").iterdir())
    assert folders[0] == "000001_join"
    assert folders[-1].endswith("forget")


def test_a_withdrawal_leaves_no_older_entry_or_head(tmp_path):
    book, (x, y) = new_book(tmp_path / "a", (1, 2)), rows_of(1)
    old = book.total([1]).sums[1].tobytes()
    assert old in content(book.path)
    book.withdraw(1, x[y == 1][:6], y[y == 1][:6])
    assert old not in content(book.path)
    assert [p.name for p in (book.path / "runs").iterdir()] == ["000003_withdraw"]


def run_of(book, path):
    """The folder of a run with the book, with a head in it."""
    path.mkdir()
    (path / "head.safetensors").write_bytes(b"made of statistics")
    book.begin_run(RunPlaces.of(path))
    return RunPlaces.of(path)


@pytest.mark.parametrize("dies_at", ["nowhere", "before", "after"])
def test_a_run_is_forgotten_under_its_new_name(tmp_path, monkeypatch, dies_at):
    """Also if the process dies beside the renaming of its folder."""
    book = new_book(tmp_path / "a", (1, 2))
    run, rename = run_of(book, tmp_path / "run.part"), os.rename

    def dying(old, new):
        if dies_at == "after":
            rename(old, new)
        raise KeyboardInterrupt

    if dies_at == "nowhere":
        book.rename_run(run, tmp_path / "run")
        assert not (tmp_path / "run.part").exists()
    else:
        monkeypatch.setattr(os, "rename", dying)
        with pytest.raises(KeyboardInterrupt):
            book.rename_run(run, tmp_path / "run")
        monkeypatch.undo()
    said = Federation.load(book.path).forget(2).said
    assert not list(tmp_path.glob("run*/*"))
    assert not any("left alone" in line for line in said)


def test_a_later_run_within_the_folder_of_the_first_is_not_called_left(tmp_path):
    book = new_book(tmp_path / "a", (1, 2))
    first = run_of(book, tmp_path / "run")
    for name in ("sub_exp_1", "mine"):
        run_of(book, tmp_path / "run" / name)
    (tmp_path / "run" / "of_others").mkdir()
    left = [line for line in book.forget(2).said if "left alone" in line]
    assert left == [f"left alone: {first.path}{os.sep}of_others"]
    assert not list(tmp_path.glob("run/**/head.safetensors"))


def test_no_run_begins_with_an_older_state_of_the_book(tmp_path):
    book = new_book(tmp_path / "a", (1, 2))
    Federation.load(book.path).leave(2)
    with pytest.raises(ConfigError, match="another process has changed"):
        run_of(book, tmp_path / "run")


def test_a_run_whose_client_was_forgotten_is_not_renamed(tmp_path):
    book = new_book(tmp_path / "a", (1, 2))
    run = run_of(book, tmp_path / "run.part")
    Federation.load(book.path).forget(2)
    (tmp_path / "run.part" / "head.safetensors").write_bytes(b"made of statistics")
    with pytest.raises(ConfigError, match="forgotten"):
        book.rename_run(run, tmp_path / "run")
    assert not list(tmp_path.glob("run*/*"))


def test_a_forgetting_that_dies_before_a_run_is_cleared_is_named(tmp_path, monkeypatch):
    book = new_book(tmp_path / "a", (1, 2))
    run_of(book, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(RunPlaces, "clear", lambda run: os.kill(os.getpid(), SIGINT))
        with pytest.raises(KeyboardInterrupt):
            book.forget(2)
    assert (tmp_path / "run" / "head.safetensors").exists()
    for act in (Federation.load, lambda path: book.leave(1)):
        with pytest.raises(ConfigError, match=r"interrupted.* --finish"):
            act(book.path)
    after, _ = Federation.finish(book.path)
    assert after.clients == [1]
    assert list((tmp_path / "run").iterdir()) == []
    # What lies there later is another run's.
    (tmp_path / "run").rmdir()
    run_of(after, tmp_path / "run")
    (book.path / "journal.json").write_text('{"files": [], "gone": []}')
    Federation.finish(book.path)
    assert (tmp_path / "run" / "head.safetensors").exists()


CHANGES = {
    "join": lambda book: book.join(4, *rows_of(4), "here"),
    "forget": lambda book: book.forget(2),
    "withdraw": lambda book: book.withdraw(1, *(part[:6] for part in rows_of(1))),
    "classes": lambda book: book.add_classes(["dog"]),
}


@pytest.mark.parametrize(
    ("change", "every"),
    [("forget", 7), *(pytest.param(c, 1, marks=pytest.mark.slow) for c in CHANGES)],
)
def test_a_kill_between_any_two_file_operations(tmp_path, change, every):
    """A child process that is killed at its n-th file operation."""
    wanted = new_book(tmp_path / "wanted", (1, 2))
    old = head_bits(wanted), wanted.clients, wanted.class_names
    CHANGES[change](wanted)
    new = head_bits(wanted), wanted.clients, wanted.class_names
    seen, finished = set(), False
    new_book(tmp_path / "before", (1, 2))
    for n in range(0, 200, every):
        shutil.copytree(tmp_path / "before", tmp_path / str(n))
        book = Federation.load(tmp_path / str(n))
        gone = book._entries[2 if change == "forget" else 1]
        child = os.fork()
        if not child:
            kill_at(n, str(book.path))
            CHANGES[change](book)
            os._exit(0)
        finished = os.waitpid(child, 0)[1] == 0
        before = content(book.path)
        if (book.path / "journal.json").exists():
            with pytest.raises(ConfigError, match=r"interrupted.* --finish"):
                Federation.load(book.path)
            with pytest.raises(ConfigError, match=r"interrupted.* --finish"):
                book.leave(1)
        else:
            assert Federation.load(book.path).clients in (old[1], new[1])
        assert content(book.path) == before
        after, _ = Federation.finish(book.path)
        state = head_bits(after), after.clients, after.class_names
        assert state in (old, new)
        if finished:
            assert state == new
            break
        seen.add(state == new)
        left = [p.name for p in book.path.iterdir()]
        assert "staged" not in left
        assert "journal.json" not in left
        if state == new and change in ("forget", "withdraw"):
            data = content(book.path)
            assert gone.salt.hex().encode() not in data
            assert gone.statistics.high.tobytes() not in data
    assert finished
    assert seen == {False, True}


def kill_at(n, folder):
    """From now on, kill this process at its n-th file operation within `folder`."""
    count = 0

    def hook(event, args):
        nonlocal count
        here = any(folder in str(part) for part in args)
        if here and event in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"):
            if count == n:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1

    sys.addaudithook(hook)


def test_a_folder_with_files_is_not_taken(tmp_path):
    (tmp_path / "mine").write_text("text")
    with pytest.raises(ConfigError, match="not empty"):
        new_book(tmp_path)
    with pytest.raises(ConfigError, match="holds no book"):
        Federation.load(tmp_path / "none")
    with pytest.raises(ConfigError, match="mixture"):
        new_book(tmp_path / "b", config={"ggeur": {"closed_form": "mixture"}})


def test_damage_is_named(tmp_path):
    book = new_book(tmp_path / "a", (1,))
    broken = {
        "book.json": lambda data: data[:40],
        "entries/000001.safetensors": lambda data: data[:-8] + bytes(8),
        "chain.json": lambda data: data.replace(b"join", b"leave"),
    }
    for name, change in broken.items():
        data = (book.path / name).read_bytes()
        (book.path / name).write_bytes(change(data))
        said = "damaged|cannot be read|signature|not the entry"
        with pytest.raises(DataError, match=said):
            Federation.load(book.path)
        (book.path / name).write_bytes(data)
    assert Federation.load(book.path).clients == [1]
