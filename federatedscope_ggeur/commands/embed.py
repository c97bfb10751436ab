"""``federatedscope-ggeur embed``: embed a config's images before its runs."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from federatedscope_ggeur.cfg_ggeur.encoder_settings import embed as embed_images
from federatedscope_ggeur.cfg_ggeur.load import load_config
from federatedscope_ggeur.commands.run import shown_on_console
from federatedscope_ggeur.data import Encoded

INTERRUPTED = 130
logger = logging.getLogger("federatedscope_ggeur")


def embed(arguments: Sequence[str], program: str, find: Callable[[str], Path]) -> int:
    """Embed the images that a config names, and say where the embeddings are.

    Parameters
    ----------
    arguments : sequence of str
    program : str
        The command's name, for help texts.
    find : callable (name) -> path
        Finds the config called `name`.

    Returns
    -------
    int
        Exit status: 0, or 130 after an interruption.

    Raises
    ------
    ConfigError, DataError
        Wrong settings, no image data set, images that cannot be read, an encoder that
        cannot be had.
    """
    parser = argparse.ArgumentParser(
        prog=program,
        description="Embed the images of an image data set into the embedding cache "
        "(ggeur.encoder.cache), where runs find them. After an interruption, the same "
        "command goes on where it stopped.",
    )
    parser.add_argument(
        "--cfg", metavar="FILE", required=True, help="YAML file of the experiment"
    )
    parser.add_argument(
        "settings", nargs="*", metavar="KEY VALUE", help="override settings"
    )
    options = parser.parse_intermixed_args(arguments)
    cfg = load_config(find(options.cfg), options.settings)
    with shown_on_console(cfg.verbose > 0):
        try:
            encoded = embed_images(cfg)
        except KeyboardInterrupt:
            logger.warning(
                "interrupted; what is embedded stays in %s, and the same command goes "
                "on from there",
                cfg.ggeur.encoder.cache,
            )
            return INTERRUPTED
    print("\n".join(_summary(encoded)))
    return 0


def _summary(encoded: Encoded) -> list[str]:
    megabytes = sum(file.stat().st_size for file in encoded.files) / 1e6
    made = "all of them were there already"
    if encoded.extracted:
        rate = encoded.extracted / encoded.seconds
        made = (
            f"{encoded.extracted} of them now, in {encoded.seconds:.1f} s "
            f"({rate:.1f} images/s)"
        )
    return [
        f"encoder: {encoded.encoder}",
        f"{len(encoded)} images, D = {encoded.dim}, {megabytes:.1f} MB: {made}",
        *(str(file) for file in encoded.files),
    ]
