"""The HTML page: whole, self-contained, and quiet in a browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from browsers import headless, looked_at

from federatedscope_ggeur.extras.studies.comparison import Comparison
from federatedscope_ggeur.extras.studies.comparison.figures import figures

pytestmark = pytest.mark.slow

EMPTY = {"meta", "link", "br"}  # elements without an end


class Strict(HTMLParser):
    """Elements that were opened and closed, their attributes, and the text."""

    def __init__(self):
        super().__init__()
        self.open, self.elements, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parsed(page: str) -> Strict:
    parser = Strict()
    parser.feed(page)
    parser.close()
    assert not parser.open
    return parser


def page_of(folder) -> str:
    found = Comparison.of(folder)
    return found.to_html(figures(found))


@pytest.fixture(scope="module")
def page(study_folder):
    return page_of(study_folder)


def test_every_element_is_closed_and_named_once(page):
    seen = parsed(page)
    ids = [a["id"] for _, a in seen.elements if "id" in a]
    assert len(ids) == len(set(ids))
    known = {f"#{one}" for one in ids}
    for _, attributes in seen.elements:
        target = attributes.get("xlink:href", "")
        assert not target.startswith("#") or target in known
    for target in re.findall(r"url\((#[^)]*)\)", page):
        assert target in known


def test_nothing_is_loaded_and_nothing_runs(page):
    tags = set()
    for tag, attributes in parsed(page).elements:
        tags.add(tag)
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "xlink:href", "action", "data"):
                assert value.startswith(("#", "data:"))
    assert not tags & {"script", "iframe", "img", "object", "embed", "form", "a"}
    assert not re.search(r"url\(\s*['\"]?(?!#)|@import", page)
    assert "default-src 'none'" in page


def test_tables_are_tables(page):
    seen = parsed(page)
    count = [tag for tag, _ in seen.elements].count
    assert count("table") == count("thead") == count("tbody") == 4
    assert count("caption") == 3
    scopes = {a.get("scope") for tag, a in seen.elements if tag == "th"}
    assert scopes == {"col", "row"}
    assert count("figure") == count("figcaption") == count("svg") == 3
    assert [a["role"] for tag, a in seen.elements if tag == "svg"] == ["img"] * 3
    assert "<strong>" in page
    assert "A small study" in "".join(seen.text)


def test_the_same_runs_give_the_same_page(page, study_folder):
    assert page_of(study_folder) == page


def test_a_notebook_shows_the_tables(study_folder):
    shown = Comparison.of(study_folder)._repr_html_()
    seen = parsed(shown)
    assert [tag for tag, _ in seen.elements].count("table") == 3
    assert "<html" not in shown


def test_chromium_opens_it_without_a_word_or_a_request(page, tmp_path):
    """That the look hears and sees such: tests/test_site.py."""
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    with headless() as browser:
        address = (tmp_path / "page.html").as_uri()
        _, console, others = looked_at(browser, address, (1000,))
    assert (console, others) == ([], [])
