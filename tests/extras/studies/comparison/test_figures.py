"""Figures: what their curves are, and that their files are whole and repeatable."""

import io
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from PIL import Image
from written_runs import made, noisy, write, write_study

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.studies.comparison import Comparison
from federatedscope_ggeur.extras.studies.comparison.figures import (
    by_bytes,
    by_round,
    figures,
)
from federatedscope_ggeur.extras.studies.comparison.pictures import (
    WIDTHS,
    chunks,
    look,
    render,
)
from federatedscope_ggeur.extras.studies.study import Axis
from federatedscope_ggeur.reporting.records import PooledRows


def table_of(folder):
    (table,) = Comparison.of(folder).tables
    return table


def row_of(folder):
    (row,) = table_of(folder).rows.values()
    return row


def test_a_curve_is_the_mean_over_seeds_with_their_deviation(tmp_path):
    for seed, last in ((1, 0.6), (2, 0.8)):
        write(tmp_path / str(seed), made([{"x": 0.2}, {"x": last}], seed))
    curve = by_round(row_of(tmp_path))
    assert curve.x == [1, 2]
    assert curve.y == pytest.approx([20, 70])
    assert curve.sd == pytest.approx([0, np.std([60, 80], ddof=1)])
    sent = by_bytes(row_of(tmp_path))
    assert sent.x == pytest.approx([(117 + 4000) / 2e6, (117 + 8000) / 2e6])
    assert sent.y == curve.y


def test_rounds_that_one_seed_lacks_are_left_out(tmp_path):
    write(tmp_path / "1", made([{"x": 0.2}, {"x": 0.4}], 1))
    write(tmp_path / "2", made([{"x": 0.4}], 2))
    assert by_round(row_of(tmp_path)).x == [1]


def test_a_head_in_closed_form_alone_is_flat(tmp_path):
    results = made([], 1, closed_form={"x": 0.5})
    write(tmp_path / "1", results)
    curve = by_round(row_of(tmp_path))
    assert curve.is_flat
    assert curve.y == [50.0]
    # Before rounds it is where their curve begins.
    results = made([{"x": 0.6}], 1, closed_form={"x": 0.5})
    write(tmp_path / "more" / "2", results)
    curve = by_round(row_of(tmp_path / "more"))
    assert (curve.is_flat, curve.x) == (False, [0, 1])


@pytest.mark.slow
def test_a_calibrated_head_is_a_star_behind_the_last_round(tmp_path):
    for seed, score in ((1, 0.7), (2, 0.8)):
        results = made([{"x": 0.4}, {"x": 0.6}], seed)
        head = replace(results.rounds[-1], round=3, avg=score, method="ccvr")
        write(tmp_path / str(seed), replace(results, calibrated=head))
    curve = by_round(row_of(tmp_path))
    assert curve.calibrated == pytest.approx((75, 100 * np.std([0.7, 0.8], ddof=1)))
    convergence, *_ = figures(Comparison.of(tmp_path))
    (axes,) = convergence.figure.axes
    assert [list(line.get_xdata()) for line in axes.lines] == [[1, 2], [3]]


@pytest.mark.slow
def test_what_the_baseline_and_the_bound_end_with_are_lines_across(tmp_path):
    scores = {"a": 0.4, "b": 0.6, "bound": 0.8}
    for name, score in scores.items():
        pooled = PooledRows(2, 110, 9000) if name == "bound" else None
        found = made([{"x": 0.2}, {"x": score}], 1, {"name": name}, pooled=pooled)
        write(tmp_path / name, found)
    table = table_of(tmp_path)
    assert {table.rows[name].name for name in table.baselines.values()} == {"name a"}
    convergence, *_ = figures(Comparison.of(tmp_path))
    (axes,) = convergence.figure.axes
    assert axes.get_title() == table.title
    across = [line for line in axes.lines if list(line.get_xdata()) == [0, 1]]
    levels = [line.get_ydata()[0] for line in across]
    # The score of a run: the mean of its rounds.
    assert levels == pytest.approx([30.0, 50.0])
    assert "upper bound" in convergence.caption


def lines_of(axes):
    return [line for line in axes.lines if len(line.get_xdata())]


@pytest.mark.slow
def test_a_closed_forms_curve_is_a_line_across_the_panel(tmp_path):
    write(tmp_path / "a", made([], 1, {"name": "a"}, closed_form={"x": 0.5}))
    write(tmp_path / "b", made([{"x": 0.3}, {"x": 0.6}], 1, {"name": "b"}))
    convergence, *_ = figures(Comparison.of(tmp_path))
    (axes,) = convergence.figure.axes
    flat, curve = lines_of(axes)
    assert list(flat.get_ydata()) == [50.0, 50.0]
    assert list(flat.get_xdata()) == [0, 1]  # of the panel, not of its rounds
    assert list(curve.get_ydata()) == [30.0, 60.0]


@pytest.fixture(scope="module")
def drawn(study_folder):
    """All figures for each width, drawn once."""
    found = Comparison.of(study_folder)
    return {width: figures(found, width) for width in WIDTHS}


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_a_picture_is_as_wide_as_its_columns(drawn, width):
    """What a file of each format is: tests/reporting/test_plots.py."""
    image = Image.open(io.BytesIO(render(drawn[width][0], "png")))
    assert image.width == pytest.approx(300 * WIDTHS[width], abs=1)
    assert np.asarray(image.convert("L")).min() < 100
    assert b"<image" not in render(drawn[width][0], "svg")


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_panels_stand_above_the_legend(drawn, width):
    figure = drawn[width][0].figure
    figure.draw_without_rendering()
    (legend,) = figure.legends
    top = legend.get_window_extent().y1
    boxes = [axes.get_tightbbox() for axes in figure.axes if axes.get_visible()]
    assert min(box.y0 for box in boxes) >= top
    assert max(box.y1 for box in boxes) <= figure.bbox.y1 + 1


def test_rows_of_a_panel_are_told_apart_without_colour():
    for start in (0, 8, 16, 20):
        looks = [look(number) for number in range(start, start + 8)]
        assert len({(str(one["marker"]), str(one["linestyle"])) for one in looks}) == 8
    whole = {
        (o["color"], o["marker"], str(o["linestyle"])) for o in map(look, range(28))
    }
    assert len(whole) == 28


def test_each_combination_of_other_axes_has_a_panel(drawn):
    convergence, sent = drawn["two"]
    shown = [axes for axes in convergence.figure.axes if axes.get_visible()]
    titles = [axes.get_title() for axes in shown]
    assert titles == ["alpha = 0.5", "alpha = 0.1"]
    assert [len(lines_of(axes)) for axes in shown] == [3, 3], "two rows, one level"
    (legend,) = convergence.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "FedAvg",
        "FedAvg + GGEUR_1 & 50%",
    ]
    assert sent.name == "accuracy_bytes"


@pytest.mark.slow
def test_many_rows_take_more_panels(tmp_path, study):
    methods = [f"method number {i} with $a_long name" for i in range(20)]
    study = replace(study, axes=[Axis("method", methods)], seeds=[1], baseline=None)
    means = {(method,): 0.3 + i / 50 for i, method in enumerate(methods)}
    folder = write_study(tmp_path / "s", study, means)
    for picture in figures(Comparison.of(folder), "one"):
        raw = render(picture, "png")
        pixels = np.asarray(Image.open(io.BytesIO(raw)).convert("L"))
        for edge in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]):
            assert edge.min() == 255, f"{picture.name} touches its edge"
        shown = [axes for axes in picture.figure.axes if axes.get_visible()]
        assert len(shown) == 3


def test_pairs_of_methods_stay_in_one_panel():
    for count in (1, 8, 9, 14, 20, 33):
        names = [str(number) for number in range(count)]
        groups = chunks(names)
        assert [name for group in groups for name in group] == names
        assert all(len(group) <= 8 for group in groups)
        assert all(len(group) % 2 == 0 for group in groups[:-1])


def test_nothing_to_draw_is_no_picture(tmp_path):
    """Unevaluated rounds, and clients that send nothing."""
    results = made([{"x": 0.5}], 1)
    silent = replace(results.rounds[0], bytes_up=0, bytes_down=0)
    write(tmp_path / "1", replace(results, round0=None, rounds=[silent]))
    names = [picture.name for picture in figures(Comparison.of(tmp_path))]
    assert names == ["convergence"]


def test_seeds_without_a_scored_round_in_common_have_no_curve(tmp_path):
    write(tmp_path / "1", made([{"x": 0.2}, {"x": None}], 1))
    write(tmp_path / "2", made([{"x": None}, {"x": 0.4}], 2))
    assert figures(Comparison.of(tmp_path)) == []


def test_a_study_of_one_config_has_its_curve(tmp_path, study):
    """Without axes there is one row, over several seeds."""
    study = replace(study, axes=[], baseline=None, tuned=[], failed=[])
    folder = write_study(tmp_path / "s", study, {(): 0.5})
    convergence, _ = figures(Comparison.of(folder))
    (axes,) = convergence.figure.axes
    (line,) = lines_of(axes)
    assert list(line.get_xdata()) == [1, 2, 3, 4]
    assert axes.get_title() == table_of(folder).title


@pytest.mark.slow
def test_several_tables_have_pictures_of_their_own(tmp_path):
    write(tmp_path / "1", made(noisy(0.5, 1), 1))
    write(tmp_path / "2", made(noisy(0.5, 1, domains=("x",)), 1))
    pictures = figures(Comparison.of(tmp_path))
    assert [p.table for p in pictures] == [0, 0, 1, 1]
    assert len({p.name for p in pictures}) == 4


@pytest.mark.slow
def test_drawing_leaves_matplotlib_as_it_was(study_folder):
    before = dict(matplotlib.rcParams)
    for picture in figures(Comparison.of(study_folder))[:1]:
        render(picture, "svg")
    assert dict(matplotlib.rcParams) == before


def test_unknown_formats_are_refused(drawn):
    with pytest.raises(ConfigError, match="'gif'"):
        render(drawn["one"][0], "gif")
