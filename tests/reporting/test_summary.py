"""The score of a run, from its rounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.reporting import average, summarise

FRACTIONS = st.floats(0, 1)
SCORES = st.fixed_dictionaries(
    {"a": FRACTIONS, "b": st.none() | FRACTIONS, "empty": st.none()}
)


def oracle(rounds, last):
    """`summarise`, straight from its description."""
    used = [r for r in rounds if r.accuracy is not None]
    used = used[max(0, len(used) - last) :]
    means = {}
    for domain in ("a", "b", "empty") if used else ():
        known = [r.accuracy[domain] for r in used if r.accuracy[domain] is not None]
        means[domain] = np.mean(known) if known else None
    scores = [mean for mean in means.values() if mean is not None]
    avg, std = (np.mean(scores), np.std(scores)) if scores else (None, None)
    return [r.round for r in used], means, avg, std


@pytest.mark.slow
@given(rounds=st.lists(st.none() | SCORES, max_size=12), last=st.integers(1, 7))
def test_summarise_agrees_with_the_oracle(make_record, rounds, last):
    rounds = [make_record(i, scores) for i, scores in enumerate(rounds, 1)]
    final = summarise(rounds, last=last)
    used, means, avg, std = oracle(rounds, last)
    assert final.rounds == used
    assert final.accuracy.keys() == means.keys()
    for domain, mean in means.items():
        assert final.accuracy[domain] == (mean and pytest.approx(mean, abs=1e-12))
    assert final.avg == (avg and pytest.approx(avg, abs=1e-12))
    assert final.std == (std and pytest.approx(std, abs=1e-12))
    assert final.bytes_up == 1000 * len(rounds)
    assert final.bytes_down == 3000 * len(rounds)


def test_summarise_takes_the_last_five_evaluated_rounds(make_record):
    scores = [{"a": i / 100} if i % 2 == 0 else None for i in range(1, 21)]
    rounds = [make_record(i, accuracy) for i, accuracy in enumerate(scores, 1)]
    final = summarise(rounds)
    assert final.rounds == [12, 14, 16, 18, 20]
    assert final.avg == pytest.approx(0.16)


def test_summarise_refuses_no_rounds_asked_for():
    with pytest.raises(ConfigError, match="last"):
        summarise([], last=0)


def test_totals_include_round_0(make_results):
    results = make_results([None, None])
    assert results.final.bytes_up == 5 + 6 + 7 + 2 * 1000
    assert results.final.bytes_down == 90 + 9 + 2 * 3000
    assert results.final.seconds == pytest.approx(0.3 + 0.1 + 0.2)


def test_average_leaves_undefined_domains_out():
    assert average({"a": 0.25, "empty": None, "b": 0.75}) == (0.5, 0.25)
    assert average({"empty": None}) == (None, None)
    assert average({}) == (None, None)


def test_average_of_equal_scores_has_no_spread():
    assert average(dict.fromkeys("abcdefg", 0.1)) == (0.1, 0.0)
