"""What is wrong with gateways, in three groups: configuration, connectivity, readiness.

`examine` decides from what was seen over SSH. What goes into a support archive is redacted first.
"""

import io
import json
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headwater.deploy.fleet.flash.facts import Facts
from headwater.deploy.fleet.flash.inventory import Host
from headwater.deploy.fleet.flash.plan import Unfit, check
from headwater.deploy.fleet.flash.results import HostResult

CONFIGURATION, CONNECTIVITY, READINESS = "configuration", "connectivity", "readiness"
OK, WARN, BAD = "ok", "warn", "bad"
SIGNS = {OK: "√", WARN: "‼", BAD: "×"}
DISK_LOW_BYTES = 512 << 20
CLOCK_OFF_S = 5.0
SECRETS = re.compile(
    r"S[UAONCX][A-Z2-7]{50,}|eyJ[\w-]+\.[\w-]+\.[\w-]+|(?<=://)[^/@\s]+:[^/@\s]+(?=@)"
    r"|(?i:(?<=password: )\S+)"
)


class Finding(NamedTuple):
    """One check of one gateway."""

    host: str
    group: str
    check: str
    state: str
    text: str = ""
    """What is wrong, and what to do."""


def examine(host: Host, result: HostResult, facts: Facts | None) -> Iterator[Finding]:
    """All checks that can be made with what was seen."""
    if facts is None:
        yield Finding(host.name, CONNECTIVITY, "ssh", BAD, result.error)
        return
    yield Finding(host.name, CONNECTIVITY, "ssh", OK)
    try:
        check(host, facts)
        yield Finding(host.name, CONFIGURATION, "machine", OK)
    except Unfit as error:
        yield Finding(host.name, CONFIGURATION, "machine", BAD, str(error))
    if not facts.status:
        text = "never flashed, or its program does not answer; run headwater fleet flash"
        yield Finding(host.name, CONFIGURATION, "flashed", BAD, text)
        return
    yield from _readiness(host.name, facts)
    yield from _links(host.name, facts.status.get("node") or {})


def _readiness(name: str, facts: Facts) -> Iterator[Finding]:
    status = facts.status
    running = status["service"]["running"]
    text = "" if running else "start it: PREFIX/headwater-service start, or systemctl start"
    yield Finding(name, READINESS, "service", OK if running else BAD, text)
    last = status["state"].get("last") or {}
    if last.get("outcome") == "rolled_back":
        text = f"{last['version']} was taken back: {last['reason']}"
        yield Finding(name, READINESS, "trial", WARN, text)
    off = abs(facts.skew_s) > CLOCK_OFF_S
    text = f"{facts.skew_s:+.0f} s off; let it follow a time server" if off else ""
    yield Finding(name, READINESS, "clock", WARN if off else OK, text)
    free = status["disk"]["free"]
    low = free < DISK_LOW_BYTES
    text = f"{free >> 20} MB free; make room, or give streams a limit" if low else ""
    yield Finding(name, READINESS, "disk", WARN if low else OK, text)
    lost = sum(stream["lost"] for stream in (status.get("node") or {}).get("streams", []))
    if lost:
        text = f"{lost} messages are damaged; see headwater store repair"
        yield Finding(name, READINESS, "store", BAD, text)


def _links(name: str, node: dict[str, Any]) -> Iterator[Finding]:
    joined = bool(node.get("joined"))
    text = "" if joined else node.get("why") or "the node does not answer; look at its log"
    yield Finding(name, CONNECTIVITY, "joined", OK if joined else BAD, text)


def show(findings: Sequence[Finding]) -> str:
    """Text by group, what is well in short."""
    lines = []
    for group in (CONFIGURATION, CONNECTIVITY, READINESS):
        own = [each for each in findings if each.group == group]
        well = sum(each.state == OK for each in own)
        lines.append(f"{group}: {well} of {len(own)} checks well")
        for each in own:
            if each.state != OK:
                lines.append(f"  {SIGNS[each.state]} {each.host}  {each.check}: {each.text}")
    return "\n".join(lines)


def redacted(text: str) -> str:
    """A text without seeds, tokens and passwords."""
    return SECRETS.sub("REDACTED", text)


def write_archive(
    path: Path, findings: Sequence[Finding], seen: dict[str, Facts], logs: dict[str, str]
) -> None:
    """A tar file for support: findings, facts and ends of logs, redacted."""
    files = {"findings.json": json.dumps([each._asdict() for each in findings], indent=1)}
    for name, facts in seen.items():
        files[f"{name}/facts.json"] = msgspec.json.format(msgspec.json.encode(facts)).decode()
    files.update({f"{name}/node.log": text for name, text in logs.items()})
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            data = redacted(text).encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
