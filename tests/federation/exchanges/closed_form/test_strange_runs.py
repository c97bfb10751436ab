"""Runs that leave what says how unlike all classes a row is."""

import numpy as np
import pytest

from federatedscope_ggeur.engines.run import Run
from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.predictor.left_models import LeftModels
from federatedscope_ggeur.reporting import STRANGENESS_FILE, write_run

LDA = ["ggeur.closed_form", "lda", "ggeur.privacy.min_samples", 1]


def left(config, folder, *settings):
    going = Run(config(*settings))
    results = going.follow(lambda record: None)
    history = going.history
    folder.mkdir(exist_ok=True)
    write_run(folder, results, history.head_bytes(), history.own_bytes())
    return results, going.data.clients[0].test.features


@pytest.mark.slow
def test_the_folder_says_what_the_results_say(config, tmp_path):
    results, features = left(config, tmp_path, *LDA)
    found = results.strangeness(features)
    assert found.shape == (len(features),)
    assert np.isfinite(found).all()
    again = LeftModels(tmp_path).strangeness().scores(features).numpy()
    np.testing.assert_allclose(again, found, rtol=1e-12, atol=1e-12)
    wild = results.strangeness(100 * features)
    assert wild.min() > found.max()


@pytest.mark.slow
def test_a_file_of_another_run_is_refused(config, tmp_path):
    left(config, tmp_path / "a", *LDA)
    left(config, tmp_path / "b", *LDA, "ggeur.lda.shrinkage", 0.5)
    data = (tmp_path / "a" / STRANGENESS_FILE).read_bytes()
    (tmp_path / "b" / STRANGENESS_FILE).write_bytes(data)
    with pytest.raises(DataError, match=r"and head.* are not from the same run"):
        LeftModels(tmp_path / "b").strangeness()
    (tmp_path / "b" / STRANGENESS_FILE).write_bytes(data[:50])
    with pytest.raises(DataError, match="is damaged"):
        LeftModels(tmp_path / "b").strangeness()


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["ggeur.closed_form", "ridge"],
        [*LDA, "ggeur.init", "closed_form", "federate.total_round_num", 1],
    ],
)
def test_other_runs_leave_none(config, tmp_path, settings):
    results, features = left(config, tmp_path, *settings)
    assert not (tmp_path / STRANGENESS_FILE).exists()
    assert LeftModels(tmp_path).strangeness() is None
    with pytest.raises(DataError, match="strangeness: these results have none"):
        results.strangeness(features)
