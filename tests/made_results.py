"""Results made by hand, with everything awkward that a run can have."""

from federatedscope_ggeur.reporting import (
    SCHEMA_VERSION,
    ClientInfo,
    Results,
    Round0,
    RoundRecord,
    average,
    summarise,
)


def make_record(number, accuracy):
    avg, std = average(accuracy) if accuracy is not None else (None, None)
    loss = None if accuracy is None else 1.0 / (number + 2)
    return RoundRecord(
        number, [1, 2, 10], accuracy, avg, std, loss, 0.1 * number, 1000, 3000
    )


def make_head(method, accuracy, number=0):
    """A head made in one go; `number` as of a round."""
    avg, std = average(accuracy)
    details = {"shrinkage": 0.25, "left_out": 1}
    scores = (accuracy, avg, std, 0.5, 0.7, 11, 13)
    return RoundRecord(number, [], *scores, method=method, details=details)


def make_results(
    accuracies=None, *, round0=True, closed_form=None, calibrated=None, **changes
):
    """Results over one accuracy dict (or None, not evaluated) for each round."""
    if accuracies is None:
        accuracies = [None if i % 3 else _scores(i) for i in range(1, 25)]
    rounds = [make_record(i, scores) for i, scores in enumerate(accuracies, 1)]
    start = Round0(
        [1, 2, 10], 0.3, {"10": 7, "1": 5, "2": 6}, 90, 9, 27, 3,
        closed_form=closed_form,
    )  # fmt: skip
    fields = {
        "schema_version": SCHEMA_VERSION,
        "engine": "embedded",
        "status": "finished",
        "config": {"outdir": "exp", "expname": "e", "seed": 1, "ggeur": {"steps": [1]}},
        "versions": {"python": "3.9"},
        "seed": 1,
        "domains": ["clean", 'näh, "quoted" $x_1$', "_noisy", "empty"],
        "unseen_domains": ["_noisy"],
        "class_names": ["0", "1"],
        "encoder": "hog",
        "clients": [ClientInfo(1, "clean", 70, 30), ClientInfo(10, "empty", 7, 0)],
        "round0": start if round0 else None,
        "rounds": rounds,
        "calibrated": calibrated,
        "final": summarise(rounds, start if round0 else None, calibrated),
    }
    return Results(**{**fields, **changes})


def _scores(i):
    last = 0.1 + 0.2 * (1 - 1 / i)
    second = 'näh, "quoted" $x_1$'
    return {"clean": 1 / 3 + i / 100, second: 1 - 1 / i, "_noisy": last, "empty": None}
