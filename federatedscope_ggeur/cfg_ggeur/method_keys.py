"""Settings of base methods and rivals that FederatedScope has no key for.

FedProx and FedOpt are set by its own `fedprox.mu` and `fedopt.optimizer`.
"""

from federatedscope_ggeur.settings.key import Key
from federatedscope_ggeur.settings.rules import (
    below,
    fraction,
    not_negative,
    positive,
    whole,
)

METHOD_KEYS = (
    Key(
        "scaffold.server_lr",
        1.0,
        "SCAFFOLD: the server's learning rate (the GGEUR paper: 0.25).",
        positive,
    ),
    Key("moon.mu", 1.0, "MOON: weight of the contrastive term.", not_negative),
    Key("moon.temperature", 0.5, "MOON: temperature of the cosines.", positive),
    Key("feddyn.alpha", 0.5, "FedDyn: weight of the proximal term.", positive),
    Key("fedavgm.momentum", 0.9, "FedAvgM: the server's momentum.", below(1.0)),
    Key("fedavgm.lr", 1.0, "FedAvgM: the server's learning rate.", positive),
    Key(
        "fedproto.strength",
        2.0,
        "FedProto: weight lambda of the distance to the prototypes (a mean over "
        "dimensions).",
        not_negative,
    ),
    Key("fedntd.beta", 1.0, "FedNTD: weight of the distillation.", not_negative),
    Key("fedntd.temperature", 1.0, "FedNTD: temperature of the softmax.", positive),
    Key(
        "fedmix.weight",
        0.05,
        "FedMix: share of other clients' means in a mixed row.",
        below(1.0),
    ),
    Key(
        "fedmix.batch_size",
        5.0,
        "FedMix: rows that a mean is sent of; privacy.min_samples at least.",
        whole(1),
    ),
    Key("fedgen.alpha", 1.0, "FedGen: weight of the generated rows.", not_negative),
    Key("fedgen.noise_dim", 32.0, "FedGen: length of the generator's noise.", whole(1)),
    Key("fedgen.hidden", 128.0, "FedGen: the generator's hidden units.", whole(1)),
    Key("fedgen.lr", 0.001, "FedGen: rate of the generator's Adam.", positive),
    Key("fedgen.steps", 50.0, "FedGen: the generator's steps a round.", whole(1)),
    Key("fedgen.batch_size", 32.0, "FedGen: draws of such a step.", whole(2)),
    Key(
        "fedfa.probability",
        0.5,
        "FedFA: probability that a batch is shaken.",
        fraction(),
    ),
)
