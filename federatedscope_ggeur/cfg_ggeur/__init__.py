"""The settings of the plugin: their keys, checks, and use.

`extend_ggeur_cfg(cfg)` adds the keys to a config of yacs or of FederatedScope (FS).
"""

from .keys import all_keys, describe_keys, extend_ggeur_cfg, get_key
