"""The encoder timm.

Tests of data/encoders/timm.py and torch_models.py.
"""

from dataclasses import replace

import pytest
import torch
from PIL import Image

from federatedscope_ggeur.data import EncoderSettings, build_encoder
from federatedscope_ggeur.errors import ConfigError

timm = pytest.importorskip("timm")

CPU = torch.device("cpu")
SETTINGS = EncoderSettings("timm", "test_vit", "none")


@pytest.mark.slow
def test_features_are_the_pooled_ones_of_the_weights(tmp_path):
    torch.manual_seed(5)
    model = timm.create_model("test_vit").eval()
    file = tmp_path / "weights.pt"
    torch.save(model.state_dict(), file)
    encoder = build_encoder(replace(SETTINGS, pretrained=str(file)), CPU)
    image = Image.new("RGB", (200, 180), "teal")
    prepare = timm.data.create_transform(
        **timm.data.resolve_model_data_config(model), is_training=False
    )
    batch = prepare(image)[None]
    with torch.no_grad():
        expected = model.forward_head(model.forward_features(batch), pre_logits=True)
    for prepared in (encoder.preprocess(image)[None], batch):  # bytes and floats
        assert prepared.shape[1:] == model.pretrained_cfg["input_size"]
        found = encoder.encode(prepared)
        assert torch.allclose(found, expected, atol=1e-6)
    assert found.shape == (1, encoder.dim)


@pytest.mark.slow
def test_everything_that_changes_features_changes_the_identity(tmp_path):
    file = tmp_path / "weights.pt"
    torch.save(timm.create_model("test_vit").state_dict(), file)
    variants = [
        SETTINGS,
        replace(SETTINGS, model="test_vit2"),
        replace(SETTINGS, normalize=True),
        replace(SETTINGS, precision="bf16"),
        replace(SETTINGS, pretrained=str(file)),
    ]
    assert len({build_encoder(v, CPU).name[-12:] for v in variants}) == len(variants)


def test_unknown_models_and_tags_list_known_ones():
    with pytest.raises(ConfigError, match=r"no model 'resnet5O'; it has .*resnet50"):
        build_encoder(replace(SETTINGS, model="resnet5O"), CPU)
    with pytest.raises(ConfigError, match=r"no model ''"):
        build_encoder(replace(SETTINGS, model=""), CPU)
    with pytest.raises(ConfigError, match=r"no weights 'best' .* test_vit\.r160_in1k"):
        build_encoder(replace(SETTINGS, pretrained="best"), CPU)


def test_a_file_of_another_model_is_refused(tmp_path):
    file = tmp_path / "weights.pt"
    torch.save(timm.create_model("test_resnet").state_dict(), file)
    with pytest.raises(ConfigError, match=r"another model, because it lacks \d+ of"):
        build_encoder(replace(SETTINGS, pretrained=str(file)), CPU)


def test_missing_weights_touch_no_network(offline):
    with pytest.raises(ConfigError, match="HF_HUB_OFFLINE forbids downloads"):
        build_encoder(EncoderSettings("timm", "test_vit"), CPU)
