"""What is found out of a gateway before anything is changed there, by one small shell script."""

import json
import shlex
from typing import Any

import msgspec

CLOCK_SKEW_MAX_S = 86400.0
"""Beyond this neither certificates nor tokens can be judged on the gateway."""

SCRIPT = """\
p={prefix}; d={data}
echo system=$(uname -s); echo machine=$(uname -m); echo uid=$(id -u); echo time=$(date +%s)
echo libc=$(getconf GNU_LIBC_VERSION 2>/dev/null || ls /lib/ld-musl-* 2>/dev/null | head -n 1)
[ -d /run/systemd/system ] && echo init=systemd || echo init=other
seen=" "
for py in python3.14 python3.13 python3.12 python3.11 python3 /usr/bin/python3 \\
 /usr/bin/python3.14 /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11; do
  at=$(readlink -f "$(command -v $py 2>/dev/null)" 2>/dev/null) || continue
  case "$seen" in *" $at "*) continue ;; esac
  [ -n "$at" ] && seen="$seen$at " && echo "python=$("$at" -c 'import os, sys, zlib, ssl, ctypes
path = whole = os.path.realpath(sys.executable); public = 1
while path != "/": public, path = public & os.stat(path).st_mode & 1, os.path.dirname(path)
print("%d.%d" % sys.version_info[:2], whole, public)' 2>/dev/null)"
done
up=$p; while [ ! -d "$up" ]; do up=$(dirname "$up"); done
echo free=$(df -Pk "$up" | tail -n 1 | awk '{{print $4}}')
[ -w "$up" ] && t=$up/.headwater.$$ && ( : > "$t" ) 2>/dev/null && rm -f "$t" && echo writable=1
echo pinned=$(cat "$p/bundle-keys.json" 2>/dev/null)
[ -x "$p/python" ] && [ -f "$p/agent.pyz" ] && echo status=$("$p/python" "$p/agent.pyz" status \
 --prefix "$p" 2>/dev/null)
[ -r "$p/current/slot.json" ] && echo slot=$(cat "$p/current/slot.json")
echo end=1
"""


class Facts(msgspec.Struct, kw_only=True):
    """One gateway as it is."""

    system: str = ""
    machine: str = ""
    uid: int = -1
    skew_s: float = 0.0
    """Seconds that its clock is ahead of ours."""
    libc: str = ""
    init: str = ""
    pythons: dict[str, str] = {}
    """Paths by version ("3.11"), those first that every user may run."""
    free_bytes: int = 0
    writable: bool = False
    slot: dict[str, Any] = {}
    """What the current slot holds."""
    status: dict[str, Any] = {}
    """What the device's program says of itself."""
    complete: bool = False

    @property
    def glibc(self) -> tuple[int, int] | None:
        """Version of glibc; None for another C library."""
        words = self.libc.split()
        if len(words) != 2 or words[0] != "glibc":
            return None
        major, _, minor = words[1].partition(".")
        return (int(major), int(minor)) if minor.isdigit() and major.isdigit() else None


def script(prefix: str, data: str) -> str:
    """The script for these folders."""
    return SCRIPT.format(prefix=shlex.quote(prefix), data=shlex.quote(data))


def parse(text: str, now: float) -> Facts:
    """Facts in the script's output; what is missing or odd stays empty."""
    facts = Facts()
    usable: set[str] = set()
    for line in text.splitlines():
        key, _, value = line.partition("=")
        value = value.strip()
        if key in ("system", "machine", "libc", "init"):
            setattr(facts, key, value)
        elif key == "uid" and value.isdigit():
            facts.uid = int(value)
        elif key == "time" and value.lstrip("-").isdigit():
            facts.skew_s = int(value) - now
        elif key == "free" and value.isdigit():
            facts.free_bytes = int(value) * 1024
        elif key == "writable":
            facts.writable = True
        elif key == "python" and len(value.split()) == 3:
            version, path, public = value.split()
            if public == "1" and version not in usable:
                facts.pythons[version] = path
                usable.add(version)
            facts.pythons.setdefault(version, path)
        elif key == "status":
            facts.status = _object(value).get("result") or {}
        elif key == "slot":
            facts.slot = _object(value)
        elif key == "end":
            facts.complete = True
    return facts


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
