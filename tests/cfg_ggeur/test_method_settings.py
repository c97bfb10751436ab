"""`ggeur.base_method` and the settings of the methods, on the embedded engine."""

import re
from pathlib import Path

import pytest
from every_method import ON_HEADS, OTHERS, words

from federatedscope_ggeur.cfg_ggeur.demands import demands_of
from federatedscope_ggeur.cfg_ggeur.fs_keys import section_of
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.method_settings import (
    base_method,
    part_settings,
    run_notes,
)
from federatedscope_ggeur.cfg_ggeur.run_settings import run_settings
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.federation.exchanges.augmentation.keys import SetSettings
from federatedscope_ggeur.geometry import PerAnchorSizes, ReleaseSizes, TotalSizes
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS, Moon
from federatedscope_ggeur.settings import Key


@pytest.mark.parametrize(
    ("settings", "steps", "expected"),
    [
        ({}, [1], TotalSizes(2000, 500)),
        ({}, [1, 2], TotalSizes(500, 500)),
        ({"step1_size": 30}, [1, 2], TotalSizes(30, 500)),
        ({"sizes": "paper"}, [1], TotalSizes(2000, 500)),
        ({"sizes": "paper", "step2_size": 40}, [1, 2], TotalSizes(500, 40)),
        ({"sizes": "release"}, [1], TotalSizes(500, 500)),
        ({"sizes": "release", "step1_size": 5000}, [1], TotalSizes(5000, 500)),
        ({"sizes": "release"}, [1, 2], ReleaseSizes(500, 500, 2000)),
        ({"sizes": "release", "target_size_per_class": 60}, [1],
         ReleaseSizes(500, 500, 60)),
        ({"sizes": "release", "step1_size": 50, "step2_size": 40,
          "target_size_per_class": 60}, [1, 2], ReleaseSizes(50, 40, 60)),
        ({"sizes": "document"}, [1, 2], PerAnchorSizes(50, 50)),
        ({"sizes": "document", "target_size_per_class": 60}, [1, 2],
         PerAnchorSizes(50, 50, 60)),
        ({"num_generated_per_sample": 3, "num_generated_per_prototype": 4}, [1, 2],
         PerAnchorSizes(3, 4)),
        ({"num_generated_per_sample": 3, "target_size_per_class": 60}, [1],
         PerAnchorSizes(3, 50, 60)),
    ],
)  # fmt: skip
def test_each_rule_of_sizes_has_its_numbers(config, settings, steps, expected):
    words = ["ggeur.step1_size", -1, "ggeur.step2_size", -1, "ggeur.steps", steps]
    words += [part for k, v in settings.items() for part in (f"ggeur.{k}", v)]
    found = (
        run_settings(config(*words), 12, 16, 3).role.of(SetSettings).augmentation.sizes
    )
    assert found == expected


#: Values of settings that are not numbers.
_OTHERS_OF = {"variant": ("l",), "stages": ([1, 2],), "align_stages": ([1, 2],)}


def another(key: Key, value):
    """A value that `key` takes, other than `value`."""
    if isinstance(value, bool):
        return not value
    halves = (1.0,) if value is None else ()
    if isinstance(value, (int, float)):
        halves = value / 2, value + 1, value + 2
    tried = getattr(key.rule, "choices", ()) or halves or _OTHERS_OF[key.name]
    return next(v for v in tried if v != value and not key.rule(v))


@pytest.mark.parametrize("name", OTHERS)
def test_every_setting_arrives(quickstart, name):
    """What it does there is said by the oracles of tests/methods."""
    part, section = METHODS[name], section_of(METHODS[name])
    for key in part.SETTINGS:
        if type(key.default) in (int, float):
            value = another(key, getattr(OTHERS[name], key.name))
            given = [*words(name), f"{section}.{key.name}", value]
            cfg = load_config(quickstart, list(map(str, given)))
            assert part_settings(cfg, part)[key.name] == value
            method = base_method(cfg)(**part_settings(cfg, part))
            assert getattr(method, key.name) == value


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("SGD", {"momentum": 0.9}),
        ("Adam", {"betas": [0.5, 0.6], "eps": 1.0}),
        ("Yogi", {"betas": [0.5, 0.6], "eps": 1.0}),
        ("Adagrad", {"eps": 1.0}),
    ],
)
def test_what_a_type_of_server_takes_arrives(quickstart, kind, settings):
    given = {"ggeur.base_method": "fedopt", "fedopt.optimizer.type": kind}
    given |= {f"fedopt.optimizer.{name}": value for name, value in settings.items()}
    cfg = load_config(quickstart, given)
    found = part_settings(cfg, METHODS["fedopt"])
    assert found.items() >= {"type": kind, **settings}.items()


@pytest.mark.parametrize("name", ON_HEADS)
def test_defaults_are_those_of_the_keys(quickstart, name):
    cfg, part = load_config(quickstart, ["ggeur.base_method", name]), METHODS[name]
    wanted = {key.name: key.default for key in part.SETTINGS if key.default is not None}
    assert part_settings(cfg, part) == wanted
    if not part.SECTION:  # whose defaults are FederatedScope's
        assert vars(part()) == wanted


class TestSwitches:
    """`ggeur.base_method` is the one selector; FS's switches follow it."""

    @pytest.mark.parametrize("name", ["fedprox", "fedopt"])
    def test_they_follow(self, quickstart, name):
        switch = [f"{name}.use", "True"]
        for given in ([], switch):
            cfg = load_config(quickstart, ["ggeur.base_method", name, *given])
            assert [cfg.fedprox.use, cfg.fedopt.use] == [
                name == "fedprox",
                name == "fedopt",
            ]

    @pytest.mark.parametrize("method", ["fedavg", "fedopt"])
    def test_one_of_another_method_is_refused(self, quickstart, method):
        words = ["ggeur.base_method", method, "fedprox.use", "True"]
        problem = rf"fedprox\.use: must be False with ggeur\.base_method: {method}"
        with pytest.raises(ConfigError, match=problem):
            load_config(quickstart, words)

    def test_fedprox_without_a_weight_says_so(self, quickstart):
        chosen = ["ggeur.base_method", "fedprox"]
        cfg = load_config(quickstart, chosen)
        (note,) = run_notes(cfg, demands_of(cfg))
        assert note.startswith("fedprox.mu is 0")
        cfg = load_config(quickstart, [*chosen, "fedprox.mu", "1"])
        assert not run_notes(cfg, demands_of(cfg))


ADAM = "fedopt fedopt.optimizer.type Adam"
NO_BETAS = [[0.9], [0.9, 1.0], [-0.1, 0.9], [0.9, True]]


@pytest.mark.parametrize(
    ("method", "key", "values"),
    [
        ("fedprox", "fedprox.mu", [-0.1, "x"]),
        ("scaffold", "ggeur.scaffold.server_lr", [0, -1]),
        ("scaffold", "train.optimizer.nesterov", [True]),
        ("scaffold", "train.optimizer.dampening", [0.1]),
        ("scaffold", "train.optimizer.maximize", [True]),
        ("scaffold", "train.optimizer.momentum", [1.0]),
        ("scaffold", "train.optimizer.lr", [0]),
        ("feddyn", "ggeur.feddyn.alpha", [0, -1, "1e999"]),
        ("fedavgm", "ggeur.fedavgm.momentum", [-0.1, 1]),
        ("fedavgm", "ggeur.fedavgm.lr", [0]),
        ("fedopt", "fedopt.optimizer.type", ["RMSprop"]),
        ("fedopt", "fedopt.optimizer.lr", [-1]),
        ("fedopt", "fedopt.optimizer.momentum", [1, -0.1, True, "x"]),
        ("fedopt", "fedopt.optimizer.nesterov", [True]),
        ("fedopt", "fedopt.optimizer.betas", [[0.9, 0.99]]),  # of SGD
        ("fedopt", "fedopt.annealing", [True]),
        (ADAM, "fedopt.optimizer.betas", [0.9, "x", *NO_BETAS]),
        (ADAM, "fedopt.optimizer.eps", [0, -1e-3, "x", True]),
        (ADAM, "fedopt.optimizer.momentum", [0.9]),
    ],
)
def test_what_a_method_cannot_take_is_refused_by_name(quickstart, method, key, values):
    for value in values:
        given = ["ggeur.base_method", *method.split(), key, str(value)]
        with pytest.raises(ConfigError, match=rf"{key}: "):
            load_config(quickstart, given)


def test_scaffold_refuses_adam(rewritten):
    path = rewritten(("momentum: 0.9", "type: Adam"))
    assert load_config(path).train.optimizer.type == "Adam"
    with pytest.raises(ConfigError, match=r"train\.optimizer\.type: must be SGD"):
        load_config(path, ["ggeur.base_method", "scaffold"])


#: Table 9 of the GGEUR paper; `fedopt` with the momentum that docs/methods.md gives.
PAPER = {
    "scaffold": {"server_lr": 0.25},
    "moon": {"mu": 1.0, "temperature": 0.5},
    "feddyn": {"alpha": 0.5},
    "fedopt": {"type": "SGD", "lr": 0.5, "momentum": 0.9},
    "fedproto": {"strength": 2.0},
    "fedntd": {"beta": 1.0, "temperature": 1.0},
}


@pytest.mark.parametrize("method", PAPER)
def test_the_papers_values_are_defaults_or_stand_in_the_docs(quickstart, method):
    text = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()
    part = text.partition("\n## The paper's values\n\n")[2].partition("\n\n")[0]
    lines = re.findall(rf"`((?:ggeur\.)?{method}\..+?)`", part)
    assert bool(lines) == (method in ("scaffold", "fedopt"))
    words = [word for line in lines for word in line.split()]
    cfg = load_config(quickstart, ["ggeur.base_method", method, *words])
    assert part_settings(cfg, base_method(cfg)).items() >= PAPER[method].items()


@pytest.mark.parametrize("added", AUGMENTATIONS)
class TestAugmentations:
    """`ggeur.augmentation` and the settings of baseline augmentations."""

    def method(self, quickstart, *settings):
        cfg = load_config(quickstart, list(settings))
        return run_settings(cfg, 10, 36, 4)

    def test_defaults_are_those_of_the_class(self, quickstart, added):
        settings = self.method(quickstart, "ggeur.augmentation", added)
        wanted = vars(AUGMENTATIONS[added]())
        method = settings.role.task.method
        assert method.name == f"fedavg + {added}"
        part = method.parts["augmentation"]
        found = {name: getattr(part, name) for name in wanted}
        assert vars(part).keys() <= wanted.keys()
        assert found == wanted
        assert [*map(type, found.values())] == [*map(type, wanted.values())]

    def test_every_setting_arrives(self, quickstart, added):
        for key in AUGMENTATIONS[added].SETTINGS:
            value = another(key, key.default)
            given = ("ggeur.augmentation", added, f"ggeur.{added}.{key.name}", value)
            found = self.method(quickstart, *map(str, given)).role.task.method
            assert getattr(found.parts["augmentation"], key.name) == value

    def test_ggeurs_own_steps_are_left_out(self, quickstart, added):
        settings = self.method(
            quickstart, "ggeur.augmentation", added, "ggeur.base_method", "moon"
        )
        assert settings.demands.steps == ()
        assert settings.role.of(SetSettings).augmentation.steps == ()
        assert type(settings.role.task.method.parts["base"]) is Moon

    def test_a_run_without_training_is_refused(self, quickstart, added):
        chosen = ["ggeur.augmentation", added, "ggeur.closed_form", "ncm"]
        with pytest.raises(ConfigError, match=rf"closed_form: .*augmentation: {added}"):
            load_config(quickstart, chosen)
        options = ["ggeur.init", "closed_form", "ggeur.privacy.min_samples", "1"]
        load_config(quickstart, [*chosen, *options])


@pytest.mark.parametrize(
    ("key", "asks"),
    [
        ("ggeur.calibrate", ("ggeur.calibrate", "ccvr")),
        ("ggeur.init", ("ggeur.closed_form", "lda", "ggeur.init", "closed_form")),
    ],
)
def test_fedmix_takes_no_threshold_beside_class_statistics(quickstart, key, asks):
    """Sums over classes less sums over FedMix's groups can leave single rows."""
    mix = ("ggeur.augmentation", "fedmix", "ggeur.privacy.min_samples")
    message = rf"{key}: must be .*fedmix.*min_samples 2.*single rows.*min_samples"
    with pytest.raises(ConfigError, match=message):
        load_config(quickstart, [*mix, "2", *asks])
    load_config(quickstart, [*mix, "1", *asks])
    for added in set(AUGMENTATIONS) - {"fedmix"}:
        load_config(quickstart, ["ggeur.augmentation", added, *asks])
