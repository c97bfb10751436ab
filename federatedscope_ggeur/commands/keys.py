"""``federatedscope-ggeur keys``: every ``ggeur.*`` setting."""

from __future__ import annotations

from collections.abc import Sequence

from federatedscope_ggeur.cfg_ggeur import describe_keys
from federatedscope_ggeur.cfg_ggeur.load import read_settings
from federatedscope_ggeur.commands import config_parser


def keys(arguments: Sequence[str]) -> int:
    """Print every key with its default and meaning."""
    options = config_parser(
        "keys",
        "With --cfg, those too of the plugins that the file names (ggeur.plugins).",
        required=False,
    ).parse_intermixed_args(arguments)
    read_settings(options.cfg, options.settings)
    print(describe_keys())
    return 0
