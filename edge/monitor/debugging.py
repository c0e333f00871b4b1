"""What debuggers of a server ask for: variables of its runtime, and profiles.

The names are those of NATS, whose server is written in Go. What has no counterpart in this process
is refused with a reason.
"""

import base64
import gc
import sys
from typing import Any

import msgspec

from headwater.edge.monitor.pages.stacksz import stacksz

STACKS = ("goroutine", "threadcreate")
"""Profiles that tell what the process is doing right now."""

OTHERS = ("allocs", "block", "cpu", "heap", "mutex")
"""Profiles of Go programs that this process does not keep."""


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


def profilez(options: ProfilezOptions) -> dict[str, Any]:
    """A profile in base64, or why there is none."""
    name = options.name
    if name in STACKS:
        return {"profile": base64.b64encode(stacksz().encode()).decode()}
    if not name:
        return {"profile": None, "error": "Profile name not specified"}
    if name in OTHERS:
        text = f'Profile "{name}" is not kept by this server; ask for "goroutine"'
        return {"profile": None, "error": text}
    return {"profile": None, "error": f'Profile "{name}" not found'}
