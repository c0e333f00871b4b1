"""What has passed through connections that no longer exist, by account."""

from typing import Any, NamedTuple


class Traffic(NamedTuple):
    """Messages and payload bytes in both directions, as a client sees them."""

    in_msgs: int = 0
    in_bytes: int = 0
    out_msgs: int = 0
    out_bytes: int = 0

    def plus(self, other: "Traffic") -> "Traffic":
        """The sum of both."""
        return Traffic(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class Tally:
    """Observes sessions; one entry per account, so bounded by the number of accounts."""

    def __init__(self) -> None:
        self.stalls = 0
        self._ended: dict[str, Traffic] = {}
        self._slow: dict[str, int] = {}

    def client_admitted(self, conn: Any) -> None:
        """Nothing to count yet."""

    def client_refused(self, conn: Any, reason: str) -> None:
        """Counted by the sessions themselves."""

    def peer_invalid(self, peer: bytes, link: bytes, reason: str) -> None:
        """Nothing to count."""

    def peer_refused(self, kind: str, peer: bytes, reason: str) -> None:
        """Nothing to count."""

    def client_closed(self, conn: Any, reason: str) -> None:
        """Keep what the connection has counted."""
        self.stalls += conn.stalls
        if conn.account is None:
            return
        name = conn.account.name
        self._ended[name] = self._ended.get(name, Traffic()).plus(_traffic(conn))
        if reason.startswith("Slow Consumer"):
            self._slow[name] = self._slow.get(name, 0) + 1

    def slow_consumers(self, account: str) -> int:
        """Clients of an account that were cut because they were slow."""
        return self._slow.get(account, 0)

    def traffic(self, account: str, conns: Any) -> Traffic:
        """Everything that clients of an account sent and got; `conns` are its open ones."""
        total = self._ended.get(account, Traffic())
        for conn in conns:
            total = total.plus(_traffic(conn))
        return total


def _traffic(conn: Any) -> Traffic:
    return Traffic(conn.in_msgs, conn.in_bytes, conn.out_msgs, conn.out_bytes)
