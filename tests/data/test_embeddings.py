"""The containers refuse what does not fit and say where it is."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from test_partition import divide, make_dataset

from federatedscope_ggeur.data import (
    ENCODERS,
    IMAGE_READERS,
    READERS,
    SPLITTERS,
    DataSet,
    Domain,
    Embeddings,
    Encoder,
    EncoderSettings,
    Shares,
    check_encoder,
    embed_data,
    find_reader,
    is_image_type,
    load_data,
    read_digits_quickstart,
    register_encoder,
    register_image_reader,
    register_reader,
    register_splitter,
)
from federatedscope_ggeur.data.images import ImageDataSet, ImageDomain, Images
from federatedscope_ggeur.errors import ConfigError, DataError, PluginError
from federatedscope_ggeur.geometry import LARGEST_EMBEDDING
from federatedscope_ggeur.settings import NOT_SET, Key, not_negative, positive, whole


def make(n=4, dim=3, name="photo", label=0):
    features = torch.arange(n * dim, dtype=torch.float32).reshape(n, dim)
    return Embeddings(features, torch.full((n,), label), name)


def picture(shape=(3, 2, 2), users=None):
    size = shape[0] * shape[1] * shape[2]
    features = torch.arange(4 * size).reshape(4, size).to(torch.uint8)
    labels = torch.arange(4) % 2
    return Embeddings(features, labels, "photo", shape, users)


def test_length_dimension_and_selection():
    rows = make(4, 3)
    assert (len(rows), rows.dim, rows.domain) == (4, 3, "photo")
    picked = rows.select([2, 0])
    assert torch.equal(picked.features, rows.features[[2, 0]])
    masked = rows.select(np.array([True, False, False, True]))
    assert torch.equal(masked.features, rows.features[[0, 3]])
    none = rows.select([])
    assert (len(none), none.dim) == (0, 3)


ZEROS, BYTES = torch.zeros(3, 4), torch.zeros(3, 4, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": torch.zeros(3)}, "'features' must have the shape"),
        ({"features": ZEROS.double()}, "features.*float32"),
        ({"labels": torch.zeros(3).int()}, "labels.*int64"),
        ({"labels": torch.tensor([0, -3, 0])}, "negative label -3 in row 1"),
        ({"features": torch.tensor([[0.0], [torch.nan], [0.0]])}, r"NaN.*is 1\."),
        (
            {"features": torch.tensor([[0.0], [1e15], [-1e30]])},
            r"holds -1e\+30, beyond \+-1e\+15; the first such row is 2\.",
        ),
        # Bytes and a shape belong together.
        ({"features": BYTES}, "uint8, which is for pixels"),
        ({"image_shape": (1, 2, 2)}, "must be torch.uint8 if there is"),
        ({"features": BYTES, "image_shape": (3, 2, 2)}, r"\(3, 2, 2\).*of 4 pixels"),
        ({"features": BYTES, "image_shape": (2, 2)}, r"\(2, 2\) does not fit"),
        ({"features": BYTES, "image_shape": (-1, -2, 2)}, "does not fit"),
        ({"users": torch.zeros(3)}, "'users' must be torch.int64"),
        ({"users": torch.zeros(4).long()}, r"'users' must .* shape \[3\]"),
        ({"users": torch.tensor([0, 1, -1])}, "negative user -1 in row 2"),
    ],
)
def test_rows_that_cannot_be_are_refused(changes, message):
    given = {"features": ZEROS, "labels": torch.zeros(3).long(), "domain": "photo"}
    with pytest.raises(DataError, match=f"photo.*{message}"):
        Embeddings(**{**given, **changes})


def test_all_values_that_messages_take_are_accepted():
    largest = torch.tensor([[LARGEST_EMBEDDING, -LARGEST_EMBEDDING]])
    above = torch.nextafter(largest, 2 * largest)
    assert len(Embeddings(largest, torch.zeros(1).long(), "photo")) == 1
    with pytest.raises(DataError, match="row is 0"):
        Embeddings(above, torch.zeros(1).long(), "photo")


@pytest.mark.parametrize(
    ("domains", "message"),
    [
        ((), "at least one domain"),
        ((Domain("a", make(), make()), Domain("a", make(), make())), "different names"),
        (
            (Domain("a", make(), make()), Domain("b", make(), make(dim=5))),
            r"domain 'b', split 'test'.*D = 5.*'a'.*D = 3",
        ),
        (
            (Domain("a", make(), make(label=2)),),
            r"domain 'a', split 'test': label 2 in row 0.*2 classes",
        ),
        (
            (Domain("a", *[picture()] * 2), Domain("b", *[picture((1, 4, 3))] * 2)),
            r"'b'.*\(1, 4, 3\).*'a'.*\(3, 2, 2\)",
        ),
    ],
)
def test_data_set_that_does_not_fit_is_refused(domains, message):
    with pytest.raises(DataError, match=message):
        DataSet(domains, ("cat", "dog"), "clip")


def test_the_largest_int64_label_is_not_too_large():
    labels = np.array([2**63 - 1], np.uint64)
    rows = Embeddings.from_numpy(np.zeros((1, 3)), labels, "photo", "here")
    assert rows.labels.tolist() == [2**63 - 1]


def test_pixels_keep_their_shape_and_users():
    users = torch.tensor([3, 0, 3, 1])
    rows = picture(users=users)
    picked = rows.select([2, 0])
    assert (picked.image_shape, picked.features.dtype) == ((3, 2, 2), torch.uint8)
    assert picked.users.tolist() == [3, 3]
    both = Embeddings.concatenate([rows, picked])
    assert both.image_shape == (3, 2, 2)
    assert both.users.tolist() == [3, 0, 3, 1, 3, 3]
    assert Embeddings.concatenate([rows, picture()]).users is None
    assert rows.select([]).users.tolist() == []
    both = DataSet((Domain("photo", rows, picked),), ("a", "b"), "")
    assert both.image_shape == (3, 2, 2)


# The bundled digits: four fixed domains of disjoint samples, split by the seed.


SPLITS = [0.7, 0.0, 0.3]


@pytest.fixture(scope="module")
def digits():
    return read_digits_quickstart(SPLITS, seed=0)


def sorted_rows(domain):
    """All rows of a domain, in an order that does not depend on the split."""
    rows = torch.cat([domain.train.features, domain.test.features]).numpy()
    return rows[np.lexsort(rows.T)]


def test_shape_names_and_order(digits):
    names = [domain.name for domain in digits.domains]
    assert names == ["clean", "inverted", "blurred", "noisy"]
    assert (digits.dim, digits.num_classes) == (324, 10)
    assert digits.class_names == tuple("0123456789")
    assert digits.encoder.startswith("hog(")


def test_every_sample_is_in_one_domain_with_even_classes(digits):
    labels = [
        torch.cat([domain.train.labels, domain.test.labels])
        for domain in digits.domains
    ]
    assert [len(each) for each in labels] == [450, 449, 449, 449]
    counts = torch.stack([each.bincount(minlength=10) for each in labels])
    assert (counts.max(dim=0).values - counts.min(dim=0).values <= 1).all()
    assert counts.sum(dim=0).tolist() == np.bincount(load_digits().target).tolist()


def test_seed_changes_the_split_but_not_the_domains(digits):
    other = read_digits_quickstart(SPLITS, seed=1)
    again = read_digits_quickstart(SPLITS, seed=0)
    for first, second, same in zip(digits.domains, other.domains, again.domains):
        assert np.array_equal(sorted_rows(first), sorted_rows(second))
        assert not torch.equal(first.train.features, second.train.features)
        assert torch.equal(first.train.features, same.train.features)


def test_what_a_reader_changes_is_its_own(digits):
    features = digits.domains[0].train.features.clone()
    again = read_digits_quickstart(SPLITS, seed=0)
    again.domains[0].train.features.zero_()
    once_more = read_digits_quickstart(SPLITS, seed=0)
    assert torch.equal(once_more.domains[0].train.features, features)


# `load_data` finds the reader that data.type names.


def test_another_result_than_a_data_set_is_refused():
    @register_reader("nothing")
    def read(root, splits, seed):
        """Forgets to return what it read."""

    said = r"'nothing@ggeur' \(.*test_embeddings.py, line \d+\) must return a DataS"
    with pytest.raises(PluginError, match=said):
        load_data("nothing@ggeur", "", SPLITS, 0)


@pytest.mark.parametrize(
    "name", ["nothing@ggeur", "embeddings", "embeddings@torchvision"]
)
def test_unknown_type_lists_the_known_ones(name):
    known = r"digits_quickstart@ggeur.*embeddings@ggeur.*pacs@ggeur"
    with pytest.raises(ConfigError, match=rf"data\.type '{name}'.*{known}"):
        load_data(name, "", SPLITS, 0)


def test_splits_are_checked_before_reading():
    with pytest.raises(ConfigError, match=r"data\.splits"):
        load_data("embeddings@ggeur", "/nowhere", [0.8, 0.1], 0)


# Readers, encoders and splitters of a user's own, with settings of their own.


SETTINGS = (
    Key("brightness", 0.5, "Of every image.", positive),
    Key("side", 4.0, "Pixels.", whole(1)),
    Key("limit", NOT_SET, "Images; -1: all.", whole(1, not_set_allowed=True)),
)


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
def encoding(settings):
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
        return replace(settings, encoder=EncoderSettings("scaled", options=options))

    return build


def test_a_reader_gets_its_settings():
    roots = []

    @register_reader("digits_again", [Key("more", 0.0, "Seeds on.", whole(0))])
    def read(root, splits, seed, more):
        """The digits by another seed."""
        roots.append(root)
        return read_digits_quickstart(splits, seed + more)

    name = "digits_again@ggeur"
    part = find_reader(name)
    assert (part.name, part.meaning) == ("digits_again", "The digits by another seed.")
    found, same, other = (
        load_data(name, "there", SPLITS, 3, options=options).domains[0].train.features
        for options in ({"more": 2}, {"more": 2}, {})
    )
    assert torch.equal(found, same)
    assert not torch.equal(found, other)
    wanted = read_digits_quickstart(SPLITS, 5).domains[0].train.features
    assert torch.equal(found, wanted)
    assert roots == ["there"] * 3


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


def test_an_encoder_without_settings_leaves_no_trace_of_them(images, settings):
    with pytest.raises(ConfigError, match=r"ggeur\.pixels\.factor: the encoder"):
        check_encoder(EncoderSettings("pixels", options={"factor": 2.0}))
    embed_data("greys@ggeur", "", settings)
    (record,) = Path(settings.cache).glob("index/*.json")
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

    def rows(self, args):
        clients = divide(make_dataset(), "first", args, clients=4).clients
        return [client.train.labels.unique().tolist() for client in clients]

    def test_gets_its_arguments(self):
        assert self.rows([{"first": 0.5}]) == 2 * [[0]] + 2 * [[]]
        found = self.rows([{"first": 0.5, "rest": 0.5, "classes": 2}])
        assert found == 2 * [[0, 1]] + 2 * [[*range(4)]]

    @pytest.mark.parametrize("shape", [(2,), (2, 4)])
    def test_deals_rows_beforehand(self, shape):
        @register_splitter("nothing_but")
        def split(task):
            """Three rows of each class to everyone, and none besides."""
            return Shares(np.zeros(shape), min_per_class=3)

        for client in divide(make_dataset(), "nothing_but", clients=4).clients:
            assert client.train.labels.bincount().tolist() == [3] * 4

    def test_wrong_rows_beforehand_are_refused(self):
        @register_splitter("owing")
        def split(task):
            return Shares(np.zeros(len(task.members)), min_per_class=-1)

        with pytest.raises(PluginError, match=r"'owing' \(.*: min_per_class must be a"):
            divide(make_dataset(), "owing")

    @pytest.mark.parametrize("found", [None, [0.5, 0.5]])
    def test_what_is_no_array_is_refused(self, found):
        @register_splitter("listing")
        def split(task):
            return found

        message = r"'listing' \(.*test_embeddings\.py, line \d+\) must return"
        with pytest.raises(PluginError, match=message):
            divide(make_dataset(), "listing")

    @pytest.mark.parametrize(("first", "rest"), [(1.5, 0), (0.6, 0.5)])
    def test_shares_of_more_than_all_are_refused(self, first, rest):
        said = (
            rf"'first' \(.*, line \d+\) must return .* shape \(2, 4\) .*to {first:g}$"
        )
        with pytest.raises(PluginError, match=said):
            self.rows([{"first": first, "rest": rest}])

    def test_numbers_of_clients_need_their_name(self):
        @register_splitter("numbers")
        def split(task):
            return np.zeros(len(task.labels), int)

        with pytest.raises(PluginError, match=r"numbers of clients stand in Holders"):
            divide(make_dataset(), "numbers")


@pytest.mark.parametrize("registry", [ENCODERS, IMAGE_READERS, READERS, SPLITTERS])
def test_every_part_says_what_it_is(registry):
    for name, part in registry.items():
        assert part.name == name
        assert part.meaning != name
        assert isinstance(part.SETTINGS, tuple)
