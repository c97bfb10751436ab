"""Weights to begin with: of files that a test writes, or published ones."""

import socket
import sys

import pytest
import torch
from safetensors.torch import save_file
from test_networks_table import network

from federatedscope_ggeur import downloads
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.models import named_tensors, to_vector


def reset(model, seed=3):
    return model.reset(torch.Generator().manual_seed(seed))


def tensors(model):
    return named_tensors(model, to_vector(model))


@pytest.fixture(params=[".safetensors", ".pt"])
def written(request, tmp_path):
    """A file with the weights of another network of the kind, and these."""

    def write(name="resnet18", **settings):
        other = reset(network(name, **settings), seed=99)
        path = tmp_path / f"weights{request.param}"
        state = {n: t.contiguous() for n, t in other.state_dict().items()}
        save_file(state, path) if path.suffix == ".safetensors" else torch.save(
            state, path
        )
        return str(path), tensors(other)

    return write


@pytest.mark.slow
def test_it_begins_with_a_file_s(written):
    path, wanted = written()
    found = tensors(reset(network("resnet18", weights=path)))
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.slow
def test_a_last_layer_of_other_classes_is_drawn(written):
    path, wanted = written(classes=7)
    model = reset(network("resnet18", weights=path))
    found, random = tensors(model), tensors(reset(network("resnet18")))
    for name in wanted:
        other = random if name.startswith("fc.") else wanted
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
    with pytest.raises(
        ConfigError, match=r"network\.weights: .*do not fit.*conv1\.weight"
    ):
        reset(network("resnet18", weights=path, **settings))


@pytest.mark.slow
def test_weights_of_another_network(written):
    path, _ = written("convnet5")
    with pytest.raises(ConfigError, match=r"do not fit resnet18"):
        reset(network("resnet18", weights=path))


class Planted:
    def __reduce__(self):
        return (sys.exit, ("foreign code ran",))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("broken.safetensors", b"nothing"),
        ("broken.pt", b"nothing"),
        ("planted.pt", Planted()),
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


def test_unknown_weights_of_timm():
    pytest.importorskip("timm")
    with pytest.raises(ConfigError, match=r"timm has no weights 'V9' of .*c3_in1k"):
        reset(network("timm:resnet10t", weights="V9"))


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
