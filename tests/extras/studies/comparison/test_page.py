"""The HTML page: whole, self-contained, and quiet in a browser."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from browsers import headless, looked_at
from own_process import PATIENCE
from strict_html import parsed
from written_runs import made, noisy, write

from federatedscope_ggeur.extras.studies.comparison import Comparison
from federatedscope_ggeur.extras.studies.comparison.figures import figures
from federatedscope_ggeur.extras.studies.comparison.latex import escaped
from federatedscope_ggeur.extras.studies.comparison.paper_table import as_paper_tables
from federatedscope_ggeur.extras.studies.comparison.runs import AVG
from federatedscope_ggeur.extras.studies.study import Axis, Cell, Study, to_text


def page_of(folder) -> str:
    found = Comparison.of(folder)
    return found.to_html(figures(found))


@pytest.fixture(scope="module")
def page(study_folder):
    return page_of(study_folder)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_tables_are_tables(page):
    seen = parsed(page)
    count = [tag for tag, _ in seen.elements].count
    assert count("table") == count("thead") == count("tbody") == 4
    assert count("caption") == 3
    scopes = {a.get("scope") for tag, a in seen.elements if tag == "th"}
    assert scopes == {"col", "row"}
    assert count("figure") == count("figcaption") == count("svg") == 2
    assert [a["role"] for tag, a in seen.elements if tag == "svg"] == ["img"] * 2
    assert "<strong>" in page
    assert "A small study" in "".join(seen.text)


@pytest.mark.slow
def test_the_same_runs_give_the_same_page(page, study_folder):
    assert page_of(study_folder) == page


@pytest.mark.slow
def test_a_notebook_shows_the_tables(study_folder):
    shown = Comparison.of(study_folder)._repr_html_()
    seen = parsed(shown)
    assert [tag for tag, _ in seen.elements].count("table") == 3
    assert "<html" not in shown


@pytest.mark.slow
def test_chromium_opens_it_without_a_word_or_a_request(page, tmp_path):
    """That the look hears and sees such: tests/test_site.py."""
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    with headless() as browser:
        address = (tmp_path / "page.html").as_uri()
        _, console, others = looked_at(browser, address, (1000,))
    assert (console, others) == ([], [])


# LaTeX that compiles, whatever names hold.


AWKWARD = (
    "[1] 50% & more_of $x^2$ #1 {a} ~b \\c ± β µ | <d> \"e\" 'f' `g` --h *i Ärger "
    "naïve Łódź 中文 \x00 – ?` Office\u2013Home"
)


DOCUMENT = (
    "\\documentclass{article}\n\\usepackage{booktabs}\n\\usepackage{graphicx}\n"
    "\\begin{document}\n%s\n\\end{document}\n"
)


@pytest.fixture
def awkward(tmp_path):
    """Rows, domains and a data set with every letter that LaTeX minds."""
    for seed in (1, 2, 3):
        for number, name in enumerate((AWKWARD, "plain", "*star", "[]")):
            config = {"data": {"type": AWKWARD}, "name": name}
            domains = (f"{AWKWARD} 1", "[x]")
            scores = noisy(0.5 + number / 10, seed, domains=domains)
            folder = tmp_path / "runs" / str(number) / str(seed)
            write(folder, made(scores, seed, config))
    return Comparison.of(tmp_path / "runs")


def check(text: str) -> None:
    """A strict reading: braces and environments match, `&` and `$` stand where they
    may, every row has as many cells as its table has columns."""
    assert text.isascii()
    text = re.sub(r"(?m)^%.*\n", "", text)
    bare = re.sub(r"\\[_%&#${}]", "", text)
    depth = 0
    for character in bare:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    assert bare.count("$") % 2 == 0
    for maths in re.findall(r"\$([^$]*)\$", bare):
        assert re.fullmatch(r"\\[a-zA-Z]+|[-+]", maths), maths
    outside = re.sub(r"\$[^$]*\$", "", bare)
    # Accents are commands, and this is the one parameter of ours.
    outside = outside.replace(r"\^{", "{").replace(r"\~{", "{").replace("{%\n", "{\n")
    assert not re.search(r"[#^~%_]", outside)
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert not opened
    tables = re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, re.S)
    assert tables
    for columns, body in tables:
        for row in re.findall(r"(.*) \\\\\n", body):
            spans = map(int, re.findall(r"\\multicolumn\{(\d)\}", row))
            cells = len(re.findall(r"(?<!\\)&", row)) + 1
            assert cells + sum(span - 1 for span in spans) == len(columns)
            # Else it would be read as an argument of the line's end before it.
            assert not row.startswith(("[", "*"))


def test_tables_are_well_formed(awkward):
    check(awkward.to_latex())


def test_names_are_printed_as_they_are():
    assert escaped("a_b & 5%") == r"a\_b \& 5\%"
    assert escaped("± β") == r"$\pm$ $\beta$"
    assert escaped("Ärger naïve") == r"\"{A}rger na\"{i}ve"
    assert escaped("A\u0308") == escaped("Ä")
    assert escaped("中") == "U+4E2D"
    assert escaped("--lr") == "-{}-lr"


def test_the_best_is_bold_and_signs_are_mathematics(study_folder):
    found = Comparison.of(study_folder)
    text = found.to_latex()
    assert r"| FedAvg + GGEUR\_1 & 50%, 0.1 | 5 | trained | **" in found.to_markdown()
    assert re.search(r"\\textbf\{\d\d\.\d\d\} \$\\pm\$ \d\.\d\d", text)
    assert re.search(r"& \$\+\$\d+\.\d\d &", text)
    assert r"\usepackage{booktabs}" in text


def test_a_paper_s_table_has_columns_by_setting(study_folder):
    found = Comparison.of(study_folder)
    text = found.to_latex("paper")
    assert text.count(r"\begin{table*}") == 1
    assert re.search(r"\\label\{tab:[a-z0-9-]+\}", text)
    assert re.search(r"\\multicolumn\{\d\}\{c\}\{", text)
    assert text.count(r"\textbf{") > 1
    assert text.count(r"\underline{") > 1
    for row in found.tables[0].rows.values():
        spread = row.spread(AVG)
        error = rf"{{\scriptsize$\pm${100 * spread.error:.2f}}}"
        assert re.search(rf"{100 * spread.mean:.2f}\}}? {re.escape(error)}", text)


def test_the_best_and_the_second_are_marked(tmp_path):
    for place, level in enumerate((0.5, 0.7, 0.6)):
        config = {"ggeur": {"base_method": "abc"[place]}}
        for seed in (1, 2, 3):
            folder = tmp_path / "runs" / str(place) / str(seed)
            write(folder, made(noisy(level, seed), seed, config))
    lines = Comparison.of(tmp_path / "runs").to_latex("paper").splitlines()
    a, b, c = (line for line in lines if line.startswith("base"))
    assert "textbf" not in a + c
    assert "underline" not in a + b
    assert r"\textbf{" in b
    assert r"\underline{" in c


def test_equal_titles_have_labels_of_their_own(study_folder):
    tables = Comparison.of(study_folder).tables
    text = as_paper_tables([*tables, *tables], "A study", only_avg=False)
    labels = re.findall(r"\\label\{(.*?)\}", text)
    assert len(set(labels)) == len(labels) == 2 * len(tables) + 1


def test_captions_and_labels_have_the_study_s_title(study_folder):
    found = Comparison.of(study_folder)
    for style in ("report", "paper", "avg"):
        text = found.to_latex(style)
        check(text)
        captions = re.findall(r"\\caption\{(.*)\}", text)
        assert captions
        assert all(caption.startswith("A small study. ") for caption in captions)
        labels = re.findall(r"\\label\{(.*?)\}", text)
        assert len(labels) == len(captions) == len(set(labels))
        assert all(label.startswith("tab:a-small-study") for label in labels)
    assert "alpha = 0.1" in found.to_latex("paper")


def test_several_data_sets_have_one_table_of_avg(tmp_path):
    """One of them is at two values of alpha."""
    points = [("digits", "0.5"), ("digits", "2"), ("photos", "1")]
    axes = [
        Axis("method", ["FedAvg", "mine"]),
        Axis("data", ["photos", "digits"]),
        Axis("alpha", ["1", "0.5", "2"]),
    ]
    study = Study("sets", "Two sets", axes, [1, 2])
    for place, (data, alpha) in enumerate(points):
        for method in ("FedAvg", "mine"):
            labels = {"method": method, "data": data, "alpha": alpha}
            for seed in (1, 2):
                scores = noisy(0.5 + place / 10, seed, domains=(f"{data} 1", "b"))
                folder = tmp_path / "sets" / method / str(place) / str(seed)
                write(folder, made(scores, seed), Cell("sets", labels, seed))
    (tmp_path / "sets" / "study.json").write_text(to_text(study), encoding="utf-8")
    sets = Comparison.of(tmp_path / "sets")
    text = sets.to_latex("avg")
    check(text)
    assert text.count(r"\begin{table") == 1
    assert re.search(
        r"method & photos, alpha = 1 & digits, alpha = 0.5 & digits, alpha = 2 ", text
    )
    (fedavg,) = (line for line in text.splitlines() if line.startswith("FedAvg &"))
    assert len(re.findall(r"\d\d\.\d\d", fedavg)) == 3
    paper = sets.to_latex("paper")
    assert paper.count(r"\begin{table") == 3
    assert sets.to_text().count("AVG on all data sets") == 1
    assert "AVG on all data sets" in sets.to_html()


@pytest.mark.slow
def test_pdflatex_compiles_it(awkward, study_folder, tmp_path):
    program = shutil.which("pdflatex")
    if program is None:
        pytest.skip("there is no pdflatex here")
    tables = awkward.to_latex() + Comparison.of(study_folder).to_latex()
    compile_with(program, DOCUMENT % tables, tmp_path)
    paper = awkward.to_latex("paper")
    paper += Comparison.of(study_folder).to_latex("paper")
    two_columns = DOCUMENT.replace("{article}", "[twocolumn]{article}")
    compile_with(program, two_columns % paper, tmp_path)


def compile_with(program, text, tmp_path):
    (tmp_path / "t.tex").write_text(text, encoding="ascii")
    done = subprocess.run(
        [program, "-interaction=nonstopmode", "-halt-on-error", "t.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
