"""One end of a leaf link without a peer: bytes in, bytes out."""

import asyncio
from typing import Any

from headwater.edge.broker.account import Account
from headwater.edge.broker.authorize import Peer
from headwater.edge.broker.rights.rules import Rules
from headwater.edge.kernel.kernel import CallbackSink, Kernel
from headwater.edge.ports.ports import Clock
from headwater.federation.leaf.leaf_conn import LeafConn


class Session:
    """A session that allows everything and notes what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, bytes]] = []

    def label(self, conn: Any) -> str:
        return "test"

    def got_info(self, conn: Any, payload: bytes) -> None:
        self.said.append(("info", payload))

    def got_connect(self, conn: Any, payload: bytes) -> None:
        self.said.append(("connect", payload))

    def got_error(self, conn: Any, text: bytes) -> None:
        self.said.append(("error", text))

    def got_pong(self, conn: Any) -> None:
        """Nothing waits for it."""

    def may_add_interest(self, conn: Any, subject: bytes, queue: bytes | None) -> bool:
        return True

    def message_denied(self, conn: Any, subject: bytes) -> None:
        self.said.append(("denied", subject))


class OneEnd:
    """One end of a link without a peer, and what came out of it."""

    def __init__(
        self,
        rules: Rules | None = None,
        max_pending: int = 1 << 20,
        time_source: Clock | None = None,
    ) -> None:
        self.kernel = Kernel(asyncio.get_running_loop(), time_source)
        self.account = Account("A", self.kernel)
        self.session = Session()
        self.conn = LeafConn(self.session, self.kernel, 1, max_pending)
        self.got: list[tuple[bytes, bytes, bytes, bytes]] = []
        for subject, queue in ((b"plain", None), (b"grouped", b"workers"), (b"$JS.M.>", None)):
            self.account.insert(CallbackSink(subject, self.record, queue))
        self.conn.admit(self.account, Peer(self.account, comes=rules))

    def record(self, subject: bytes, reply: bytes, headers: bytes, body: bytes, _: object) -> None:
        self.got.append((subject, reply, headers, body))
