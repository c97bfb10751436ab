"""Virtual images inside FederatedScope (FS): the embedded engine's numbers."""

from __future__ import annotations

import pytest
from processes import check_same_head
from standalone import assert_same

from federatedscope_ggeur.engines.run import Run

pytestmark = pytest.mark.slow

TINY = [
    *("ggeur.augmentation", "fedpg", "federate.total_round_num", 2),
    *("ggeur.fedpg.images_per_class", 3, "ggeur.fedpg.batch_size", 8),
    *("ggeur.fedpg.noise_dim", 4, "ggeur.fedpg.steps", 3),
    *("ggeur.fedpg.generator_batch", 8),
]


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_standalone_ends_with_the_same_network(fs, config, pictures_of_digits, norm):
    settings = [*pictures_of_digits, *TINY, "ggeur.network.norm", norm]
    assert_same(fs.run(*settings), Run(config(*settings)))


@pytest.mark.slow
def test_distributed_ends_with_the_same_network(fleet, embedded, pictures_of_digits):
    settings = [*pictures_of_digits, *TINY, "federate.client_num", 4]
    one = fleet(*settings)
    server = one.server()
    clients = [one.client(number) for number in (1, 2, 3, 4)]
    there = embedded(*settings)
    check_same_head(server, clients, there)
    found, wanted = (r["rounds"] for r in (server.results, there[0]))
    assert [r["details"] for r in found] == [r["details"] for r in wanted]
    assert found[-1]["details"]["virtual_accuracy"] is not None
