"""A run that is disturbed all the time ends with the bits of one that is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import ROOT

pytest.importorskip("grpc", reason="distributed mode needs grpcio")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")
def test_the_short_soak(federatedscope):
    home = Path(federatedscope.__file__).parents[3]
    program = ROOT / "benchmarks" / "soak.py"
    done = subprocess.run(
        [sys.executable, str(program), "--clients", "6", "--seconds", "15"],
        env={**os.environ, "FEDERATEDSCOPE_HOME": str(home), "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=1800,
    )
    found = json.loads(done.stdout)
    assert found["hangs"] == 0
    assert found["counts"]["rounds that lack a client"] == 0
    assert found["same"]
    assert done.returncode == 0
