"""Text in FederatedScope: the same bits as on the embedded engine, in one process and
in many."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pictures import TEXT_TINY, add_text_clip, text_clip_config
from processes import check_same_head
from standalone import assert_same

from federatedscope_ggeur.engines.run import Run

IID = ["data.splitter", "iid", "data.splitter_args", "[]"]
LDA, PRIOR = ["ggeur.closed_form", "lda", *IID], ["ggeur.text.prior", 4]
ENSEMBLE = ["ggeur.text.ensemble", 1]
NEAR = ["ggeur.text.regulariser", 0.1, "ggeur.text.interpolate", 0.5]
FEDCLIP = ["ggeur.text.model", "fedclip", "ggeur.steps", "[]"]
PROMPTFL = ["ggeur.text.model", "promptfl", "ggeur.promptfl.n_ctx", 4]
FEDTPG = ["ggeur.text.model", "fedtpg", "ggeur.steps", "[]"]
BATCHES = ["train.batch_or_epoch", "batch", "train.local_update_steps", 2]
BY_SERVER = ["federate.make_global_eval", True]
PLUGIN = """
from pathlib import Path

import open_clip

name = "{name}"
if name not in open_clip.list_models():
    path = Path(__file__).with_name(name + ".json")
    open_clip.add_model_config(path)
    open_clip.factory._MODEL_CONFIG_PATHS.remove(path)
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory) -> Path:
    """A folder with a plugin that brings a small CLIP model, in every process."""
    folder = tmp_path_factory.mktemp("plugin")
    add_text_clip(folder)
    (folder / f"{TEXT_TINY}.json").write_text(json.dumps(text_clip_config()))
    (folder / "small_clip.py").write_text(PLUGIN.format(name=TEXT_TINY))
    return folder


@pytest.fixture
def quickstart(quickstart, plugin) -> Path:
    """A copy beside the plugin."""
    copy = plugin / "run.yaml"
    copy.write_text(quickstart.read_text())
    return copy


@pytest.fixture
def clip(tmp_path) -> list:
    return [
        "ggeur.plugins", ["small_clip"], "ggeur.encoder.model", TEXT_TINY,
        "ggeur.encoder.pretrained", "none", "ggeur.encoder.device", "cpu",
        "ggeur.encoder.cache", str(tmp_path / "cache"),
    ]  # fmt: skip


def slowly(*settings):
    return pytest.param([*settings], marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "settings",
    [
        [*LDA, *PRIOR],
        slowly(*LDA, *PRIOR, *ENSEMBLE, *BY_SERVER),
        slowly("ggeur.closed_form", "auto", *IID, *PRIOR, *ENSEMBLE),
        slowly("ggeur.closed_form", "mixture", *IID, *PRIOR),
        slowly("ggeur.closed_form", "zeroshot", "ggeur.init", "closed_form", *NEAR),
        FEDCLIP,
        slowly(*FEDCLIP, "ggeur.fedclip.loss", "class", *BY_SERVER),
        slowly(*PROMPTFL, *BATCHES),
        slowly(*FEDTPG, *BATCHES, *BY_SERVER),
    ],
    ids=str,
)
def test_standalone_ends_with_the_same_head(fs, config, clip, settings):
    settings = [*settings, *clip]
    assert_same(fs.run(*settings), Run(config(*settings)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["ggeur.closed_form", "zeroshot", "ggeur.init", "closed_form", *NEAR],
        ["ggeur.closed_form", "auto", *IID, *PRIOR, *ENSEMBLE],
        [*PROMPTFL, *BATCHES],
    ],
    ids=str,
)
def test_distributed_ends_with_the_same_head(fleet, embedded, clip, settings):
    settings = [*settings, *clip, "federate.client_num", 3]
    one = fleet(*settings)
    server = one.server()
    clients = [one.client(number) for number in (1, 2, 3)]
    check_same_head(server, clients, embedded(*settings))


@pytest.mark.slow
def test_a_client_of_other_text_is_refused(fleet, clip, embeddings_folder):
    """Its templates are others, so that its features are."""
    (embeddings_folder / "text.npz").unlink()
    one = fleet(*LDA, *PRIOR, *clip, "federate.client_num", 3)
    server, first = one.server(), one.client(1)
    server.wait_for("client 1 (domain")
    other = one.client(2, "ggeur.text.templates", "['{} in snow']")
    assert other.wait() != 0
    assert "ggeur.text.templates is" in other.output
    first.kill()
    server.kill()
