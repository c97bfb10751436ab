"""FederatedScope and Flower in processes of their own, for tests of all engines."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fs"))


@pytest.fixture(scope="session")
def fork_server(federatedscope):
    """What forks workers; it has imported FederatedScope already."""
    from processes import ForkServer

    pytest.importorskip("grpc", reason="distributed mode needs grpcio")
    if not hasattr(os, "fork"):
        pytest.skip("workers are forked, which this system cannot")
    one = ForkServer(Path(federatedscope.__file__).parents[3])
    yield one
    one.close()


@pytest.fixture
def programs(flower):
    """Flower's processes, on loopback only. None of them outlives the test."""
    from federatedscope_ggeur.engines.flower.programs import Programs

    with Programs() as programs:
        yield programs
        for path in sorted(programs.folder.glob("*.log")):  # shown if the test fails
            print(f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}")
