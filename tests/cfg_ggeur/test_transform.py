"""`data.transform`: against plain numpy, and runs on rows transformed beforehand."""

import numpy as np
import pytest
import torch

from federatedscope_ggeur.cfg_ggeur.load import idle_notes
from federatedscope_ggeur.data import transform_rows
from federatedscope_ggeur.engines.run import load_data_set, load_federated_data, run
from federatedscope_ggeur.errors import ConfigError, DataError, MessageError
from federatedscope_ggeur.federation.course.membership import Agreement
from federatedscope_ggeur.federation.wire.handshake import Handshake
from federatedscope_ggeur.models import to_vector
from federatedscope_ggeur.rng import torch_generator


def plain(rows, transform):
    rows = np.asarray(rows, dtype=np.float64)
    dim = rows.shape[1]
    if transform == "lift":
        generator = torch_generator(0, "lift", dim)
        lift = torch.randn(dim, 500, dtype=torch.float64, generator=generator).numpy()
        rows = np.hstack([rows, np.maximum(rows @ lift / dim**0.5, 0)])
    if transform == "sqrt_l2":
        rows = np.sign(rows) * np.abs(rows) ** 0.5
    if transform in ("l2", "sqrt_l2"):
        lengths = np.sqrt((rows**2).sum(axis=1, keepdims=True))
        rows = rows / np.where(lengths > 0, lengths, 1)
    return rows.astype(np.float32)


ROWS = np.random.default_rng(1).normal(size=(50, 16)).astype(np.float32)


@pytest.mark.parametrize("transform", ["none", "l2", "sqrt_l2", "lift"])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_rows_are_as_the_words_say(transform, scale):
    rows = ROWS * np.float32(scale)
    rows[7] = 0
    found = transform_rows(torch.from_numpy(rows), transform)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, plain(rows, transform), rtol=1e-6)


@pytest.mark.parametrize("transform", ["l2", "sqrt_l2", "lift"])
@pytest.mark.parametrize("as_fs_writes_it", [False, True])
def test_a_run_is_the_run_on_rows_transformed_beforehand(
    embeddings_folder, config, transform, as_fs_writes_it
):
    listed = [[transform]] if as_fs_writes_it else [transform]
    here = run(config("data.transform", listed))
    for domain in ("art", "photo", "sketch"):
        path = embeddings_folder / f"{domain}.npz"
        held = dict(np.load(path))
        np.savez(path, **{**held, "features": plain(held["features"], transform)})
    there = run(config())
    assert torch.equal(to_vector(here.model), to_vector(there.model))
    assert here.final.accuracy == there.final.accuracy
    # New rows come as they are.
    expected = there.predict_proba(plain(ROWS, transform))
    np.testing.assert_array_equal(here.predict_proba(ROWS), expected)


def test_none_is_as_if_nothing_stood_there(config):
    here, there = (run(config(*s)) for s in ([], ["data.transform", ["none"]]))
    assert torch.equal(to_vector(here.model), to_vector(there.model))
    assert here.encoder == there.encoder
    assert np.array_equal(here.prepare(ROWS), ROWS)


def test_it_is_part_of_what_made_the_embeddings(config):
    """So a client with another transform is refused when it joins."""

    def handshake(*settings):
        data = load_federated_data(config(*settings))
        return Handshake(data.class_names, data.dim, data.encoder, {})

    mine = handshake("data.transform", ["sqrt_l2"])
    agreement = Agreement(2, {}, mine)
    agreement.check(handshake("data.transform", [["sqrt_l2"]]), "client 1")
    for other in ([], ["data.transform", ["l2"]]):
        with pytest.raises(MessageError, match=r"encoder is .* there and .*sqrt_l2'"):
            agreement.check(handshake(*other), "client 2")


def test_what_acts_is_not_said_to_do_nothing(config):
    assert idle_notes(config("data.transform", ["l2"])) == []
    (note,) = idle_notes(config("data.transform", [["ToTensor"]]))
    assert "data.transform" in note


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ([["sqrt"]], "must be a list with one of none, l2, sqrt_l2, lift;"),
        ([["l2", "sqrt_l2"]], "must name one of"),
        (["l2"], "expected list"),
        (
            [["l2"], "data.type", "bundled_digits@ggeur"],
            "is for embeddings.*ggeur.encoder.normalize",
        ),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(config, settings, problem):
    with pytest.raises(ConfigError, match=rf"data\.transform: (.|\n)*{problem}"):
        config("data.transform", *settings)


def test_pixels_are_refused(embeddings_folder, config):
    for path in embeddings_folder.glob("[!t]*.npz"):
        features, labels = np.zeros((24, 12), dtype=np.uint8), np.arange(24) % 12
        np.savez(path, features=features, labels=labels, image_shape=[3, 2, 2])
    cfg = config("data.transform", ["l2"])
    with pytest.raises(DataError, match=r"data\.transform: l2 .*pixels"):
        load_data_set(cfg)
