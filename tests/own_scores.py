"""A site's own score against what `ggeur predict` gives in the site's folder."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np

from federatedscope_ggeur.cli import main
from federatedscope_ggeur.data import ClientData
from federatedscope_ggeur.reporting import read_results


def check_own_score(folder: Path, held: ClientData) -> None:
    """The command predicts the site's test rows as well as the site's results say."""
    final = read_results(folder).final
    assert final.accuracy == {held.domain: final.avg}
    rows, said = folder / "test_rows.npz", StringIO()
    np.savez(rows, features=held.test.features, labels=held.test.labels)
    with redirect_stdout(said):
        assert main(["predict", "--run", str(folder), str(rows)]) == 0
    told = re.search(r"accuracy \S+%, (\d+) of (\d+) rows", said.getvalue())
    right, of = map(int, told.groups())
    assert of == len(held.test)
    assert right / of == final.avg
