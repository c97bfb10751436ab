"""The curve of a run, and pictures in the format that is asked for."""

import io
import warnings
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from PIL import Image
from written_runs import make_head, make_results

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.reporting import plots
from federatedscope_ggeur.reporting.plots import draw_curve
from federatedscope_ggeur.reporting.tables import FORMATS, read_formats, write_figure


def drawn(results, path):
    draw_curve(results, path)
    return path.read_bytes()


def grey(raw):
    return np.asarray(Image.open(io.BytesIO(raw)).convert("L"))


@pytest.mark.parametrize(
    "scores",
    [None, [], [None], [{"clean": 0.5}], [{"clean": None}], [None, {"clean": 1.0}]],
    ids=["usual", "no rounds", "not evaluated", "one round", "no test rows", "gap"],
)
def test_picture_is_whole_and_not_blank(tmp_path, scores):
    pixels = grey(drawn(make_results(scores), tmp_path / "curve.png"))
    assert pixels.shape == (675, 1200)
    assert pixels.min() < 100


@pytest.mark.slow
@pytest.mark.parametrize("scores", [[], [None], [{"clean": 0.5}]], ids=str)
def test_heads_made_in_one_go_are_drawn(tmp_path, scores):
    plain = drawn(make_results(scores), tmp_path / "curve.png")
    head = make_head("lda", {"clean": 0.4})
    assert drawn(make_results(scores, closed_form=head), tmp_path / "a.png") != plain
    assert drawn(make_results(scores, calibrated=head), tmp_path / "b.png") != plain


@pytest.mark.slow
def test_a_closed_form_is_a_line_over_all_rounds(tmp_path):
    """AVG's is black: its dots lie all along the rounds, at one height."""
    names = [f"domain {i}" for i in range(6)]
    scores = [dict.fromkeys(names, 0.3)] * 40
    head = make_head("lda", dict.fromkeys(names, 0.9))
    results = make_results(scores, domains=names, closed_form=head, unseen_domains=[])
    dark = grey(drawn(results, tmp_path / "curve.png"))[:160, 100:700] < 90
    rows = np.flatnonzero(dark.any(axis=1))
    assert 0 < len(rows) <= 8
    columns = np.flatnonzero(dark.any(axis=0))
    assert np.diff(columns).max() < 12
    assert columns[-1] - columns[0] > 550


@pytest.mark.slow
@pytest.mark.parametrize(("domains", "rounds"), [(12, 100), (40, 3)])
def test_many_domains_fit(tmp_path, domains, rounds):
    names = [f"a domain with a long name {i}" for i in range(domains)]
    scores = [dict.fromkeys(names, 0.5 + 0.3 * np.sin(t / 9)) for t in range(rounds)]
    results = make_results(scores, domains=names, unseen_domains=names[:2])
    pixels = grey(drawn(results, tmp_path / "curve.png"))
    for edge in (pixels[:3], pixels[-3:], pixels[:, :3], pixels[:, -3:]):
        assert edge.min() == 255


@pytest.fixture
def axes_of(tmp_path, monkeypatch):
    """The axes of a run's curve, which is written as well."""
    figures = []

    def write(path, figure):
        figures.append(figure)
        write_figure(path, figure)

    def axes_of(results):
        draw_curve(results, tmp_path / "curve.png")
        return figures[-1].axes[0]

    monkeypatch.setattr(plots, "write_figure", write)
    return axes_of


def test_the_title_says_whose_curve_it_is(axes_of):
    results = make_results([{"clean": 0.5}])
    results.config["expname"] = "_$run$"
    assert axes_of(results).get_title("left") == "exp/_$run$: AVG 50.0%"
    assert axes_of(make_results([None])).get_title("left") == "exp/e"


def test_the_legend_names_every_domain_and_avg(axes_of):
    axes = axes_of(make_results([{"clean": 0.5, "_noisy": 0.4}] * 2))
    found = [text.get_text() for text in axes.get_legend().get_texts()]
    assert found == ["clean", "_noisy (unseen)", "AVG"]


@pytest.mark.parametrize(
    ("method", "title"), [("ccvr", "calibrated ccvr"), ("average", "both heads")]
)
def test_a_later_head_is_a_named_dot_at_its_score(axes_of, method, title):
    calibrated = make_head(method, {"clean": 0.4})
    axes = axes_of(make_results([{"clean": 0.5}], calibrated=calibrated))
    assert title in [text.get_text() for text in axes.get_legend().get_texts()]
    assert 100 * 0.4 in [y for dots in axes.collections for _, y in dots.get_offsets()]


# Pictures in the format that is asked for.


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
    message = "--format: must be one or more of svg, pdf, png"
    with pytest.raises(ConfigError, match=message) as error:
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
    assert b"CreationDate" not in one
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
