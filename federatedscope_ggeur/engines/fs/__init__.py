"""The plugin inside FederatedScope (FS). FS itself is imported only by `register`."""

from __future__ import annotations

from collections.abc import Sequence


def register(arguments: Sequence[str] | None = None) -> None:
    """Make the plugin known to the FederatedScope of this process.

    To be called before FS builds its config, which refuses keys that it does not know:
    a user's own parts are loaded here, as ``ggeur.plugins`` in the file and in the
    settings of the command line names them. A second call changes nothing else.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command line of FS's main.py, without the program; default: this process's.

    Raises
    ------
    ImportError
        FederatedScope, or a package that it or the plugin needs, is missing.
    ConfigError
        An environment variable of the plugin has an impossible value, or a module of
        ``ggeur.plugins`` cannot be loaded.
    SystemExit
        In place of that, with its text, where this process's command line names it.
    """
    # Imported here: install and doctor must work without FederatedScope and torch.
    from federatedscope_ggeur.engines.fs.protobuf import ensure_messages

    # First: FS's own experiments take it too, whatever is wrong with the plugin.
    ensure_messages()
    # config: what it lacks must show now, not when FS calls it; FS would not run then.
    from federatedscope_ggeur.engines.fs import config
    from federatedscope_ggeur.engines.fs.registration import register as register_all

    register_all(arguments)
