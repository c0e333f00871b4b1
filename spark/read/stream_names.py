"""Which streams a read is of: those that the options name, or those that match their patterns."""

import re
from collections.abc import Iterable
from typing import Any

from headwater.spark.errors import ApiError, UnknownStreamError
from headwater.spark.options import SourceOptions
from headwater.spark.wire.connection import Connection

STREAM_NOT_FOUND = 10059
_NOT_ENABLED = (10039, 10076)


def stream_names(connection: Connection, options: SourceOptions) -> tuple[str, ...]:
    """The names, in order. Patterns are asked of the server, and may match nothing."""
    if not options.patterns:
        return options.streams
    names: set[str] = set()
    seen, total = 0, 1
    while seen < total:
        try:
            answer = connection.api(f"{options.api_prefix}.STREAM.NAMES", {"offset": seen})
        except ApiError as error:
            _explain(options, ", ".join(options.patterns), error)
            raise
        page = answer.get("streams") or ()
        names.update(page)
        seen, total = seen + len(page), answer["total"] if page else 0
    return tuple(sorted(name for name in names if matches(options.patterns, name)))


def matches(patterns: Iterable[str], name: str) -> bool:
    """Whether one of `patterns` is the name, with * for any text."""
    return any(
        re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) for pattern in patterns
    )


def stream_info(connection: Connection, options: SourceOptions, stream: str) -> dict[str, Any]:
    """STREAM.INFO. Raises UnknownStreamError with what to check when there is no such stream."""
    try:
        return connection.api(f"{options.api_prefix}.STREAM.INFO.{stream}")
    except ApiError as error:
        _explain(options, stream, error)
        raise


def stream_infos(
    connection: Connection, options: SourceOptions, streams: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """STREAM.INFO of those of `streams` that exist. Raises like `stream_info` for other reasons."""
    names = list(streams)
    answers = connection.api_all([f"{options.api_prefix}.STREAM.INFO.{name}" for name in names])
    infos: dict[str, dict[str, Any]] = {}
    for name, answer in zip(names, answers, strict=True):
        if not isinstance(answer, ApiError):
            infos[name] = answer
        elif answer.err_code != STREAM_NOT_FOUND:
            _explain(options, name, answer)
            raise answer
    return infos


def unknown_stream(options: SourceOptions, stream: str) -> UnknownStreamError:
    """The error for a stream that does not exist."""
    what = f"bucket {options.bucket!r}, stream" if options.bucket else "stream"
    return UnknownStreamError(
        f"{what} {stream!r} does not exist in {_where(options)}: check the name, domain and account"
    )


def is_gone(error: Exception) -> bool:
    """Whether the server itself said that there is no such stream."""
    cause = error.__cause__
    return isinstance(cause, ApiError) and cause.code == 404


def _explain(options: SourceOptions, streams: str, error: ApiError) -> None:
    """Raise UnknownStreamError, which says what to check, where that is known of the answer."""
    if error.err_code == STREAM_NOT_FOUND:
        raise unknown_stream(options, streams) from error
    if error.code == 503 or error.err_code in _NOT_ENABLED:
        raise UnknownStreamError(
            f"JetStream does not answer in {_where(options)}, so stream {streams!r} cannot be "
            "read: check that JetStream is on, and option 'domain'"
        ) from error


def _where(options: SourceOptions) -> str:
    return f"the API {options.api_prefix} of this account"
