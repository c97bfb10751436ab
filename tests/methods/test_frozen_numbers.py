"""Numbers of every method that were worked out once.

They are the first, tenth and last weight after the last round of two of the federations
in `federations.WORLDS`, from the `oracle` of each method's own test: plain numpy, see
by_numpy.py.
"""

import numpy as np
import pytest
from federations import WORLDS, federate_tiny

from federatedscope_ggeur.methods import (
    FedAvg,
    FedAvgM,
    FedDyn,
    FedNTD,
    FedOpt,
    FedProto,
    FedProx,
    Moon,
    Scaffold,
)


def fedopt(kind):
    return FedOpt(kind, lr=0.5, betas=(0.8, 0.95), eps=1e-3, momentum=0.9)


# Method; after 2 rounds of "linear, weighted"; after 5 rounds of "mlp, sampled".
NUMBERS = [
    (FedAvg(), [0.193533, 0.098649, -0.698710], [0.331119, 0.166704, -0.830399]),
    (FedProx(0.7), [0.218475, 0.118891, -0.643857], [0.331824, 0.168108, -0.769688]),
    (Scaffold(0.25), [0.337215, 0.209506, -0.440585], [0.349510, 0.238311, -0.552162]),
    (FedDyn(0.5), [0.135741, 0.068491, -0.896484], [0.354544, 0.165479, -0.979008]),
    (Moon(1.5, 0.5), [0.204006, 0.134845, -0.646323], [0.212450, 0.043715, -0.830037]),
    (FedNTD(0.8, 2), [0.199649, 0.107091, -0.687492], [0.354290, 0.168091, -0.805930]),
    (FedProto(2.0), [0.132953, 0.007455, -0.672862], [0.317834, -0.034841, -0.919921]),
    (fedopt("SGD"), [0.219334, 0.115463, -0.617493], [0.172362, 0.092893, -1.079783]),
    (fedopt("Adam"), [-0.452981, -0.062288, -1.33001], [-0.647113, -0.60193, -2.15256]),
    (fedopt("Yogi"), [-0.453073, -0.063348, -1.32099], [-0.675917, -0.57475, -2.11771]),
    (fedopt("Adagrad"), [0.17658, 0.043693, -0.567898], [-0.03059, 0.041152, -0.96548]),
    (FedAvgM(0.9, 0.5), [0.21933, 0.115463, -0.617493], [0.172362, 0.092893, -1.07978]),
]
IDS = [f"{m.name} {getattr(m, 'type', '')}".strip() for m, *_ in NUMBERS]


@pytest.mark.parametrize(("method", "linear", "mlp"), NUMBERS, ids=IDS)
def test_the_numbers_are_still_the_same(method, linear, mlp):
    for name, wanted in (("linear, weighted", linear), ("mlp, sampled", mlp)):
        weights = federate_tiny(method, WORLDS[name]).weights[-1].numpy()
        np.testing.assert_allclose(weights[[0, 9, -1]], wanted, rtol=0, atol=1e-5)
