"""Connects the plugin with FederatedScope (FS); only `register` imports FS."""

from __future__ import annotations

from collections.abc import Sequence


def register(arguments: Sequence[str] | None = None) -> None:
    """Make the plugin known to the FederatedScope of this process.

    Call this before FS builds its config, since FS refuses unknown keys. The call also
    loads a user's own parts, which ``ggeur.plugins`` names in the file or on the
    command line. A second call only loads further parts.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command line of FS's main.py, without the program. By default it is that of
        this process.

    Raises
    ------
    ImportError
        FederatedScope, or a package that it or the plugin needs, is missing.
    ConfigError
        An environment variable of the plugin has an impossible value, or a module of
        ``ggeur.plugins`` cannot be loaded.
    SystemExit
        Raised in place of `ConfigError`, with its text, if the module was named on this
        process's command line.
    """
    # Imported here: install and doctor must work without FederatedScope and torch.
    from .protobuf import ensure_messages

    # First: FS's own experiments take it too, whatever is wrong with the plugin.
    ensure_messages()
    # What config lacks must show now, not when FS calls it; FS would not run then.
    from .registration import register as register_all

    register_all(arguments)
