"""``ggeur keys``: lists the ``ggeur.*`` settings."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from federatedscope_ggeur.cfg_ggeur import all_keys, describe_keys
from federatedscope_ggeur.cfg_ggeur.load import read_settings
from federatedscope_ggeur.errors import ConfigError, shown

from . import config_parser


def keys(arguments: Sequence[str]) -> int:
    """Print all keys, or those that a search finds, with defaults and meanings."""
    options = config_parser(
        "keys",
        "Words search names and meanings. With --cfg, the keys of the plugins that the "
        "file names (ggeur.plugins) are listed, too.",
        required=False,
    ).parse_intermixed_args(arguments)
    words = [] if options.cfg else options.settings
    if not words:
        read_settings(options.cfg, options.settings)
        print(describe_keys())
        return 0
    text = describe_keys(words)
    if not text:
        names = [key.name for key in all_keys()]
        near = get_close_matches(words[0], names, 3, 0.5)
        hint = f"; near it are {', '.join(f'ggeur.{n}' for n in near)}" if near else ""
        raise ConfigError(f"no key contains {' and '.join(map(shown, words))}{hint}")
    print(text)
    return 0
