"""Published weights: is there a network, and what is said where there is none."""

import socket
import threading

import pytest
from own_process import PATIENCE

from federatedscope_ggeur import downloads
from federatedscope_ggeur.downloads import Remote, obtain
from federatedscope_ggeur.errors import ConfigError


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_a_machine_without_a_network_is_told_at_once(monkeypatch):
    tries = []

    def nobody(where, timeout):
        tries.append(where)
        raise OSError("Name or service not known")

    monkeypatch.setattr(socket, "create_connection", nobody)
    with pytest.raises(OSError, match=r"huggingface\.co cannot be reached \(Name"):
        downloads.check_network("https://huggingface.co/a/resolve/main/b")
    assert tries == [("huggingface.co", 443)]
    monkeypatch.setenv("https_proxy", "http://proxy.example.org:3128")
    with pytest.raises(OSError, match=r"proxy\.example\.org cannot be reached"):
        downloads.check_network("https://huggingface.co/a/resolve/main/b")


def test_a_network_that_answers_nothing_is_not_waited_for(monkeypatch):
    answered = threading.Event()

    def wait(where, timeout):
        answered.wait(PATIENCE)
        raise OSError("too late")

    monkeypatch.setattr(downloads, "_REACH", 0.1)
    monkeypatch.setattr(socket, "create_connection", wait)
    with pytest.raises(OSError, match=r"no answer within 0\.1 s"):
        downloads.check_network("https://huggingface.co/a")
    answered.set()


def test_a_mirror_of_the_hub_is_asked_in_its_place(monkeypatch, tmp_path):
    """Its name is of those that are nobody's; nothing is sent to the hub itself."""
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.invalid:8000/")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    remote = Remote("ours/tiny", ("model.safetensors",), "", tmp_path)
    with pytest.raises(ConfigError) as caught:
        obtain(remote, "a model", lambda: 5 * 10**6, "KEY FILE")
    said = str(caught.value)
    assert "the weights of a model (about 5 MB) are not on this machine" in said
    assert "mirror.invalid cannot be reached" in said
    assert "http://mirror.invalid:8000/ours/tiny/resolve/main/model.safetensors" in said
    assert said.endswith("set: KEY FILE")
