"""Run the notebook of the docs, and keep what its cells print and show.

    python .ci/run_notebook.py

Times, and what belongs to this machine, are left out.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "docs" / "tour.ipynb"
_SECONDS = re.compile(r"; [\d.]+ s\b")
_COLUMN = '<th scope="col">seconds</th></tr>'
_LAST_CELL = re.compile(r"<td>(?:(?!<td>).)*</td></tr>")


def run(notebook: nbformat.NotebookNode) -> None:
    """Execute every cell, in a folder that goes away."""
    with tempfile.TemporaryDirectory() as place:
        folder = {"metadata": {"path": place}}
        NotebookClient(notebook, timeout=300, resources=folder).execute()


def keep(notebook: nbformat.NotebookNode) -> None:
    """Leave in `notebook` what every machine has alike."""
    kernel = notebook.metadata["kernelspec"]
    notebook.metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
            for output in cell.outputs:
                _without_times(output)


def _joined(outputs: list) -> list:
    """What is printed as one text, without what goes to stderr."""
    kept = []
    for output in outputs:
        is_text = output.output_type == "stream"
        if is_text and kept and kept[-1].output_type == "stream":
            kept[-1].text += output.text
        elif not is_text or output.name == "stdout":
            kept.append(output)
    return kept


def _without_times(output: nbformat.NotebookNode) -> None:
    if output.output_type == "stream":
        output.text = _SECONDS.sub("", output.text)
        return
    output.metadata = {}
    for kind in ("text/html", "image/png"):
        if kind in output.data:
            output.data = {kind: output.data[kind]}
    if "text/html" in output.data:
        tables = _SECONDS.sub("", output.data["text/html"]).split("</table>")
        output.data["text/html"] = "</table>".join(map(_without_seconds, tables))


def _without_seconds(table: str) -> str:
    """A table without its last column, if that is one of seconds."""
    if _COLUMN not in table:
        return table
    return _LAST_CELL.sub("</tr>", table.replace(_COLUMN, "</tr>"))


if __name__ == "__main__":
    found = nbformat.read(NOTEBOOK, as_version=4)
    run(found)
    keep(found)
    nbformat.write(found, NOTEBOOK)
