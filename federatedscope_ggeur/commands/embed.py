"""``ggeur embed``: embeds a config's images, and class names if runs need them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.cfg_ggeur.transform import preparation
from federatedscope_ggeur.data import Encoded, embed_data, is_image_type
from federatedscope_ggeur.engines.run import load_data_set, what_to_embed
from federatedscope_ggeur.printable import get_logger, say

from . import INTERRUPTED, add_console_options, config_parser
from .console import shown_on_console

logger = get_logger("federatedscope_ggeur")


def embed(arguments: Sequence[str]) -> int:
    """Embed the images of a config, and print where the embeddings are."""
    parser = config_parser(
        "embed",
        "Embeddings are written into the cache (ggeur.encoder.cache), where runs "
        "find them. After an interruption, repeat the command to go on.",
    )
    add_console_options(parser)
    options = parser.parse_intermixed_args(arguments)
    # A client of a distributed run embeds its images beforehand, too.
    cfg = load_config(options.cfg, options.settings, on_fs=True)
    data_type, root, encoding, own = what_to_embed(cfg)
    with shown_on_console(options.log_level or cfg.verbose > 0):
        try:
            lines = []
            how = preparation(cfg)
            if is_image_type(data_type) or how is None:
                encoded = embed_data(data_type, root, encoding, own)
                names, identity = encoded.class_names, encoded.identity
                lines += _summary(encoded)
            else:
                names, identity = load_data_set(cfg).class_names, None
            if how is not None:
                module = import_module(how.module)
                lines += module.embedded(cfg, names, encoding, identity)
        except KeyboardInterrupt:
            logger.warning(
                "interrupted; finished embeddings stay in %s. Repeat the command to "
                "go on",
                encoding.cache,
            )
            return INTERRUPTED
    say(*lines)
    return 0


def _summary(encoded: Encoded) -> list[str]:
    megabytes = sum(file.stat().st_size for file in encoded.files) / 1e6
    made = "all were in the cache already"
    if encoded.extracted:
        rate = encoded.extracted / encoded.seconds
        made = (
            f"{encoded.extracted} embedded now, in {encoded.seconds:.1f} s "
            f"({rate:.1f} images/s)"
        )
    return [
        f"encoder: {encoded.encoder}",
        f"{len(encoded)} images, D = {encoded.dim}, {megabytes:.1f} MB: {made}",
        *(str(file) for file in encoded.files),
    ]
