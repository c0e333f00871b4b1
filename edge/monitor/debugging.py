"""What debuggers of a server ask for: variables of its runtime, and profiles.

The names are those of NATS, whose server is written in Go.
"""

import base64
import gc
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from headwater.edge.jetstream.model.times import format_duration
from headwater.edge.monitor.errors import MonitorError
from headwater.edge.monitor.pages.stacksz import stacksz

STACKS = ("goroutine", "threadcreate")
"""Profiles that tell what the process is doing right now."""
LONGEST_NS = 15 * 10**9
"""A profile of the processor lasts no longer."""


class ProfilezOptions(msgspec.Struct, kw_only=True):
    """What a request asks for; names as in `$SYS.REQ.SERVER.*.PROFILEZ`. `duration` in ns."""

    name: str = ""
    debug: int = 0
    duration: int = 0


def expvarz(resident: int) -> dict[str, Any]:
    """Program and use of memory (resident bytes), in the fields that a Go program has for them.
    Arguments are left out, since they may be secret."""
    return {
        "cmdline": sys.argv[:1],
        "memstats": {
            "Alloc": resident,
            "Sys": resident,
            "HeapAlloc": resident,
            "NumGC": sum(generation["collections"] for generation in gc.get_stats()),
        },
    }


def profilez(
    options: ProfilezOptions, clock: Callable[[], int]
) -> dict[str, Any] | Awaitable[dict[str, Any]]:
    """A profile in base64, or why there is none; that of the processor takes its time, by a `clock`
    of nanoseconds."""
    from headwater.edge.monitor import profiles

    name = options.name
    if name == "cpu":
        return _cpu(options.duration, clock)
    if name in STACKS and options.debug:
        return _shown(stacksz().encode())
    if name in profiles.NOW:
        return _shown(profiles.packed(profiles.NOW[name]()))
    if not name:
        return {"profile": None, "error": "Profile name not specified"}
    return {"profile": None, "error": f'Profile "{name}" not found'}


def _shown(profile: bytes) -> dict[str, Any]:
    return {"profile": base64.b64encode(profile).decode(), "error": ""}


def _cpu(
    duration: int, clock: Callable[[], int]
) -> dict[str, Any] | Awaitable[dict[str, Any]]:
    from headwater.edge.monitor.profiles import cpu_profiles

    if not 0 < duration <= LONGEST_NS:
        text = f"Duration {format_duration(duration)} should be between 0s and 15s"
        return {"profile": None, "error": text}
    if cpu_profiles.busy:
        text = "Failed to start CPU profile: cpu profiling already in use"
        return {"profile": None, "error": text}
    return _waited(cpu_profiles.begin(duration, clock))


async def _waited(coming: Awaitable[bytes]) -> dict[str, Any]:
    try:
        return _shown(await coming)
    except MonitorError as error:
        return {"profile": None, "error": str(error)}
