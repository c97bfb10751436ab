"""The notebook of the docs: every cell runs, and gives what the text says."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "docs" / "tour.ipynb"


def test_it_is_kept_without_what_it_printed():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not [cell for cell in notebook.cells if cell.get("outputs")]


def shown(cell) -> str:
    """What a cell prints and shows as text."""
    parts = [output.get("text", "") for output in cell.outputs]
    parts += [output.get("data", {}).get("text/html", "") for output in cell.outputs]
    return "".join(parts)


def _averages(html: str) -> dict[str, float]:
    """AVG of each row of the comparison's first table."""
    table = html.split("<caption>Accuracy</caption>")[1].split("</table>")[0]
    rows = re.findall(r'<th scope="row">(.*?)</th>(.*?)</tr>', table)
    names = re.findall(r'<th scope="col">(.*?)</th>', table)
    at = names.index("AVG") - 1
    cells = {name: re.findall(r"<td>(.*?)</td>", row)[at] for name, row in rows}
    return {name: float(re.search(r"\d+\.\d+", c)[0]) for name, c in cells.items()}


@pytest.mark.slow
def test_every_cell_runs_and_gives_what_the_text_says(tmp_path):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, resources=place).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
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
        "steps [1], closed_form auto",
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
