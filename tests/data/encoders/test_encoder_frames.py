"""Frames: a library's transform in two parts gives the same bits as in one."""

import pickle

import pytest
import torch
from pictures import photograph
from torchvision import transforms

from federatedscope_ggeur.data.encoders import frames

BICUBIC = transforms.InterpolationMode.BICUBIC
MEAN, STD = (0.48, 0.45, 0.4), (0.26, 0.261, 0.27)
NORMALIZE = transforms.Normalize(MEAN, STD)


def _convert_to_rgb(image):
    """As open_clip's."""
    return image.convert("RGB")


SMALL = [transforms.Resize(32, interpolation=BICUBIC), transforms.CenterCrop(28)]
WHOLE = transforms.Compose([*SMALL, _convert_to_rgb, transforms.ToTensor(), NORMALIZE])
FRAME = frames.frame_of(WHOLE)
SIZES = [(64, 48), (48, 64), (33, 57), (28, 28), (20, 300)]


@pytest.mark.parametrize("size", SIZES)
def test_the_parts_give_the_bits_of_the_whole(size):
    pictures = [photograph(*size, seed) for seed in range(3)]
    small = torch.stack([FRAME.shape(one) for one in pictures])
    assert small.dtype == torch.uint8
    assert torch.equal(FRAME.normalise(small), torch.stack([*map(WHOLE, pictures)]))


@pytest.mark.parametrize("size", SIZES)
def test_on_a_device_images_become_small_as_by_pillow_but_for_rounding(size):
    image = photograph(*size)
    pixels = transforms.functional.pil_to_tensor(image)
    found = FRAME.small(torch.stack([pixels, pixels.flip(0)])).float()
    wanted = FRAME.shape(image).float()
    assert found.shape[1:] == wanted.shape
    assert (found[0] - wanted).abs().max() <= 1
    assert torch.equal(found[1], found[0].flip(0))


def test_a_frame_can_be_sent_to_a_process():
    image = photograph(64, 48)
    again = pickle.loads(pickle.dumps(FRAME))
    assert torch.equal(again.shape(image), FRAME.shape(image))


@pytest.mark.parametrize(
    ("head", "resizes"),
    [
        ([transforms.Resize(32)], False),
        ([transforms.CenterCrop(28), transforms.Resize(32)], False),
        ([transforms.Resize((32, 32)), transforms.CenterCrop(28)], False),
        ([transforms.Resize(32), transforms.CenterCrop(28)], True),
    ],
)
def test_only_a_resize_and_a_crop_can_be_done_on_a_device(head, resizes):
    frame = frames.frame_of(
        transforms.Compose([*head, transforms.ToTensor(), NORMALIZE])
    )
    assert frame.side == 32 * resizes


@pytest.mark.parametrize(
    "whole",
    [
        lambda image: image,
        transforms.Compose([transforms.Resize(32), transforms.ToTensor()]),
        transforms.Compose([transforms.ToTensor(), transforms.Lambda(lambda x: x)]),
    ],
)
def test_other_transforms_have_no_frame(whole):
    assert frames.frame_of(whole) is None
