"""Secure sums of embeddings of any units: a first sum gives each dimension a scale."""

import numpy as np
import pytest
import torch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from private_words import SUMS
from sums_of import DIM, SCALED, Sum, changed, clients_of

from federatedscope_ggeur.data import FederatedData
from federatedscope_ggeur.engines.run import run
from federatedscope_ggeur.errors import GGEURError, MessageError
from federatedscope_ggeur.extras.secure_sums.settings import SIZES


def clients_in(exponents, seed=0):
    """Clients whose dimensions are multiplied by these powers of two."""
    units = torch.ldexp(torch.ones(DIM), torch.tensor(exponents))
    return {k: (x * units, y) for k, (x, y) in clients_of((31, 20, 23), seed).items()}


@examples(20)
@given(powers=st.lists(st.integers(-40, 40), min_size=DIM, max_size=DIM))
def test_units_change_the_statistics_as_they_change_the_rows(powers):
    """To the bit: sums of scaled rows are those of rows of size 1."""
    plain = Sum(clients_in([0] * DIM), SCALED).run().statistics
    found = Sum(clients_in(powers), SCALED).run().statistics
    units = 2.0 ** torch.tensor(powers).double()
    assert torch.equal(found.means, plain.means * units)
    assert torch.equal(found.scatter(), plain.scatter() * units * units[:, None])


def test_sums_are_those_of_all_rows_in_their_units():
    clients = clients_in([-30, 0, 7, 33])
    found = Sum(clients, SCALED).run().statistics
    x, y = (torch.cat(parts) for parts in zip(*clients.values()))
    x = x.double()
    means = torch.stack([x[y == c].mean(dim=0) for c in found.classes])
    torch.testing.assert_close(found.means[found.classes], means, rtol=1e-6, atol=1e-15)
    apart = x - found.means[y]
    scatter, sizes = apart.T @ apart, apart.square().sum(dim=0).sqrt()
    unit = sizes * sizes[:, None]
    assert ((found.scatter() - scatter).abs() < 1e-6 * unit).all()


def test_the_exponents_are_two_deviations_above_the_mean_of_the_rows():
    """By numpy. Zeros do not count, and neither do rows of withheld classes."""
    clients = clients_in([-9, 0, 0, 12])
    for x, _ in clients.values():
        x[:, 1] = 0
        x[:5, 2] = 0
    rare = clients[1][0][:2] * 1e6, torch.tensor([4, 4])
    clients = {k: (x, y % 4) for k, (x, y) in clients.items()}
    clients[1] = tuple(map(torch.cat, zip(clients[1], rare)))
    one = Sum(clients, SCALED).keys().stage("counts").stage(SIZES)
    found = one.collector.request("means").exponents
    x = torch.cat([x[y < 4] for x, y in clients.values()]).numpy()
    for d in range(DIM):
        powers = np.frexp(x[:, d][x[:, d] != 0])[1]
        wanted = np.ceil(powers.mean() + 2 * powers.std()) if len(powers) else 0
        assert found[d] == wanted


def test_who_owns_nearly_all_rows_ends_it_before_a_scale_goes_down():
    one = Sum(clients_of((60, 3, 4)), SCALED).keys().stage("counts")
    assert not one.collector.nearly_all
    assert one.stage(SIZES).collector.nearly_all


def test_a_row_that_is_far_longer_ends_it_and_nobody_knows_whose():
    clients = clients_of((31, 20, 23))
    clients[2][0][3] *= 1e5
    one = Sum(clients, SCALED).keys().stage("counts").stage(SIZES)
    with pytest.raises(GGEURError, match="1 clients have a row that is far longer"):
        one.stage("means")


@pytest.mark.parametrize("stage", ["means", "pooled"])
def test_clients_with_other_exponents_spoil_the_sum_and_tell_nothing(stage):
    one = Sum(clients_of((31, 20, 23)), SCALED)
    other = (3, 1, 0, -2)
    one.tamper = changed(stage=stage, client=2, exponents=other)
    with pytest.raises(GGEURError, match="is impossible"):
        one.run()
    one = Sum(clients_of((31, 20, 23)), SCALED)
    one.tamper = changed(stage=stage, client=2, exponents=other[:3])
    with pytest.raises(MessageError, match="3 of them for 4 dimensions"):
        one.run()


@pytest.mark.usefixtures("in_units")
def test_a_run_on_rows_of_any_units_has_the_head_of_all_rows(config):
    lda = ["ggeur.closed_form", "lda", "ggeur.lda.standardize", True]
    sums = run(config(*lda, *SUMS, "ggeur.privacy.secure_sums_radius", 0))
    plain = run(config(*lda, "ggeur.privacy.min_samples", 1))
    assert sums.closed_form.accuracy == plain.closed_form.accuracy
    with pytest.raises(GGEURError, match="a row is longer than"):
        run(config(*lda, *SUMS))


def test_rows_of_length_1_whose_units_differ_get_the_advice():
    rows = torch.randn(80, 5, generator=torch.Generator().manual_seed(0))
    rows[:, 0] *= 1e6
    data = FederatedData.from_arrays(rows, torch.arange(80) % 2, torch.arange(80) % 4)
    lda = {"ggeur.closed_form": "lda", "ggeur.lda.standardize": True}
    lda["ggeur.privacy.secure_sums"] = "statistics"
    said = "True, and ggeur.privacy.secure_sums_radius to 0 without data.transform"
    short = run({**lda, "data.transform": ["l2"]}, data)
    assert said in " ".join(short.notes)
    scaled = run({**lda, "ggeur.privacy.secure_sums_radius": 0}, data)
    assert said not in " ".join(scaled.notes)
