"""FederatedScope and sites in processes of their own, for tests of all engines."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parent / name) for name in ("fs", "flower", "sites")]


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
def flower_here(flower, monkeypatch, tmp_path):
    """This process as one of Flower's, which may make messages."""
    monkeypatch.chdir(tmp_path)
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:  # an earlier release, where every process may
        return
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
