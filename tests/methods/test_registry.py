"""Methods and baseline augmentations by name."""

import pytest

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.methods import (
    AUGMENTATIONS,
    METHODS,
    FedProx,
    build_method,
)


class TestBuilding:
    def test_an_augmentation_stands_beside_the_base_method(self):
        method = build_method("fedprox", "fedfa", {"probability": 0.2}, mu=0.3)
        assert method.name == "fedprox + fedfa"
        assert (method.base.mu, method.augmentation.probability) == (0.3, 0.2)

    @pytest.mark.parametrize("added", ["ggeur", "none"])
    def test_without_one_it_is_the_base_method(self, added):
        assert type(build_method("fedprox", added, mu=0.3)) is FedProx

    def test_an_unknown_one_is_refused(self):
        with pytest.raises(ConfigError, match=r"augmentation: .*'mixup'.*fedfa"):
            build_method("fedavg", "mixup")

    @pytest.mark.parametrize("added", AUGMENTATIONS)
    def test_weights_that_stay_with_clients_are_refused(self, added):
        names = [name for name in METHODS if not METHODS[name].federated]
        assert names
        for name in names:
            with pytest.raises(ConfigError, match=rf"augmentation: {added} needs"):
                build_method(name, added)
