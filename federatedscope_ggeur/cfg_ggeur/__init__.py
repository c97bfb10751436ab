"""The plugin's settings.

`extend_ggeur_cfg(cfg)` adds the keys to a config of yacs or of FederatedScope (FS);
`check_ggeur_cfg(cfg)` refuses impossible and contradictory settings, all in one error.
"""

from federatedscope_ggeur.cfg_ggeur.check import (
    check_ggeur_cfg,
    describe_keys,
    extend_ggeur_cfg,
    get_key,
    ggeur_problems,
)
from federatedscope_ggeur.cfg_ggeur.keys import BASE_METHODS, KEYS
from federatedscope_ggeur.settings.key import Key
from federatedscope_ggeur.settings.rules import NOT_SET, Rule, one_of

#: The paper's sizes: 2000 with step 1 alone, 500 and 500 with both (Section 3.2).
SINGLE_DOMAIN_SIZE, MULTI_DOMAIN_SIZE, PROTOTYPE_SIZE = 2000, 500, 500

__all__ = [
    "BASE_METHODS",
    "KEYS",
    "MULTI_DOMAIN_SIZE",
    "NOT_SET",
    "PROTOTYPE_SIZE",
    "SINGLE_DOMAIN_SIZE",
    "Key",
    "Rule",
    "check_ggeur_cfg",
    "describe_keys",
    "extend_ggeur_cfg",
    "get_key",
    "ggeur_problems",
    "one_of",
]
