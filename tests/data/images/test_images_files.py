"""One image file: loaded as a person sees it, or refused with its path."""

import struct
import zlib

import numpy as np
import pytest
from image_miniatures import draw, pixels
from PIL import Image, ImageFile

from federatedscope_ggeur.data.images import load_image
from federatedscope_ggeur.errors import DataError

RED = (200, 30, 60)


def centre(path):
    image = load_image(path)
    assert image.mode == "RGB"
    return image.getpixel((image.width // 2, image.height // 2))


def near(found, expected, tolerance=6):
    return all(abs(a - b) <= tolerance for a, b in zip(found, expected))


@pytest.mark.parametrize(
    "ext", ["jpg", "JPEG", "png", "bmp", "webp", "ppm", "tif", "TIFF", "gif"]
)
def test_every_format_is_read(tmp_path, ext):
    assert near(centre(draw(tmp_path / f"a.{ext}", RED, size=(16, 16))), RED)


def test_grey_becomes_rgb(tmp_path):
    assert centre(draw(tmp_path / "a.pgm", (77,))) == (77, 77, 77)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_is_laid_on_white(tmp_path, mode):
    path = tmp_path / "a.png"
    black = (0,) * len(mode)
    Image.new(mode, (4, 4), black).save(path)
    assert centre(path) == (255, 255, 255)
    half = (*black[:-1], 128)
    Image.new(mode, (4, 4), half).save(path)
    assert near(centre(path), (127, 127, 127), 1)


def test_palette_with_a_transparent_colour(tmp_path):
    path = tmp_path / "a.gif"
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, *RED])
    image.save(path)
    assert centre(path) == RED
    image.save(path, transparency=1)
    assert centre(path) == (255, 255, 255)


def test_transparent_colour_of_rgb(tmp_path):
    path = tmp_path / "a.png"
    Image.new("RGB", (4, 4), RED).save(path, transparency=RED)
    assert centre(path) == (255, 255, 255)


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_16_bits_keep_their_high_byte(tmp_path, name):
    path = tmp_path / name
    values = np.array([[0, 255, 256], [40_000, 65_280, 65_535]], dtype=np.uint16)
    Image.fromarray(values).save(path)
    found = np.asarray(load_image(path))[..., 0]
    assert found.tolist() == [[0, 0, 1], [156, 255, 255]]


def test_grey_of_12_bits_uses_all_of_its_levels(tmp_path):
    path = tmp_path / "a.png"
    values = np.array([[0, 15, 16, 4_095]], dtype=np.uint16)
    Image.fromarray(values).save(path)
    found = np.asarray(load_image(path, grey_bits=12))[0, :, 0]
    assert found.tolist() == [0, 0, 1, 255]
    with pytest.raises(DataError, match=r"4095.*11 bits of ggeur\.encoder\.grey_bits"):
        load_image(path, grey_bits=11)


def test_16_bit_pgm(tmp_path):
    path = tmp_path / "a.pgm"
    path.write_bytes(b"P5 2 1 65535\n" + struct.pack(">2H", 256, 65_535))
    assert np.asarray(load_image(path))[0, :, 0].tolist() == [1, 255]


def test_cmyk(tmp_path):
    path = tmp_path / "a.jpg"
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(path)
    assert near(centre(path), (255, 0, 0))


@pytest.mark.parametrize("mode", ["I", "F"])
def test_32_bits_a_pixel_are_refused(tmp_path, mode):
    path = tmp_path / "a.tif"
    Image.new(mode, (4, 4), 7).save(path)
    with pytest.raises(DataError, match=rf"has the mode '{mode}'.*8 or 16 bits"):
        load_image(path)


@pytest.mark.parametrize("ext", ["jpg", "png", "tif"])
def test_exif_orientation_is_applied_once(tmp_path, ext):
    path = tmp_path / f"a.{ext}"
    image = Image.new("RGB", (32, 16), RED)
    image.paste((0, 0, 255), (0, 0, 16, 16))  # blue on the left
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    image.save(path, exif=exif)
    found = load_image(path)
    assert found.size == (16, 32)
    assert near(found.getpixel((8, 2)), (0, 0, 255), 20)
    assert near(found.getpixel((8, 29)), RED, 20)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize("exif", [b"II*\0\xff\xff\xff\x7f", b"nonsense"])
def test_broken_exif_beside_intact_pixels(tmp_path, exif):
    path = tmp_path / "a.jpg"
    Image.new("RGB", (16, 16), RED).save(path, exif=b"Exif\0\0" + exif)
    assert near(centre(path), RED)


def test_first_frame_of_an_animation(tmp_path):
    path = tmp_path / "a.gif"
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, (0, 0, 255))]
    frames[0].save(path, save_all=True, append_images=frames[1:])
    assert near(centre(path), RED)


@pytest.mark.parametrize("ext", ["jpg", "png", "bmp", "webp", "ppm", "tif", "gif"])
def test_truncated_images_are_refused_by_path(tmp_path, ext, monkeypatch):
    path = tmp_path / f"cut.{ext}"
    Image.fromarray(pixels(1, 64, 64, 3)[0]).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    # Not even where other code told Pillow to fill the rest with black.
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(DataError, match=rf"cut\.{ext}: the file cannot be"):
        load_image(path)
    assert ImageFile.LOAD_TRUNCATED_IMAGES


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"\xff\xd8\xff"])
def test_no_image_at_all(tmp_path, content):
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    with pytest.raises(
        DataError, match=r"a\.jpg: the file cannot be loaded as an image"
    ):
        load_image(path)


@pytest.mark.parametrize("kind", ["PCX", "TGA", "EPS"])
def test_formats_that_are_not_accepted_under_any_name(tmp_path, kind):
    path = tmp_path / "a.jpg"
    Image.new("RGB", (8, 8), RED).save(path, format=kind)
    with pytest.raises(DataError, match=r"a\.jpg: the file cannot be loaded"):
        load_image(path)


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"gone\.jpg: the file cannot be loaded"):
        load_image(tmp_path / "gone.jpg")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [10_500, 40_000])
def test_decompression_bombs_are_refused_before_loading(tmp_path, side):
    def chunk(kind, data):
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    head = struct.pack(">2I5B", side, side, 8, 0, 0, 0, 0)
    path = tmp_path / "bomb.png"
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(bytes(100)))
        + chunk(b"IEND", b"")
    )
    with pytest.raises(DataError, match=r"bomb\.png: .*(pixels|bomb)"):
        load_image(path)
