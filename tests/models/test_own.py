"""Clients' own models: what is kept of them, and the files of models."""

import json

import pytest
import torch
from safetensors.torch import load

from federatedscope_ggeur.errors import DataError
from federatedscope_ggeur.models import (
    LinearHead,
    OwnModels,
    head_bytes,
    own_bytes,
    own_tensors,
    to_vector,
)


def head(seed):
    return LinearHead(3, 2).reset(torch.Generator().manual_seed(seed))


def about(data):
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end])["__metadata__"]


def test_of_a_head_all_is_kept():
    model = head(0)
    own = own_tensors(model, to_vector(model), model.state_dict())
    assert own.keys() == model.state_dict().keys()


def test_each_row_is_by_the_model_of_its_number():
    shared = head(0)
    own = OwnModels(shared, {k: head(k).state_dict() for k in (1, 2)})
    rows = torch.randn(5, 3, generator=torch.Generator().manual_seed(9))
    found = own.logits(rows, torch.tensor([2, 0, 1, 2, 0]))
    for row, k in enumerate([2, 0, 1, 2, 0]):
        assert torch.allclose(found[row], head(k)(rows)[row])
    assert torch.equal(own.logits(rows, torch.full((5,), 1)), head(1)(rows))
    assert own.logits(rows[:0], torch.zeros(0, dtype=torch.int64)).shape == (0, 2)
    assert torch.equal(shared.classifier.weight, head(0).classifier.weight)


def test_tensors_that_do_not_fit_are_named():
    wrong = {"classifier.weight": torch.ones(5, 5)}
    with pytest.raises(DataError, match="client 3: its own model does not fit"):
        OwnModels(head(0), {3: wrong}).of(3)


def test_the_files_say_whose_they_are_and_of_which_head():
    model, names = head(0), ["a", "b"]
    data = head_bytes(model, names, "an encoder")
    assert load(data).keys() == model.state_dict().keys()
    own = own_bytes({}, 7, "a domain", data, names, "an encoder")
    assert load(own) == {}
    said = about(own)
    assert {**about(data), "client": "7", "domain": "a domain"}.items() <= said.items()
    other = head_bytes(head(1), names, "an encoder")
    of_other = about(own_bytes({}, 7, "a domain", other, names, "an encoder"))
    assert of_other["of_head"] != said["of_head"]
    assert "of_head" not in about(own_bytes({}, 7, "", None, names, "an encoder"))
