"""``ggeur inspect``: numbers against plainly written ones, and files."""

import csv
import io

import numpy as np
import pytest
from foreign_text import FORGED, hidden_in
from PIL import Image

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines.run import load_data_set, load_federated_data
from federatedscope_ggeur.extras.inspect.command import chance, similarities
from federatedscope_ggeur.extras.inspect.heatmaps import draw_heatmap


def lines(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def write_domains(folder, per_class, dim=24, names=("one", "two", "three")):
    """`.npz` of domains whose class c has five long directions, alike in all.

    `per_class`: for each domain, rows of each class.
    """
    folder.mkdir()
    for number, counts in enumerate(per_class):
        rng = np.random.default_rng(number)
        features, labels = [], []
        for c, n in enumerate(counts):
            drawn = np.random.default_rng([0, c]).normal(size=(dim, dim))
            basis, _ = np.linalg.qr(drawn)
            lengths = np.array([32, 16, 8, 4, 2, *[0.01] * (dim - 5)])
            features.append(rng.normal(size=(n, dim)) * lengths @ basis.T + 5 * c)
            labels += [c] * n
        features = np.concatenate(features).astype("float32")
        path = folder / f"{names[number]}.npz"
        np.savez(path, features=features, labels=np.array(labels))
    return ["data.type", "embeddings@ggeur", "data.root", str(folder)]


@pytest.fixture
def small(embeddings_folder):
    """Settings of three small domains with 12 classes."""
    return ["data.type", "embeddings@ggeur", "data.root", str(embeddings_folder)]


@pytest.fixture
def inspect(quickstart, small, tmp_path, ggeur):
    """What a call that ends with `status` prints; files go to the folder `out`."""

    def call(*words, out=tmp_path / "out", status=0):
        words = [*small, *words, "--out", out]
        return ggeur("inspect", "--cfg", quickstart, *words, status=status)

    return call


@pytest.mark.slow
def test_samples_are_those_the_clients_train_on(inspect, quickstart, small, tmp_path):
    words = ["federate.client_num", "9", "seed", "3"]
    printed = inspect(*words).out
    cfg = load_config(quickstart, [*small, *words])
    data = load_federated_data(cfg)
    model, *rows = lines(tmp_path / "out" / "samples.csv")
    assert model == ["client", "domain", "rows", *map(str, range(12))]
    for client, row in zip(data.clients, rows):
        held = [(client.train.labels == c).sum().item() for c in range(12)]
        expected = [client.number, client.domain, len(client.train), *held]
        assert row == list(map(str, expected))
        share = f"{sum(n > 0 for n in held)} of 12"
        words = f"{client.number} {client.domain} {len(client.train)} {share}"
        assert words in " ".join(printed.split())
    assert len(rows) == 9


@pytest.mark.slow
def test_a_domain_may_be_called_anything(inspect, tmp_path):
    counts = [(40, 40), (40, 40), (40, 40)]
    names = ("plain", f"=x\n{FORGED}\x1b[2J", "\u202e..\udce9")
    harmless = write_domains(tmp_path / "harmless", counts)
    data = write_domains(tmp_path / "data", counts, names=names)
    evenly = ["data.splitter", "iid", "data.splitter_args", "[]"]
    before = inspect(*harmless, *evenly, out=tmp_path / "before").out
    printed = inspect(*data, *evenly).out
    assert len(printed.splitlines()) == len(before.splitlines())
    assert not hidden_in(printed)
    files = [path.name for path in (tmp_path / "out").iterdir()]
    assert len(files) == len(list((tmp_path / "before").iterdir()))
    assert not hidden_in("".join(files))
    for table in ("samples.csv", "similarity.csv"):
        cells = [cell for row in lines(tmp_path / "out" / table) for cell in row]
        assert not [cell for cell in cells if cell.startswith("=")]
        assert not hidden_in("".join(cells))


@pytest.mark.slow
def test_classes_that_nobody_holds_and_withheld_pairs_are_said(inspect, tmp_path):
    data = write_domains(tmp_path / "data", [(5, 40), (5, 40)])
    words = [*data, "federate.client_num", "2", "data.splitter", "iid"]
    (tmp_path / "data" / "class_names.txt").write_text("few\nmany\nabsent\n")
    printed = inspect(*words, "data.splitter_args", "[]").out
    assert "classes that no client holds: absent\n" in printed
    assert "ggeur.privacy.min_samples 5 withholds 2 of 4 (client, class) " in printed
    plain = ["data.splitter_args", "[]", "ggeur.steps", "[]"]
    printed = inspect(*words, *plain, out=tmp_path / "plain").out
    assert "uploaded" not in printed


def test_similarities_are_those_of_equation_3(quickstart, tmp_path):
    words = write_domains(tmp_path / "data", [(40, 50, 60)] * 3)
    dataset = load_data_set(load_config(quickstart, words))

    def directions(rows, c):
        x = rows.features[rows.labels == c].double().numpy()
        sigma = np.cov(x.T, bias=True)
        values, vectors = np.linalg.eigh(sigma)
        return vectors[:, np.argsort(values)[::-1][:5]]

    found = similarities(dataset, "two")
    domains = {domain.name: domain.train for domain in dataset.domains}
    assert [pair.second for pair in found] == ["one", "three"]
    for pair in found:
        assert pair.first == "two"
        for i, j in np.ndindex(3, 3):
            a, b = directions(domains["two"], i), directions(domains[pair.second], j)
            expected = sum(abs(a[:, m] @ b[:, m]) for m in range(5))
            assert pair.values[i, j] == pytest.approx(expected, abs=1e-5)
        same, other = pair.averages()
        assert same == pytest.approx(np.diagonal(pair.values).mean())
        rest = pair.values[~np.eye(3, dtype=bool)]
        assert other == pytest.approx(rest.mean())


def test_random_directions_are_as_alike_as_chance_says():
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(50):
        a, b = (np.linalg.qr(rng.normal(size=(60, 5)))[0] for _ in range(2))
        draws.append(np.abs((a * b).sum(axis=0)).sum())
    assert chance(60) == pytest.approx(np.mean(draws), rel=0.1)


@pytest.mark.slow
def test_a_class_without_five_directions_is_left_out_and_said(inspect, tmp_path):
    data = write_domains(tmp_path / "data", [(60, 7, 60), (60, 60, 60)])
    printed = inspect(*data, "federate.client_num", "2").out
    said = "left out, because they have fewer than 5 directions in one of the two: 1\n"
    assert said in printed
    pairs = {(row[1], row[3]) for row in lines(tmp_path / "out" / "similarity.csv")[1:]}
    assert pairs == {(a, b) for a in "02" for b in "012"}


def test_all_classes_may_be_left_out(inspect, tmp_path):
    data = write_domains(tmp_path / "data", [(5, 5), (60, 60)])
    printed = inspect(*data, "federate.client_num", "2").out
    assert "one and two: same class -, other classes -" in printed
    assert (tmp_path / "out" / "similarity_1_two.png").is_file()


def test_one_domain_has_nothing_to_compare(inspect, tmp_path):
    data = write_domains(tmp_path / "data", [(40, 40)])
    printed = inspect(*data).out
    assert "there is only one domain, so no shapes are compared" in printed
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["samples.csv", "samples.png"]


@pytest.mark.slow
def test_many_clients_are_summed_up_by_domain(inspect, tmp_path):
    data = write_domains(tmp_path / "data", [(400, 40, 9), (300, 200, 30)])
    few = ["data.splitter", "lds", "data.splitter_args", "[{'alpha': 0.05}]"]
    printed = inspect(*data, "federate.client_num", "60", *few).out
    rows = lines(tmp_path / "out" / "samples.csv")[1:]
    assert len(rows) == 60, "the file has a line for each"
    held = np.array([row[3:] for row in rows]).astype(int)
    domains = np.array([row[1] for row in rows])
    found = [line.split() for line in printed.splitlines()]
    for name, mine in (
        ("one", domains == "one"),
        ("two", domains == "two"),
        ("all", domains != ""),
    ):
        totals, classes = held[mine].sum(1), (held[mine] > 0).sum(1)
        expected = [mine.sum(), totals.min(), np.median(totals), totals.max(),
                    classes.min(), np.median(classes), classes.max(),
                    (totals == 0).sum()]  # fmt: skip
        assert [name, *(f"{value:g}" for value in expected)] in found
    empty = [row[0] for row in rows if row[2] == "0"]
    assert len(empty) > 12
    assert f"clients without rows: {', '.join(empty[:12])} and" in printed
    assert "a line for each client: samples.csv" in printed
    assert len(printed.splitlines()) < 15
    assert not (tmp_path / "out" / "samples.png").exists()


@pytest.mark.slow
def test_pictures_have_the_formats_that_are_asked_for(inspect, tmp_path):
    data = write_domains(tmp_path / "data", [(20, 20)] * 2)
    printed = inspect(*data, "--format", "svg,pdf").out
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [
        "samples.csv", "samples.pdf", "samples.svg", "similarity.csv",
        "similarity_1_two.pdf", "similarity_1_two.svg",
    ]  # fmt: skip
    assert all(str(tmp_path / "out" / name) in printed for name in names)
    inspect(*data, "--format", "svg,gif", out=tmp_path / "no", status=1)
    assert not (tmp_path / "no").exists()


@pytest.mark.slow
def test_nothing_is_overwritten(inspect, tmp_path, quickstart, monkeypatch):
    data = write_domains(tmp_path / "data", [(20, 20)])
    inspect(*data)
    before = {path: path.stat() for path in (tmp_path / "out").iterdir()}
    printed, error = inspect(*data, status=1)
    assert "already holds" in error
    assert "samples.csv" in error
    assert not printed
    assert {path: path.stat() for path in (tmp_path / "out").iterdir()} == before
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["inspect", "--cfg", str(quickstart), *data]) == 0
    assert len(list((tmp_path / "exp").rglob("samples.csv"))) == 2


def test_wrong_calls_are_named(inspect, tmp_path, capsys):
    error = inspect("--reference", "nowhere", status=1).err
    assert "--reference: there is no domain 'nowhere'" in error
    assert "art, photo, sketch" in error
    (tmp_path / "taken").write_text("")
    error = inspect(out=tmp_path / "taken", status=1).err
    assert "cannot make the folder" in error
    with pytest.raises(SystemExit):
        main(["inspect"])
    assert "--cfg" in capsys.readouterr().err


# The pictures, read off their pixels.


TITLES = {
    "title": "rows",
    "row_title": "client",
    "column_title": "class",
    "scale_title": "rows",
}


def drawn_matrix(path, values, rows=None, columns=None, **settings):
    """The picture's grey values."""
    rows = rows or [f"{i} a domain" for i in range(values.shape[0])]
    columns = columns or [f"class {i}" for i in range(values.shape[1])]
    draw_heatmap(path, values, rows, columns, **{**TITLES, **settings})
    return np.asarray(Image.open(io.BytesIO(path.read_bytes())).convert("L"))


def edges(pixels):
    """The darkest grey along the picture's edges."""
    return min(
        edge.min() for edge in (pixels[:3], pixels[-3:], pixels[:, :3], pixels[:, -3:])
    )


def counts(rows, columns):
    return np.random.default_rng(0).poisson(2, (rows, columns))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 1), (4, 10), (60, 3)])
def test_nothing_is_cut_off(tmp_path, shape):
    pixels = drawn_matrix(tmp_path / "a.png", counts(*shape))
    assert edges(pixels) == 255
    assert pixels.min() < 100


@pytest.mark.slow
def test_a_large_matrix_has_room_for_every_label(tmp_path):
    """A line of text takes 14 pixels."""
    long = [f"a rather long name of number {i}" for i in range(100)]
    pixels = drawn_matrix(tmp_path / "a.png", counts(35, 100), long[:35], long)
    assert edges(pixels) == 255
    lines = np.flatnonzero((pixels < 128).mean(axis=1) > 0.7)
    assert lines[-1] - lines[0] > 14 * 35
    assert (pixels[lines[0]] < 128).sum() > 14 * 100


@pytest.mark.parametrize(
    "values",
    [np.zeros((2, 3), dtype=int), np.full((2, 2), np.nan), np.zeros((2, 2))],
    ids=["nobody holds any", "nothing known", "all zero"],
)
def test_empty_matrices_are_drawn(tmp_path, values):
    assert drawn_matrix(tmp_path / "a.png", values).min() < 100


@pytest.mark.slow
def test_unknown_and_absent_cells_are_white(tmp_path):
    values = np.array([[np.nan, 5.0], [5.0, np.nan]])
    pixels = drawn_matrix(tmp_path / "a.png", values, largest=5.0)
    white = np.mean(pixels == 255)
    full = drawn_matrix(tmp_path / "a.png", np.full((2, 2), 5.0))
    assert np.mean(full == 255) < white - 0.2
    values = np.array([[0, 5], [5, 0]])
    assert np.mean(drawn_matrix(tmp_path / "a.png", values) == 255) > white - 0.05
