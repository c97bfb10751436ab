"""Trees of image files: every layout is read, everything else refused by name."""

import os
import pickle
import shutil
import struct
import zlib
from io import BytesIO

import numpy as np
import pytest
from image_miniatures import draw, draw_tree, pixels, placed, refuse
from PIL import Image, ImageFile

from federatedscope_ggeur.data.images import IMAGE_READERS, load_image
from federatedscope_ggeur.data.images.trees import read_image_folder
from federatedscope_ggeur.errors import DataError


def sizes(data):
    return [
        (d.name, len(d.train), None if d.test is None else len(d.test))
        for d in data.domains
    ]


def test_domains_and_classes_are_sorted_by_name(tmp_path):
    draw_tree(tmp_path, ["zoo", "art"], ["dog", "TV", "Table"], images=2)
    data = IMAGE_READERS["image_folder"](tmp_path)
    assert (data.name, data.class_names) == ("image_folder", ("TV", "Table", "dog"))
    assert sizes(data) == [("art", 6, None), ("zoo", 6, None)]
    art = data.domains[0].train
    assert art.labels.dtype == np.int64
    assert art.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert art.keys[0] == "art/TV/pic_000.jpg"
    assert len(set(art.keys)) == 6


def test_images_are_loaded_one_by_one_also_by_another_process(tmp_path):
    for number, name in enumerate("ab"):
        draw(tmp_path / "domain" / name / "x.png", colour=(100 * number, 0, 0))
    images = read_image_folder(str(tmp_path)).domains[0].train
    load = pickle.loads(pickle.dumps(images.load))
    assert [load(row).getpixel((0, 0)) for row in (1, 0)] == [(100, 0, 0), (0, 0, 0)]


def test_nothing_is_loaded_while_reading(tmp_path):
    draw_tree(tmp_path, ["art"], ["dog"], images=2)
    (tmp_path / "art" / "dog" / "pic_000.jpg").write_bytes(b"broken")
    images = read_image_folder(tmp_path).domains[0].train
    assert images.load(1).mode == "RGB"
    with pytest.raises(DataError, match="pic_000"):
        images.load(0)


def test_stamps_change_with_size_and_with_time(tmp_path):
    draw_tree(tmp_path, ["art"], ["dog"], images=3)
    folder = tmp_path / "art" / "dog"
    before = read_image_folder(tmp_path).domains[0].train.stamps
    with open(folder / "pic_000.jpg", "ab") as file:
        file.write(b"x")
    os.utime(folder / "pic_001.jpg", ns=(5, 5))
    after = read_image_folder(tmp_path).domains[0].train.stamps
    assert [a == b for a, b in zip(before, after)] == [False, False, True]


def test_domains_with_train_and_test(tmp_path):
    draw_tree(tmp_path / "one", ["train", "test"], ["dog", "cat"])
    assert sizes(read_image_folder(tmp_path / "one")) == [("all", 4, 4)]
    shutil.rmtree(tmp_path / "one")
    draw_tree(tmp_path / "art" / "train", ["dog", "cat"], [""], images=3)
    draw_tree(tmp_path / "art" / "Test", ["cat"], [""], images=1)
    draw_tree(tmp_path, ["photo"], ["cat", "dog"], images=2)
    data = read_image_folder(tmp_path)
    assert sizes(data) == [("art", 6, 1), ("photo", 4, None)]
    assert data.domains[0].test.keys == ("art/Test/cat/pic_000.jpg",)
    assert data.domains[0].test.labels.tolist() == [0]


def test_a_class_may_be_called_train(tmp_path):
    draw_tree(tmp_path, ["art"], ["bike", "train"])
    assert read_image_folder(tmp_path).class_names == ("bike", "train")


def test_images_between_domain_and_classes(tmp_path):
    draw_tree(tmp_path / "amazon", ["images"], ["bike", "mug"])
    draw_tree(tmp_path, ["dslr"], ["bike", "mug"])
    data = read_image_folder(tmp_path)
    assert sizes(data) == [("amazon", 4, None), ("dslr", 4, None)]
    assert data.class_names == ("bike", "mug")


def test_what_is_no_image_is_passed_over(tmp_path):
    draw_tree(tmp_path, ["art"], ["dog"], images=2)
    for name in (".DS_Store", "Thumbs.db", "._pic_000.jpg", "notes.txt"):
        (tmp_path / "art" / "dog" / name).write_bytes(b"x")
    (tmp_path / "art" / "labels.csv").write_text("x")
    (tmp_path / "readme.md").write_text("x")
    for name in (".git", "__MACOSX"):
        draw(tmp_path / name / "dog" / "a.jpg")
        draw(tmp_path / "art" / name / "a.jpg")
    assert sizes(read_image_folder(tmp_path)) == [("art", 2, None)]


def test_linked_files_and_folders_are_followed(tmp_path):
    draw_tree(tmp_path / "store", ["art"], ["dog"])
    root = tmp_path / "root"
    root.mkdir()
    (root / "art").symlink_to(tmp_path / "store" / "art", target_is_directory=True)
    assert read_image_folder(root).domains[0].train.keys[0] == "art/dog/pic_000.jpg"


def test_different_classes_are_listed_by_domain(tmp_path):
    draw_tree(tmp_path, ["art"], ["cat", "dog"])
    draw_tree(tmp_path, ["photo"], ["cat", "Dog", "owl"])
    said = ("'art'", "lacks 'Dog', 'owl'", "'photo'", "lacks 'dog'")
    refuse(read_image_folder, tmp_path, *said)


def test_with_a_list_of_classes_domains_may_lack_some(tmp_path):
    draw_tree(tmp_path, ["art"], ["cat", "owl"], images=1)
    draw_tree(tmp_path, ["photo"], ["dog"], images=1)
    (tmp_path / "class_names.txt").write_text("owl\ndog\nemu\ncat\n")
    data = read_image_folder(tmp_path)
    assert data.class_names == ("owl", "dog", "emu", "cat")
    assert [d.train.labels.tolist() for d in data.domains] == [[0, 3], [1]]
    (tmp_path / "class_names.txt").write_text("owl\ncat\n")
    said = ("the classes 'dog' are not in", "class_names.txt", "'owl', 'cat'")
    refuse(read_image_folder, tmp_path, tmp_path / "photo", *said)


@pytest.mark.parametrize(
    ("where", "spoil", "said"),
    [
        ("art/cat", lambda p: placed(p / "note").touch(), ("no image", "1 other file")),
        ("dog", lambda p: draw(p / "a.jpg"), ("no class folders", "but 1 image(s)")),
        ("art/dog", lambda p: draw(p / "more" / "a.jpg"), ("'more'", "directly")),
        ("art/dog/z.jpg", lambda p: p.symlink_to("gone.jpg"), ("cannot be read",)),
    ],
)
def test_trees_that_are_refused(tmp_path, where, spoil, said):
    draw_tree(tmp_path, ["art"], ["dog"])
    spoil(tmp_path / where)
    refuse(read_image_folder, tmp_path, tmp_path / where, *said)


@pytest.mark.parametrize("extra", [[], ["test", "val"], ["test", "dog"]])
def test_a_split_that_is_not_train_and_test(tmp_path, extra):
    draw_tree(tmp_path / "art", ["train", *extra], ["dog"])
    draw_tree(tmp_path, ["photo"], ["dog"])
    refuse(read_image_folder, tmp_path, tmp_path / "art", "'train'", *extra)


@pytest.mark.parametrize("extra", [[], ["val"], ["test", "art"]])
def test_parts_of_a_split_in_the_root_are_no_domains(tmp_path, extra):
    draw_tree(tmp_path, ["train", *extra], ["dog", "cat"])
    refuse(read_image_folder, tmp_path, "has the folders", "'train'", "one domain")


def test_names_that_are_no_text(tmp_path):
    draw_tree(tmp_path, ["art"], ["dog"])
    path = os.path.join(os.fsencode(tmp_path), b"art", b"dog", b"caf\xe9.jpg")
    try:
        os.link(tmp_path / "art" / "dog" / "pic_000.jpg", path)
    except OSError:
        pytest.skip("the file system takes UTF-8 names alone")
    refuse(read_image_folder, tmp_path, r"caf\xe9.jpg", "not UTF-8", "Rename")


# One image file: loaded as a person sees it, or refused with its path.


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
def test_every_format_is_found_and_read(tmp_path, ext):
    path = draw(tmp_path / "art" / "dog" / f"a.{ext}", RED, size=(16, 16))
    assert near(centre(path), RED)
    assert sizes(read_image_folder(tmp_path)) == [("art", 1, None)]


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_is_laid_on_white(tmp_path, mode):
    path = tmp_path / "a.png"
    black = (0,) * len(mode)
    Image.new(mode, (4, 4), black).save(path)
    assert centre(path) == (255, 255, 255)
    half = (*black[:-1], 128)
    Image.new(mode, (4, 4), half).save(path)
    assert near(centre(path), (127, 127, 127), 1)


def test_a_transparent_colour_is_white(tmp_path):
    palette, rgb = Image.new("P", (4, 4), 1), Image.new("RGB", (4, 4), RED)
    palette.putpalette([0, 0, 0, *RED])
    for image, name, colour in ((palette, "a.gif", 1), (rgb, "a.png", RED)):
        image.save(tmp_path / name)
        assert centre(tmp_path / name) == RED
        image.save(tmp_path / name, transparency=colour)
        assert centre(tmp_path / name) == (255, 255, 255)


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.pgm"])
def test_16_bits_keep_their_high_byte(tmp_path, name):
    path, values = tmp_path / name, [0, 255, 256, 40_000, 65_280, 65_535]
    if name == "a.pgm":
        path.write_bytes(b"P5 6 1 65535\n" + struct.pack(">6H", *values))
    else:
        Image.fromarray(np.array([values], dtype=np.uint16)).save(path)
    found = np.asarray(load_image(path))[0, :, 0]
    assert found.tolist() == [0, 0, 1, 156, 255, 255]


def test_grey_of_12_bits_uses_all_of_its_levels(tmp_path):
    path = tmp_path / "a.png"
    values = np.array([[0, 15, 16, 4_095]], dtype=np.uint16)
    Image.fromarray(values).save(path)
    found = np.asarray(load_image(path, grey_bits=12))[0, :, 0]
    assert found.tolist() == [0, 0, 1, 255]
    with pytest.raises(DataError, match=r"4095.*11 bits of ggeur\.encoder\.grey_bits"):
        load_image(path, grey_bits=11)


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


def image_of(kind):
    stream = BytesIO()
    Image.new("RGB", (8, 8), RED).save(stream, format=kind)
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [None, b"", b"<html>not found</html>", b"\xff\xd8\xff", "PCX", "TGA", "EPS"],
)
def test_what_is_no_accepted_image_is_refused_under_any_name(tmp_path, content):
    path = tmp_path / "a.jpg"
    if content is not None:
        path.write_bytes(image_of(content) if isinstance(content, str) else content)
    message = r"a\.jpg: the file cannot be loaded as an image"
    with pytest.raises(DataError, match=message):
        load_image(path)


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


# What every reader refuses alike: it says what it looked for, and where to get it.


#: Of each layout, a file or folder that is looked for, and places to get it from.
WANTED = {
    "cifar10": ("cifar-10-batches-py", "kriz/cifar"),
    "cifar100": ("cifar-100-python", "kriz/cifar"),
    "digits": (
        *("usps.t.bz2", "train_32x32.mat", "ossci-datasets", "cjlin"),
        *("housenumbers", "synthetic-digits"),
    ),
    "domainnet": ("<domain>_train.txt", "https://"),
    "femnist": ("user_data", "https://"),
    "image_folder": ("<domain>/<class>/<image file>", "<domain>/train/<class>"),
    "office_caltech": ("caltech10", "https://"),
    "office_home": ("Real World", "https://www.hemanthdv.org"),
    "office_home_lds": ("Real World", "huggingface"),
    "pacs": (
        *("art_painting", "pacs_data", "_kfold.txt"),
        "https://sketchx.eecs.qmul.ac.uk",
    ),
    "tiny_imagenet": ("val_annotations.txt", "cs231n"),
}


def test_every_reader_of_files_is_here():
    assert set(WANTED) == set(IMAGE_READERS) - {"bundled_digits"}


@pytest.mark.parametrize("name", WANTED)
def test_a_root_without_it_is_refused(name, tmp_path):
    archive = tmp_path / "empty" / "all of it.zip"
    archive.parent.mkdir()
    archive.write_bytes(b"x")
    for root, problem in (
        (tmp_path / "gone", "does not exist"),
        (draw(tmp_path / "a.jpg"), "is not a folder"),
        (archive.parent, "has no folders" if name == "image_folder" else archive.name),
    ):
        refuse(IMAGE_READERS[name], root, root, problem, *WANTED[name])
