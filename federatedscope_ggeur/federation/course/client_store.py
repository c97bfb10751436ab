"""The file in which a client keeps its method's state between restarts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from federatedscope_ggeur.errors import ConfigError, MessageError
from federatedscope_ggeur.federation.messages import wire
from federatedscope_ggeur.files import write_atomically

States = Mapping[int, Mapping[str, Tensor]]


class ClientStore:
    """State tensors of one client, by the round that left them.

    Parameters
    ----------
    checkpoint : path
        Of the server's checkpoint; the file stands in ``<checkpoint>.clients/``.
    number : int
    """

    def __init__(self, checkpoint: str | Path, number: int):
        folder = Path(f"{checkpoint}.clients")
        self.path = folder / f"client_{number:04d}.safetensors"
        self._number = number

    def save(self, states: States) -> None:
        """Write `states`, whole or not at all; without any, no file stays.

        Raises
        ------
        ConfigError
            The file cannot be written; the earlier one stays whole.
        """
        if not any(states.values()):
            self._remove()
            return
        tensors = {
            f"state.{number}.{name}": tensor
            for number, state in states.items()
            for name, tensor in state.items()
        }
        rounds = [str(number) for number in sorted(states)]
        numbers = {"client": self._number, "rounds": rounds}
        data = wire.pack("client state", numbers, tensors)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, data)
        except (OSError, ConfigError) as error:
            raise ConfigError(f"federate.save_to: {error}") from error

    def load(self) -> dict[int, dict[str, Tensor]]:
        """What was saved; nothing if there is no file.

        Raises
        ------
        ConfigError
            The file cannot be read or is another client's.
        """
        if not self.path.exists():
            return {}
        try:
            message = wire.unpack(
                self.path.read_bytes(), "client state", f"client {self._number}"
            )
            message.client()
            tensors = message.tensors_under("state")
            states: dict = {int(number): {} for number in message.texts("rounds")}
            for key, tensor in tensors.items():
                number, _, name = key.partition(".")
                states[int(number)][name] = tensor
        except (OSError, MessageError, ValueError, KeyError) as error:
            raise ConfigError(
                f"federate.restore_from: '{self.path}' cannot be used: {error}"
            ) from error
        return states

    def load_of_trained(self) -> dict[int, dict[str, Tensor]]:
        """What was saved of a client that has trained, which is never nothing.

        Raises
        ------
        ConfigError
            As `load`, and if there is no file.
        """
        if not self.path.exists():
            raise ConfigError(
                f"federate.restore_from: '{self.path}' is not there, the state of "
                f"client {self._number}, which has trained; bring it back, or begin "
                "the run anew"
            )
        return self.load()

    def _remove(self) -> None:
        """A file of an earlier run must not pass for this one's."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(
                f"federate.save_to: cannot remove '{self.path}', the state of an "
                f"earlier run: {error.strerror}"
            ) from error
