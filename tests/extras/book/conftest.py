"""Tests kill processes and never the machine: nothing needs to reach the disk."""

import os

import pytest


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
