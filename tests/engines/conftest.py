"""FederatedScope, Flower and sites in processes of their own, for all engines."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

for room in ("fs", "sites"):
    sys.path.append(str(Path(__file__).parent / room))


def pytest_collection_modifyitems(items):
    """Tests that start Flower's processes take minutes each, and have a mark of their
    own in the place of `slow`."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        is_flower = callspec is not None and callspec.params.get("engine") == "flower"
        if is_flower or "programs" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.federation)


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
