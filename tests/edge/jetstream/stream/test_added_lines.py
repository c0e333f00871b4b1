"""Header lines that a source adds to its messages, whatever their blocks look like."""

import asyncio
import random
from pathlib import Path

from headwater.edge.broker.account import Account
from headwater.edge.conf.options import JetStreamOptions, Options
from headwater.edge.jetstream.model.models import StreamConfig
from headwater.edge.jetstream.node.node import NodeJetStream
from headwater.edge.kernel.kernel import Kernel

LINES = (b"", b"Nats-Stream-Source: S 1 > > s\r\n", b"A: 1\r\nB: 2\r\n")
BLOCKS = (
    b"",
    b"a",
    b"ab",
    b"abc",
    b"\r\n",
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0 503\r\n\r\n",
    b"NATS/1.0\r\nK: v\r\n\r\n",
    b"no block\x00 at all",
)


def expected(block: bytes, lines: bytes) -> bytes:
    """The lines stand before the empty line that ends a block; a message without has a new one."""
    return (block[:-2] or b"NATS/1.0\r\n") + lines + b"\r\n" if lines else block


async def test_lines_stand_at_the_end_of_any_block(tmp_path: Path) -> None:
    kernel = Kernel(asyncio.get_running_loop())
    account = Account("A", kernel)
    settings = JetStreamOptions(enabled=True, store_dir=str(tmp_path), max_file_store=1 << 24)
    node = NodeJetStream(kernel, Options(jetstream=settings), lambda name: account)
    node.open()
    stream = node.enable(account).create(StreamConfig(name="S", subjects=["s"]), False)
    chance = random.Random(3)
    try:
        blocks = [*BLOCKS, *(chance.randbytes(chance.randrange(40)) for _ in range(200))]
        for block in blocks:
            for lines in LINES:
                payload = chance.randbytes(chance.choice((0, 1, 300)))
                sequence = stream.import_message(b"s", block, payload, 1, 0, lines)
                kernel.turn()
                found = stream.store.get(sequence)
                assert found.headers == expected(block, lines), (block, lines)
                assert found.payload == payload
    finally:
        node.close()
        await asyncio.sleep(0)
