"""Decide which files are images, and load one, safely and as RGB."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile, ImageOps

from federatedscope_ggeur.errors import DataError, setting
from federatedscope_ggeur.printable import get_logger

from .layout import Images

logger = get_logger(__name__)

EXTENSIONS = frozenset(
    (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff", ".gif")
)
#: Suffixes of image formats that this package does not read.
NOT_READ = frozenset((".heic", ".heif", ".avif", ".jfif", ".jxl", ".dcm", ".dicom"))
#: The formats that Pillow may try, whatever a file's name. None can run programs.
_FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "PPM", "TIFF", "GIF")
_WITH_ALPHA = frozenset(("RGBA", "LA", "PA", "RGBa", "La"))
_MOST_PIXELS = 100_000_000
_PLAIN = ("RGB", "L")
#: Bits of 16-bit grey images, from black to white.
GREY_BITS = 16
_ORIENTATION, _END_OF_JPEG = 0x0112, b"\xff\xd9"


def is_image_name(name: str) -> bool:
    """Whether a file of that name is an image. Hidden files do not count."""
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in EXTENSIONS


def stamp_of(path: str | os.PathLike) -> str:
    """A text that changes when a file changes.

    It is ``"<size>-<time>"``, with the size in bytes and the last change in
    nanoseconds.
    """
    status = os.stat(path)
    return f"{status.st_size}-{status.st_mtime_ns}"


@dataclass(frozen=True)
class FileLoader:
    """Loads image i of the files `paths`."""

    paths: Sequence[str]

    def __call__(self, row: int) -> Image.Image:
        return load_image(self.path(row))

    def path(self, row: int) -> str:
        """The file of an image. `ggeur.encoder.decode` names other ways to load it."""
        return self.paths[row]


def images_from_files(
    root: Path, paths: Sequence[str], labels: Sequence[int]
) -> Images:
    """Make `Images` of the files `paths`. Their keys are the paths below `root`.

    Raises
    ------
    DataError
        A file does not exist (e.g. it is a broken link), or its name is not UTF-8.
    """
    stamps = []
    for path in paths:
        try:
            stamps.append(stamp_of(path))
        except OSError as error:
            raise DataError(
                f"{path}: the file cannot be read ({error.strerror or error}). Restore "
                "the file or remove it."
            ) from error
    keys = tuple(_below(root, paths))
    load = FileLoader(tuple(paths))
    numbers = np.asarray(labels, dtype=np.int64)
    return Images(numbers, keys, tuple(stamps), load, paths=tuple(paths))


def _below(root: Path, paths: Sequence[str]) -> Iterator[str]:
    """Yield the paths below `root`, with "/" between their parts on every system."""
    folders: dict[str, str] = {}  # many files share one
    for path in paths:
        folder, name = os.path.split(path)
        if folder not in folders:
            folders[folder] = Path(os.path.relpath(folder, root)).as_posix()
        key = f"{folders[folder]}/{name}"
        try:
            key.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{os.fsencode(path)!r}: the file's name is not UTF-8 text. Rename the "
                "file."
            ) from error
        yield key


def load_image(
    path: str | os.PathLike,
    side: int = 0,
    resample: int = Image.BICUBIC,
    grey_bits: int = GREY_BITS,
) -> Image.Image:
    """Load one image file as a person would see it, in mode RGB.

    The EXIF orientation is applied. Transparency becomes white. If there are several
    frames or pages, the first one is loaded. 16-bit grey keeps the upper eight of its
    `grey_bits` bits: scanners and cameras of 12 bits store 12.

    With a `side`, a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size, the least at
    which its shorter side has at least so many pixels. Then it is resized by `resample`
    until its shorter side has just as many.

    Raises
    ------
    DataError
        The file is missing or broken, or its format is not accepted. Or it has more
        than 100 million pixels, or a mode without a defined conversion (32-bit
        integers, floats), or 16-bit grey needs more than `grey_bits`. The error names
        the path.
    """
    try:
        with _no_gaps(), Image.open(path, formats=_FORMATS) as image:
            _check_size(image)
            small = _drafted(image, side, resample) if side else image
            small.load()
            return _rgb(_upright(small, path), image.format, grey_bits)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except Exception as error:  # a broken image fails in many ways
        problem = str(error) or type(error).__name__
        raise DataError(
            f"{path}: the file cannot be loaded as an image ({problem}). Replace it by "
            "an intact copy or remove it."
        ) from error


def _drafted(image: Image.Image, side: int, resample: int) -> Image.Image:
    """Decode a JPEG at a part of its size, and resize it to the wanted one.

    An image of which no part suffices, or of another format, stays as it is.
    """
    size, shorter = image.size, min(image.size)
    if image.format != "JPEG" or image.mode not in _PLAIN:
        return image
    least = tuple(-(-side * length // shorter) for length in size)
    drafted = image.draft(None, least)
    if drafted is None or image.size == size:
        return image
    # The box has the part's size before it was rounded up. As torchvision's Resize:
    target = tuple(int(side * length / shorter) for length in size)
    return image.resize(target, resample, box=drafted[1])


def plain_jpeg(path: str | os.PathLike) -> bytes | None:
    """The bytes of a JPEG file that decoders show alike; None for any other file.

    Such a file is whole, upright, of 8 bits, and grey or in YCbCr.
    """
    try:
        data = Path(path).read_bytes()
        with Image.open(BytesIO(data), formats=("JPEG",)) as image:
            plain = (
                image.format == "JPEG"  # not of several pictures
                and image.mode in _PLAIN
                and image.info.get("adobe_transform", 1) == 1
                and image.getexif().get(_ORIENTATION, 1) == 1
                and image.width * image.height <= _MOST_PIXELS
                and _END_OF_JPEG in data[-64:]
            )
    except Exception:  # `load_image` finds what is wrong with it
        return None
    return data if plain else None


@contextmanager
def _no_gaps() -> Iterator[None]:
    """Make Pillow refuse truncated files inside this block.

    Other code may have told Pillow to fill the gaps of such files.
    """
    before = ImageFile.LOAD_TRUNCATED_IMAGES
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        yield
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before


def _check_size(image: Image.Image) -> None:
    width, height = image.size
    if width * height > _MOST_PIXELS:
        raise DataError(
            f"the image has {width} x {height} pixels. More than {_MOST_PIXELS} are "
            "refused, because they may exhaust the memory. Scale the image down or "
            "remove it."
        )


def _upright(image: Image.Image, path: str | os.PathLike) -> Image.Image:
    try:
        # Only after loading, because Pillow turns a TIFF while it loads it.
        return ImageOps.exif_transpose(image)
    except Exception as error:  # broken EXIF data beside intact pixels
        logger.debug("%s: EXIF data ignored: %s", path, error)
        return image


def largest_grey(path: str | os.PathLike) -> int | None:
    """The largest value of a 16-bit grey image; None for any other file."""
    try:
        with _no_gaps(), Image.open(path, formats=_FORMATS) as image:
            _check_size(image)
            if _is_deep_grey(image, image.format):
                return int(np.asarray(image).max())
    except Exception:  # `load_image` finds what is wrong with it
        pass
    return None


def _is_deep_grey(image: Image.Image, of: str | None) -> bool:
    # Older releases of Pillow open 16-bit grey PNG and PGM files in mode I.
    in_integers = image.mode == "I" and of in ("PNG", "PPM")
    return image.mode.startswith("I;16") or in_integers


def _rgb(image: Image.Image, of: str | None, grey_bits: int) -> Image.Image:
    if _is_deep_grey(image, of):
        values = np.asarray(image).astype(np.int64)
        if grey_bits < GREY_BITS and values.max() >> grey_bits:
            raise DataError(
                f"the image has the grey value {values.max()}, which needs more than "
                f"the {grey_bits} bits of {setting('encoder.grey_bits')}"
            )
        high = np.clip(values >> (grey_bits - 8), 0, 255)
        image = Image.fromarray(high.astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise DataError(
            f"the image has the mode '{image.mode}' (32 bits a pixel), whose white and "
            "black are not defined. Save it with 8 or 16 bits."
        )
    elif image.mode in _WITH_ALPHA or "transparency" in image.info:
        image = image.convert("LA") if image.mode == "La" else image
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image.convert("RGB")
