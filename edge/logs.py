"""Log lines in the form that NATS operators and test suites read.

`[pid] 2026/01/31 12:00:00.000000 [INF] text`, on stderr or in a file that SIGUSR1 reopens.
"""

import logging
import os
import sys
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler

TRACE = 5
_TAGS = {
    logging.DEBUG: "DBG",
    logging.INFO: "INF",
    logging.WARNING: "WRN",
    logging.ERROR: "ERR",
    logging.CRITICAL: "FTL",
    TRACE: "TRC",
}


class NatsFormatter(logging.Formatter):
    """Formatter of one line per record; tracebacks follow on their own lines."""

    def __init__(self, with_time: bool, utc: bool) -> None:
        super().__init__()
        self._prefix = f"[{os.getpid()}] "
        self._with_time = with_time
        self._zone = UTC if utc else None

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        stamp = ""
        if self._with_time:
            moment = datetime.fromtimestamp(record.created, self._zone)
            stamp = moment.strftime("%Y/%m/%d %H:%M:%S.%f ")
        tag = _TAGS.get(record.levelno, record.levelname[:3])
        text = f"{self._prefix}{stamp}[{tag}] {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def configure(
    *,
    file: str = "",
    debug: bool = False,
    trace: bool = False,
    with_time: bool = True,
    utc: bool = False,
) -> None:
    """Send the `headwater` loggers to `file`, or to stderr when it is empty.

    Raises OSError when the file cannot be opened.
    """
    handler: logging.Handler
    handler = WatchedFileHandler(file) if file else logging.StreamHandler(sys.stderr)
    handler.setFormatter(NatsFormatter(with_time, utc))
    logger = logging.getLogger("headwater")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(TRACE if trace else logging.DEBUG if debug else logging.INFO)
