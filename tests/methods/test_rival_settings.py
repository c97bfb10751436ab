"""Rivals by name and by `ggeur.augmentation`, with their settings."""

import pytest
from yacs.config import CfgNode

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.run_settings import run_settings
from federatedscope_ggeur.engines.fs.robust import robust_problems
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.methods import (
    AUGMENTATIONS,
    METHODS,
    FedProx,
    Moon,
    build_method,
)


class TestBuilding:
    def test_a_rival_stands_beside_the_base_method(self):
        method = build_method("fedprox", "fedfa", {"probability": 0.2}, mu=0.3)
        assert method.name == "fedprox + fedfa"
        assert (method.base.mu, method.rival.probability) == (0.3, 0.2)

    @pytest.mark.parametrize("augmentation", ["ggeur", "none"])
    def test_without_one_it_is_the_base_method(self, augmentation):
        assert type(build_method("fedprox", augmentation, mu=0.3)) is FedProx

    def test_an_unknown_one_is_refused(self):
        with pytest.raises(ConfigError, match=r"ggeur\.augmentation: .*'mixup'.*fedfa"):
            build_method("fedavg", "mixup")

    @pytest.mark.parametrize("rival", AUGMENTATIONS)
    def test_weights_that_stay_with_clients_are_refused(self, rival):
        names = [name for name in METHODS if not METHODS[name].federated]
        assert names
        for name in names:
            with pytest.raises(ConfigError, match=rf"augmentation: {rival} needs"):
                build_method(name, rival)


class TestConfig:
    """`ggeur.augmentation` and the settings of rivals."""

    def method(self, quickstart, *settings):
        cfg = load_config(quickstart, list(settings))
        return run_settings(cfg, 10, 36, 4)

    @pytest.mark.parametrize(
        ("rival", "wanted"),
        [
            ("fedmix", {"weight": 0.05, "batch_size": 5}),
            (
                "fedgen",
                {
                    "alpha": 1.0,
                    "noise_dim": 32,
                    "hidden": 128,
                    "lr": 0.001,
                    "steps": 50,
                    "batch_size": 32,
                },
            ),
            ("fedfa", {"probability": 0.5}),
        ],
    )
    def test_defaults_are_those_of_the_class(self, quickstart, rival, wanted):
        settings = self.method(quickstart, "ggeur.augmentation", rival)
        for role in (settings.client, settings.server):
            assert role.method.name == f"fedavg + {rival}"
            assert vars(role.method.rival) == wanted == vars(AUGMENTATIONS[rival]())
        for key, value in vars(settings.client.method.rival).items():
            assert type(value) is type(wanted[key])

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("fedmix.weight", 0.25),
            ("fedmix.batch_size", 7),
            ("fedgen.alpha", 0.5),
            ("fedgen.noise_dim", 3),
            ("fedgen.hidden", 6),
            ("fedgen.lr", 0.1),
            ("fedgen.steps", 4),
            ("fedgen.batch_size", 8),
            ("fedfa.probability", 0.25),
        ],
    )
    def test_every_setting_arrives(self, quickstart, key, value):
        rival, name = key.split(".")
        given = ("ggeur.augmentation", rival, f"ggeur.{key}", str(value))
        found = self.method(quickstart, *given).client.method.rival
        assert getattr(found, name) == value

    @pytest.mark.parametrize("rival", AUGMENTATIONS)
    def test_ggeurs_own_steps_are_left_out(self, quickstart, rival):
        settings = self.method(
            quickstart, "ggeur.augmentation", rival, "ggeur.base_method", "moon"
        )
        assert settings.server.steps == settings.client.augmentation.steps == ()
        assert type(settings.server.method.base) is Moon

    def test_a_setting_out_of_range_is_refused(self, quickstart):
        for key, value in (
            ("fedmix.weight", 1),
            ("fedmix.batch_size", 0),
            ("fedgen.alpha", -1),
            ("fedgen.batch_size", 1),
            ("fedgen.lr", 0),
            ("fedfa.probability", 1.5),
        ):
            with pytest.raises(ConfigError, match=rf"ggeur\.{key}: "):
                load_config(quickstart, [f"ggeur.{key}", str(value)])

    @pytest.mark.parametrize("rival", AUGMENTATIONS)
    def test_a_run_without_training_is_refused(self, quickstart, rival):
        chosen = ["ggeur.augmentation", rival, "ggeur.closed_form", "ncm"]
        with pytest.raises(ConfigError, match=rf"closed_form: .*augmentation: {rival}"):
            load_config(quickstart, chosen)
        options = ["ggeur.init", "closed_form", "ggeur.privacy.min_samples", "1"]
        load_config(quickstart, [*chosen, *options])

    @pytest.mark.parametrize("rival", AUGMENTATIONS)
    def test_a_robust_mean_in_place_of_the_method_is_refused(self, quickstart, rival):
        cfg = load_config(quickstart, ["ggeur.augmentation", rival])
        cfg.defrost()
        # As in FederatedScope.
        section = {"robust_rule": "median", "byzantine_node_num": 1, "BFT_args": {}}
        cfg.aggregator = CfgNode(section)
        problems = robust_problems(cfg)
        assert len([p for p in problems if f"alone, got {rival}" in p]) == 1


class TestFedMixBesideClassStatistics:
    """Sums over classes less sums over FedMix's groups can leave single rows."""

    MIX = ("ggeur.augmentation", "fedmix", "ggeur.privacy.min_samples")
    ASKS = (
        ("ggeur.calibrate", ("ggeur.calibrate", "ccvr")),
        ("ggeur.init", ("ggeur.closed_form", "lda", "ggeur.init", "closed_form")),
    )

    @pytest.mark.parametrize(("key", "asks"), ASKS)
    def test_is_refused_with_a_floor(self, quickstart, key, asks):
        message = rf"{key}: must be .*fedmix .*min_samples 2.*single rows.*min_samples"
        with pytest.raises(ConfigError, match=message):
            load_config(quickstart, [*self.MIX, "2", *asks])

    def test_both_are_named(self, quickstart):
        asks = [word for _, words in self.ASKS for word in words]
        with pytest.raises(ConfigError, match=r"(?s)calibrate: must .*init: must "):
            load_config(quickstart, [*self.MIX, "5", *asks])

    @pytest.mark.parametrize(("key", "asks"), ASKS)
    def test_is_allowed_without_one_and_beside_other_rivals(
        self, quickstart, key, asks
    ):
        load_config(quickstart, [*self.MIX, "1", *asks])
        for rival in set(AUGMENTATIONS) - {"fedmix"}:
            load_config(quickstart, ["ggeur.augmentation", rival, *asks])
