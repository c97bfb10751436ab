"""Keeps the method's state of a client in a file beside the server's checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, MessageError, setting
from federatedscope_ggeur.files import read_regular, write_atomically
from federatedscope_ggeur.printable import get_logger

from .. import wire
from .checkpoint import grouped
from .checkpoint_files import client_path, make_folder_of, refusal, unwritable

logger = get_logger(__name__)


class ClientStore:
    """The file in which a client keeps its method's state, by round.

    Parameters
    ----------
    checkpoint : path
        The server's checkpoint. The file stands in ``<checkpoint>.clients/``.
    number : int
    asked : bool
        Whether the user named the place. If not, and the file cannot be written, one
        warning is logged and the run goes on.

    Raises
    ------
    ConfigError
        `save` cannot write the file; the earlier file stays complete. Or `load` finds
        that the file is missing, unreadable, or of another client.
    """

    def __init__(self, checkpoint: str | Path, number: int, asked: bool = True):
        self.path, self._number = client_path(checkpoint, number), number
        self._asked, self._failed = asked, False

    def save(self, states: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Write `states` completely or not at all.

        Without states the file is removed, so that no later run reads the state of an
        earlier run.
        """
        if self._failed:
            return
        try:
            if not any(states.values()):
                self.path.unlink(missing_ok=True)
                return
            tensors: dict[str, Tensor] = {}
            for number, state in states.items():
                tensors.update(wire.under(f"state.{number}", state))
            rounds = [str(number) for number in sorted(states)]
            numbers = {"client": self._number, "rounds": rounds}
            make_folder_of(self.path.parent)
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            numbers = wire.sealed(numbers, tensors)
            data = wire.pack("client state", numbers, tensors)
            write_atomically(self.path, data, mode=0o600)
        except (OSError, ConfigError) as error:
            if self._asked:
                raise unwritable(error) from error
            logger.warning(
                "the state of client %d can no longer be saved: %s", self._number, error
            )
            self._failed = True

    def load(self, must_exist: bool = False) -> dict[int, dict[str, Tensor]]:
        """Read the saved states; without a file there are none.

        `must_exist` says that the client has trained before. A missing file is then an
        error.
        """
        if not self.path.exists():
            if not must_exist:
                return {}
            raise ConfigError(
                f"{setting('restore_from')}: the file '{self.path}' with the state "
                f"of client {self._number} is missing; put it back, or begin the run "
                "anew"
            )
        try:
            message = wire.unpack(
                read_regular(self.path), "client state", f"client {self._number}"
            )
            message.check_content()
            message.client()
            found = grouped(message.tensors_under("state"))
            states = {int(n): found.pop(int(n), {}) for n in message.texts("rounds")}
            if found:
                raise ValueError(
                    f"it has tensors of rounds {list(found)}, but does not list "
                    "these rounds"
                )
        except (OSError, MessageError, ValueError, KeyError) as error:
            raise refusal(self.path, str(error)) from error
        return states
