"""`data.transform`: against plain numpy, and runs on rows transformed beforehand."""

import numpy as np
import pytest
import torch
from safetensors import safe_open

from federatedscope_ggeur.cfg_ggeur.load import idle_notes, load_config
from federatedscope_ggeur.data import transform_rows
from federatedscope_ggeur.engines.run import (
    Run,
    load_data_set,
    load_federated_data,
    run,
)
from federatedscope_ggeur.errors import ConfigError, DataError, MessageError
from federatedscope_ggeur.federation.course.membership import Agreement
from federatedscope_ggeur.federation.wire.handshake import Handshake
from federatedscope_ggeur.models import to_vector
from federatedscope_ggeur.rng import torch_generator

CLASSES, DIM = 3, 6


def plain(rows, transform):
    """Row by row."""
    found = []
    lift = torch_generator(0, "lift", np.shape(rows)[1])
    lift = torch.randn(np.shape(rows)[1], 500, dtype=torch.float64, generator=lift)
    for row in np.asarray(rows, dtype=np.float64):
        if transform == "lift":
            added = row @ lift.numpy() / len(row) ** 0.5
            found.append(np.concatenate([row, np.maximum(added, 0)]))
            continue
        if transform == "sqrt_l2":
            row = np.array([np.sign(x) * abs(x) ** 0.5 for x in row])
        length = np.sqrt((row**2).sum()) if transform != "none" else 1.0
        found.append(row / length if length > 0 else row)
    return np.array(found, dtype=np.float32)


def draw(n, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % CLASSES
    rows = rng.poisson(1.0 + 3 * np.eye(CLASSES, DIM)[labels]).astype(np.float32)
    return rows, labels


@pytest.mark.parametrize("transform", ["none", "l2", "sqrt_l2", "lift"])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_rows_are_as_the_words_say(transform, scale):
    rows = np.random.default_rng(1).normal(size=(50, DIM)).astype(np.float32) * scale
    rows[7] = 0
    found = transform_rows(torch.from_numpy(rows), transform)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, plain(rows, transform), rtol=1e-6)


@pytest.fixture
def folder(tmp_path):
    """Embeddings that are counts, in two domains."""

    def write(name, change=lambda rows: rows):
        place = tmp_path / name
        place.mkdir()
        for seed, domain in enumerate(("art", "photo")):
            rows, labels = draw(60, seed)
            np.savez(place / f"{domain}.npz", features=change(rows), labels=labels)
        return place

    return write


@pytest.fixture
def config(folder, tmp_path):
    def make(root, *settings):
        given = {
            **{"data.type": "embeddings@ggeur", "data.root": str(root)},
            **{"data.splits": [0.7, 0.0, 0.3], "federate.total_round_num": 2},
            **{"ggeur.use": True, "federate.method": "ggeur", "ggeur.steps": []},
            **{"outdir": str(tmp_path / "exp"), "train.local_update_steps": 3},
            "dataloader.batch_size": 8,
        }
        return load_config({**given, **dict(zip(settings[::2], settings[1::2]))})

    return make


@pytest.mark.parametrize("transform", ["l2", "sqrt_l2", "lift"])
@pytest.mark.parametrize("as_fs_writes_it", [False, True])
def test_a_run_is_the_run_on_rows_transformed_beforehand(
    folder, config, transform, as_fs_writes_it
):
    raw = folder("raw")
    before = folder("before", lambda rows: plain(rows, transform))
    listed = [[transform]] if as_fs_writes_it else [transform]
    here = run(config(raw, "data.transform", listed))
    there = run(config(before))
    assert torch.equal(to_vector(here.model), to_vector(there.model))
    assert here.final.accuracy == there.final.accuracy
    # New rows come as they are.
    rows, _ = draw(40, seed=9)
    expected = there.predict_proba(plain(rows, transform))
    np.testing.assert_array_equal(here.predict_proba(rows), expected)


def test_none_is_as_if_nothing_stood_there(folder, config):
    raw = folder("raw")
    here, there = (run(config(raw, *s)) for s in ([], ["data.transform", ["none"]]))
    assert torch.equal(to_vector(here.model), to_vector(there.model))
    assert here.encoder == there.encoder
    rows, _ = draw(40, seed=9)
    assert np.array_equal(here.prepare(rows), rows)


def test_it_is_part_of_what_made_the_embeddings(folder, config):
    """So a client with another transform is refused when it joins."""
    raw = folder("raw")

    def handshake(*settings):
        data = load_federated_data(config(raw, *settings))
        return Handshake(data.class_names, data.dim, data.encoder, {})

    mine = handshake("data.transform", ["sqrt_l2"])
    agreement = Agreement(2, {}, mine)
    agreement.check(handshake("data.transform", [["sqrt_l2"]]), "client 1")
    for other in ([], ["data.transform", ["l2"]]):
        with pytest.raises(MessageError, match=r"encoder is .* there and .*sqrt_l2'"):
            agreement.check(handshake(*other), "client 2")


def test_the_head_s_file_says_it(folder, config, tmp_path):
    going = Run(config(folder("raw"), "data.transform", ["sqrt_l2"]))
    results = going.follow(lambda record: None)
    assert results.encoder.endswith(", sqrt_l2")
    head = tmp_path / "head.safetensors"
    head.write_bytes(going.engine.history.head_bytes())
    with safe_open(str(head), "pt") as file:
        assert file.metadata()["encoder"] == results.encoder


def test_what_acts_is_not_said_to_do_nothing(folder, config):
    raw = folder("raw")
    assert idle_notes(config(raw, "data.transform", ["l2"])) == []
    (note,) = idle_notes(config(raw, "data.transform", [["ToTensor"]]))
    assert "data.transform" in note


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            ["data.transform", ["sqrt"]],
            "must be a list with one of none, l2, sqrt_l2, lift;",
        ),
        (["data.transform", ["l2", "sqrt_l2"]], "must name one of"),
        (["data.transform", "l2"], "expected list"),
        (
            ["data.transform", ["l2"], "data.type", "bundled_digits@ggeur"],
            "is for embeddings.*ggeur.encoder.normalize",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_does_not_fit_is_refused(folder, config, settings, problem):
    with pytest.raises(ConfigError, match=rf"data\.transform: (.|\n)*{problem}"):
        config(folder("raw"), *settings)


def test_pixels_are_refused(tmp_path, config):
    rows = np.zeros((12, 3 * 2 * 2), dtype=np.uint8)
    np.savez(
        tmp_path / "one.npz",
        features=rows,
        labels=np.arange(12) % CLASSES,
        image_shape=[3, 2, 2],
    )
    cfg = config(tmp_path, "data.transform", ["l2"])
    with pytest.raises(DataError, match=r"data\.transform: l2 .*pixels"):
        load_data_set(cfg)
