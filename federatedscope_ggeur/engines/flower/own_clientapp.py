"""The program ``flwr-clientapp`` as a site runs it: without the server's code.

Flower's own unpacks the app that the server sends (the FAB) and runs its ClientApp.
This one runs the ClientApp of the installed package, whatever the server has sent.
"""

from __future__ import annotations

import sys
from pathlib import Path

from federatedscope_ggeur.errors import ConfigError

_NAME, _SUPEREXEC = "flwr-clientapp", "flower-superexec"
#: The functions with which Flower's program unpacks and loads the app.
_UNPACK = "install_from_fab", "get_project_dir"
_LOAD = "get_load_client_app_fn"
#: The first lines find this Python, however long its path is.
_SCRIPT = """\
#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
from federatedscope_ggeur.engines.flower.own_clientapp import main

main()
"""


def write_programs(folder: Path, superexec: str) -> None:
    """Make a folder with the only programs that a SuperNode can find.

    It cannot find anything else that the server asks for, such as an agent of Flower.

    Parameters
    ----------
    folder : path
        A new folder; it becomes the SuperNode's PATH.
    superexec : str
        The path of Flower's ``flower-superexec``, which starts the others.
    """
    folder.mkdir()
    (folder / _SUPEREXEC).symlink_to(superexec)
    own = folder / _NAME
    own.write_text(_SCRIPT.format(python=sys.executable), encoding="utf-8")
    own.chmod(0o700)


def main() -> None:
    """Carry one message to the resident, and the answer back.

    Raises
    ------
    ConfigError
        Flower is of a release whose program cannot be kept from running the app.
    """
    from flwr.supernode.cli import flwr_clientapp
    from flwr.supernode.runtime import run_clientapp

    from federatedscope_ggeur.engines.flower.client import app

    for name in (*_UNPACK, _LOAD):
        if not hasattr(run_clientapp, name):
            raise ConfigError(
                f"this release of Flower is not a tested one: it has no {name}"
            )
    for name in _UNPACK:
        setattr(run_clientapp, name, lambda *given, **more: None)
    setattr(run_clientapp, _LOAD, lambda **given: lambda *names: app)
    flwr_clientapp()
