"""Every key takes a value or says what is wrong with it: no traceback, no hang.

A part's keys are tried while it is in use and, with fewer values, while it is not.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
from pictures import write_images

from federatedscope_ggeur.cfg_ggeur.fs_keys import fs_keys, section_of
from federatedscope_ggeur.cfg_ggeur.keys import all_keys
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.data import EncoderSettings
from federatedscope_ggeur.methods import AUGMENTATIONS, METHODS
from federatedscope_ggeur.models import CLOSED_FORMS

pytestmark = pytest.mark.slow

VALUES = (
    "-1", "0", "1e15", "1e308", "nan", "''", "[]", "{}", "None", "x" * 20_000,
    "no_such_choice",
)  # fmt: skip
#: Of keys that are tried with all values while their part is in use.
FEW_VALUES = ("-1", "nan", "no_such_choice")
OURS, FS = [f"ggeur.{key.name}" for key in all_keys()], [k.name for k in fs_keys()]
KEYS = sorted({*OURS, *FS})
#: Beyond these a value has been taken for something that never ends.
PATIENCE = 300.0
LONGEST_MESSAGE = 2000

#: A small network on pixels of files, one round of which takes a tenth of a second.
NETWORK = (
    "data.root", "pixels",
    "ggeur.network.name", "digits_cnn",
    "ggeur.steps", "[]",
    "dataloader.batch_size", "8",
)  # fmt: skip
#: Images that an encoder makes rows of.
IMAGES = (
    "data.type", "image_folder@ggeur",
    "data.root", "images",
    "ggeur.encoder.name", "pixels",
    "ggeur.encoder.image_size", "8",
)  # fmt: skip
#: Augmentations of embeddings; the others are of pixels.
ON_HEADS = ("fedfa", "fedgen", "fedmix")


def in_use() -> dict[str, tuple[str, ...]]:
    """Every key of a part, and the settings by which the part is used."""
    found = {key: NETWORK for key in OURS if key.startswith("ggeur.network.")}
    found.update({f"ggeur.{k.name}": IMAGES for k in EncoderSettings.declared()})
    for name, part in METHODS.items():
        own = ("ggeur.base_method", name)
        if name == "fpl":
            own += ("ggeur.mlp_hidden_dim", "8")
        elif name in ("fedbn", "silobn"):
            own = (*NETWORK, *own)
        found.update({f"{section_of(part)}.{k.name}": own for k in part.SETTINGS})
    for name, part in AUGMENTATIONS.items():
        own = ("ggeur.augmentation", name)
        own = own if name in ON_HEADS else (*NETWORK, *own)
        if name == "fedpg":
            own += ("ggeur.fedpg.steps", "1", "ggeur.fedpg.generator_batch", "4")
        found.update({f"ggeur.{name}.{k.name}": own for k in part.SETTINGS})
    for name, form in CLOSED_FORMS.items():
        own = ("ggeur.closed_form", name)
        found.update({f"ggeur.{name}.{k.name}": own for k in form.SETTINGS})
    samples = ("ggeur.calibrate", "ccvr")
    found.update({f"ggeur.ccvr.{name}": samples for name in ("samples", "epochs")})
    return found


IN_USE = in_use()


@pytest.fixture
def try_one(quickstart, uneven, tmp_path, monkeypatch, capsys):
    """Run the command line with one setting; its status and what it said of errors."""
    monkeypatch.chdir(tmp_path)
    write_pixels(tmp_path / "pixels")
    write_images(tmp_path / "images", ("art", "photo", "sketch"), 6, size=(9, 9))
    base = [
        "--cfg", str(quickstart),
        *uneven,
        "federate.client_num", "3",
        "federate.total_round_num", "1",
        "ggeur.step1_size", "8",
        "ggeur.step2_size", "4",
        "verbose", "0",
    ]  # fmt: skip

    def run(key: str, value: str, *others: str) -> tuple[int, str]:
        found: list[int | BaseException] = []

        def work() -> None:
            try:
                found.append(main([*base, *others, key, value]))
            except SystemExit as ended:
                found.append(ended.code)
            except BaseException as error:
                found.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert found, f"{key} {value:.20}: still at it after {PATIENCE:g} s"
        said = capsys.readouterr().err
        if isinstance(found[0], BaseException):
            raise AssertionError(f"{key} {value:.20}: a traceback") from found[0]
        return found[0], said

    return run


def check(key: str, value: str, status: int, said: str) -> None:
    what = f"{key} {value:.20}: {status}, {said[:300]}"
    assert status in (0, 1, 2), what
    assert "Traceback" not in said, what
    assert len(said) < LONGEST_MESSAGE, what
    if status:
        assert "error: " in said, what


def write_pixels(folder) -> None:
    """Three domains of 24 images of 16 x 16 pixels in three channels, four classes."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in ("art", "photo", "sketch"):
        pixels = rng.integers(0, 256, (24, 3 * 16 * 16), dtype=np.uint8)
        labels = np.arange(24) % 4
        shape = np.array([3, 16, 16])
        np.savez(
            folder / f"{name}.npz", features=pixels, labels=labels, image_shape=shape
        )


@pytest.mark.parametrize("settings", sorted(set(IN_USE.values())))
def test_the_parts_are_in_use(try_one, settings):
    status, said = try_one("seed", "1", *settings)
    assert not status, said


@pytest.mark.parametrize("part", range(8))
def test_every_key_of_a_part_in_use(try_one, part):
    for key in sorted(IN_USE)[part::8]:
        for value in VALUES:
            check(key, value, *try_one(key, value, *IN_USE[key]))


@pytest.mark.parametrize("part", range(8))
def test_every_key_with_every_value(try_one, part):
    for key in KEYS[part::8]:
        for value in FEW_VALUES if key in IN_USE else VALUES:
            check(key, value, *try_one(key, value))
