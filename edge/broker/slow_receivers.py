"""What becomes of connections whose peers do not read: clients, leaf links and routes alike."""

from collections.abc import Iterable
from typing import Any

ANSWER_NS = 4_000_000_000
"""How late the answer to what is on its way along a slow or distant line may come besides."""


def sweep_slow(
    conns: Iterable[Any], now_ns: int, patience_ns: int, deadline_ns: int
) -> list[tuple[Any, int]]:
    """Let producers go on whose receiver has made no progress for `patience_ns`, and close those
    that made none for `deadline_ns`. Where bulk is held until the peer answers, that is no word of
    its socket: the patience is `ANSWER_NS` more, and its silence ends it. Returns each connection
    that is waited for no more from now on, with the ns since its last progress. `now_ns` is
    monotonic."""
    overtaken = []
    for conn in [each for each in conns if each.waiting or each.held]:
        idle_ns = now_ns - conn.progress_ns
        if conn.waiting and idle_ns > deadline_ns:
            conn.close("Slow Consumer (Write Deadline)")
        elif idle_ns > patience_ns + (ANSWER_NS if conn.held else 0) and not conn.overtaken:
            conn.overtake()
            overtaken.append((conn, idle_ns))
    return overtaken


def sweep_clients(conns: Iterable[Any], now_ns: int, patience_ns: int, deadline_ns: int) -> None:
    """Close clients that made no progress for `deadline_ns`. From `patience_ns` on, more and more
    may wait for such a one: slow producers go on, fast ones fill its room just until its end."""
    for conn in [each for each in conns if each.waiting]:
        idle_ns = now_ns - conn.progress_ns
        if idle_ns > deadline_ns:
            conn.close("Slow Consumer (Write Deadline)")
        elif idle_ns > patience_ns:
            conn.stretch((idle_ns - patience_ns) / (deadline_ns - patience_ns))
