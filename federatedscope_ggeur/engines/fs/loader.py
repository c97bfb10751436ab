"""Loads the plugin federatedscope_ggeur into FederatedScope (FS).

`ggeur enable` copies this file into FS, and FS imports the copy before each run. FS's
own experiments must run even if the plugin is broken. So the plugin is imported only
inside the `try`.
"""

import logging
import os
import traceback
from contextlib import suppress
from importlib.metadata import version

logger = logging.getLogger(__name__)


def load():
    """Register the plugin, or log in one line why FS runs without it.

    A run that needs the plugin then ends, since FS does not know its settings.

    Raises
    ------
    SystemExit
        A module of ``ggeur.plugins`` on the command line cannot be loaded.
    """
    try:
        from federatedscope_ggeur.engines.fs import register

        register()
    # A plugin's module may raise SystemExit when it is imported.
    except (Exception, SystemExit) as error:
        if isinstance(getattr(error, "code", None), str):  # the plugin's own words
            raise
        _take_slow_messages()
        if getattr(error, "name", None) == "federatedscope_ggeur":
            logger.info("federatedscope_ggeur is not installed; running without it")
        else:
            logger.warning("running without federatedscope_ggeur: %s", _cause(error))


def _cause(error):
    """The error and its place in one line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text, file, line = str(error), frame.filename, frame.lineno
    if isinstance(error, SyntaxError):
        text, file, line = error.msg, error.filename, error.lineno
    text = " ".join(text.split())[:500]
    return f"{text} ({type(error).__name__} in {file}, line {line})"


def _take_slow_messages():
    """Let protobuf 4 and later read FS's messages, since FS does not start otherwise.

    This is for runs without the plugin. The plugin itself has
    `protobuf.ensure_messages`.
    """
    with suppress(Exception):
        if int(version("protobuf").split(".")[0]) >= 4:
            os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")


load()
