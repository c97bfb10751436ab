"""Readers, encoders and splitters of a user's own, with settings of their own."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

from federatedscope_ggeur.data import (
    ENCODERS,
    IMAGE_READERS,
    READERS,
    SPLITTERS,
    Encoder,
    EncoderSettings,
    EncodingSettings,
    ExtractionSettings,
    Shares,
    check_encoder,
    embed_data,
    find_reader,
    is_image_type,
    load_data,
    partition,
    read_arguments,
    read_digits_quickstart,
    register_encoder,
    register_image_reader,
    register_reader,
    register_splitter,
)
from federatedscope_ggeur.data.images import ImageDataSet, ImageDomain, Images
from federatedscope_ggeur.errors import ConfigError, PluginError
from federatedscope_ggeur.settings import NOT_SET, Key, not_negative, positive, whole

SPLITS = [0.7, 0.0, 0.3]
SETTINGS = (
    Key("brightness", 0.5, "Of every image.", positive),
    Key("side", 4.0, "Pixels.", whole(1)),
    Key("limit", NOT_SET, "Images; -1: all.", whole(1, not_set_allowed=True)),
)


@pytest.fixture(autouse=True)
def _unregistered_afterwards(monkeypatch):
    for registry in (ENCODERS, IMAGE_READERS, READERS, SPLITTERS):
        monkeypatch.setattr(registry, "_parts", dict(registry))


@pytest.fixture
def images():
    """An image reader of two grey classes, and what it was called with."""
    calls = []

    @register_image_reader("greys", SETTINGS)
    def read(root, brightness, side, limit):
        calls.append((root, brightness, side, limit))
        labels = np.arange(limit or 20) % 2
        images = Images(
            labels,
            tuple(map(str, range(len(labels)))),
            (f"{brightness} {side}",) * len(labels),
            lambda row: Image.new("RGB", (side, side), (int(255 * brightness),) * 3),
        )
        return ImageDataSet("greys", (ImageDomain("one", images, None),), ("a", "b"))

    return calls


@pytest.fixture
def encoding(tmp_path):
    """A function (options) -> settings of an encoder with a setting of its own."""

    @register_encoder("scaled", settings=[Key("factor", 1.0, "Factor.", positive)])
    def make(settings, device):
        factor = settings.options["factor"]
        return Encoder(
            "scaled",
            {"factor": factor},
            1,
            lambda image: torch.tensor(image.getpixel((0, 0))[:1]).float(),
            lambda batch: factor * batch,
        )

    def build(**options):
        return EncodingSettings(
            EncoderSettings("scaled", options=options),
            ExtractionSettings(4, 0, 1),
            "cpu",
            str(tmp_path / "cache"),
        )

    return build


def test_a_reader_gets_its_settings():
    @register_reader("digits_again", [Key("more", 0.0, "Seeds on.", whole(0))])
    def read(root, splits, seed, more):
        """The digits by another seed."""
        return read_digits_quickstart(splits, seed + more)

    name = "digits_again@ggeur"
    part = find_reader(name)
    assert (part.name, part.meaning) == ("digits_again", "The digits by another seed.")
    found, same, other = (
        load_data(name, "", SPLITS, 3, options=options).domains[0].train.features
        for options in ({"more": 2}, {"more": 2}, {})
    )
    assert torch.equal(found, same)
    assert not torch.equal(found, other)


def test_an_image_reader_gets_its_settings(images, encoding):
    assert is_image_type("greys@ggeur")
    options = {"brightness": 1.0, "limit": 10}
    found = embed_data("greys@ggeur", "here", encoding(), options)
    assert images == [("here", 1.0, 4, 10)]
    assert found.domains["one"][0].features.unique().tolist() == [255.0]
    data = load_data("greys@ggeur", "here", SPLITS, 0, encoding())
    assert images[-1] == ("here", 0.5, 4, None)
    assert data.domains[0].train.features.unique().tolist() == [127.0]
    again = embed_data("greys@ggeur", "here", encoding(), options)
    assert again.extracted == 0


def test_an_encoder_finds_its_settings_and_says_what_they_change(images, encoding):
    once = embed_data("greys@ggeur", "", encoding())
    twice = embed_data("greys@ggeur", "", encoding(factor=2.0))
    assert (once.extracted, twice.extracted) == (20, 20)
    features = [found.domains["one"][0].features for found in (once, twice)]
    assert torch.equal(2 * features[0], features[1])
    for options in ({}, {"factor": 1.0}):
        same = embed_data("greys@ggeur", "", encoding(**options))
        assert (same.extracted, same.files) == (0, once.files)


def test_an_encoder_without_settings_leaves_no_trace_of_them(images, tmp_path):
    pixels = EncoderSettings("pixels", image_size=4)
    with pytest.raises(ConfigError, match=r"ggeur\.pixels\.factor: the encoder"):
        check_encoder(EncoderSettings("pixels", options={"factor": 2.0}))
    settings = EncodingSettings(pixels, ExtractionSettings(4, 0, 1), "cpu", tmp_path)
    embed_data("greys@ggeur", "", settings)
    (record,) = (tmp_path / "index").glob("*.json")
    request = json.loads(record.read_text())["request"]
    assert "options" not in request["encoder"]
    assert request["options"] == {"brightness": 0.5, "side": 4, "limit": None}


class TestSplitter:
    @pytest.fixture(autouse=True)
    def _splitter(self):
        arguments = [
            Key("first", None, "Share of the first client.", positive),
            Key("rest", 0.0, "Share of each other one.", not_negative),
            Key("classes", 1.0, "That the first client gets.", whole(1)),
        ]

        @register_splitter("first", arguments)
        def split(task, first, rest, classes):
            """Most to one client."""
            shares = np.full((len(task.members), task.num_classes), float(rest))
            shares[0] = np.where(np.arange(task.num_classes) < classes, first, 0)
            return shares

    @staticmethod
    def divided(name, args=(), client_num=8):
        data = read_digits_quickstart(SPLITS, 0)
        how = {"client_num": client_num, "splitter": name, "seed": 0}
        return partition(data, splitter_args=list(args), **how).clients

    def rows(self, args):
        clients = self.divided("first", args)
        return [client.train.labels.unique().tolist() for client in clients]

    def test_gets_its_arguments(self):
        assert self.rows([{"first": 0.5}]) == 4 * [[0]] + 4 * [[]]
        found = self.rows([{"first": 0.5, "rest": 0.5, "classes": 2}])
        assert found == 4 * [[0, 1]] + 4 * [[*range(10)]]

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            ([], "takes .*'first': x, 'rest': x, 'classes': x.*: first must be given"),
            ([{"first": 1, "classes": 1.5}], "classes must be a whole number"),
            ([{"first": 0, "classes": 0}], "first must be .*; classes must be"),
            ([{"second": 1}], "there is no argument second; first must be given"),
        ],
    )
    def test_wrong_arguments_are_refused(self, args, message):
        with pytest.raises(ConfigError, match=rf"data\.splitter_args: .*{message}"):
            read_arguments("first", args)

    @pytest.mark.parametrize("shape", [(2,), (2, 10)])
    def test_deals_rows_beforehand(self, shape):
        @register_splitter("nothing_but")
        def split(task):
            """Three rows of each class to everyone, and none besides."""
            return Shares(np.zeros(shape), min_per_class=3)

        for client in self.divided("nothing_but"):
            assert client.train.labels.bincount().tolist() == [3] * 10

    def test_wrong_rows_beforehand_are_refused(self):
        @register_splitter("owing")
        def split(task):
            return Shares(np.zeros(len(task.members)), min_per_class=-1)

        with pytest.raises(ConfigError, match="min_per_class of 'owing' must be a"):
            self.divided("owing", client_num=4)

    @pytest.mark.parametrize("found", [None, [0.5, 0.5]])
    def test_what_is_no_array_is_refused(self, found):
        @register_splitter("listing")
        def split(task):
            return found

        message = r"the splitter 'listing' \(.*test_parts\.py, line \d+\) must return"
        with pytest.raises(PluginError, match=message):
            self.divided("listing")

    @pytest.mark.parametrize(("first", "rest"), [(1.5, 0), (0.6, 0.5)])
    def test_shares_of_more_than_all_are_refused(self, first, rest):
        with pytest.raises(ConfigError, match=r"data\.splitter: 'first' must return"):
            self.rows([{"first": first, "rest": rest}])


def test_a_name_is_taken_once():
    for register, registry in (
        (register_reader, READERS),
        (register_image_reader, IMAGE_READERS),
        (register_encoder, ENCODERS),
        (register_splitter, SPLITTERS),
    ):
        with pytest.raises(ValueError, match="already registered"):
            register(next(iter(registry)))(lambda *arguments: None)


@pytest.mark.parametrize("registry", [ENCODERS, IMAGE_READERS, READERS, SPLITTERS])
def test_every_part_says_what_it_is(registry):
    for name, part in registry.items():
        assert part.name == name
        assert part.meaning != name
        assert isinstance(part.SETTINGS, tuple)
