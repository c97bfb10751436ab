"""The notebook of the docs: every cell runs, and gives what the text says."""

import re
from pathlib import Path

import nbformat
import pytest
from loaded_scripts import loaded
from nbclient import NotebookClient
from own_process import PATIENCE

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "docs" / "tour.ipynb"


def kept():
    """The notebook as it is committed."""
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.fixture(scope="module")
def run_notebook():
    return loaded(ROOT / ".ci" / "run_notebook.py")


def shown(cell) -> str:
    """What a cell prints and shows as text."""
    parts = [output.get("text", "") for output in cell.outputs]
    parts += [output.get("data", {}).get("text/html", "") for output in cell.outputs]
    return "".join(parts)


def code_cells(notebook) -> list:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_it_is_kept_with_what_it_printed_and_showed():
    notebook = kept()
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert {"text/html", "image/png"} == {k for o in outputs for k in o.get("data", {})}
    said = "\n".join(map(shown, cells))
    assert "AVG" in said
    assert "of 97 new digits" in said


def test_nothing_of_a_machine_is_kept():
    notebook = kept()
    assert not [cell.metadata for cell in notebook.cells if cell.metadata]
    said = "\n".join(map(shown, code_cells(notebook)))
    assert not re.findall(r"/tmp|/root|/home|/Users|[A-Z]:\\", said)
    assert not re.findall(r"\d s\b|>seconds<", said), "times"


def without_numbers(cell) -> list:
    """What every machine has alike: kinds of output, and the words printed."""
    return [
        re.sub(r"[\d.]+", "0", output.get("text", "")).split()
        or sorted(output.get("data", {}))
        for output in cell.outputs
    ]


def _averages(html: str) -> dict[str, float]:
    """AVG of each row of the comparison's first table."""
    start = "<caption><span>Accuracy</span></caption>"
    table = html.split(start)[1].split("</table>")[0]
    rows = re.findall(r'<th scope="row">(.*?)</th>(.*?)</tr>', table)
    names = re.findall(r'<th scope="col">(.*?)</th>', table)
    at = names.index("AVG") - 1
    cells = {name: re.findall(r"<td>(.*?)</td>", row)[at] for name, row in rows}
    return {name: float(re.search(r"\d+\.\d+", c)[0]) for name, c in cells.items()}


@pytest.mark.slow
def test_every_cell_runs_and_gives_what_the_text_says(tmp_path, run_notebook):
    notebook = kept()
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=PATIENCE, resources=place).execute()
    run_notebook.keep(notebook)
    code = code_cells(notebook)
    before = map(without_numbers, code_cells(kept()))
    assert list(map(without_numbers, code)) == list(before)
    said = "\n".join(map(shown, code))

    same, other = re.search(
        r"domains: ([\d.]+); different classes: ([\d.]+)", said
    ).groups()
    assert float(same) > 3 > 1.5 > float(other)
    assert re.search(r"photo and scan: same class 3\.\d+", said)
    averages = _averages(said)
    fedavg, ggeur, closed_form = averages.values()
    assert list(averages) == [
        "steps [], closed_form none",
        "steps [1], closed_form none",
        "closed_form auto",
    ]
    assert closed_form > max(fedavg, ggeur)
    assert ggeur - fedavg < 1
    assert len(re.findall(r"of 97 new digits", said)) == 2
    found = re.findall(r"images/a_(\d)_\d+\.png: (\d) ", said)
    assert len(found) == 6
    assert sum(truth == answer for truth, answer in found) >= 5
    pictures = [
        o for cell in code for o in cell.outputs if "image/png" in o.get("data", {})
    ]
    assert len(pictures) == 2
    assert not list(tmp_path.iterdir()), "it writes into a folder of its own"
