"""One connection that a process keeps from a small read to its next one.

A microbatch has many small tasks, and a worker does one after the other. To connect was nearly
half of what such a task and its server had to do.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.spark.options import Endpoint
from headwater.spark.wire.connection import Connection

#: Seconds after which an idle connection is not used again: who is between may have forgotten it.
IDLE_SECONDS = 30.0

_kept: list[tuple[Connection, Endpoint, int, float]] = []
"""Connection, for whom it is, in which process, and since when it is idle: one at most."""


@contextmanager
def kept_connection(endpoint: Endpoint) -> Iterator[Connection]:
    """The kept connection if it is usable for `endpoint`, or else a new one; it is kept if the
    block ends well. Raises what `Connection` does."""
    connection = _usable(endpoint) or Connection(endpoint)
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    forget()
    _kept.append((connection, endpoint, os.getpid(), time.monotonic()))


def forget() -> None:
    """Close what is kept."""
    while _kept:
        _kept.pop()[0].close()


def _usable(endpoint: Endpoint) -> Connection | None:
    """What is kept, if it is this endpoint's, of this process, fresh, and if nothing has come in
    since: that would be the end of the connection, or the server's word that it ends soon."""
    if not _kept:
        return None
    connection, known, process, since = _kept.pop()
    fresh = time.monotonic() - since < IDLE_SECONDS
    if known == endpoint and process == os.getpid() and fresh and connection.is_idle():
        return connection
    connection.close()
    return None
