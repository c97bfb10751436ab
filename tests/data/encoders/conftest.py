"""A tiny CLIP model, and machines without network or weights."""

import socket
from pathlib import Path

import pytest

pytest.importorskip("open_clip")


@pytest.fixture
def tiny(tmp_path) -> str:
    from pictures import add_tiny_clip

    return add_tiny_clip(tmp_path)


@pytest.fixture
def bare_machine(tmp_path, monkeypatch) -> Path:
    """No weights anywhere, and a network that fails; returns the home folder."""
    from huggingface_hub import constants

    def refuse(self, address, *rest):
        raise OSError(f"no network for {address}")

    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: refuse(None, a[0]))
    return home


@pytest.fixture
def offline(bare_machine, monkeypatch) -> Path:
    """A bare machine where any use of the network fails the test."""

    def fail(*arguments, **named):
        pytest.fail(f"the network was used: {arguments}")

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(socket.socket, "connect", fail)
    monkeypatch.setattr(socket, "getaddrinfo", fail)
    return bare_machine
