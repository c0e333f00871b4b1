"""What the commit log needs of the stores that write to it."""

import cython


@cython.cclass
class LoggedStore(MessageStore):
    """A store whose messages go through the commit log."""

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def flush_turn(self) -> cython.int:
        """Write what was collected during the turn (removals) to the log."""
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def note_erase(self, sequence: cython.ulonglong) -> cython.int:
        if self.on_erase is not None:
            self.on_erase(self, sequence)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def moved(
        self, sequence: cython.ulonglong, old: cython.ulonglong, new: cython.ulonglong
    ) -> cython.int:
        """The log wrote a record again; 1 when the message is still wanted at its old address."""
        return 0
