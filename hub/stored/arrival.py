"""A group's state as it arrives from a leader, in a stream that does not count yet."""

from collections.abc import Callable

from headwater.edge.storage.format.crc import checksum
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.index.message_rows import add_rows
from headwater.edge.storage.log.commit_log import CommitLog
from headwater.edge.storage.segments.file_store import FileStore
from headwater.hub.raft.model.message import Message
from headwater.hub.stored.sending import END
from headwater.hub.stored.state_end import bring_to, decode_end


class Arrival:
    """Outlives the leader that began it: what it has of the messages every leader has. Of the end
    it keeps what one leader made at one moment."""

    def __init__(
        self,
        log: CommitLog,
        make: Callable[[], FileStore],
        heard: float,
        describe: Callable[[FileStore, bytes], None],
    ) -> None:
        """`make` gives an empty stream when it is needed. `heard`: the loop's time of the last
        part. `describe` gives a stream its description."""
        self.log = log
        self.store: FileStore | None = None
        self._reached = 0
        self.heard = heard
        self.begun = heard
        self.bytes = 0
        """Of messages that have arrived."""
        self.whole = 0
        """The last sequence, by what the leader said last."""
        self.complete = False
        """The state is in the log, and may be put into force."""
        self.machine = b""
        self.logged = heard
        self.fresh = True
        """Nothing has come in this session that fits: its leader may believe that more is here,
        because an arrival before this one had to be given up."""
        self._make = make
        self._describe = describe
        self._session: tuple[int, int, int] | None = None
        self._end = bytearray()
        self._of: tuple[int, int, int] | None = None

    @property
    def position(self) -> int:
        """Up to where everything is here; as of `Sending`."""
        if self._of is not None:
            return END + len(self._end)
        return self._reached

    def keep(self, m: Message) -> bool:
        """Keep a part. Returns whether it ends the state, which is in the log then. Raises
        StoreError when storage takes nothing now, or what came is not the state."""
        session = (m.sender, m.term, m.context)
        if session != self._session:
            self._session = session
            self.fresh = True
            self._forget_end()
        if m.config is not None:
            return self._keep_end(m)
        if m.part or m.hint > m.offset:
            self._keep_rows(m)
        return False

    def _keep_rows(self, m: Message) -> None:
        """Messages that follow what is here; others are sent again from there."""
        if self._of is not None or m.offset != self._reached or m.hint <= m.offset:
            return
        if int(checksum(m.part)) != m.digest:
            raise StoreError("a part of a state is damaged")
        store = self._open()
        try:
            add_rows(store, m.part)
        except StoreError:
            self._reached = max(self._reached, store.last_seq)
            raise
        self._reached = m.hint
        self.fresh = False
        self.bytes += len(m.part)
        self.whole = m.commit

    def _open(self) -> FileStore:
        if self.store is None:
            self.store = self._make()
        return self.store

    def _keep_end(self, m: Message) -> bool:
        of = (m.index, m.size, m.digest)
        if of != self._of:
            self._forget_end()
            if m.offset != self._reached:
                return False
            self._of = of
        elif m.offset != END + len(self._end):
            return False
        self.fresh = False
        self._end += m.part
        if len(self._end) < m.size:
            return False
        data = bytes(self._end)
        self._forget_end()
        config = m.config
        assert config is not None
        if int(checksum(config.encode(), int(checksum(data)))) != m.digest:
            raise StoreError("the end of a state is damaged")
        end = decode_end(data)
        store = self._open()
        bring_to(self.log, store, end)
        self._describe(store, end.meta)
        self.machine = end.machine
        self.complete = True
        return True

    def _forget_end(self) -> None:
        self._of = None
        self._end.clear()
