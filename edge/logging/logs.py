"""Log lines in the form that NATS operators and test suites read.

`[pid] 2026/01/31 12:00:00.000000 [INF] text`, on stderr, in a file that SIGUSR1 reopens and that
may be bounded in size, or to syslog. What stands in a line is printable and on that line: whoever
made the text cannot make lines of their own.
"""

import logging
import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import SysLogHandler, WatchedFileHandler
from pathlib import Path
from typing import ClassVar

from headwater.edge.conf.options import Options
from headwater.edge.logging.log_limit import LineLimit

TRACE = 5
LINE_MAX = 8192
"""Longest text of a line in characters; the rest is counted."""

SYSLOG_PORT = 514
_TAGS = {
    logging.DEBUG: "DBG",
    logging.INFO: "INF",
    logging.WARNING: "WRN",
    logging.ERROR: "ERR",
    logging.CRITICAL: "FTL",
    TRACE: "TRC",
}
_BACKUP = re.compile(r"\.\d{4}(\.\d{2}){5}\.\d{9}")


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """Where lines go and what they show; `syslog` is "" for nowhere, "local", or a URL."""

    file: str = ""
    size_limit: int = 0
    """Bytes at which a file is put aside; 0 is never."""
    max_files: int = 0
    """Files kept, the one that is written among them; 0 keeps all."""
    syslog: str = ""
    debug: bool = False
    trace: bool = False
    trace_headers: bool = False
    """Whether only the headers of traced messages are shown."""
    max_traced_message: int = 0
    """Bytes of a traced message that are shown; 0 leaves that to who shows them."""
    with_time: bool = True
    utc: bool = False


def settings_of(options: Options) -> LogSettings:
    """What a node's options say about its log."""
    return LogSettings(
        file=options.log_file,
        size_limit=options.log_size_limit,
        max_files=options.log_max_files,
        syslog=options.remote_syslog or ("local" if options.syslog else ""),
        debug=options.debug,
        trace=options.trace,
        trace_headers=options.trace_headers,
        max_traced_message=options.max_traced_message,
        with_time=options.logtime,
        utc=options.logtime_utc,
    )


_in_force = LogSettings()


def in_force() -> LogSettings:
    """The settings that the log was configured with last."""
    return _in_force


def printable(text: str) -> str:
    """`text` on one line: what is not printable is escaped, what is too long is cut."""
    if len(text) > LINE_MAX:
        text = f"{text[:LINE_MAX]}... ({len(text) - LINE_MAX} characters more)"
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


class NatsFormatter(logging.Formatter):
    """Formatter of one line per record; the lines of a traceback follow, each one indented."""

    def __init__(
        self, with_time: bool, utc: bool, *, prefix: str | None = None, end: str = ""
    ) -> None:
        super().__init__()
        self._prefix = f"[{os.getpid()}] " if prefix is None else prefix
        self._end = end
        self._with_time = with_time
        self._zone = UTC if utc else None

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        stamp = ""
        if self._with_time:
            moment = datetime.fromtimestamp(record.created, self._zone)
            stamp = moment.strftime("%Y/%m/%d %H:%M:%S.%f ")
        tag = _TAGS.get(record.levelno, record.levelname[:3])
        lines = [f"{self._prefix}{stamp}[{tag}] {printable(record.getMessage())}"]
        if record.exc_info:
            lines += [f"    {printable(line)}" for line in _traceback(self, record)]
        return "\n".join(lines) + self._end


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    assert record.exc_info is not None
    return formatter.formatException(record.exc_info).splitlines()


class LogFile(WatchedFileHandler):
    """A log file that its owner may write, its group read, and nobody else.

    Nobody who logs is held up by it. While it cannot be written (a full device, a folder that is
    gone), its lines go to standard error, and each of them tries the file again.
    """

    _failing = _explained = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        self._explained, self._failing = self._failing, False
        try:
            super().emit(record)
        except (OSError, ValueError):
            # The base class opens files, and asks for their names, outside of its own `try`.
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Say on standard error what could not be written, and why when that is new."""
        error = sys.exc_info()[1]
        if not isinstance(error, (OSError, ValueError)):
            super().handleError(record)
            return
        self._failing = True
        if self.stream is not None:
            with suppress(OSError, ValueError):
                self.stream.close()
            self.stream = None
        lines = [] if self._explained else [
            f"cannot write to {self.baseFilename}: {error}; lines go to standard error meanwhile"
        ]
        self._explained = True
        with suppress(OSError, ValueError):
            print(*lines, self.format(record), sep="\n", file=sys.stderr, flush=True)

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return open(os.open(self.baseFilename, flags, 0o640), "a", encoding="utf-8")


class SizedFile(LogFile):
    """A log file that is put aside, under the time as a suffix, when it has grown too large."""

    def __init__(self, path: str, size_limit: int, max_files: int) -> None:
        super().__init__(path)
        self._limit = size_limit
        self._max_files = max_files

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, and begin a new file when that was the last one that fits."""
        super().emit(record)
        if self.stream is None:
            return
        try:
            if self.stream.tell() > self._limit:
                self._put_aside(record.created)
        except (OSError, ValueError):
            self.handleError(record)

    def _put_aside(self, now_s: float) -> None:
        if self.stream is not None:
            self.stream.close()
        moment = datetime.fromtimestamp(now_s)
        suffix = moment.strftime("%Y.%m.%d.%H.%M.%S.") + f"{moment.microsecond * 1000:09d}"
        backup = f"{self.baseFilename}.{suffix}"
        os.rename(self.baseFilename, backup)
        self.stream = self._open()
        self._statstream()
        self._write_line(f'Rotated log, backup saved as "{backup}"', now_s)
        if self._max_files > 0:
            for old in self._aside()[: -(self._max_files - 1) or None]:
                old.unlink(missing_ok=True)
                self._write_line(f'Purged log file "{old.name}"', now_s)

    def _write_line(self, text: str, now_s: float) -> None:
        """Write a line of one's own, which puts nothing aside."""
        record = logging.LogRecord("headwater", logging.INFO, "", 0, text, None, None)
        record.created = now_s
        super().emit(record)

    def _aside(self) -> list[Path]:
        """Files that were put aside, the oldest first."""
        path = Path(self.baseFilename)
        return sorted(
            each
            for each in path.parent.glob(f"{path.name}.*")
            if _BACKUP.fullmatch(each.name.removeprefix(path.name))
        )


def configure(settings: LogSettings) -> None:
    """Send the `headwater` loggers where the settings say.

    Raises OSError when a file cannot be opened or syslog is not there, ValueError for a wrong URL.
    """
    global _in_force
    handler = _handler(settings)
    _in_force = settings
    handler.addFilter(LineLimit(handler.handle))
    logger = logging.getLogger("headwater")
    for old in logger.handlers:
        old.close()
    logger.handlers[:] = [handler]
    logger.propagate = False
    level = TRACE if settings.trace else logging.DEBUG if settings.debug else logging.INFO
    logger.setLevel(level)


def _handler(settings: LogSettings) -> logging.Handler:
    handler: logging.Handler
    formatter = NatsFormatter(settings.with_time, settings.utc)
    if settings.syslog:
        handler = _syslog(settings.syslog)
        formatter = NatsFormatter(False, False, prefix="", end="\n")
    elif settings.file and settings.size_limit > 0:
        handler = SizedFile(settings.file, settings.size_limit, settings.max_files)
    elif settings.file:
        handler = LogFile(settings.file)
    else:
        handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    return handler


class _Syslog(SysLogHandler):
    priority_map: ClassVar[dict[str, str]] = {
        **SysLogHandler.priority_map, "INFO": "notice", f"Level {TRACE}": "debug"
    }


def _syslog(target: str) -> SysLogHandler:
    """A handler for this machine's syslog ("local") or that at a URL. Raises ValueError."""
    import socket
    from urllib.parse import urlsplit

    address: str | tuple[str, int] = "/dev/log"
    kind = socket.SOCK_DGRAM
    if target != "local":
        url = urlsplit(target)
        if url.scheme in ("unix", "unixgram"):
            address = url.path
            kind = socket.SOCK_STREAM if url.scheme == "unix" else kind
        elif url.scheme in ("udp", "tcp") and url.hostname:
            address = (url.hostname, url.port or SYSLOG_PORT)
            kind = socket.SOCK_STREAM if url.scheme == "tcp" else kind
        else:
            raise ValueError(f"remote_syslog {target!r} is no udp, tcp, unix or unixgram URL")
    if isinstance(address, str) and not Path(address).is_socket():
        raise FileNotFoundError(f"there is no syslog at {address}")
    handler = _Syslog(address, SysLogHandler.LOG_DAEMON, socktype=kind)
    handler.ident = f"nats-server[{os.getpid()}]: "
    handler.append_nul = False
    return handler
