"""The commands of a federation's book, from a run to a certificate."""

import numpy as np
import pytest
from safetensors.torch import load_file

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.extras.book.federation import Federation
from federatedscope_ggeur.reporting import read_results


@pytest.fixture
def book(tmp_path, quickstart, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = ["ggeur.closed_form", "lda", "ggeur.book", "book"]
    assert main(["--cfg", str(quickstart), *settings, "outdir", "exp"]) == 0
    return "book"


@pytest.mark.slow
def test_a_life_of_a_book(book, tmp_path, capsys):
    assert main(["certificate", book, "--out", "receipt.json", "--receipt", "2"]) == 0
    assert main(["update", book, "--forget", "2"]) == 0
    told = capsys.readouterr().out
    assert "clients in the book: 1, 3, 4" in told
    assert "cannot be recalled" in told
    assert main(["update", book, "--join", "2"]) == 0
    folder = capsys.readouterr().out.split("run folder: ")[1].strip()
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, Federation.load(book).grid.dim))
    np.savez("rows.npz", features=rows, labels=np.arange(40) % 10)
    assert main(["predict", "--run", folder, "rows.npz"]) == 0
    assert main(["worth", book, "--rows", "rows.npz"]) == 0
    assert capsys.readouterr().out.count("\n") >= 5
    assert main(["head", book, "--clients", "1,4", "--out", "part"]) == 0
    assert main(["predict", "--run", "part", "rows.npz"]) == 0
    assert main(["certificate", book, "--out", "certificate.json"]) == 0
    words = ["verify", "certificate.json", "--book", book, "--receipt", "receipt.json"]
    capsys.readouterr()
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "to the bit" in told
    assert "client 2 is in the book (links [6])" in told
    assert main(["update", book, "--forget", "1"]) == 0
    assert (tmp_path / "part" / "head.safetensors").exists()  # as forgetting says
    assert "`ggeur head` wrote" in capsys.readouterr().out
    (tmp_path / "new.txt").write_text("ten\n")
    assert main(["update", book, "--classes", "new.txt"]) == 0
    assert main(["update", book, "--window", "1y"]) == 0
    assert Federation.load(book).class_names[-1] == "ten"


@pytest.mark.slow
def test_nothing_of_a_forgotten_client_is_left_in_any_file(
    tmp_path, quickstart, monkeypatch
):
    """Below the run's folder, the book and the checkpoints: neither the bytes of heads
    and statistics, nor the client's domain and score."""
    monkeypatch.chdir(tmp_path)
    settings = ["ggeur.closed_form", "lda", "ggeur.book", "book", "outdir", "exp"]
    settings += ["federate.save_to", "kept/run", "ggeur.tensorboard", "True"]
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


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["update", "none", "--leave", "1"], 1, "'none' holds no book"),
        (["update", "none", "--withdraw", "1"], 2, "--withdraw needs --rows"),
        (["update", "none", "--leave", "1", "--rows", "x"], 2, "--rows is for"),
        (["update", "none"], 2, "required"),
        (["verify", "none.json"], 1, "cannot be read"),
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
def test_what_a_book_cannot_hold_is_refused(settings, told, quickstart, capsys):
    words = ["--cfg", str(quickstart), "ggeur.book", "book", *map(str, settings)]
    assert main(words) == 1
    assert told in capsys.readouterr().err
