"""A wall clock that is set for single processes: a preloaded library that they ask for the time."""

import struct
import subprocess
import sysconfig
from pathlib import Path

SOURCE = Path(__file__).with_name("set_clock.c")


class SetClock:
    """What processes with its `environment` see. Only those notice that ask the C library for the
    time; a static program such as nats-server does not."""

    def __init__(self, place: Path, every: bool = False) -> None:
        """Files go to `place`. `every`: the time since boot is off as well, as with tools that fake
        every clock. Raises OSError or CalledProcessError without a C compiler."""
        compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
        library = place / "set_clock.so"
        self._offset = place / "offset"
        command = [compiler, "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
        subprocess.run(command, check=True)
        self._offset.write_bytes(bytes(8))
        self.environment = (("LD_PRELOAD", str(library)), ("CLOCK_SET", str(self._offset)))
        if every:
            self.environment += (("CLOCK_SET_ALL", "1"),)

    def set(self, seconds: int) -> None:
        """So far off the real time, from now on, in processes that run as well."""
        with self._offset.open("r+b") as file:
            file.write(struct.pack("<q", seconds))
