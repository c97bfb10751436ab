"""What a certificate proves, and which lies it finds."""

import copy
import json

import numpy as np
import pytest
from books import CONFIG, head_bits, new_book, rows_of
from safetensors.torch import load_file
from study_on_disk import StudyOnDisk

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.extras.book.chain import signed
from federatedscope_ggeur.extras.book.federation import Federation
from federatedscope_ggeur.extras.book.runs import NOT_PROVEN, verify
from federatedscope_ggeur.extras.studies.jobs import Runner
from federatedscope_ggeur.extras.studies.running import StudyRun
from federatedscope_ggeur.extras.studies.study_file import load_study
from federatedscope_ggeur.reporting import read_results


@pytest.fixture
def book(tmp_path):
    return new_book(tmp_path / "book", (1, 2))


def plain(value):
    return json.loads(json.dumps(value))


def test_what_is_proven(book):
    receipts = {k: plain(book.receipt(k)) for k in (1, 2)}
    certificate = plain(book.certificate())
    said = verify(certificate)
    assert said[-2:] == [
        "nothing else was checked: give --book or --receipt",
        NOT_PROVEN,
    ]
    said = verify(certificate, book, receipts[1])
    assert "the head equals, to the bit, the head of the 2 entries in the book" in said
    assert "client 1 is in the book (links [1])" in said
    book.forget(1)
    said = verify(plain(book.certificate()), book, receipts[1])
    assert "client 1 is not in the book any more" in said
    assert "client 2 is in the book (links [2])" in verify(
        plain(book.certificate()), None, receipts[2]
    )
    with pytest.raises(DataError, match="the book has changed since"):
        verify(certificate, book)


def test_a_receipt_of_a_client_that_never_was_is_told_from_one_that_left(book):
    """An older release made such receipts."""
    rest = {k: v for k, v in plain(book.receipt(2)).items() if k != "signature"}
    rest.pop("public_key")
    receipt = signed({**rest, "client": 99}, book._key)
    said = verify(plain(book.certificate()), None, receipt)
    assert "client 99 is in no entry of the book, ever" in said


def test_lies_are_found(book, tmp_path):
    receipt, certificate = plain(book.receipt(2)), plain(book.certificate())
    other = new_book(tmp_path / "other", (1, 2))
    for value in (certificate, receipt):
        forged = {**value, "kind": "something else"}
        with pytest.raises(DataError, match="the signature is wrong"):
            verify(forged) if value is certificate else verify(
                certificate, None, forged
            )
    with pytest.raises(DataError, match="another book"):
        verify(certificate, None, plain(other.receipt(2)))
    with pytest.raises(DataError, match="another book"):
        verify(certificate, other)


def test_a_server_that_rewrites_its_chain_is_found_out(book):
    receipt, certificate = plain(book.receipt(2)), plain(book.certificate())
    rest = {k: certificate[k] for k in certificate.keys() - {"signature", "public_key"}}

    def lie(**changed):  # the server signs its lie itself
        return signed({**rest, **changed}, book._key)

    for number, said in (
        (2, "chain was rewritten after the receipt"),
        (1, "link 2 does not follow"),
    ):
        links = copy.deepcopy(rest["links"])
        links[number]["when"] = "2001-01-01T00:00:00+00:00"
        with pytest.raises(DataError, match=said):
            verify(lie(links=links), None, receipt)
    with pytest.raises(DataError, match="head was not made from"):
        verify(lie(head_sha256="0" * 64), book)


@pytest.mark.parametrize("of", ["certificate", "receipt"])
def test_every_field_has_its_type(book, of):
    """Also where the book's own key signs what is wrong."""
    right = {"certificate": book.certificate(), "receipt": book.receipt(2)}
    rest = {k: v for k, v in plain(right[of]).items() if k != "signature"}
    assert len(rest) > 4
    for name in rest:
        for value in (None, "1", 1.0, True, -1, [], {}, [3], ["x"], [{}]):
            if value == rest[name] or name == "public_key" or value == {}:
                continue
            if type(value) is type(rest[name]) and of == "receipt" and value != -1:
                continue
            forged = {of: signed({**rest, name: value}, book._key)}
            with pytest.raises(DataError):
                verify(**{**right, **forged}, book=book)
    for name in rest.keys() - {"public_key"}:
        less = {k: v for k, v in rest.items() if k != name}
        with pytest.raises(DataError, match="missing or unknown"):
            verify(**{**right, of: signed(less, book._key)})


def test_rows_that_join_again_under_another_number_are_not_noticed(book):
    """The certificate says that it cannot show this."""
    receipt, before = book.receipt(2), head_bits(book)
    book.forget(2)
    book.join(9, *rows_of(2), "there")
    assert head_bits(book) == before
    said = verify(plain(book.certificate()), book, plain(receipt))
    assert "client 2 is not in the book any more" in said
    assert "under another client's number" in said[-1]


# The commands of a federation's book, from a run to a certificate.


@pytest.mark.slow
def test_a_life_of_a_book(tmp_path, quickstart, monkeypatch, ggeur):
    monkeypatch.chdir(tmp_path)
    settings = ["ggeur.closed_form", "lda", "ggeur.book", "book"]
    assert main(["--cfg", str(quickstart), *settings, "outdir", "exp"]) == 0
    receipt = ["--receipt", "2", "--out", "receipt.json"]
    assert main(["certificate", "book", *receipt]) == 0
    told = ggeur("update", "book", "--forget", "2").out
    assert "clients in the book: 1, 3, 4" in told
    assert "cannot be recalled" in told
    told = ggeur("update", "book", "--join", "2").out
    folder = told.split("run folder: ")[1].strip()
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, Federation.load("book").grid.dim))
    np.savez("rows.npz", features=rows, labels=np.arange(40) % 10)
    assert main(["predict", "--run", folder, "rows.npz"]) == 0
    assert main(["head", "book", "--clients", "1,4", "--out", "part"]) == 0
    assert main(["predict", "--run", "part", "rows.npz"]) == 0
    ggeur("certificate", "book", "--out", "certificate.json")
    checks = ["--book", "book", "--receipt", "receipt.json"]
    told = ggeur("verify", "certificate.json", *checks).out
    assert "to the bit" in told
    assert "client 2 is in the book (links [6])" in told
    told = ggeur("update", "book", "--forget", "1").out
    assert (tmp_path / "part" / "head.safetensors").exists()  # as forgetting says
    assert "`ggeur head` wrote" in told
    (tmp_path / "new.txt").write_text("ten\n")
    assert main(["update", "book", "--classes", "new.txt"]) == 0
    assert main(["update", "book", "--window", "1y"]) == 0
    assert Federation.load("book").class_names[-1] == "ten"


@pytest.mark.slow
def test_nothing_of_a_forgotten_client_is_left_in_any_file(
    tmp_path, quickstart, monkeypatch
):
    """Below the run's folder, the book and the checkpoints: neither the bytes of heads
    and statistics, nor the client's domain and score."""
    monkeypatch.chdir(tmp_path)
    settings = ["ggeur.closed_form", "lda", "ggeur.book", "book", "outdir", "exp"]
    settings += ["federate.save_to", "kept/run"]
    assert main(["--cfg", str(quickstart), *settings]) == 0
    (run,) = tmp_path.glob("exp/*")
    assert main(["report", str(run)]) == 0
    results, head = read_results(run), load_file(run / "head.safetensors")
    book = Federation.load("book")
    (entry,) = (e for e in book._entries.values() if e.client == 2)
    tensors = [t.numpy() for t in head.values()] + list(
        entry.statistics.arrays().values()
    )
    secrets = [array.tobytes() for array in tensors if array.size > 100]
    secrets += [entry.salt.hex().encode(), entry.domain.encode()]
    secrets += [f"{100 * results.final.accuracy[entry.domain]:.2f}".encode()]
    folders = [tmp_path / name for name in ("exp", "book", "kept")]

    def found() -> list[bool]:
        files = [p for folder in folders for p in folder.rglob("*") if p.is_file()]
        data = b"".join(path.read_bytes() for path in files)
        return [secret in data for secret in secrets]

    assert all(found())
    assert main(["update", "book", "--forget", "2"]) == 0
    assert not any(found())
    assert [path.name for path in run.iterdir()] == ["config.yaml"]


def test_a_file_whose_rows_are_too_large_for_the_book_is_named(tmp_path, ggeur):
    new_book(tmp_path / "book", (1,))
    rows, labels = rows_of(2)
    np.savez(tmp_path / "huge.npz", features=1e4 * rows, labels=labels)
    file = str(tmp_path / "huge.npz")
    own = ("--rows", file, "--labels", "positions")
    said = ggeur("update", str(tmp_path / "book"), "--join", "2", *own, status=1).err
    assert f"'{file}': a row has" in said
    assert "those of an existing book are fixed" in said


def test_where_sites_hold_the_rows_a_client_joins_by_a_file(tmp_path, ggeur):
    """The book of a server of real sites."""
    run = {"federate": {"mode": "distributed"}, "data": {"splitter": ""}}
    book = new_book(tmp_path / "book", (1,), {**CONFIG, **run})
    for change in (("--join", "2"), ("--retrain",)):
        said = ggeur("update", str(book.path), *change, status=1).err
        assert "give its rows by --rows FILE" in said


def test_a_client_joins_by_a_file_of_rows_and_says_how_its_labels_are_read(tmp_path):
    names, (rows, labels) = ["1", "2", "0"], rows_of(1)
    by_hand = new_book(tmp_path / "book", names=names)
    by_hand.join(1, rows, labels, "here", how="positions")
    new_book(tmp_path / "other", names=names)
    np.savez(tmp_path / "rows.npz", features=rows, labels=labels)
    words = ["update", "other", "--join", "1", "--rows", "rows.npz"]
    words = [str(tmp_path / w) if w in ("other", "rows.npz") else w for w in words]
    assert main([*words, "--domain", "here"]) == 1  # two ways, and they differ
    assert main([*words, "--domain", "here", "--labels", "positions"]) == 0
    assert head_bits(Federation.load(tmp_path / "other")) == head_bits(by_hand)


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["update", "none", "--leave", "1"], 1, "'none' holds no book"),
        (["update", "none", "--withdraw", "1"], 2, "--withdraw needs --rows"),
        (["update", "none", "--leave", "1", "--rows", "x"], 2, "--rows is for"),
        (["update", "none"], 2, "required"),
        (["update", "none", "--window", "0d"], 2, "--window: '0d' is no time span"),
        (["update", "none", "--window", "9999y"], 2, "is no time span"),
        (["verify", "none.json"], 1, "'none.json' cannot be read: No such file or"),
        (["head", "none", "--clients", "a", "--out", "x"], 2, "write e.g. 1,4,5"),
    ],
)
def test_wrong_usage(words, status, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        found = main(words)
    except SystemExit as stop:
        found = stop.code
    assert found == status
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["ggeur.closed_form", "none"], "ggeur.closed_form: must be"),
        (["ggeur.closed_form", "mixture"], "ggeur.closed_form: must be"),
        (["ggeur.closed_form", "lda", "ggeur.init", "closed_form"], "ggeur.init"),
        (["ggeur.closed_form", "lda", "ggeur.book_steps", [0.1]], "powers of two"),
        (
            ["ggeur.closed_form", "lda", "ggeur.privacy.secure_sums", "statistics"],
            "secure_sums",
        ),
    ],
)
def test_what_a_book_cannot_hold_is_refused(settings, told, quickstart, ggeur):
    words = ["--cfg", str(quickstart), "ggeur.book", "book", *map(str, settings)]
    assert told in ggeur(*words, status=1).err


def test_a_folder_in_use_is_refused_before_the_run_has_one(
    tmp_path, quickstart, monkeypatch, ggeur
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "mine").write_text("text")
    settings = ["ggeur.closed_form", "lda", "outdir", "exp", "ggeur.book"]
    for folder, told in (("book", "is not empty"), ("book/mine", "is not a folder")):
        said = ggeur("--cfg", str(quickstart), *settings, folder, status=1).err
        assert f"'{folder}' {told}; name a new folder for the book" in said
    assert not (tmp_path / "exp").exists()


# A study whose runs write a book.


def test_a_book_in_a_study_forgets_in_the_finished_folder(tmp_path, monkeypatch):
    """The run was in another folder before it was finished."""
    book = {"ggeur.closed_form": "lda", "ggeur.book": "book"}
    study = StudyOnDisk(tmp_path, settings=book, axes={}, seeds=[0])
    monkeypatch.chdir(study.out.parent)
    (job,) = StudyRun(load_study(study.file), study.out).jobs()
    Runner().do(job, lambda *told: None)
    assert (study.out / "seed_0" / "head.safetensors").exists()
    said = Federation.load("book").forget(2).said
    left = {path.name for path in study.out.rglob("*")}
    assert left == {"seed_0", "config.yaml", "cell.json"}
    assert not any("left alone" in line for line in said)
