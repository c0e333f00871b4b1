"""Whether a node was only killed: the machine ran on, and has all that the node had written.

A process that ends leaves its writes to the system, synced or not. So a start after it knows what
was promised as after an orderly stop; only a machine that failed may have forgotten. The record
names the run of the machine, the start of the node, and a file that was made then. A copy of the
folder has another file, or one that was changed later: what an old copy has is not what was said.

    jetstream/raft/run        boot, device, inode and time of change of `run.mark`, the run
    jetstream/raft/run.mark   made anew by each start

Nothing is synced: after a failure of the machine the record is good for nothing.
"""

import errno
import struct
from pathlib import Path

from headwater.hub.stored.directory_disk import DirectoryDisk

RECORD, MARK = "run", "run.mark"
HEAD = struct.Struct("<QQQQ")
FULL = (errno.ENOSPC, errno.EDQUOT)
RUN_OF_MACHINE = Path("/proc/sys/kernel/random/boot_id")


def run_of_machine() -> bytes:
    """A name that the system gives to its run; empty where it has none."""
    try:
        return RUN_OF_MACHINE.read_bytes().strip()
    except OSError:
        return b""


class RunRecord:
    """The record in the folder of `disk`. `run` names the machine's run; empty for one that is not
    known, and then nothing is ever known of earlier starts."""

    def __init__(self, disk: DirectoryDisk, run: bytes) -> None:
        self._disk = disk
        self._run = run

    def continues(self, boot: int) -> bool:
        """Whether the start `boot` was in this run of the machine, with this folder."""
        names = self._disk.names()
        if not self._run or RECORD not in names or MARK not in names:
            return False
        return self._disk.read(RECORD) == self._encoded(boot)

    def begin(self, boot: int) -> None:
        """Record the start `boot`. On a full disk nothing is recorded, and the next start knows as
        little as after a failure of the machine. Raises OSError."""
        if not self._run:
            return
        for name in (RECORD, MARK):
            if name in self._disk.names():
                self._disk.remove(name)
        try:
            self._disk.write(MARK, 0, b"\n")
            self._disk.write(RECORD, 0, self._encoded(boot))
        except OSError as error:
            if error.errno not in FULL:
                raise

    def _encoded(self, boot: int) -> bytes:
        return HEAD.pack(boot, *self._disk.place(MARK)) + self._run
