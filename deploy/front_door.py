"""The front door: clients knock before the node behind it is made.

Two thirds of a start are imports. A client that comes back meanwhile is refused, and some give up
after two tries within 0.1 s. So the socket for clients listens as soon as the options are known,
and who connects waits for INFO. A start that takes longer closes the door again, so that clients of
a cluster go elsewhere at once. On a machine that is slow already nobody is made to wait.
"""

import os
import socket
import time
from pathlib import Path

from headwater.edge.broker.listeners.binding import ListenError, bind
from headwater.edge.conf.flags import FlagError, Invocation, parse_args
from headwater.edge.conf.problems import ConfigError

PATIENCE_S = 1.0
"""How long a start may keep waiting who has connected; clients wait for INFO for 2 s."""
YOUNG_S = 0.25
"""Age of the process from which on the door stays shut: the rest of a start takes five times what
has been spent until here."""


class FrontDoor:
    """What a command line asks for, and the socket for clients if it is to listen."""

    def __init__(self, arguments: list[str]) -> None:
        self.error: FlagError | ConfigError | None = None
        self.invocation = Invocation()
        self.sock: socket.socket | None = None
        """Listens for clients; None when nobody could know the port, when it is taken, or late."""
        try:
            self.invocation = parse_args(arguments)
        except (FlagError, ConfigError) as error:
            self.error = error
            return
        self._opened = time.monotonic()
        options = self.invocation.options
        wanted = self.invocation.action == "serve" and options.listens and options.port > 0
        if wanted and _age_s() < YOUNG_S:
            try:
                self.sock = bind(options.host, options.port)
            except ListenError:
                # The node will try once more, and say what is wrong.
                return

    def late(self) -> bool:
        """Whether the start takes so long that who waits should go elsewhere."""
        return self.sock is not None and time.monotonic() - self._opened > PATIENCE_S

    def close(self) -> None:
        """Refuse whoever waits, and whoever comes."""
        if self.sock is not None:
            self.sock.close()
            self.sock = None


def _age_s() -> float:
    """Seconds since this process was made; 0 where the system does not tell."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
