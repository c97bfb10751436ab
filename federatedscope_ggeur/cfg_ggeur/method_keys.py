"""Settings of the base methods that FederatedScope has no key for.

FedProx and FedOpt are set by its own `fedprox.mu` and `fedopt.optimizer`.
"""

from federatedscope_ggeur.cfg_ggeur.key import Key
from federatedscope_ggeur.cfg_ggeur.rules import below, not_negative, positive

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
)
