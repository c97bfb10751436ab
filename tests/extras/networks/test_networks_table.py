"""Every network of the table: what it says of itself is so."""

import socket
import sys

import pytest
import torch
from hostile_pickles import Runs
from image_federations import seeded
from safetensors.torch import save_file
from torch import nn

from federatedscope_ggeur import downloads
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.networks import base
from federatedscope_ggeur.extras.networks.image_network import NetworkSettings
from federatedscope_ggeur.extras.networks.keys import NETWORKS
from federatedscope_ggeur.models import (
    ModelSettings,
    build_model,
    named_tensors,
    num_buffers,
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


def reset(model, seed=3):
    return model.reset(seeded(seed))


def pixels(model, n=4, seed=0):
    generator = seeded(seed)
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
        with model.stages_hooked(hook):
            hooked = model(rows)
        assert torch.equal(model(rows), hooked)
        inputs, logits = model.last_input(rows), model(rows)
        assert logits.shape == (4, 5)
        torch.testing.assert_close(model.classifier(inputs), logits)
        plain = model.network(rows.view(4, channels, SIDES[name], -1))
    torch.testing.assert_close(plain, logits)


@pytest.mark.slow
@pytest.mark.parametrize("name", SIDES)
def test_weights_are_drawn_by_the_generator_alone(name):
    model = network(name)
    state = torch.random.get_rng_state()
    first = to_vector(reset(model, 5))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(to_vector(reset(network(name), 5)), first)
    assert not torch.equal(to_vector(reset(model, 6)), first)


def test_convnet5_is_federatedscopes(federatedscope):
    from federatedscope.cv.model.cnn import ConvNet5

    model = network("convnet5")
    theirs = ConvNet5(3, 32, 32, class_num=5).eval()
    assert num_trainable(theirs) == num_trainable(model)
    theirs.load_state_dict(model.state_dict(), strict=False)
    images = torch.randn(3, 3, 32, 32)
    model.eval()
    torch.testing.assert_close(theirs(images), model(images.flatten(1)))


def test_the_shape_of_a_row():
    for dim, channels, side in ((64, 1, 8), (192, 3, 8), (3, 3, 1), (324, 1, 18)):
        found = base.image_shape(dim)
        assert (found.channels, found.side, found.dim) == (channels, side, dim)
    for dim in (2, 65, 2048):
        with pytest.raises(ConfigError, match="no square images"):
            base.image_shape(dim)


@pytest.mark.parametrize(
    ("name", "side", "said"),
    [
        *(
            (name, side, f"{name} needs images of .*image_size")
            for name, side in (("convnet5", 28), ("simple_cnn", 8), ("alexnet_bn", 32))
        ),
        *((n, 32, r"network\.name") for n in ("resnet19", "timm:nothing", "timm:")),
    ],
)
def test_networks_that_cannot_be_built(name, side, said):
    with pytest.raises(ConfigError, match=said):
        build_model(side**2, 3, ModelSettings(other=NetworkSettings(name)))


@pytest.mark.parametrize(
    ("name", "package"), [("resnet18", "torchvision"), ("timm:resnet10t", "timm")]
)
def test_a_library_that_is_missing_is_named(monkeypatch, name, package):
    for module in [m for m in sys.modules if m.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=f"{name}.*pip install {package}"):
        network(name)
    network("digits_cnn")  # the others work


def test_a_network_of_ones_own():
    @base.register_network("tiny_of_a_test", meaning="a line", source="a test")
    def tiny(image, num_classes, settings, dropout):
        return base.Network(
            nn.Sequential(nn.Flatten(), nn.Linear(image.dim, num_classes)),
            width=image.dim,
            classifier="1",
            represent=lambda module, images: module[0](images),
            classify=lambda module, z: module[1](z),
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


# What stands where a network has BatchNorm.


@pytest.mark.parametrize("name", ["digits_cnn", "convnet5", "resnet18"])
@pytest.mark.parametrize("norm", ["layer", "group", "none"])
def test_other_norms_keep_no_running_statistics(name, norm):
    model = network(name, norm=norm)
    assert num_buffers(network(name)) > 0
    assert num_buffers(model) == 0
    assert not model.norm_modules
    found = [m for m in model.modules() if isinstance(m, nn.GroupNorm)]
    assert bool(found) == (norm != "none")
    for layer in found:
        assert layer.num_groups == (1 if norm == "layer" else 32) or norm == "group"
        assert layer.num_channels % layer.num_groups == 0
    if norm == "group" and name == "resnet18":
        assert {layer.num_groups for layer in found} == {32}
    assert model.in_chunks(model, pixels(model)).isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["simple_cnn", "timm:swin_tiny_patch4_window7_224"])
def test_norms_that_cannot_be_put(name):
    with pytest.raises(ConfigError, match=r"norm: .*leave the key at batch"):
        network(name, norm="group")
    network(name, norm="none")


# Weights to begin with: of files that a test writes, or published ones.


def tensors(model):
    return named_tensors(model, to_vector(model))


@pytest.fixture(params=[".safetensors", ".pt"])
def written(request, tmp_path):
    """A file with the weights of another network of the kind, and these."""

    def write(name="resnet18", **settings):
        other = reset(network(name, **settings), seed=99)
        path = tmp_path / f"weights{request.param}"
        state = {n: t.contiguous() for n, t in other.state_dict().items()}
        save = save_file if path.suffix == ".safetensors" else torch.save
        save(state, path)
        return str(path), tensors(other)

    return write


@pytest.mark.slow
@pytest.mark.parametrize("classes", [5, 7])
def test_it_begins_with_a_file_s_but_for_a_last_layer_of_other_classes(
    written, classes
):
    path, wanted = written(classes=classes)
    model = reset(network("resnet18", weights=path))
    found, random = tensors(model), tensors(reset(network("resnet18")))
    for name in wanted:
        other = random if name.startswith("fc.") and classes == 7 else wanted
        assert torch.equal(found[name], other[name]), name


@pytest.mark.slow
def test_batch_norm_s_scales_go_into_other_norms(written):
    path, wanted = written()
    found = tensors(reset(network("resnet18", weights=path, norm="group")))
    assert torch.equal(found["bn1.weight"], wanted["bn1.weight"])


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"stem": "imagenet"}, {"channels": 1}])
def test_weights_that_do_not_fit(written, settings):
    path, _ = written()
    with pytest.raises(ConfigError, match=r"\.weights: .*do not fit.*conv1\.weight"):
        reset(network("resnet18", weights=path, **settings))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("broken.safetensors", b"nothing"),
        ("broken.pt", b"nothing"),
        ("planted.pt", Runs("foreign code ran", sys.exit)),
        ("list.pt", [1, 2]),
    ],
)
def test_files_that_are_no_weights(tmp_path, name, content):
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(ConfigError, match=r"network\.weights: .*state dict"):
        reset(network("digits_cnn", weights=str(path)))


def test_no_such_file(tmp_path):
    with pytest.raises(ConfigError, match="there is no file"):
        reset(network("digits_cnn", weights=str(tmp_path / "none.pt")))
    with pytest.raises(ConfigError, match="no published weights of digits_cnn"):
        reset(network("digits_cnn", weights="default"))


@pytest.fixture
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))


@pytest.mark.slow
def test_published_weights_that_are_not_here(offline):
    with pytest.raises(ConfigError, match=r"fetch https://.*resnet18.*\.pth"):
        reset(network("resnet18", weights="default", stem="imagenet"))
    with pytest.raises(ConfigError, match=r"no weights 'V9'.*IMAGENET1K_V1"):
        reset(network("resnet18", weights="V9"))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("resnet18", {"stem": "imagenet"}),
        ("timm:resnet10t", {}),
        ("timm:resnet10t", {"weights": "c3_in1k"}),
    ],
)
def test_without_a_network_nothing_is_tried_again(offline, monkeypatch, name, settings):
    """Not even the libraries' own downloads, which take minutes to give up."""

    def nobody(where, timeout):
        raise OSError("Name or service not known")

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(socket, "create_connection", nobody)
    with pytest.raises(ConfigError, match=r"cannot be reached \(Name or.*FILE$"):
        reset(network(name, **{"weights": "default", **settings}))


@pytest.mark.slow
def test_published_weights_of_torchvision(offline, tmp_path, monkeypatch):
    """A file that was fetched before, with a thousand classes; its name ends in the
    SHA-256 that torchvision's own has."""
    models = pytest.importorskip("torchvision.models")
    theirs = models.resnet18(weights=None)
    url = models.get_model_weights("resnet18").IMAGENET1K_V1.url
    path = tmp_path / "hub" / "checkpoints" / url.rpartition("/")[2]
    path.parent.mkdir(parents=True)
    torch.save(theirs.state_dict(), path)
    with pytest.raises(ConfigError, match="HF_HUB_OFFLINE forbids"):  # it is damaged
        reset(network("resnet18", stem="imagenet", weights="IMAGENET1K_V1"))
    digits = path.stem.rpartition("-")[2]
    monkeypatch.setattr(downloads, "sha256_file", lambda path: digits)
    chosen = {"stem": "imagenet", "weights": "IMAGENET1K_V1"}
    found = tensors(reset(network("resnet18", **chosen)))
    for name, tensor in theirs.named_parameters():
        if not name.startswith("fc."):
            assert torch.equal(found[name], tensor)
