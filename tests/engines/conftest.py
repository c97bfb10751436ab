"""What tests of whole runs share."""

import pytest

from federatedscope_ggeur.engines.config import load_config


@pytest.fixture
def config(quickstart, embeddings_folder):
    """A run of three rounds over three small domains, with settings added to it."""

    def load(*overrides):
        base = [
            "data.type", "embeddings@ggeur",
            "data.root", str(embeddings_folder),
            "federate.client_num", "3",
            "ggeur.step1_size", "20",
            "ggeur.step2_size", "10",
            "data.splitter_args", "[{'alpha': 1.0}]",
            "federate.total_round_num", "3",
        ]  # fmt: skip
        return load_config(quickstart, [*base, *map(str, overrides)])

    return load
