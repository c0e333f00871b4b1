"""Requests of a write that a server may keep waiting, as it restarts or elects a leader."""

from collections.abc import Callable
from typing import TypeVar

from headwater.spark.errors import ApiError, ConnectError, UnknownStreamError
from headwater.spark.options import SourceOptions
from headwater.spark.wire.connection import Connection
from headwater.spark.wire.errors import WireError
from headwater.spark.wire.waits import Waits

_UNAVAILABLE = 503
_NOBODY = 0
_NO_LEADER = (10008, 10009)
#: nats-server cannot make a stream's folder: it removes the one above it just then, as an account's
#: last stream was deleted. A full disk may pass, too.
_NO_FOLDER = 10049
#: No place for a stream's replicas, which a ledger has as many of as its target.
_NO_PEERS = 10005
_T = TypeVar("_T")


def patiently(
    options: SourceOptions, ask: Callable[[Connection], _T], known: bool = False
) -> _T:
    """What `ask` returns over a new connection; asked again for `retryTimeout` seconds while no
    server can be reached, or none can answer yet.

    `ask` must bear being called again after a part of it was done. `known` says that the target
    answered before: then it is waited for although nobody listens on its subjects now. Raises
    what `ask` raised last, and AuthError at once.
    """
    waits = Waits(options.retry_timeout)
    while True:
        try:
            with Connection(options.endpoint) as connection:
                return ask(connection)
        except (ConnectError, WireError, ApiError, UnknownStreamError) as error:
            if not _may_pass(error, known) or waits.over():
                raise
        waits.wait()


def _may_pass(error: Exception, known: bool) -> bool:
    """Whether to ask again may help. Nobody asked for a stream is what a wrong domain looks like,
    too; behind that question it is a leader that is missing."""
    if isinstance(error, UnknownStreamError):
        answer = error.__cause__
        passing = (*_NO_LEADER, _NOBODY) if known else _NO_LEADER
        return isinstance(answer, ApiError) and _is(answer, passing)
    if not isinstance(error, ApiError):
        return True
    if error.err_code == _NO_PEERS:
        # A node comes back; one that never was there does not.
        return "offline" in error.description
    return error.err_code == _NO_FOLDER or _is(error, (*_NO_LEADER, _NOBODY))


def _is(answer: ApiError, numbers: tuple[int, ...]) -> bool:
    return answer.code == _UNAVAILABLE and answer.err_code in numbers
