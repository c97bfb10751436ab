"""DomainNet: folders, official lists, the ten classes of FedBN."""

import logging
import shutil

import pytest
from image_miniatures import DOMAINNET, draw, draw_tree, write_domainnet

from federatedscope_ggeur.data.images import IMAGE_READERS
from federatedscope_ggeur.data.images.published import TOP_10, read_domainnet
from federatedscope_ggeur.errors import DataError

# The official numbers: sorted without regard to case and punctuation.
CLASSES = [
    ("aircraft_carrier", 0), ("tent", 307), ("The_Eiffel_Tower", 308), ("tiger", 311),
    ("trumpet", 326), ("t-shirt", 327), ("zebra", 343),
]  # fmt: skip
NAMES = tuple(name for name, _ in CLASSES)


@pytest.mark.parametrize("lists", ["", "splits", "txt"])
@pytest.mark.parametrize("below", ["", "DomainNet"])
def test_official_lists(tmp_path, below, lists):
    (tmp_path / below).mkdir(exist_ok=True)
    write_domainnet(tmp_path / below, CLASSES, lists=lists)
    data = IMAGE_READERS["domainnet"](tmp_path)
    assert [domain.name for domain in data.domains] == DOMAINNET
    assert data.class_names == NAMES
    for domain in data.domains:
        assert domain.train.labels.tolist() == [c for c in range(7) for _ in range(3)]
        assert domain.test.labels.tolist() == [*range(7)]
        assert domain.test.keys[1].endswith(f"{domain.name}/tent/pic_003.jpg")


def test_the_lists_decide_on_numbers_and_on_what_is_used(tmp_path):
    write_domainnet(tmp_path, [("zebra", 0), ("ant", 1)], ["real"])
    draw(tmp_path / "real" / "zebra" / "in_no_list.jpg")
    (domain,) = (data := read_domainnet(tmp_path)).domains
    assert data.class_names == ("zebra", "ant")
    assert len(domain.train) + len(domain.test) == 8


def test_without_lists_the_order_is_theirs_and_data_splits_divides(tmp_path):
    draw_tree(tmp_path, DOMAINNET[:2], NAMES[::-1], images=2)
    data = read_domainnet(tmp_path)
    assert data.class_names == NAMES
    assert [(len(d.train), d.test) for d in data.domains] == [(14, None)] * 2


@pytest.mark.parametrize("with_lists", [True, False])
def test_ten_classes(tmp_path, with_lists):
    others = [("ant", 5), ("zigzag", 344)]
    classes = [(name, 10 * number) for number, name in enumerate(TOP_10, start=1)]
    write_domainnet(tmp_path, [*classes, *others], ["real", "sketch"])
    shutil.rmtree(tmp_path / "real" / "ant")  # only the ten need be there
    if not with_lists:
        for path in tmp_path.glob("*.txt"):
            path.unlink()
    data = read_domainnet(tmp_path, classes="top10")
    assert data.class_names == (
        "bird", "feather", "headphones", "ice_cream", "teapot", "tiger", "whale",
        "windmill", "wine_glass", "zebra",
    )  # fmt: skip
    for domain in data.domains:
        assert set(domain.train.labels) == set(range(10))
        assert len(domain.train) == (30 if with_lists else 40)


def test_a_domain_may_lack_a_class_but_not_one_of_the_ten(tmp_path, caplog):
    classes = [(name, number) for number, name in enumerate(TOP_10)]
    write_domainnet(tmp_path, classes, ["painting", "real"])
    for part in ("train", "test"):
        path = tmp_path / f"painting_{part}.txt"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if "teapot" not in line))
    with caplog.at_level(logging.WARNING):
        data = read_domainnet(tmp_path)
    assert data.class_names == TOP_10
    assert 4 not in data.domains[0].train.labels
    assert "painting has no images of 'teapot'" in caplog.text
    with pytest.raises(
        DataError, match="painting: the folder lacks 'teapot' of the ten"
    ):
        read_domainnet(tmp_path, classes="top10")


def _change(path, old, new):
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: (p / "real_test.txt").unlink(), r"real_test\.txt: .* missing, but"),
        (
            lambda p: (p / "real/tent/pic_001.jpg").unlink(),
            r"real_train\.txt: the list names 1 image\(s\) that .*'tent/pic_001\.jpg'",
        ),
        (
            lambda p: _change(p / "real_test.txt", "pic_003", "pic_001"),
            r"7 image\(s\) are in both real_train\.txt and real_test\.txt",
        ),
        (
            lambda p: _change(p / "real_test.txt", " 307", " 12"),
            r"real_test\.txt: class 'tent' has the number 12 here, but 307 in another",
        ),
        (
            lambda p: _change(p / "real_test.txt", " 307", ""),
            r"'real/tent/pic_003\.jpg' has not the form '<domain>/<class>/<file>",
        ),
        (
            lambda p: (p / "real_test.txt").write_text("\n"),
            r"names no images\. Restore",
        ),
    ],
)
def test_lists_that_do_not_fit(tmp_path, damage, message):
    write_domainnet(tmp_path, CLASSES, ["real"])
    damage(tmp_path)
    with pytest.raises(DataError, match=message):
        read_domainnet(tmp_path)
