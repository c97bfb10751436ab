"""Limits how often a client that lost its server joins again."""

from __future__ import annotations

import time

from federatedscope_ggeur.errors import GGEURError
from federatedscope_ggeur.transport import ConnectionLost

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # s
#: After a connection that lasted this long, counting begins anew.
_GOOD = 60.0  # s
#: A client joins again at most this often in a row.
LIMIT = 20


class Rejoining:
    """Makes the pauses between attempts, which double up to half a minute."""

    def __init__(self) -> None:
        self._attempts, self._since = 0, time.monotonic()

    def pause(self, lost: ConnectionLost) -> float:
        """Wait before joining again. Returns the seconds waited.

        Raises
        ------
        GGEURError
            Too many connections were lost in a row.
        """
        if time.monotonic() - self._since > _GOOD:
            self._attempts = 0
        if self._attempts == LIMIT:
            raise GGEURError(
                f"{lost}; this client joined again {LIMIT} times, and each "
                "connection was soon lost. Check the server, and the proxy before "
                "it if there is one"
            ) from lost
        seconds = min(_FIRST_PAUSE * 2**self._attempts, _LONGEST_PAUSE)
        self._attempts += 1
        time.sleep(seconds)
        return seconds

    def joined(self) -> None:
        """Note that a connection begins."""
        self._since = time.monotonic()
