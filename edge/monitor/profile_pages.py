"""What the profiling port answers: profiles for `go tool pprof`, and as text for people.

Paths, parameters and refusals are those of Go's net/http/pprof, which nats-server serves there.
"""

import asyncio
import html
import json
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from headwater.edge.monitor import profiles
from headwater.edge.monitor.debugging import expvarz
from headwater.edge.monitor.errors import MonitorError
from headwater.edge.monitor.pages.stacksz import stacksz
from headwater.edge.monitor.visitors import Answer

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

BASE = "/debug/pprof/"
DEFAULT_S = 30
"""How long the processor is looked at unless a request says so."""
LONGEST_S = 300
"""A profile lasts no longer."""
JSON = ("Content-Type", "application/json; charset=utf-8")
TEXT = ("Content-Type", "text/plain; charset=utf-8")
BYTES = ("Content-Type", "application/octet-stream")
PAGE = ("Content-Type", "text/html; charset=utf-8")
SURE = ("X-Content-Type-Options", "nosniff")
NO_SECONDS = 'invalid value for "seconds" - must be a positive integer'
NO_TRACE = "a Python process has no execution trace; ask for /debug/pprof/profile"
ABOUT = {
    "allocs": "What is alive, by its type",
    "block": "Waits, of which none is recorded",
    "cmdline": "The program; its arguments may be secret",
    "goroutine": "Stacks of all threads and tasks; debug=2 has them one by one",
    "heap": "What is alive, by its type",
    "mutex": "Waits, of which none is recorded",
    "profile": "What threads did on the processor; for 30 s unless seconds says so",
    "threadcreate": "Stacks of all threads",
}
"""What stands on the page of all profiles."""


class Asked(NamedTuple):
    """The numbers of a request; None for what is no number."""

    seconds: int | None
    debug: int

    @classmethod
    def of(cls, parameters: dict[str, str]) -> "Asked":
        """What the parameters say."""
        return cls(_whole(parameters.get("seconds", "")), _whole(parameters.get("debug", "")) or 0)


def _whole(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        return None
    return int(text)


def answer(
    node: "NodeView", path: str, parameters: dict[str, str]
) -> Answer | Awaitable[Answer]:
    """The answer to a request; one that takes a while is awaited."""
    if path == "/debug/vars":
        shown = json.dumps(expvarz(node.observations.process.memory()))
        return Answer(200, shown.encode(), (JSON,))
    if path == BASE.rstrip("/"):
        return Answer(307, b"", (("Location", BASE),))
    name = path.removeprefix(BASE)
    if name == path:
        return Answer(404, b"404 page not found\n", (TEXT, SURE))
    asked = Asked.of(parameters)
    if not name:
        return Answer(200, _index().encode(), (PAGE, SURE))
    if name == "cmdline":
        return Answer(200, sys.argv[0].encode("utf-8", "replace"), (TEXT, SURE))
    if name == "symbol":
        return Answer(200, b"num_symbols: 1\n", (TEXT, SURE))
    if name == "trace":
        return refused(501, NO_TRACE)
    if name == "profile":
        return _processor(asked, node.kernel.monotonic_ns)
    return _named(name, asked, "seconds" in parameters)


def refused(status: int, why: str) -> Answer:
    """Why there is no profile."""
    return Answer(status, why.encode() + b"\n", (TEXT, SURE, ("X-Go-Pprof", "1")))


def _sent(name: str, profile: bytes) -> Answer:
    kept = ("Content-Disposition", f'attachment; filename="{name}"')
    return Answer(200, profile, (BYTES, kept, SURE))


def _named(name: str, asked: Asked, lasting: bool) -> Answer | Awaitable[Answer]:
    count = profiles.NOW.get(name)
    if count is None:
        return refused(404, "Unknown profile")
    if lasting:
        if asked.seconds is None or asked.seconds <= 0:
            return refused(400, NO_SECONDS)
        if asked.debug:
            return refused(400, "seconds and debug params are incompatible")
        return _too_long(asked.seconds) or _difference(name, count, asked.seconds)
    if not asked.debug:
        return _sent(name, profiles.packed(count()))
    every = name == "goroutine" and asked.debug > 1
    text = stacksz() if every else profiles.shown(name, count())
    return Answer(200, text.encode("utf-8", "replace"), (TEXT, SURE))


def _too_long(seconds: int) -> Answer | None:
    if seconds <= LONGEST_S:
        return None
    return refused(400, f"a profile lasts {LONGEST_S} seconds at most")


async def _difference(
    name: str, count: Callable[[], profiles.Counts], seconds: int
) -> Answer:
    """What a profile has more of after a while."""
    before = count()
    await asyncio.sleep(seconds)
    more = await asyncio.get_running_loop().run_in_executor(
        None, profiles.packed, count().since(before), seconds * 10**9
    )
    return _sent(f"{name}-delta", more)


def _processor(asked: Asked, clock: Callable[[], int]) -> Answer | Awaitable[Answer]:
    seconds = asked.seconds if asked.seconds is not None and asked.seconds > 0 else DEFAULT_S
    if profiles.cpu_profiles.busy:
        return refused(500, "Could not enable CPU profiling: cpu profiling already in use")
    return _too_long(seconds) or _looked(seconds, clock)


async def _looked(seconds: int, clock: Callable[[], int]) -> Answer:
    try:
        return _sent("profile", await profiles.cpu_profiles.begin(seconds * 10**9, clock))
    except MonitorError as error:
        return refused(500, str(error))


def _index() -> str:
    rows = []
    for name, about in ABOUT.items():
        link = name if name in ("profile", "cmdline") else f"{name}?debug=1"
        rows.append(f"<tr><td><a href='{link}'>{name}</a></td><td>{html.escape(about)}</td></tr>")
    head = f"<html><head><title>{BASE}</title></head><body>{BASE}<br>"
    return "\n".join([head, "<table>", *rows, "</table></body></html>", ""])
