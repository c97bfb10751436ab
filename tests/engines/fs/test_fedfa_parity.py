"""A BatchNorm network with augmented images and FedFA's layers: the same numbers and
the same model to the bit on the embedded engine, FS standalone and FS distributed."""

from __future__ import annotations

import pytest
from digits_network import digits_words
from processes import MODEL, numbers
from safetensors.torch import load_file
from standalone import assert_same

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.engines.run import Run

pytestmark = pytest.mark.slow

PARTS = {
    "plus": ("ggeur.augmentation", "fedfa_plus"),
    "direct, fedsam": (
        "ggeur.augmentation", "fedfa_plus", "ggeur.fedfa_plus.variant", "direct",
        "ggeur.base_method", "fedsam",
    ),
    "mixstyle": ("ggeur.augmentation", "mixstyle"),
}  # fmt: skip


@pytest.fixture
def words(tmp_path):
    return digits_words(tmp_path / "cache")


@pytest.fixture
def config(words, quickstart):
    def load(*settings):
        return load_config(quickstart, [*words, *map(str, settings)])

    return load


@pytest.mark.parametrize("settings", PARTS.values(), ids=PARTS)
def test_standalone(fs, config, settings):
    assert_same(fs.run(*settings), Run(config(*settings)))


@pytest.mark.slow
@pytest.mark.parametrize("settings", PARTS.values(), ids=PARTS)
def test_distributed(fleet, embedded, settings):
    one = fleet(*settings)
    server = one.server()
    clients = [one.client(number) for number in (1, 2, 3, 4)]
    results, model = embedded(*settings)
    assert [worker.wait() for worker in (server, *clients)] == [0] * 5
    files = [server.run_folder / "head.safetensors"]
    files += [client.folder / MODEL for client in clients]
    for held in map(load_file, files):
        # How many batches a module has seen is its process's own, and not sent.
        sent = [n for n in model if not n.endswith("num_batches_tracked")]
        assert sent
        assert all(held[name].equal(model[name]) for name in sent)
    assert numbers(server.results) == numbers(results)
