"""How far a replica has applied its group's log: written with what it applied, in one batch.

So after a crash the stream's messages and the mark are of one moment, and entries up to the mark
are not applied again. It is a state of the commit log (owner: the stream's incarnation, key
`raft`), written twice as small states are:

    u64 index   u64 term   u64 last sequence of the stream   u64 messages in it
    u32 length of the configuration   configuration
    what the state machine remembers besides the stream
"""

import struct
from dataclasses import dataclass

from headwater.hub.raft.model.config import Config, decode_config

KEY = b"raft"
HEAD = struct.Struct("<QQQQI")


@dataclass(frozen=True, slots=True)
class Mark:
    """The index up to which everything is applied, and what was in force there."""

    index: int
    term: int
    config: Config
    last_seq: int = 0
    messages: int = 0
    state: bytes = b""

    def encode(self) -> bytes:
        config = self.config.encode()
        head = HEAD.pack(self.index, self.term, self.last_seq, self.messages, len(config))
        return head + config + self.state


def decode_mark(data: bytes) -> Mark | None:
    """What `encode` made; None when it is something else."""
    try:
        index, term, last_seq, messages, size = HEAD.unpack_from(data)
        end = HEAD.size + size
        config = decode_config(data[HEAD.size : end])
    except (struct.error, ValueError):
        return None
    return Mark(index, term, config, last_seq, messages, data[end:])
