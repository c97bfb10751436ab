"""What a client declares when it joins bounds what it may send.

No answer is longer than the server would read.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from by_bytes import CLASSES, DIM, make_client_data, make_rows
from carrier import after_round_0, carrier

from federatedscope_ggeur.errors import MessageError
from federatedscope_ggeur.federation.exchanges.augmentation.exchange import PREPARE
from federatedscope_ggeur.federation.exchanges.augmentation.messages import PrepareReply
from federatedscope_ggeur.federation.exchanges.closed_form.exchange import LEAVE_ONE_OUT
from federatedscope_ggeur.federation.exchanges.closed_form.messages import HitCounts
from federatedscope_ggeur.federation.exchanges.evaluation.exchange import EVALUATE
from federatedscope_ggeur.federation.exchanges.evaluation.scores import (
    Score,
    ScoreReport,
)
from federatedscope_ggeur.federation.exchanges.space import TOTALS, TotalsUpload
from federatedscope_ggeur.federation.exchanges.statistics import Compress
from federatedscope_ggeur.federation.exchanges.statistics.exchange import (
    STATISTICS,
    longest_upload,
)
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.wire import schema as limits
from federatedscope_ggeur.federation.wire.handshake import Handshake, Join
from federatedscope_ggeur.federation.wire.schema import (
    Declared,
    MessageSchema,
    StatisticsForm,
)
from federatedscope_ggeur.geometry import Compression, Statistics, Totals
from federatedscope_ggeur.methods import METHODS, TensorSpec

ROWS = 40


@pytest.fixture
def rows():
    return make_rows(ROWS, seed=3)


@pytest.fixture
def declared(rows):
    return Declared.of(rows[0], 7, 11)


def upload(features, labels, content="class") -> StatisticsUpload:
    held = Statistics.from_embeddings(features, labels, CLASSES)
    return StatisticsUpload(3, "art", held.to(content), StatisticsForm(content))


def counting(weight):
    """An exchange in which clients count for these rows."""
    return SimpleNamespace(settings=SimpleNamespace(weight=weight))


def test_it_is_the_next_power_of_two_of_the_longest_row(rows, declared):
    longest = max(sum(float(x) ** 2 for x in row) ** 0.5 for row in rows[0])
    assert declared.norm / 2 < longest <= declared.norm
    assert (declared.train, declared.val, declared.test) == (ROWS, 7, 11)
    assert Declared.of(torch.ones(2, 4), 0, 0).norm == 2.0
    assert Declared.of(torch.zeros(0, 4), 0, 5) == Declared(0, 0, 5, 0.0)
    assert Declared.of(torch.full((1, 4), 255, dtype=torch.uint8), 0, 0).norm == 512.0


@pytest.mark.parametrize("content", ["class", "pooled", "means"])
@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e10])
def test_honest_statistics_pass(rows, content, scale):
    features = rows[0] * scale
    STATISTICS.bound(
        Declared.of(features, 0, 0), None, upload(features, rows[1], content)
    )
    one = torch.ones(ROWS, DIM) * scale  # as long as can be, all alike
    STATISTICS.bound(Declared.of(one, 0, 0), None, upload(one, rows[1], content))


@pytest.mark.parametrize("content", ["class", "pooled", "means"])
def test_statistics_beyond_it_are_refused(rows, declared, content):
    features, labels = rows
    more = torch.cat([features, features]), torch.cat([labels, labels])
    with pytest.raises(MessageError, match=r"client 3 .*'counts': 80 rows.*ed 40"):
        STATISTICS.bound(declared, None, upload(*more, content))
    with pytest.raises(MessageError, match=r"'means': the mean of class \d has"):
        STATISTICS.bound(declared, None, upload(features + 1e3, labels, content))
    wide = features * torch.where(torch.arange(ROWS) % 2 == 0, 1e3, -1e3)[:, None]
    if content != "means":
        with pytest.raises(MessageError, match=r"'(scatter|means)'"):
            STATISTICS.bound(declared, None, upload(wide, labels, content))


NONE = torch.zeros(DIM).double()


@pytest.mark.parametrize(
    ("totals", "within", "field"),
    [
        (Totals(41, NONE, 0.0, NONE), 0.0, "'count': 41 rows"),
        (Totals(40, NONE + 1e3, 0.0, NONE), 0.0, "'mean'"),
        (Totals(40, NONE, 1e9, NONE), 0.0, "'spread'"),
        (Totals(40, NONE, 0.0, NONE), 1e9, "'within'"),
    ],
)
def test_totals_beyond_it_are_refused(rows, declared, totals, within, field):
    TOTALS.bound(declared, None, TotalsUpload(3, Totals.of_rows(rows[0])))
    with pytest.raises(MessageError, match=field):
        TOTALS.bound(declared, None, TotalsUpload(3, totals, within))


def test_scores_hits_and_weights_beyond_it_are_refused(declared):
    EVALUATE.bound(declared, None, ScoreReport(3, 1, {"test": Score(11, 11, 0.0)}))
    too_many = ScoreReport(3, 1, {"test": Score(2**40, 2**40, 0.0)})
    with pytest.raises(MessageError, match=r"'test_total': 1.09951e\+12 rows.*11 when"):
        EVALUATE.bound(declared, None, too_many)
    none = torch.zeros(1, dtype=torch.int64)
    LEAVE_ONE_OUT.bound(declared, None, HitCounts(3, 47, none, 0, 47))
    with pytest.raises(MessageError, match="'rows': 48 rows"):
        LEAVE_ONE_OUT.bound(declared, None, HitCounts(3, 48, none, 0, 47))
    PREPARE.bound(declared, counting("augmented"), PrepareReply(3, 1e6))
    with pytest.raises(MessageError, match="'aggregation_weight': 41 rows"):
        PREPARE.bound(declared, counting("original"), PrepareReply(3, 41.0))


def test_the_course_refuses_what_is_beyond_it():
    carried = carrier(quorum=2)
    data = make_client_data((20, 30, 25, 15))
    every = {k: Declared.of(x, 0, 15) for k, (_, x, _) in data.items()}
    declared = carried.membership.declared
    declared.update({**every, 2: Declared(29, 0, 14, every[2].norm)})
    assert carried.round0().clients == [1, 3, 4]
    absent = carried.membership.absent
    assert "'counts': 30 rows, but the client declared 29" in absent[2]
    declared[3] = Declared(25, 0, 14, every[3].norm)
    carried.rounds(1, 2, 3)
    assert "'test_total': 15 rows, but the client declared 14" in absent[3]


@pytest.mark.parametrize("scale", [1.0, 1e-30])
@pytest.mark.parametrize("rows", [0, 3, 5000])
@pytest.mark.parametrize(
    "form",
    [
        StatisticsForm("class"),
        StatisticsForm("class", exact=True),
        StatisticsForm("pooled", exact=True),
        StatisticsForm("means"),
        StatisticsForm("pooled", steps=(Compress(Compression()),)),
    ],
    ids=str,
)
def test_statistics_fit(form, rows, scale):
    classes, dim = 6, 40
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, dim, generator=generator, dtype=torch.float64) * scale
    labels = torch.randint(classes, (rows,), generator=generator)
    held = Statistics.from_embeddings(x.float(), labels, classes)
    leaving = form.leave(held.to(form.content))
    sent = StatisticsUpload(1, "d" * 200, leaving, form).to_bytes()
    schema = MessageSchema(classes, dim, 0, form)
    assert len(sent) <= longest_upload(schema)
    # It is a bound of this schema's and not one of any.
    assert longest_upload(schema) < limits.PLAIN + 8 * classes * (dim + 4) ** 2


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if m.federated])
def test_answers_of_every_method_fit(name):
    carried = after_round_0(METHODS[name]())
    carried.rounds(1, 2, 3)
    for request in carried.requests:
        most = carried.coordinator.asking.largest_answer(request.kind)
        for kind, number, _, reply in carried.answers:
            if (kind, number) == (request.kind.name, request.round_number):
                assert most is None or sum(map(len, reply)) <= most
    kinds = {request.kind.name for request in carried.requests}
    assert {"statistics", "prepare", "train", "evaluate"} <= kinds


def test_lengths_that_a_method_leaves_open_have_no_bound():
    closed = {"a": TensorSpec((3, 2)), "b": TensorSpec((5,), torch.int64)}
    assert limits.of_tensors(10, closed) == limits.PLAIN + 40 + 24 + 40
    assert limits.of_tensors(10, {"a": TensorSpec((None, 2))}) is None
    assert limits.of_tensors(None, {}) is None


# The first message of a client, and where two sides differ.


HANDSHAKE = Handshake(("cat", "dog", "hörse"), 512, "clip", {"seed": "0", "steps": "1"})


def test_text_stands_in_it_where_there_is_some_and_only_there():
    plain = Join(HANDSHAKE, Declared(), 3, "art")
    told = replace(plain, handshake=replace(HANDSHAKE, text="a1b2"))
    assert Join.from_bytes(plain.to_bytes(), sender="10.0.0.7") == plain
    assert Join.from_bytes(told.to_bytes(), sender="client 3") == told
    assert "text" not in HANDSHAKE.write()[0]
    assert told.handshake.write()[0]["text"] == "a1b2"
    mine, theirs = told.handshake, replace(HANDSHAKE, text="c3d4")
    assert mine.difference(theirs) == ("text features is 'c3d4' there and 'a1b2' here")
    assert "text features is not set there" in mine.difference(HANDSHAKE)


SAME = HANDSHAKE.settings


@pytest.mark.parametrize(
    ("field", "value", "difference"),
    [
        ("settings", dict(SAME), ""),
        ("dim", 768, "dim is 768 there and 512 here"),
        ("encoder", "vit", "encoder is 'vit' there and 'clip' here"),
        ("settings", {**SAME, "seed": "1"}, "seed is '1' there and '0' here"),
        ("settings", {"seed": "0"}, "steps is not set there and '1' here"),
        ("settings", {**SAME, "new": "5"}, "new is '5' there and not set here"),
        ("class_names", ("cat", "cow", "horse"), "class 1 is 'cow' there and 'dog' he"),
        (
            "class_names",
            ("cat", "dog"),
            "class 2 is not set there and 'hörse' here; 2 ",
        ),
        ("class_names", ("ant", "cat", "dog", "hörse"), "; 4 classes there and 3 here"),
    ],
)
def test_the_first_difference_is_named_with_both_values(field, value, difference):
    found = HANDSHAKE.difference(replace(HANDSHAKE, **{field: value}))
    assert difference in found if difference else found == ""


def test_a_difference_stays_short():
    """What a stranger sends goes into an error and the log."""
    long = "x" * 100_000
    for changes in (
        {"encoder": long},
        {"class_names": (long,)},
        {"settings": {"seed": long}},
        {"class_names": tuple(f"class {i}" for i in range(100_000))},
    ):
        assert len(HANDSHAKE.difference(replace(HANDSHAKE, **changes))) < 400
