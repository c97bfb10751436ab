"""Methods and baseline augmentations by name, and that nothing else lists them."""

import ast
from pathlib import Path

import pytest
import torch
from federations import MOMENTUM, federate
from loaded_scripts import loaded

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.methods import (
    AUGMENTATIONS,
    METHODS,
    FedAvg,
    FedProx,
    LocalHooks,
    Method,
    TensorSpec,
    build_method,
    register_augmentation,
    register_method,
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


ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "federatedscope_ggeur"
PARTS = [*METHODS.values(), *AUGMENTATIONS.values()]
#: FederatedScope's own value of `aggregator.robust_rule`, and FedBN's split of a data
#: set.
OF_OTHERS = {
    ("cfg_ggeur/fs_keys.py", "fedavg"),
    ("engines/sites/connected.py", "fedavg"),  # FS's aggregator.robust_rule
    ("data/images/published.py", "fedbn"),
}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
class TestOneFileAndOneTest:
    def test_it_is_one_file_with_a_test_of_its_own(self, part):
        room, *inner = part.__module__.split(".")[1:]
        assert room in ("methods", "extras")
        tests = ROOT / "tests" / room / ("" if room == "methods" else inner[0])
        assert (tests / f"test_{inner[-1]}.py").is_file()
        assert [p for p in PARTS if p.__module__ == part.__module__] == [part]

    def test_it_says_what_it_is(self, part):
        assert part.meaning
        assert not part.meaning.endswith(".")
        assert all(key.meaning.endswith(".") for key in part.SETTINGS)
        assert not any(
            key.rule(key.default) for key in part.SETTINGS if key.default is not None
        )


@pytest.mark.slow
def test_no_other_module_spells_the_name_of_one():
    names, found = {part.name for part in PARTS}, set()
    for file in sorted(PACKAGE.rglob("*.py")):
        where = file.relative_to(PACKAGE)
        if where.parts[0] not in ("methods", "extras"):
            found |= {
                (where.as_posix(), node.value)
                for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
                if isinstance(node, ast.Constant) and node.value in names
            }
    assert found == OF_OTHERS


def test_fedavg_is_the_first():
    """The default; then they come by name, and those of extras after them."""
    inner = [n for n, m in METHODS.items() if m.__module__.startswith(PACKAGE.name)]
    own = [name for name in inner if not METHODS.is_expected(name)]
    assert own == ["fedavg", *sorted(set(own) - {"fedavg"})]


def test_the_docs_tables_are_the_registrys():
    tables = loaded(ROOT / ".ci" / "docs_tables.py")
    whole = ""
    for file in tables.FILES:
        content = file.read_text(encoding="utf-8")
        assert content == tables.updated(content), "run python .ci/docs_tables.py"
        whole += content
    for field in tables.REGISTRIES:
        assert f"<!-- table: {field} -->" in whole


@pytest.mark.parametrize("name", ["fedmix", "ggeur", "none"])
def test_names_with_a_meaning_are_taken(name):
    with pytest.raises(ValueError, match=f"'{name}' is already registered"):
        register_augmentation(name)(type("Toy", (Method,), {}))


def test_what_a_subclass_adds_is_not_lost_to_a_robust_mean(monkeypatch):
    monkeypatch.setattr(METHODS, "_parts", dict(METHODS._parts))
    assert [name for name in METHODS if METHODS[name].robust] == ["fedavg"]
    assert not register_method("toy")(type("Toy", (FedAvg,), {})).robust


def test_context_tells_the_clients_own_counts():
    seen = {}

    class Look(FedAvg):
        def local(self, context):
            seen[context.client] = context
            return LocalHooks()

    federation = federate(Look(), rounds=1, steps=(1, 2), min_samples=3)
    for k, client in federation.clients.items():
        counts = [(client.labels == c).sum().item() for c in range(4)]
        assert seen[k].counts.tolist() == counts
        assert (seen[k].round_number, seen[k].min_samples) == (1, 3)
        assert seen[k].optimizer is MOMENTUM


class Leak(FedAvg):
    """Shares label counts that the server alone may see."""

    seen = None

    def init_upload_shapes(self, model):
        return {"counts": TensorSpec((model.num_classes,), torch.int64)}

    def init_upload(self, features, labels, context):
        return {"counts": context.counts}

    def initial_state(self, params, context):
        self.seen = context
        return {}


def test_what_is_sent_once_stays_on_the_server_unless_combined():
    method = Leak()
    federation = federate(method, rounds=1)
    assert federation.augmentation.start() is None
    for k, client in federation.clients.items():
        counts = torch.bincount(client.labels, minlength=4)
        assert torch.equal(method.seen.init_uploads[k]["counts"], counts)
    first, again = (method.seen.generator("g").initial_seed() for _ in range(2))
    assert first == again != method.seen.generator("h").initial_seed()
