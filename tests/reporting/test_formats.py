"""Pictures in the format that is asked for."""

from __future__ import annotations

import warnings
import xml.etree.ElementTree as ElementTree

import matplotlib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.reporting.tables import FORMATS, read_formats, write_figure

BEGINS = {"svg": b"<?xml", "pdf": b"%PDF-", "png": b"\x89PNG"}


def figure():
    made = Figure((3, 2))
    made.add_subplot().plot([0, 1], [1, 0], label="a line")
    made.legend()
    return made


@given(st.lists(st.sampled_from(FORMATS), min_size=1))
def test_a_list_is_read_each_format_once(names):
    found = read_formats(" , ".join(names))
    assert set(found) == set(names)
    assert len(found) == len(set(found))


@pytest.mark.parametrize(
    "text", ["", "jpg", "svg,", "svg;png", "PNG", ".png", "x" * 500]
)
def test_others_are_refused(text):
    with pytest.raises(
        ConfigError, match="--format: must be one or more of svg, pdf, png"
    ) as error:
        read_formats(text)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_is_what_its_name_says_to_the_byte(tmp_path, form):
    before = dict(matplotlib.rcParams)
    files = [tmp_path / f"{name}.{form}" for name in "ab"]
    for file in files:
        write_figure(file, figure())
    one, other = (file.read_bytes() for file in files)
    assert one == other
    assert one.startswith(BEGINS[form])
    assert dict(matplotlib.rcParams) == before


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_a_name_in_letters_that_the_font_lacks_warns_nobody(tmp_path, form):
    made = figure()
    made.suptitle("\u65e5\u672c")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_figure(tmp_path / f"a.{form}", made)


def test_an_svg_is_whole_names_no_address_and_no_date(tmp_path):
    file = tmp_path / "a.svg"
    write_figure(file, figure())
    root = ElementTree.fromstring(file.read_text())
    assert root.tag.endswith("svg")
    values = [value for node in root.iter() for value in node.attrib.values()]
    assert not [v for v in values if "http" in v and "w3.org" not in v]
    assert "<dc:date>" not in file.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_nothing_is_left_where_it_cannot_be_written(tmp_path, form):
    with pytest.raises(ConfigError):
        write_figure(tmp_path / "none" / f"a.{form}", figure())
    assert list(tmp_path.iterdir()) == []
