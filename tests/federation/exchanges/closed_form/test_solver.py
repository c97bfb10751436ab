"""What the server keeps for a head in closed form, and what it solves."""

import pytest
import torch
from by_bytes import CLASSES, DIM, make_rows

from federatedscope_ggeur.federation.exchanges.closed_form.solver import HeadSolver
from federatedscope_ggeur.federation.exchanges.statistics.upload import StatisticsUpload
from federatedscope_ggeur.federation.wire.schema import StatisticsForm
from federatedscope_ggeur.geometry import ClassStatistics
from federatedscope_ggeur.models import CLOSED_FORMS, to_vector

DOMAINS = ("a", "b", "a")


def uploads():
    for number, domain in enumerate(DOMAINS, 1):
        held = ClassStatistics.from_embeddings(*make_rows(30, number), CLASSES)
        form = StatisticsForm("class", exact=True)
        yield StatisticsUpload.of(number, domain, held, form)


def stage_of(form, compares=False):
    stage, merged = HeadSolver(form, compares, DOMAINS, seed=0), None
    for upload in uploads():
        stage.add(upload)
        statistics = upload.statistics
        merged = statistics if merged is None else merged + statistics
    return stage, merged


def test_components_are_kept_only_where_something_is_chosen():
    closed = CLOSED_FORMS["lda"](shrinkage=0.3)
    assert stage_of(closed)[0].components() is None
    held = stage_of(closed, compares=True)[0].components()
    assert held.counts.sum() == 30 * len(DOMAINS)
    assert stage_of(CLOSED_FORMS["lda"](), compares=True)[0].components() is not None
    assert HeadSolver(closed, True, DOMAINS, 0).components() is None


@pytest.mark.parametrize("kind", ["lda", "ridge"])
def test_another_form_than_that_of_the_settings_can_be_solved(kind):
    stage, merged = stage_of(CLOSED_FORMS["mixture"]().untuned())
    other = CLOSED_FORMS[kind]().untuned()
    begun = to_vector(stage.solve(other, merged).model)
    assert len(begun) == CLASSES * (DIM + 1)
    assert torch.equal(begun, to_vector(other.solve(merged).model))
