"""The plugin inside FederatedScope (FS). FS itself is imported only by `register`."""

from __future__ import annotations


def register() -> None:
    """Make the plugin known to the FederatedScope of this process.

    To be called before FS builds its config; a second call changes nothing.

    Raises
    ------
    ImportError
        FederatedScope, or a package that it or the plugin needs, is missing.
    ConfigError
        An environment variable of the plugin has an impossible value.
    """
    # Imported here: install and doctor must work without FederatedScope and torch.
    # config: what it lacks must show now, not when FS calls it; FS would not run then.
    from federatedscope_ggeur.engines.fs import config  # noqa: F401
    from federatedscope_ggeur.engines.fs.registration import register as register_all

    register_all()
