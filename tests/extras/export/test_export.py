"""``ggeur export``: the file computes what `predict` does, the card says what ran."""

import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pandas
import pytest
import torch
from foreign_text import FORGED, hidden_in

from federatedscope_ggeur import FederatedClassifier
from federatedscope_ggeur.cli import main
from federatedscope_ggeur.data import transform_rows
from federatedscope_ggeur.errors import ConfigError, DataError
from federatedscope_ggeur.extras.export.command import WITHIN, model_card, onnx_bytes
from federatedscope_ggeur.models.folding import AverageHead
from federatedscope_ggeur.models.heads import MLPHead

slow = partial(pytest.param, marks=pytest.mark.slow)
CLASSES = np.array(["cat", "dog", "emu", "\u00e9lan"])


def rows(n=240, dim=6):
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 4
    features = 3 + 2 * np.eye(4, dim)[labels] + rng.normal(size=(n, dim))
    features[::40] *= 30
    return features.astype("float32"), CLASSES[labels], np.arange(n) // 4 % 2


def fitted(method="lda", settings=()):
    features, labels, site = rows()
    made = FederatedClassifier(method, dict(settings))
    return made.fit(features, labels, site, domains=site)


@pytest.fixture
def folder(tmp_path):
    """A saved classifier, which is a run's folder too."""
    fitted().save(tmp_path / "run")
    return tmp_path / "run"


def by_onnxruntime(results, features, names=None):
    runtime = pytest.importorskip("onnxruntime")
    data, said = onnx_bytes(results)
    assert "as predict's within" in said
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    assert "\\u00e9lan" in about["class_names"]
    assert about["calibrated_by"] == (results.final.calibrated_by or "")
    return session.run(names, {"features": features})


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("lda", {}),
        slow("lda", {"data.transform": ["l2"]}),
        slow("mixture", {"data.transform": ["sqrt_l2"]}),
        slow("rda", {}),
        slow("lda", {"data.transform": ["lift"]}),
        slow("fedavg", {"ggeur.mlp_hidden_dim": 7, "federate.total_round_num": 2}),
        slow("auto", {}),
        slow("auto", {"ggeur.keep": "average"}),
    ],
    ids=["linear", "l2", "mixture, sqrt_l2", "rda", "lift", "mlp", "auto", "average"],
)
def test_onnxruntime_gives_what_predict_gives(method, settings):
    made = fitted(method, settings).results_
    features = np.concatenate([rows()[0], np.zeros((1, 6), "float32")])
    names, shares, logits = by_onnxruntime(made, features)
    expected = made.predict_proba(features)
    np.testing.assert_allclose(shares, expected, rtol=0, atol=WITHIN)
    assert shares.shape == logits.shape == (241, 4)
    assert [*names] == [made.class_names[c] for c in made.predict(features)]


@pytest.mark.slow
def test_a_projection_is_part_of_the_graph():
    """That of differential privacy, here without its noise."""
    projection = "l2_projected:3:5"

    def project(features, pixels=False):
        return transform_rows(torch.as_tensor(features), projection)

    features, labels, site = rows()
    head = FederatedClassifier("lda").fit(project(features), labels, site).results_
    given = {**head.given, "dim": 6, "transform": projection}
    made = replace(head, given=given, prepare=project)
    (found,) = by_onnxruntime(made, features, ["probabilities"])
    expected = made.predict_proba(features)
    np.testing.assert_allclose(found, expected, rtol=0, atol=WITHIN)


@pytest.mark.slow
@pytest.mark.filterwarnings("error:Converting a tensor")
@pytest.mark.parametrize(
    ("share", "hidden", "offset", "known", "floor"),
    [(1.0, 0, 0, 1, 0.2), (1.0, 7, 0, 0, 0), (0.5, 0, 0, 0, 0), (0.25, 7, 1, 1, 0.1),
     (0.0, 7, 0, 1, 0), (0.0, 7, 1, 1, 0)],
)  # fmt: skip
def test_a_mean_of_two_heads_is_a_graph_and_so_is_either_alone(
    share, hidden, offset, known, floor
):
    results = fitted().results_
    width, classes = results.model.in_features, results.model.num_classes
    trained = MLPHead(width, classes, hidden) if hidden else results.model
    model = AverageHead(width, classes, hidden).alone(trained, trained=True)
    model.one_shot = fitted("mixture").results_.model
    model.share.data.fill_(share)
    model.offset.data.fill_(float(offset))
    model.floor.data.fill_(floor)
    model.trained.cool(0.7)
    model.cool(0.8)
    model.known.data[0] = float(known)
    made = replace(results, model=model)
    features = rows()[0]
    shares, logits = by_onnxruntime(made, features, ["probabilities", "logits"])
    expected = made.predict_proba(features)
    np.testing.assert_allclose(shares, expected, rtol=0, atol=WITHIN)
    np.testing.assert_allclose(logits, made.logits(features), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_what_onnxruntime_refuses_is_an_error_of_one_line(monkeypatch):
    runtime = pytest.importorskip("onnxruntime")

    class Refused(Exception):
        """The errors of onnxruntime have no class in common but this."""

    def refuse(*args, **options):
        raise Refused("no kernel for Gather")

    monkeypatch.setattr(runtime, "InferenceSession", refuse)
    with pytest.raises(DataError, match="cannot compute it: no kernel for Gather;"):
        onnx_bytes(fitted().results_)


@pytest.mark.slow
def test_rows_far_from_zero_agree_too():
    features, labels, site = rows()
    far = features + 10000
    head = FederatedClassifier("lda").fit(far, labels, site).results_
    (shares,) = by_onnxruntime(head, far, ["probabilities"])
    exact = head.model.probabilities(head.logits(far, exact=True))
    np.testing.assert_allclose(shares, exact.numpy(), rtol=0, atol=WITHIN)


@pytest.mark.slow
def test_rows_to_compare_on_are_needed(folder, tmp_path, ggeur):
    pytest.importorskip("onnxruntime")
    np.save(tmp_path / "none.npy", np.ones((0, 6), "float32"))
    words = ["export", folder, "--rows", tmp_path / "none.npy"]
    error = ggeur(*words, "--onnx", tmp_path / "a.onnx", status=1).err
    assert "none.npy has no rows to compare on" in error


@pytest.mark.slow
def test_rows_of_another_width_are_refused(folder, tmp_path, ggeur):
    pytest.importorskip("onnxruntime")
    np.savez(tmp_path / "new.npz", features=np.ones((3, 5), "float32"))
    words = ["export", str(folder), "--rows", str(tmp_path / "new.npz")]
    error = ggeur(*words, "--onnx", tmp_path / "a.onnx", status=1).err
    assert "5" in error
    assert "6" in error
    assert not (tmp_path / "a.onnx").exists()


@pytest.mark.slow
def test_a_column_called_label_may_be_a_feature(tmp_path, ggeur):
    pytest.importorskip("onnxruntime")
    features, labels, _ = rows()
    titles = ["label", *map(str, range(1, features.shape[1]))]
    frame = pandas.DataFrame(features, columns=titles)
    FederatedClassifier("lda").fit(frame, labels).save(tmp_path / "head")
    frame.to_csv(tmp_path / "new.csv", index=False)
    words = ["export", tmp_path / "head", "--rows", tmp_path / "new.csv"]
    assert "on 240 rows of" in ggeur(*words, "--onnx", tmp_path / "a.onnx").out


@pytest.mark.slow
def test_a_graph_that_differs_is_not_written(folder, tmp_path, monkeypatch, ggeur):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr("federatedscope_ggeur.extras.export.command.SMOOTHING", 0.1)
    file = tmp_path / "head.onnx"
    said = ggeur("export", folder, "--onnx", file, status=1).err
    assert "differ from predict's by" in said
    assert not file.exists()


@pytest.mark.slow
def test_the_command_writes_both_files_once(folder, tmp_path, ggeur):
    pytest.importorskip("onnxruntime")
    features, labels, _ = rows()
    np.savez(tmp_path / "new.npz", features=features, labels=labels)
    words = ["export", str(folder), "--rows", str(tmp_path / "new.npz")]
    words += ["--onnx", str(tmp_path / "a.onnx"), "--card", str(tmp_path / "a.md")]
    assert "on 240 rows of" in ggeur(*words).out
    assert (tmp_path / "a.md").read_text().startswith("# Model card")
    before = (tmp_path / "a.onnx").read_bytes()
    assert "exists already" in ggeur(*words, status=1).err
    assert (tmp_path / "a.onnx").read_bytes() == before


def test_without_onnx_the_extra_is_named(folder, tmp_path, monkeypatch, ggeur):
    monkeypatch.setitem(sys.modules, "onnx", None)
    said = ggeur("export", folder, "--onnx", tmp_path / "a.onnx", status=1).err
    assert "pip install 'federatedscope-ggeur[onnx]'" in said
    assert not (tmp_path / "a.onnx").exists()


def test_heads_of_single_clients_are_refused(tmp_path, ggeur):
    fitted("local", {"federate.total_round_num": 1}).save(tmp_path / "own")
    error = ggeur("export", tmp_path / "own", "--card", "a.md", status=1).err
    assert "every client has a model of its own" in error
    assert "predict --run" in error


def test_a_network_has_a_card_and_is_refused_by_name(tmp_path, ggeur):
    words = ["--cfg", "network_quickstart.yaml", "federate.total_round_num", 1]
    words += ["outdir", tmp_path, "expname", "net"]
    ggeur(*words, "ggeur.encoder.cache", tmp_path / "cache")
    words = ["export", tmp_path / "net"]
    error = ggeur(*words, "--onnx", tmp_path / "a.onnx", status=1).err
    assert "a model of images (network: digits_cnn), which cannot be exported" in error
    ggeur(*words, "--card", tmp_path / "a.md")
    assert "A classifier of images (network: digits\\_cnn)." in (
        (tmp_path / "a.md").read_text()
    )


def test_a_folder_that_is_no_run_is_named_and_no_option(tmp_path, ggeur):
    error = ggeur("export", tmp_path, "--card", tmp_path / "a.md", status=1).err
    assert error.startswith(f"error: there is no results.json in '{tmp_path}'")


def test_an_export_of_nothing_is_wrong_usage(folder):
    with pytest.raises(SystemExit) as ended:
        main(["export", str(folder)])
    assert ended.value.code == 2


@pytest.mark.slow
def test_what_has_no_graph_is_named():
    pytest.importorskip("onnx")
    head = fitted().results_
    made = replace(head, given={**head.given, "transform": "cube"})
    with pytest.raises(ConfigError, match="transform 'cube' cannot be exported"):
        onnx_bytes(made)
    with pytest.raises(ConfigError, match="of the kind Identity cannot be exported"):
        onnx_bytes(replace(head, model=torch.nn.Identity()))


def test_the_card_says_data_scores_errors_privacy_and_settings():
    made = fitted().results_
    tested = [replace(one, test_rows=100) for one in made.clients]
    accuracy = dict.fromkeys(made.domains, 0.9)
    final = replace(made.final, accuracy=accuracy, avg=0.9)
    card = model_card(replace(made, clients=tested, final=final))
    for one in made.clients:
        assert f"| {one.domain} | 1 | {one.train_rows} | 100 | 90.00 (3.00) |" in card
    assert "| AVG | | | | 90.00 (2.12) |" in card  # 3 / sqrt(2)
    assert "privacy: no guarantee; a min-count threshold of 5" in card
    assert "s.e.: the standard error from the number of test rows" in card
    assert "Not scored. Calibrated by: leave_one_out." in card
    assert made.final.head_sha256 in card
    plain = replace(made, final=replace(final, calibrated_by=None))
    assert "Not scored. Not calibrated." in model_card(plain)


def test_names_in_a_card_are_text():
    made = fitted().results_
    card = model_card(replace(made, class_names=[f"|<b>`{FORGED}", "b", "c", "d"]))
    assert not hidden_in(card)
    assert "\\|\\<b\\>\\`" in card
