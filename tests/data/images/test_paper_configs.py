"""The configs of the paper's settings, each on a miniature of its data set.

That their numbers are the paper's is said in extras/studies/test_bundled_studies.py.
"""

from functools import partial
from pathlib import Path

import pytest
from image_miniatures import (
    draw_tree,
    write_cifar10,
    write_cifar100,
    write_digits,
    write_tiny_imagenet,
)
from test_domain_images import FOLDERS

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.run_settings import run_settings
from federatedscope_ggeur.engines.run import Run, load_federated_data
from federatedscope_ggeur.federation.exchanges.augmentation.keys import SetSettings
from federatedscope_ggeur.geometry import ReleaseSizes, TotalSizes

EXAMPLES = Path(__file__).parents[3] / "scripts" / "example_configs"
#: Of heads on embeddings; those of networks are in test_network_configs.py.
FILES = sorted(set(EXAMPLES.glob("ggeur_*.yaml")) - set(EXAMPLES.glob("*_resnet*")))
PIXELS = [
    "ggeur.encoder.name", "pixels", "ggeur.encoder.model", "",
    "ggeur.encoder.pretrained", "", "ggeur.encoder.image_size", "2",
    "ggeur.encoder.num_workers", "0", "federate.total_round_num", "1",
]  # fmt: skip


def path(name: str) -> Path:
    return EXAMPLES / f"ggeur_{name}.yaml"


def draw_folders(root, name, images):
    domains, classes, _ = FOLDERS[name]
    draw_tree(root, domains, classes, images)


MINIATURES = {
    "cifar10": lambda root: write_cifar10(root / "cifar-10-batches-py", n=20),
    "cifar100": lambda root: write_cifar100(root / "cifar-100-python", n=200),
    "tiny_imagenet": lambda root: write_tiny_imagenet(root / "tiny-imagenet-200"),
    "digits": partial(write_digits, n=100),
    "office_caltech": lambda root: draw_folders(root, "office_caltech", 2),
    "pacs": lambda root: draw_folders(root, "pacs", 4),
    "officehome": lambda root: draw_folders(root, "office_home", 10),
    "own_images": lambda root: draw_tree(root, "abcd", ("x", "y"), images=10),
}


MULTI_DOMAIN = ("digits", "office_caltech", "pacs", "officehome", "own_images")


@pytest.mark.slow
@pytest.mark.parametrize("name", MINIATURES)
def test_it_runs_on_a_miniature_of_its_data_set(name, tmp_path):
    root = tmp_path / "data"
    MINIATURES[name](root)
    words = ["data.root", str(root), "ggeur.encoder.cache", str(tmp_path / "cache")]
    words += ["ggeur.step1_size", "4"]
    if 2 in load_config(path(name)).ggeur.steps:
        words += ["ggeur.step2_size", "2"]
    run = Run(load_config(path(name), [*PIXELS, *words]))
    results = run.follow(lambda record: None)
    assert results.final.avg is not None
    assert len(results.domains) == (4 if name in MULTI_DOMAIN else 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "clients", "words"),
    [
        ("digits", 60, ["data.splitter_args", "[{'fraction': 0.00666}]"]),
        ("pacs", 60, ["data.splitter_args", "[{'fraction': 0.02}]"]),
        ("officehome", 60, []),
        ("officehome", 4, ["data.splitter_args", "[{'alpha': 0.5}]"]),
        ("cifar10", 100, ["data.splitter_args", "[{'alpha': 0.01}]"]),
        (
            "cifar10",
            10,
            ["data.splitter_args", "[{'alpha': 0.01, 'min_per_class': 1}]"],
        ),
        ("pacs", 3, ["ggeur.unseen_domains", "['sketch']"]),
        ("pacs", 4, ["data.splitter", "lds", "data.splitter_args", "[{'alpha': 0.1}]"]),
    ],
)
def test_the_variants_that_the_comments_name(name, clients, words, tmp_path):
    root = tmp_path / "data"
    MINIATURES[name](root)
    words = [*words, "data.root", str(root), "federate.client_num", str(clients)]
    words += ["ggeur.encoder.cache", str(tmp_path / "cache")]
    cfg = load_config(path(name), [*PIXELS, *words])
    data = load_federated_data(cfg)
    assert len(data.clients) == clients
    assert len(data.unseen) == ("ggeur.unseen_domains" in words)


DIGITS = ReleaseSizes(500, 500, target=2000)
#: Sizes of the published code, by config.
RELEASE = {
    "cifar10": ("5000", TotalSizes(5000, 500)),
    "cifar100": ("500", TotalSizes(500, 500)),
    "tiny_imagenet": ("500", TotalSizes(500, 500)),
    "digits": ("", DIGITS),
    "office_caltech": ("", DIGITS),
    "pacs": ("", DIGITS),
    "officehome": ("50 50 50", ReleaseSizes(50, 50, target=50)),
}


@pytest.mark.parametrize("name", RELEASE)
def test_the_release_s_sizes_that_the_comments_name(name):
    numbers, expected = RELEASE[name]
    keys = ("step1_size", "step2_size", "target_size_per_class")
    words = [part for k, v in zip(keys, numbers.split()) for part in (f"ggeur.{k}", v)]
    words = ["ggeur.sizes", "release", *words]
    head = path(name).read_text(encoding="utf-8").partition("\nexpname: ")[0]
    assert " ".join(words) in " ".join(head.replace("#", "").split())
    cfg = load_config(path(name), words)
    settings = run_settings(cfg, 10, 2, 4).role.of(SetSettings)
    assert settings.augmentation.sizes == expected


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "tiny_imagenet"])
def test_label_skew_deals_a_row_of_each_class_to_everyone(name):
    data = load_config(path(name)).data
    assert (data.splitter, data.splitter_args) == (
        "lda", [{"alpha": 0.1, "min_per_class": 1}],
    )  # fmt: skip


def test_every_config_is_known_here():
    known = {path(name) for name in (*MINIATURES, "own_embeddings", "quickstart")}
    assert set(FILES) == known
