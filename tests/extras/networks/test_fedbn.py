"""FedBN: what stays with the client, and what does not."""

from dataclasses import replace

import pytest
import torch
from by_bytes import eval_params_of, train_of
from digits_network import digits_words
from image_federations import begun

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.errors import ConfigError
from federatedscope_ggeur.extras.networks.methods.fedbn import FedBN
from federatedscope_ggeur.methods import FedAvg
from federatedscope_ggeur.models import num_buffers, to_vector


def own(model):
    """By the plain rule: all of a norm layer, with its running statistics."""
    mask = torch.zeros_like(to_vector(model), dtype=torch.bool)
    mask[-num_buffers(model) :] = True
    start = 0
    for key, parameter in model.network.named_parameters():
        mask[start : start + parameter.numel()] = ".norm." in key
        start += parameter.numel()
    return mask


def trained(method, rounds=2, **options):
    """A federation after so many rounds, with the last broadcast and updates."""
    run = begun(method, **options)
    for number in range(1, rounds + 1):
        updates = run.train(number)
        run.step(number, updates)
    run.updates = {update.client: update for update in updates}
    run.sent = run.send(run.broadcast(rounds))
    return run


def test_a_client_scores_with_its_own_layers():
    run = trained(FedBN())
    mask = own(run.server.model)
    for k, client in run.clients.items():
        found = eval_params_of(client, run.sent)
        assert torch.equal(found[mask], run.updates[k].params[mask])
        assert torch.equal(found[~mask], run.sent.params[~mask])
    one, other = (eval_params_of(run.clients[k], run.sent) for k in (1, 2))
    assert not torch.equal(one[mask], other[mask])


def test_a_client_trains_on_from_its_own_layers():
    """With a rate of 0 only running statistics move; the weights show the start."""
    run = trained(FedBN(), rounds=1)
    client, kept = run.clients[1], run.updates[1].params.clone()
    training = client.settings.training
    still = replace(training, optimizer=replace(training.optimizer, lr=0.0))
    client.settings = replace(client.settings, training=still)
    again = train_of(client, run.send(run.broadcast(2))).params
    mask = own(run.server.model)
    mask[-num_buffers(run.server.model) :] = False
    assert torch.equal(again[mask], kept[mask])
    rest = ~own(run.server.model)
    assert torch.equal(again[rest], run.server.params[rest])


def test_who_has_not_trained_takes_the_mean():
    run = trained(FedBN())
    fresh = begun(FedBN()).clients[1]
    assert torch.equal(eval_params_of(fresh, run.sent), run.sent.params)


@pytest.mark.parametrize("norm", ["group", "none"])
def test_without_batch_norm_it_is_fedavg(norm):
    run, plain = trained(FedBN(), norm=norm), trained(FedAvg(), norm=norm)
    assert torch.equal(run.server.params, plain.server.params)
    client = run.clients[1]
    assert torch.equal(eval_params_of(client, run.sent), run.sent.params)


def test_a_config_must_have_batch_norm(quickstart, tmp_path):
    said = "with ggeur.base_method: fedbn"
    fedbn = ["ggeur.base_method", "fedbn"]
    with pytest.raises(ConfigError, match=rf"network\.name: cannot be '' {said}"):
        load_config(quickstart, fedbn)
    words = [*digits_words(tmp_path), *fedbn, "ggeur.network.norm", "group"]
    with pytest.raises(ConfigError, match=rf"network\.norm: must be batch {said}"):
        load_config(quickstart, words)
