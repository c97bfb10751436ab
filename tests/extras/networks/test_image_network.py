"""`ImageNetwork`: pixels in, chunks, stage hooks, frozen statistics, state dict."""

import copy

import pytest
import torch
from safetensors.torch import load, save
from tiny_networks import images, make_model

from federatedscope_ggeur.extras.networks.architectures.digits_cnn import DigitsCNN
from federatedscope_ggeur.extras.networks.image_network import NetworkSettings
from federatedscope_ggeur.models import (
    ModelSettings,
    OwnModels,
    build_model,
    num_trainable,
    own_tensors,
    put_last_layer,
    take_last_layer,
    to_vector,
)


def digits_cnn(dim=64, classes=4, **settings):
    chosen = NetworkSettings("digits_cnn", **settings)
    model = build_model(dim, classes, ModelSettings(other=chosen))
    return model.reset(torch.Generator().manual_seed(0))


def pixels(n, dim=64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (n, dim), dtype=torch.uint8, generator=generator)


class TestPrepare:
    MEAN, STD = (0.1, 0.4, 0.6), (0.2, 0.5, 0.9)

    def test_by_channel(self):
        model = digits_cnn(192, mean=self.MEAN, std=self.STD)
        rows = pixels(5, 192)
        mean, std = (torch.tensor(v)[:, None] for v in (self.MEAN, self.STD))
        wanted = (rows.view(5, 3, 64) / 255 - mean) / std
        found = model.prepare(rows)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, wanted.view(5, -1))
        torch.testing.assert_close(model.prepare(rows / 255), found)

    def test_one_channel_takes_the_means(self):
        model = digits_cnn(64, mean=(0.1, 0.4, 0.7), std=(0.2, 0.4, 0.6))
        rows = pixels(3)
        torch.testing.assert_close(model.prepare(rows), (rows / 255 - 0.4) / 0.4)

    def test_rows_are_left_as_they_are(self):
        model = digits_cnn(augment="crop_flip")
        for rows in (pixels(3), pixels(3) / 255):
            copied = rows.clone()
            model.prepare(rows, torch.Generator())
            assert torch.equal(rows, copied)

    def test_no_draws_without_a_generator(self):
        model = digits_cnn(augment="crop_flip")
        assert torch.equal(
            model.prepare(pixels(3)), digits_cnn().prepare(pixels(3), torch.Generator())
        )

    def test_of_no_rows(self):
        assert digits_cnn().prepare(pixels(0)).shape == (0, 64)
        augmented = digits_cnn(augment="crop_flip")
        assert augmented.prepare(pixels(0), torch.Generator()).shape == (0, 64)


class TestPrecision:
    def test_bf16_has_about_two_digits_and_gives_float32(self):
        model, other = digits_cnn().eval(), digits_cnn(precision="bf16").eval()
        rows = model.prepare(pixels(16))
        for part in ("represent", "last_input", "forward"):
            exact, found = getattr(model, part)(rows), getattr(other, part)(rows)
            assert found.dtype == torch.float32
            assert 0 < (found - exact).norm() < 0.02 * exact.norm()

    def test_hooks_and_gradients_are_float32(self):
        model, seen = digits_cnn(precision="bf16").train(), set()

        def see(k, stage_map):
            seen.add((stage_map.dtype, (torch.eye(2) @ torch.eye(2)).dtype))
            return stage_map

        into = torch.zeros(num_trainable(model))
        with model.stages_hooked(see):
            model.gradient_accumulator(into, 0.0)(
                model.prepare(pixels(8)), torch.arange(8) % 4
            )
        assert seen == {(torch.float32, torch.float32)}
        assert into.dtype == torch.float32
        assert into.any()


def test_frozen_statistics_stay():
    model = digits_cnn().train()
    rows = model.prepare(pixels(8))
    size = num_trainable(model)
    with model.frozen_statistics():
        before = to_vector(model)
        first = model(rows)
        assert torch.equal(to_vector(model), before)
        # They normalise by the batch nonetheless.
        torch.testing.assert_close(model(rows), first)
    model(rows)
    assert not torch.equal(to_vector(model)[size:], before[size:])


def test_hooks_act_on_every_stage_and_are_gone_afterwards():
    model = digits_cnn().eval()
    rows = model.prepare(pixels(4))
    plain, seen = model(rows), []

    def double(k, stage_map):
        seen.append((k, tuple(stage_map.shape[1:])))
        return 2 * stage_map if k == 2 else stage_map

    with model.stages_hooked(double):
        hooked = model.represent(rows)
    assert seen == [(0, (16, 8, 8)), (1, (32, 4, 4)), (2, (64, 4, 4))]
    torch.testing.assert_close(hooked, 2 * model.represent(rows))
    assert torch.equal(model(rows), plain)
    with pytest.raises(ZeroDivisionError), model.stages_hooked(double):
        raise ZeroDivisionError
    assert torch.equal(model(rows), plain)


@pytest.mark.slow
def test_channels_last_maps_are_turned():
    chosen = NetworkSettings("timm:swin_tiny_patch4_window7_224")
    model = build_model(3 * 32**2, 3, ModelSettings(other=chosen)).eval()
    rows, widths = model.prepare(pixels(2, 3072)), []

    def note(k, stage_map):
        widths.append(stage_map.shape[1])
        return stage_map

    with torch.no_grad(), model.stages_hooked(note):
        hooked = model(rows)
    assert tuple(widths) == model.stage_widths == (96, 192, 384, 768)
    with torch.no_grad():
        assert torch.equal(hooked, model(rows))


def test_a_copy_at_other_weights():
    model = digits_cnn()
    vector = torch.rand(len(to_vector(model)))
    other = model.at(vector)
    assert torch.equal(to_vector(other), vector)
    assert not other.training
    assert not any(p.requires_grad for p in other.parameters())
    params = vector[: num_trainable(model)]
    bare = model.at(params)
    assert torch.equal(to_vector(bare)[: len(params)], params)
    assert torch.equal(to_vector(bare)[len(params) :], to_vector(model)[len(params) :])


def test_its_file_loads_into_plain_torch():
    model = digits_cnn().eval()
    plain = DigitsCNN(1, 4).eval()
    plain.load_state_dict(load(save(model.state_dict())), strict=False)
    rows = model.prepare(pixels(3))
    assert torch.equal(plain(rows.view(3, 1, 8, 8)), model(rows))
    again = copy.deepcopy(model).reset(torch.Generator().manual_seed(9))
    again.load_state_dict(plain.state_dict())
    assert torch.equal(to_vector(again), to_vector(model))


def test_the_last_layer_is_taken_and_put_back():
    model = digits_cnn()
    vector = to_vector(model)
    last = take_last_layer(model, vector, [2, 0])
    weight, bias = model.classifier.weight, model.classifier.bias
    assert torch.equal(last, torch.cat([weight[[2, 0]].flatten(), bias[[2, 0]]]))
    changed = put_last_layer(model, vector, [2, 0], last + 1)
    assert int((changed != vector).sum()) == len(last)


# Clients' own networks: what their files keep.


def test_of_a_network_what_differs_is_kept():
    model = make_model()
    params, shared = to_vector(model), model.state_dict()
    assert own_tensors(model, params, shared) == {}
    params[model.norm_mask] += 1
    own = own_tensors(model, params, shared)
    assert own
    assert own.keys() < shared.keys()
    assert all(".norm." in name for name in own)
    assert all(torch.equal(own[name], shared[name] + 1) for name in own)
    whole = own_tensors(model, params, None)
    assert whole.keys() == shared.keys()


def test_a_network_takes_the_shared_one_s_tensors_for_the_rest():
    model = make_model()
    params = to_vector(model)
    params[model.norm_mask] += 1
    own = OwnModels(model, {4: own_tensors(model, params, model.state_dict())})
    assert torch.equal(to_vector(own.of(4)), params)
    rows = images(6)[0]
    found = own.logits(rows, torch.full((6,), 4))
    assert torch.equal(found, model.at(params).in_chunks(own.of(4), rows))
