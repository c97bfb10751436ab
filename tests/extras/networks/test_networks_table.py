"""Every network of the table: what it says of itself is so."""

import sys

import pytest
import torch
from torch import nn

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.networks.base import image_shape, register_network
from federatedscope_ggeur.extras.networks.image_network import NetworkSettings
from federatedscope_ggeur.extras.networks.keys import NETWORKS
from federatedscope_ggeur.models import (
    ModelSettings,
    build_model,
    num_trainable,
    to_vector,
)

#: Of each network the side of an image that it takes, and whether it is slow to build.
SIDES = {
    "digits_cnn": 8,
    "convnet5": 32,
    "simple_cnn": 16,
    "alexnet_bn": 64,
    "resnet18": 8,
    "resnet34": 8,
    "resnet50": 8,
    "timm:resnet10t": 32,
    "timm:swin_tiny_patch4_window7_224": 32,
}


def network(name, channels=3, classes=5, dropout=0.0, **settings):
    dim = channels * SIDES[name] ** 2
    chosen = NetworkSettings(name, **settings)
    return build_model(dim, classes, ModelSettings(0, dropout, other=chosen))


def pixels(model, n=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = n, model.in_features
    return torch.randint(256, shape, dtype=torch.uint8, generator=generator)


#: Of each network the weights that its source gives it, running statistics left out,
#: with the channels and side of an image, the classes, and what else it is given there.
WEIGHTS = {
    # FedFA's and FedFA+'s AlexNet: 49.5 MB for the ten classes of Office-Caltech.
    "alexnet_bn": (12_974_154, 3, 256, 10, {}),
    # This project's, for the bundled digits:
    # 9 x 16, 144 x 32, 288 x 64, 2 x 112 of norms, 64 x 10 + 10.
    "digits_cnn": (24_058, 1, 8, 10, {}),
    # FederatedScope's, for FEMNIST at 64 x 64 (`test_convnet5_is_federatedscopes`):
    # 832 + 51,264 + 102,464 + 204,928 + 409,728, 832 of norms, 1,050,624 + 127,038.
    "convnet5": (1_947_710, 1, 64, 62, {}),
    # MarsFL's for CIFAR-10: 456 + 2,416 + 48,120 + 10,164 + 7,140 + 21,760 + 2,570.
    "simple_cnn": (92_626, 3, 32, 10, {}),
    # torchvision's tables.
    "resnet18": (11_689_512, 3, 32, 1000, {"stem": "imagenet"}),
    "resnet34": (21_797_672, 3, 32, 1000, {"stem": "imagenet"}),
    "resnet50": (25_557_032, 3, 32, 1000, {"stem": "imagenet"}),
    # torchvision's table has Swin-T, timm's the same number in millions (28.29).
    "timm:swin_tiny_patch4_window7_224": (28_288_354, 3, 224, 1000, {}),
}


def test_all_of_the_table_are_tested():
    for tested in (SIDES, WEIGHTS):
        assert {name.partition(":")[0] for name in tested} == set(NETWORKS)


@pytest.mark.parametrize("name", WEIGHTS)
def test_it_has_as_many_weights_as_its_source_says(name):
    published, channels, side, classes, more = WEIGHTS[name]
    chosen = NetworkSettings(name, **more)
    model = build_model(channels * side**2, classes, ModelSettings(other=chosen))
    assert num_trainable(model) == published


@pytest.mark.slow
@pytest.mark.parametrize("name", SIDES)
@pytest.mark.parametrize("channels", [1, 3])
def test_it_is_what_it_says(name, channels):
    model = network(name, channels)
    rows = model.prepare(pixels(model))
    maps = {}

    def hook(k, stage_map):
        maps[k] = tuple(stage_map.shape)
        return stage_map

    model.train()
    with model.stages_hooked(hook), torch.no_grad():
        z = model.represent(rows)
    assert z.shape == (4, model.width)
    assert [maps[k][:2] for k in sorted(maps)] == [(4, c) for c in model.stage_widths]
    assert len(model.stage_widths) > 1
    model.eval()
    with torch.no_grad():
        inputs, logits = model.last_input(rows), model(rows)
        assert logits.shape == (4, 5)
        torch.testing.assert_close(model.classifier(inputs), logits)
        plain = model.network(rows.view(4, channels, SIDES[name], -1))
    torch.testing.assert_close(plain, logits)


@pytest.mark.slow
@pytest.mark.parametrize("name", SIDES)
def test_weights_are_drawn_by_the_generator_alone(name):
    model = network(name)
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first = to_vector(model.reset(torch.Generator().manual_seed(5)))
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(2)
    again = to_vector(network(name).reset(torch.Generator().manual_seed(5)))
    other = to_vector(model.reset(torch.Generator().manual_seed(6)))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.slow
def test_stems():
    cifar, imagenet = (network("resnet18", stem=s) for s in ("cifar", "imagenet"))
    assert cifar.network.conv1.kernel_size == (3, 3)
    assert isinstance(cifar.network.maxpool, nn.Identity)
    assert imagenet.network.conv1.kernel_size == (7, 7)
    assert isinstance(imagenet.network.maxpool, nn.MaxPool2d)


@pytest.mark.slow
def test_a_resnet_is_torchvisions():
    models = pytest.importorskip("torchvision.models")
    model = network("resnet18", stem="imagenet")
    plain = models.resnet18(num_classes=5)
    plain.load_state_dict(model.state_dict(), strict=False)
    images = torch.rand(2, 3, 8, 8)
    plain.eval(), model.eval()
    assert torch.equal(plain(images), model(images.flatten(1)))


def test_convnet5_is_federatedscopes(federatedscope):
    from federatedscope.cv.model.cnn import ConvNet5

    model = network("convnet5")
    theirs = ConvNet5(3, 32, 32, class_num=5).eval()
    assert num_trainable(theirs) == num_trainable(model)
    theirs.load_state_dict(model.state_dict(), strict=False)
    images = torch.randn(3, 3, 32, 32)
    model.eval()
    torch.testing.assert_close(theirs(images), model(images.flatten(1)))


@pytest.mark.parametrize(
    ("name", "side"), [("convnet5", 28), ("simple_cnn", 8), ("alexnet_bn", 32)]
)
def test_images_that_are_too_small(name, side):
    with pytest.raises(ConfigError, match=f"{name} needs images of .*image_size"):
        build_model(side**2, 3, ModelSettings(other=NetworkSettings(name)))


@pytest.mark.parametrize(("dim", "shape"), [(64, (1, 8)), (192, (3, 8)), (3, (3, 1))])
def test_the_shape_of_a_row(dim, shape):
    found = image_shape(dim)
    assert (found.channels, found.side) == shape
    assert found.dim == dim


@pytest.mark.parametrize("dim", [2, 324, 65, 2048])
def test_rows_that_are_no_images(dim):
    if dim == 324:  # 18 x 18: HOG features would pass for an image
        assert image_shape(dim).side == 18
        return
    with pytest.raises(ConfigError, match="no square images"):
        image_shape(dim)


@pytest.mark.parametrize("name", ["resnet19", "timm:nothing_of_timm", "timm:"])
def test_unknown_names(name):
    with pytest.raises(ConfigError, match=r"network\.name"):
        build_model(3072, 3, ModelSettings(other=NetworkSettings(name)))


@pytest.mark.parametrize(
    ("name", "package"),
    [("resnet18", "torchvision"), ("timm:resnet10t", "timm")],
)
def test_a_library_that_is_missing_is_named(monkeypatch, name, package):
    for module in [m for m in sys.modules if m.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=f"{name}.*pip install {package}"):
        network(name)
    network("digits_cnn")  # the others work


def test_a_network_of_ones_own():
    class Tiny(nn.Module):
        def __init__(self, inputs, classes):
            super().__init__()
            self.last = nn.Linear(inputs, classes)

        def forward(self, images):
            return self.last(images.flatten(1))

    from federatedscope_ggeur.extras.networks.base import Network

    @register_network("tiny_of_a_test", meaning="a line", source="a test")
    def tiny(image, num_classes, settings, dropout):
        return Network(
            Tiny(image.dim, num_classes),
            width=image.dim,
            classifier="last",
            represent=lambda module, images: images.flatten(1),
            classify=lambda module, z: module.last(z),
        )

    try:
        chosen = NetworkSettings("tiny_of_a_test")
        model = build_model(12, 2, ModelSettings(other=chosen))
        assert model.stage_widths == ()
        rows = pixels(model)
        assert model.in_chunks(model, rows).shape == (4, 2)
        with (
            pytest.raises(ConfigError, match="no stages"),
            model.stages_hooked(lambda k, x: x),
        ):
            pass
    finally:
        NETWORKS._parts.pop("tiny_of_a_test")
