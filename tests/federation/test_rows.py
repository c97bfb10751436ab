"""Which rows a model is trained on."""

import pytest
import torch

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation import TrainingSettings
from federatedscope_ggeur.federation.rows import check_rows
from federatedscope_ggeur.federation.training_settings import check_batches
from federatedscope_ggeur.models import ModelSettings, NetworkSettings, build_model

HEAD = build_model(64, 3, ModelSettings())


def network(norm="batch"):
    chosen = NetworkSettings("digits_cnn", norm=norm)
    return build_model(64, 3, ModelSettings(network=chosen))


def test_pixels_are_for_networks_and_embeddings_for_heads():
    pixels, embeddings = torch.zeros(2, 64, dtype=torch.uint8), torch.zeros(2, 64)
    check_rows(network(), pixels)
    check_rows(HEAD, embeddings)
    with pytest.raises(ConfigError, match=r"pixels: set ggeur\.network\.name"):
        check_rows(HEAD, pixels)
    with pytest.raises(ConfigError, match=r"data are embeddings. .*set .*encoder.name"):
        check_rows(network(), embeddings)


@pytest.mark.parametrize(
    ("rows", "size", "drop_last", "mode", "amount", "fits"),
    [
        (33, 8, False, "epoch", 1, False),
        (33, 8, True, "epoch", 1, True),
        (32, 8, False, "epoch", 1, True),
        (34, 8, False, "epoch", 1, True),
        (1, 8, False, "epoch", 1, False),
        (0, 8, False, "epoch", 1, True),
        (5, 1, False, "epoch", 1, False),
        (5, 1, True, "epoch", 1, False),
        (33, 8, False, "batch", 4, True),
        (33, 8, False, "batch", 5, False),
    ],
)
def test_no_batch_of_one_row(rows, size, drop_last, mode, amount, fits):
    training = TrainingSettings(
        local_update_steps=amount,
        batch_or_epoch=mode,
        batch_size=size,
        drop_last=drop_last,
    )
    for model in (HEAD, network("group"), network("none")):
        check_batches(model, training, rows, client=7)
    if fits:
        check_batches(network(), training, rows, client=7)
        return
    with pytest.raises(
        ConfigError, match=rf"client 7: with {rows} rows and .*{size}, one "
    ):
        check_batches(network(), training, rows, client=7)
