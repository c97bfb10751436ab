"""VHL with noise images: one set for everyone, of which nothing travels."""

import pytest
import torch
from by_bytes import Federation
from image_federations import NETWORKS, federate_images
from image_federations import TRAINING as LOCAL
from image_federations import make_image_data as image_data

from federatedscope_ggeur.extras.networks.methods.vhl import VHL, noise_set
from federatedscope_ggeur.methods import FedAvg, build_method
from federatedscope_ggeur.models.build import build_model
from federatedscope_ggeur.models.heads import LinearHead

SMALL = {"images_per_class": 6, "batch_size": 8}


def vhl(**settings):
    return VHL(**{**SMALL, **settings})


@pytest.mark.slow
@pytest.mark.parametrize("norm", sorted(NETWORKS))
@pytest.mark.parametrize(("weight", "tolerance"), [(0.0, 0), (1e-20, 1e-6)])
def test_without_both_terms_it_is_fedavg(norm, weight, tolerance):
    plain = federate_images(FedAvg(), network=norm).weights
    method = vhl(virtual=weight, alignment=weight)
    found = federate_images(method, network=norm).weights
    torch.testing.assert_close(found, plain, rtol=tolerance, atol=tolerance)


def test_the_set_is_of_the_run_s_seed_alone():
    one, again, other = (noise_set(8, (1, 8, 8), seed) for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert one.shape == (8, 64)


def test_nothing_travels():
    federation = Federation(
        image_data(),
        build_method("fedavg", "vhl", SMALL),
        model=NETWORKS["batch"],
        training=LOCAL,
    ).round0()
    assert not federation.broadcast(1).download
    assert not any(update.upload for update in federation.train(1))


def test_a_head_on_embeddings_has_no_images():
    assert "network.name" in vhl().model_problem(LinearHead(64, 4))
    network = build_model(64, 4, NETWORKS["batch"])
    assert not vhl().model_problem(network)


@pytest.mark.slow
def test_only_the_first_passes_are_aligned():
    # Of two passes over the rows; without the cross-entropy there is nothing else.
    runs = {
        epochs: federate_images(
            vhl(align_epochs=epochs, virtual=0.0), rounds=1
        ).weights[1]
        for epochs in (0, 1, 2, 3)
    }
    plain = federate_images(FedAvg(), rounds=1).weights[1]
    torch.testing.assert_close(runs[0], plain)
    assert not torch.allclose(runs[1], runs[0], atol=1e-4)
    assert not torch.allclose(runs[2], runs[1], atol=1e-4)
    assert torch.equal(runs[3], runs[2])
