"""SiloBN: scales and shifts are averaged. What else it does is tested with FedBN's."""

import torch
from by_bytes import eval_params_of
from image_federations import begun

from federatedscope_ggeur.extras.networks.methods.silobn import SiloBN
from federatedscope_ggeur.models import named_tensors, to_vector


def test_statistics_alone_are_the_client_s():
    run = begun(SiloBN())
    updates = run.train(1)
    run.step(1, updates)
    after = run.send(run.broadcast(1))
    model, client = run.server.model, run.clients[2]
    ours = named_tensors(model, eval_params_of(client, after))
    shared = named_tensors(model, after.params)
    own = named_tensors(model, updates[1].params)
    assert len(to_vector(model)) == sum(t.numel() for t in ours.values())
    for name, tensor in ours.items():
        wanted = own if "running_" in name else shared
        assert torch.equal(tensor, wanted[name]), name
