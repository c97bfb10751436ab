"""Clients' own networks: what their files keep."""

import torch
from tiny_networks import images, make_model

from federatedscope_ggeur.models import OwnModels, own_tensors, to_vector


def test_of_a_network_what_differs_is_kept():
    model = make_model()
    params, shared = to_vector(model), model.state_dict()
    assert own_tensors(model, params, shared) == {}
    params[model.norm_mask] += 1
    own = own_tensors(model, params, shared)
    assert own
    assert own.keys() < shared.keys()
    assert all(".norm." in name for name in own)
    assert all(torch.equal(own[name], shared[name] + 1) for name in own)
    whole = own_tensors(model, params, None)
    assert whole.keys() == shared.keys()


def test_a_network_takes_the_shared_one_s_tensors_for_the_rest():
    model = make_model()
    params = to_vector(model)
    params[model.norm_mask] += 1
    own = OwnModels(model, {4: own_tensors(model, params, model.state_dict())})
    assert torch.equal(to_vector(own.of(4)), params)
    rows = images(6)[0]
    found = own.logits(rows, torch.full((6,), 4))
    assert torch.equal(found, model.at(params).in_chunks(own.of(4), rows))
