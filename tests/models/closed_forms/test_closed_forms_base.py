"""What holds of every closed form: every partition, classes left out, what is refused.

Each one's numbers stand in its own test; the base's and the registry's here.
"""

import json
import math

import closed_form_oracle as oracle
import numpy as np
import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from solving import refuse, stats

from federatedscope_ggeur.errors import ConfigError, PluginError
from federatedscope_ggeur.geometry import Statistics
from federatedscope_ggeur.models import (
    CLOSED_FORMS,
    ClosedForm,
    LinearHead,
    ModelSettings,
    build_closed_form,
    build_model,
    load_vector,
    register_closed_form,
    to_vector,
)
from federatedscope_ggeur.models.closed_forms import linear_head
from federatedscope_ggeur.settings import Key, positive


@st.composite
def federations(draw):
    """Rows, labels, each row's client, and how many clients there are."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    num_classes = draw(st.integers(1, 6))
    missing = (0,) if num_classes > 2 and draw(st.booleans()) else ()
    rows, labels = oracle.make_data(
        rng,
        draw(st.sampled_from([1, 3, 15, 60, 250])),
        draw(st.sampled_from([1, 2, 8, 24])),
        num_classes,
        draw(st.sampled_from([0.0, 1e3])),
        missing,
    )
    if num_classes > 1:  # the last class shrinks to one sample
        labels[labels == num_classes - 1] = num_classes - 2
        labels[0] = num_classes - 1
    clients = draw(st.sampled_from([1, 10, 100]))
    beta = draw(st.sampled_from([0.01, 0.1, 0.5]))
    owner = np.zeros(len(rows), int)
    for c in range(num_classes):
        shares = rng.dirichlet([beta] * clients)
        owner[labels == c] = rng.choice(clients, size=(labels == c).sum(), p=shares)
    return rows, labels, owner, clients, num_classes


LDA = CLOSED_FORMS["lda"]
#: Those that statistics are asked for.
ASKING = [name for name, form in CLOSED_FORMS.items() if form.asks]
CHOSEN = [CLOSED_FORMS[k]() for k in ASKING if CLOSED_FORMS[k].partition_free] + [
    LDA(shrinkage=0.1, priors="none"),
    CLOSED_FORMS["ridge"](strength=0.01),
]


@examples(25)
@given(federations())
def test_every_partition_gives_the_head_of_the_pooled_rows(drawn):
    rows, labels, owner, clients, num_classes = drawn
    parts = [
        stats(rows[owner == k], labels[owner == k], num_classes) for k in range(clients)
    ]
    pooled, merged = stats(rows, labels, num_classes), sum(parts)
    summed = sum(part.to("pooled") for part in parts)
    for chosen in CHOSEN:
        wanted = list(chosen.solve(pooled).model.parameters())
        for held in (merged,) if chosen.NEEDS == "class" else (merged, summed):
            fitted = chosen.solve(held)
            assert fitted.report["left_out"] == num_classes - len(pooled.classes)
            for mine, theirs in zip(fitted.model.parameters(), wanted):
                oracle.assert_close(mine.numpy(), theirs.numpy())


@pytest.mark.parametrize("kind", ASKING)
@pytest.mark.parametrize("scale", [1.0, 1e6])
@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize("kept", [1, 3])
def test_a_class_left_out_never_wins(kind, scale, offset, kept):
    rng = np.random.default_rng(3)
    missing = tuple(c for c in range(6) if c % 2 == 0 or c >= 2 * kept)
    rows, labels = oracle.make_data(rng, 40, 8, 6, offset, missing)
    fitted = CLOSED_FORMS[kind]().solve(stats(rows, labels, 6))
    assert fitted.report["left_out"] == 6 - kept
    points = offset + scale * rng.normal(size=(2000, 8))
    points[0] = rows[labels == labels.min()].mean(axis=0)
    logits = fitted.model(torch.from_numpy(points).float())
    assert set(logits.argmax(dim=1).tolist()) <= set(oracle.seen(labels))


def test_the_logit_of_a_class_left_out_is_the_mean_of_the_others():
    """So training has it neither far ahead nor far behind."""
    rows, labels = oracle.make_data(np.random.default_rng(3), 40, 8, 6, 10.0, (1, 4))
    model = CLOSED_FORMS["lda"](shrinkage=0.1).solve(stats(rows, labels, 6)).model
    logits = model(torch.from_numpy(rows).float())
    others = logits[:, oracle.seen(labels)].mean(dim=1)
    for absent in (1, 4):
        torch.testing.assert_close(logits[:, absent], others, rtol=0, atol=2e-3)


@pytest.mark.parametrize("kind", ASKING)
def test_the_head_is_frozen_and_loads_and_the_report_is_plain(kind):
    rows, labels = oracle.make_data(np.random.default_rng(5), 50, 4, 3)
    fitted = CLOSED_FORMS[kind]().solve(stats(rows, labels, 4))
    assert not fitted.model.training
    for parameter in fitted.model.parameters():
        assert parameter.dtype == torch.float32
        assert not parameter.requires_grad
    assert json.loads(json.dumps(fitted.report)) == fitted.report
    known = {"rows": 50, "classes": 3, "left_out": 1}
    assert known.items() <= fitted.report.items()
    built = build_model(4, 4, ModelSettings(closed_form=kind))
    load_vector(built, to_vector(fitted.model))
    points = torch.from_numpy(rows).float()
    assert torch.equal(built(points), fitted.model(points))


@pytest.mark.parametrize("kind", ASKING)
@pytest.mark.parametrize("content", ["class", "pooled"])
def test_no_samples_are_refused(kind, content):
    nothing = Statistics.empty(3, 4, content)
    refuse(CLOSED_FORMS[kind](), nothing, f"the {kind} head cannot be computed")


class TestSettings:
    @pytest.mark.parametrize(
        ("kind", "name", "value"),
        [
            ("lda", "shrinkage", -0.1),
            ("lda", "shrinkage", float("nan")),
            ("lda", "priors", "even"),
            ("lda", "shrinkage", 1.5),
            ("ridge", "strength", 0.0),
        ],
    )
    def test_out_of_range_are_refused(self, kind, name, value):
        with pytest.raises(ConfigError, match=rf"ggeur\.{kind}\.{name}: must"):
            CLOSED_FORMS[kind](**{name: value})

    def test_unknown_names_are_refused(self):
        with pytest.raises(ConfigError, match="'svm'; known: none, auto, lda"):
            build_closed_form("svm", {})
        with pytest.raises(TypeError, match="ncm has no setting strength"):
            CLOSED_FORMS["ncm"](strength=1.0)

    def test_are_read_from_the_sections_of_a_config(self):
        sections = {
            **{name: {k.name: k.default for k in form.SETTINGS}
               for name, form in CLOSED_FORMS.items()},
            "lda": {"shrinkage": 0.3, "rule": "leave_one_out", "priors": "none"},
            "others": {"shrinkage": 7},
        }  # fmt: skip
        auto = build_closed_form("auto", sections)
        assert (auto.lda.shrinkage, auto.lda.priors) == (0.3, "none")
        assert auto.mixture.shrinkage is None
        unset = {"lda": {"shrinkage": -1.0, "priors": "none"}}
        assert build_closed_form("lda", unset).shrinkage is None


@pytest.mark.parametrize(("name", "refused"), [("lda", []), ("mixture", ["init"])])
def test_training_starts_from_a_linear_head_alone(name, refused):
    run = {"closed_form": name, "init": "closed_form", "mlp_hidden_dim": 0}
    objections = CLOSED_FORMS[name].objections(run)
    found = [field for one in objections for field, _ in one.problems(run)]
    assert found == refused


def test_one_of_your_own(monkeypatch):
    monkeypatch.setattr(CLOSED_FORMS, "_parts", dict(CLOSED_FORMS))

    @register_closed_form("toy")
    class Toy(ClosedForm):
        SETTINGS = (Key("slope", 2.0, "Length of a weight.", positive),)

        def work_out(self, seen):
            weight = self.slope * seen.offsets
            return linear_head(weight, seen.counts.new_zeros(len(weight)), seen), {}

    rows, labels = oracle.make_data(np.random.default_rng(5), 50, 4, 3)
    toy = build_closed_form("toy", {"toy": {"slope": 3.0}})
    solved = toy.solve(stats(rows, labels, 4))
    means = [rows[labels == c].mean(axis=0) for c in range(3)]
    wanted = oracle.centred(3 * np.array(means))
    oracle.assert_close(solved.model.classifier.weight[:3].numpy(), wanted)
    assert solved.report == {"rows": 50, "classes": 3, "left_out": 1}
    built = build_model(4, 4, ModelSettings(closed_form="toy"))
    assert isinstance(built, LinearHead)
    with pytest.raises(ConfigError, match=r"toy\.slope: must be above 0"):
        Toy(slope=0)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (None, "must return two things"),
        (("a model", {}), "str"),
        ((LinearHead(4, 4), []), "list"),
        ((LinearHead(4, 4), {"v": torch.ones(2)}), "of 'v': .*Tensor is not JSON"),
        ((LinearHead(4, 4), {"v": math.nan}), "of 'v': Out of range float"),
    ],
)
def test_what_one_of_your_own_returns_is_checked(found, problem):
    class Toy(ClosedForm):
        name = "toy"

        def work_out(self, seen):
            return found

    rows, labels = oracle.make_data(np.random.default_rng(5), 50, 4, 3)
    with pytest.raises(PluginError, match=rf"work_out of .*'toy'(.|\n)*{problem}"):
        Toy().solve(stats(rows, labels, 4))


def test_one_of_your_own_that_reads_more_than_it_needs_is_named():
    class Toy(ClosedForm):
        name, NEEDS = "toy", "means"

        def work_out(self, seen):
            return seen.within

    rows, labels = oracle.make_data(np.random.default_rng(5), 50, 4, 3)
    said = r"'toy' \(.*, line \d+\): .*because NEEDS = .means.; set NEEDS = .pooled."
    with pytest.raises(PluginError, match=said):
        Toy().solve(stats(rows, labels, 4).to("means"))


def test_one_that_was_removed_says_what_to_take_and_leaves_its_name_free(monkeypatch):
    monkeypatch.setattr(CLOSED_FORMS, "_parts", dict(CLOSED_FORMS))
    with pytest.raises(ConfigError, match="no qda any more: take rda"):
        build_closed_form("qda", {})

    @register_closed_form("qda")
    class Own(ClosedForm):
        def work_out(self, seen):
            return linear_head(seen.offsets, seen.counts, seen), {}

    assert isinstance(build_closed_form("qda", {}), Own)
    assert CLOSED_FORMS.removed("qda") == ""


def test_a_need_that_nothing_meets_is_refused(monkeypatch):
    monkeypatch.setattr(CLOSED_FORMS, "_parts", dict(CLOSED_FORMS))

    class Toy(ClosedForm):
        NEEDS = "everything"

        def work_out(self, seen):
            return linear_head(seen.offsets, seen.counts, seen), {}

    with pytest.raises(TypeError, match=r"toy\.NEEDS must be .*'everything'"):
        register_closed_form("toy")(Toy)
    assert "toy" not in CLOSED_FORMS
