"""The settings of the plugin: their keys, checks, and use.

`extend_ggeur_cfg(cfg)` adds the keys to a config of yacs or of FederatedScope (FS).
"""

from federatedscope_ggeur.cfg_ggeur.described import describe_keys
from federatedscope_ggeur.cfg_ggeur.keys import all_keys, extend_ggeur_cfg, get_key

# It registers itself.
from federatedscope_ggeur.cfg_ggeur import run_encoder  # isort: skip
