"""Fixtures that tests of several rooms share."""

import importlib.util
import os
import signal
import sys
import time
from functools import cache, partial
from pathlib import Path

import exchange_plugin
import numpy as np
import pytest
import torch
import yaml
from elsewhere import Elsewhere
from fake_checkout import write_checkout
from threadpoolctl import threadpool_limits

from federatedscope_ggeur import rng
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.yaml_file import read_tree
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.federation.exchanges import EXCHANGES
from federatedscope_ggeur.reporting import plots, provenance

EXAMPLES = Path(__file__).parent.parent / "scripts" / "example_configs"


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """One thread each: tests in several processes share the cores."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the programs that tests start
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session", autouse=True)
def _heeds_interrupts():
    """Programs that tests start heed Ctrl-C. A shell's background jobs ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _what_no_run_needs():
    """Runs in this process draw no curve, ask git once, and parse a text once: each
    takes as long as most of them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(yaml, "compose", cache(yaml.compose))
        patched.setattr(plots, "draw_curve", lambda results, path: path.touch())
        patched.setattr(provenance, "_git_state", cache(provenance._git_state))
        yield


@pytest.fixture(scope="session")
def flower():
    """Skips where Flower cannot be."""
    if sys.version_info < (3, 11):
        pytest.skip("Flower needs Python 3.11 or later")
    pytest.importorskip("flwr", reason="Flower is not installed (the extra [flower])")


@pytest.fixture(scope="session")
def federatedscope():
    """The FS package, from where it is installed or from FEDERATEDSCOPE_HOME."""
    home = os.environ.get("FEDERATEDSCOPE_HOME")
    if importlib.util.find_spec("federatedscope") is None:
        if not home or not (Path(home) / "federatedscope").is_dir():
            pytest.skip(
                "FederatedScope is not importable and FEDERATEDSCOPE_HOME names no "
                "checkout of it"
            )
        sys.path.insert(0, home)
    return pytest.importorskip(
        "federatedscope.core.configs.config",
        reason="FederatedScope cannot be imported",
        exc_type=ImportError,
    )


@pytest.fixture
def forget_exchange(monkeypatch):
    """The exchange of `exchange_plugin` is gone behind the test."""
    monkeypatch.setattr(EXCHANGES, "_parts", dict(EXCHANGES))
    yield
    sys.modules.pop(exchange_plugin.NAME, None)


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """Seconds that pass when the test says so."""
    seconds = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    return seconds


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A folder that looks like a checkout of FS."""
    return write_checkout(tmp_path / "FS of mine")


@pytest.fixture
def found_by_home(checkout, monkeypatch) -> Path:
    """The checkout, as the only FS that can be found."""
    monkeypatch.setitem(sys.modules, "federatedscope", None)
    monkeypatch.setenv("FEDERATEDSCOPE_HOME", str(checkout))
    return checkout


@pytest.fixture
def ggeur(capsys):
    """``ggeur WORDS`` in this process, which ends with `status`: what it has printed,
    on standard output (`out`) and beside it (`err`)."""

    def call(*words, status=0):
        capsys.readouterr()  # of what came before
        assert main([*map(str, words)]) == status
        return capsys.readouterr()

    return call


@pytest.fixture
def predict(ggeur):
    """``ggeur predict --run WORDS``."""
    return partial(ggeur, "predict", "--run")


@pytest.fixture
def quickstart() -> Path:
    return EXAMPLES / "ggeur_quickstart.yaml"


@pytest.fixture
def rewritten(quickstart, tmp_path):
    """The quickstart in a file of its own, with texts in place of others it holds."""

    def rewrite(*pairs: tuple[str, str]) -> Path:
        text = quickstart.read_text(encoding="utf-8")
        for old, new in pairs:
            assert text.count(old) == 1, f"{quickstart} holds {old!r} once no more"
            text = text.replace(old, new)
        path = tmp_path / "rewritten.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return rewrite


@pytest.fixture
def embeddings_folder(tmp_path) -> Path:
    """Three small domains of 16-dimensional embeddings in 12 classes, whose text
    features are near their means."""
    folder = tmp_path / "embeddings"
    folder.mkdir()
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(12, 16)) * 3
    for name, rows in (("art", 120), ("photo", 96), ("sketch", 108)):
        labels = np.arange(rows) % 12
        shift = rng.normal(size=16)
        features = centres[labels] + shift + rng.normal(size=(rows, 16))
        np.savez(
            folder / f"{name}.npz", features=features.astype("float32"), labels=labels
        )
    text = centres + np.random.default_rng(1).normal(size=(12, 16))
    np.savez(folder / "text.npz", features=text, logit_scale=20.0)
    return folder


@pytest.fixture
def uneven(embeddings_folder) -> list[str]:
    """Settings of a run on them whose clients hold uneven shares of each class."""
    return [
        "data.type", "embeddings@ggeur",
        "data.root", str(embeddings_folder),
        "data.splitter", "lds",
        "data.splitter_args", "[{'alpha': 1.0}]",
    ]  # fmt: skip


@pytest.fixture
def in_units(embeddings_folder):
    """The same embeddings, but their dimensions are in units five orders of magnitude
    apart."""
    for path in embeddings_folder.glob("*.npz"):
        held = dict(np.load(path))
        units = 10 ** np.linspace(-2, 3, held["features"].shape[1])
        held["features"] = (held["features"] * units).astype("float32")
        np.savez(path, **held)


@cache
def _quickstart_settings() -> dict:
    """Those of the quickstart, read once: reading YAML takes long."""
    return read_tree(EXAMPLES / "ggeur_quickstart.yaml")[0]


@pytest.fixture
def config(uneven):
    """A run of three rounds over three small domains, with settings added to it."""

    def load(*overrides):
        base = [
            *uneven,
            "federate.client_num", "3",
            "ggeur.step1_size", "20",
            "ggeur.step2_size", "10",
            "federate.total_round_num", "3",
            "ggeur.space", "raw",
            "train.optimizer.lr", "0.01",
        ]  # fmt: skip
        return load_config(_quickstart_settings(), [*base, *map(str, overrides)])

    return load


@pytest.fixture
def gpu(monkeypatch):
    """A GPU, or what stands in for one."""
    if torch.cuda.is_available():
        yield None
    elif not hasattr(torch.Tensor, "untyped_storage"):
        pytest.skip("the stand-in for a GPU needs torch 2")
    else:
        monkeypatch.setattr(rng, "new_generator", lambda device: torch.Generator())
        with Elsewhere() as mode:
            yield mode
