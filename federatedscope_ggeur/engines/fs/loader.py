"""Loads the plugin federatedscope_ggeur into FederatedScope (FS).

`ggeur enable` copies this file into FS, and FS imports the copy before each run. FS's
own experiments must run even if the plugin is broken. So the plugin is imported only
inside the `try`.
"""

import logging
import os
import sys
import traceback
from contextlib import suppress
from importlib.metadata import version

logger = logging.getLogger(__name__)


def load():
    """Register the plugin, or log in one line why FS runs without it.

    Raises
    ------
    SystemExit
        The plugin cannot be loaded, and this process's command line needs it.
    """
    try:
        from federatedscope_ggeur.engines.fs import register

        register()
    # A plugin's module may raise SystemExit when it is imported.
    except (Exception, SystemExit) as error:
        cause = _cause(error)
        if _is_needed():
            told = getattr(error, "code", None)
            if isinstance(told, str):  # the plugin's own words
                raise
            raise SystemExit(
                "error: this run needs the plugin federatedscope_ggeur, which cannot "
                f"be loaded: {cause}"
            ) from error
        _take_slow_messages()
        if getattr(error, "name", None) == "federatedscope_ggeur":
            logger.info("federatedscope_ggeur is not installed; running without it")
        else:
            logger.warning("running without federatedscope_ggeur: %s", cause)


def _cause(error):
    """The error and its place in one line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text, file, line = str(error), frame.filename, frame.lineno
    if isinstance(error, SyntaxError):
        text, file, line = error.msg, error.filename, error.lineno
    text = " ".join(text.split())[:500]
    return f"{text} ({type(error).__name__} in {file}, line {line})"


def _is_needed():
    """Whether the command line or its file has settings of the plugin."""
    words = [part for word in sys.argv[1:] for part in _parted(word)]
    given = dict(zip(words, [*words[1:], ""]))  # also values with the next key
    content = {}
    with suppress(Exception):  # FS itself says what is wrong with its file
        import yaml

        with open(given["--cfg"], encoding="utf-8") as file:
            content = yaml.safe_load(file)
    if not isinstance(content, dict):
        content = {}
    chosen = {}
    for section, name in (("federate", "method"), ("data", "type")):
        below = content.get(section)
        in_file = below.get(name) if isinstance(below, dict) else None
        chosen[name] = str(given.get(f"{section}.{name}", in_file)).lower()
    return (
        "ggeur" in content
        or any(word.startswith("ggeur.") for word in given)
        or chosen["method"] == "ggeur"
        or chosen["type"].endswith("@ggeur")
    )


def _parted(word):
    return word.split("=", 1) if word.startswith("--cfg=") else [word]


def _take_slow_messages():
    """Let protobuf 4 and later read FS's messages, since FS does not start otherwise.

    This is for runs without the plugin. The plugin itself has
    `protobuf.ensure_messages`.
    """
    with suppress(Exception):
        if int(version("protobuf").split(".")[0]) >= 4:
            os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")


load()
