"""All training rows in one place, and the test sets as they were."""

import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from test_partition import divide, make_dataset, numbers

from federatedscope_ggeur.data import centralise


@effort(max_examples=30)
@given(
    st.integers(0, 9),
    st.sampled_from(["iid", "lda", "lds", "domain"]),
    st.integers(0, 99),
)
def test_one_client_holds_every_clients_rows_in_order(more, splitter, seed):
    divided = divide(make_dataset(), splitter, clients=2 + more, seed=seed)
    (client,) = centralise(divided).clients
    assert client.number == 1
    trains = [c.train for c in divided.clients]
    assert numbers(client.train) == [row for t in trains for row in numbers(t)]
    assert torch.equal(client.train.labels, torch.cat([t.labels for t in trains]))
    assert client.domain == client.train.domain == "all domains"


def test_the_test_sets_are_those_of_the_clients_together():
    divided = divide(make_dataset(), clients=5)
    pooled = centralise(divided)
    assert pooled.domains == divided.domains
    before, after = divided.test_sets(), pooled.test_sets()
    assert list(after) == list(before) == ["art", "photo"]
    for name, rows in before.items():
        assert numbers(after[name]) == numbers(rows)
        assert torch.equal(after[name].labels, rows.labels)
    assert len(pooled.clients[0].test) == 0


def test_an_unseen_domain_stays_one():
    dataset = make_dataset((20, 30, 40), (10, 12, 14))
    pooled = centralise(divide(dataset, clients=2, unseen_domains=["photo"]))
    assert len(pooled.clients[0].train) == 20 + 40
    assert [domain.name for domain in pooled.unseen] == ["photo"]
    assert list(pooled.test_sets()) == ["art", "sketch", "photo"]
    assert pooled.domains == ("art", "sketch")


def test_what_the_data_are_stays():
    divided = divide(make_dataset(), clients=4)
    pooled = centralise(divided)
    assert (pooled.dim, pooled.num_classes) == (divided.dim, divided.num_classes)
    assert (pooled.class_names, pooled.encoder) == (divided.class_names, "numbers")
    assert pooled.is_centralised
    assert not divided.is_centralised


def test_a_second_time_changes_nothing():
    pooled = centralise(divide(make_dataset(), clients=4))
    assert centralise(pooled) is pooled


def test_clients_without_rows_are_no_problem():
    divided = divide(make_dataset((2,), (2,)), "lda", [{"alpha": 1e-6}], clients=6)
    (client,) = centralise(divided).clients
    assert sorted(numbers(client.train)) == [0, 1]


def test_rows_for_validation_stay_apart_too():
    divided = divide(make_dataset(), clients=5, validation=0.2)
    pooled = centralise(divided)
    (client,) = pooled.clients
    assert len(client.val) == 0
    for name, rows in divided.rows("val").items():
        assert len(rows) > 0
        assert numbers(pooled.rows("val")[name]) == numbers(rows)
    assert list(pooled.rows("train")) == ["all domains"]
    assert numbers(pooled.rows("train")["all domains"]) == numbers(client.train)
