"""New runs with the clients of a book: trained heads."""

from dataclasses import replace

import pytest
from safetensors.torch import load, load_file

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.engines.run import Run, load_federated_data
from federatedscope_ggeur.extras.book.federation import Federation
from federatedscope_ggeur.federation.merge import Merge

FOUR = ["federate.client_num", 4, "ggeur.privacy.min_samples", 2]
#: Three clients, each with a domain of its own; and the same without the last one.
DOMAINS = [
    "data.splitter", "iid", "data.splitter_args", "[]", "federate.client_num", 3,
    "ggeur.privacy.min_samples", 2,
]  # fmt: skip
BOOK = ["ggeur.closed_form", "lda", "ggeur.book", "book"]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def begin(config, *settings):
    """A book that a run has filled."""
    Run(config(*settings, *BOOK)).follow(lambda record: None)
    return Federation.load("book")


def trained(tmp_path):
    """The head and the folder of the one run that was trained."""
    (path,) = tmp_path.glob("exp/**/head.safetensors")
    return load_file(path), path.parent


def head_of(run):
    run.follow(lambda record: None)
    return load(run.history.head_bytes())


def assert_equal(found, wanted):
    assert found.keys() == wanted.keys()
    assert all(found[name].equal(wanted[name]) for name in wanted)


@pytest.mark.slow
def test_a_retrained_head_is_that_of_a_run_without_the_client(config, tmp_path):
    begin(config, *FOUR)
    assert main(["update", "book", "--retrain"]) == 0
    old, folder = trained(tmp_path)
    assert main(["update", "book", "--forget", "2"]) == 0
    assert not {"head.safetensors", "results.json"} & {p.name for p in folder.iterdir()}
    assert main(["update", "book", "--retrain"]) == 0
    cfg = config(*FOUR)
    data = load_federated_data(cfg)
    others = [client for client in data.clients if client.number != 2]
    wanted = head_of(Run(cfg, replace(data, clients=others)))
    assert_equal(trained(tmp_path)[0], wanted)
    assert not old["classifier.weight"].equal(wanted["classifier.weight"])


@pytest.mark.slow
def test_training_goes_on_from_a_new_head_in_closed_form(config, tmp_path):
    begin(config, *DOMAINS)
    start = ["ggeur.closed_form", "lda", "ggeur.init", "closed_form"]
    assert main(["update", "book", "--retrain", *start]) == 0
    assert_equal(trained(tmp_path)[0], head_of(Run(config(*DOMAINS, *start))))


def test_whom_the_merge_leaves_out_is_in_neither_head_nor_book(config, monkeypatch):
    add = Merge.add
    monkeypatch.setattr(Merge, "add", lambda m, up: up.client == 2 or add(m, up))
    found = head_of(Run(config(*FOUR, *BOOK)))
    book = Federation.load("book")
    assert book.clients == [1, 3, 4]
    assert_equal(found, dict(book.head().model.named_parameters()))
    data = load_federated_data(config(*FOUR))
    others = [client for client in data.clients if client.number != 2]
    cfg = config(*FOUR, *BOOK[:-1], "without")
    assert_equal(found, head_of(Run(cfg, replace(data, clients=others))))


def test_rows_that_are_not_those_in_the_book_are_refused(config, ggeur):
    book = begin(config, *FOUR)
    (client, *_) = load_federated_data(config(*FOUR)).clients
    x, y = client.train.features, client.train.labels
    c = int(y.bincount().argmax())
    book.withdraw(1, x[y == c], y[y == c])
    said = ggeur("update", "book", "--retrain", status=1).err
    assert "not the rows in the book of client 1" in said


@pytest.mark.parametrize("key", ["federate.save_to", "federate.restore_from"])
def test_no_checkpoint_lies_where_forgetting_does_not_look(config, ggeur, key):
    begin(config, *FOUR)
    said = ggeur("update", "book", "--retrain", key, "elsewhere", status=1).err
    assert "writes its checkpoints into its own folder" in said


@pytest.mark.slow
@pytest.mark.parametrize("when", ["create", "note_run", "begin_run"])
def test_who_is_forgotten_while_a_run_goes_on_leaves_no_head(
    config, tmp_path, ggeur, monkeypatch, when
):
    """In the run that begins the book, and in one that is trained later."""
    words = ["--cfg", "run.yaml"]
    (tmp_path / "run.yaml").write_text(config(*FOUR, *BOOK).dump())
    if when == "begin_run":
        begin(config, *FOUR)
        words = ["update", "book", "--retrain"]
    step = getattr(Federation, when)

    def and_forget(*args, **kwargs):
        made = step(*args, **kwargs)
        Federation.load("book").forget(2)
        return made

    monkeypatch.setattr(Federation, when, and_forget)
    assert "was forgotten or has withdrawn rows while" in ggeur(*words, status=1).err
    assert not list(tmp_path.glob("exp/**/head.safetensors"))
    assert not list(tmp_path.glob("exp/**/results.json"))
