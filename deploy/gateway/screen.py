"""One screen of text about a gateway."""

from datetime import UTC, datetime
from typing import Any


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def span(seconds: float) -> str:
    """A time for people."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def screen(seen: dict[str, Any]) -> str:
    """Link, backlog, disk, clock and versions, one line each."""
    node, state = seen["node"], seen["state"]
    service = seen["service"]
    if not service["running"]:
        word = f"stopped ({service['kind']})"
    elif not node:
        word = "starting, or not answering"
    elif node["joined"]:
        word = "joined"
    elif node.get("up"):
        word = f"joined, not well: {node['why']}"
    else:
        word = f"not joined: {node['why']}"
    lines = [f"{seen['name']}  {word}", _version(seen, state)]
    for link in node.get("links", []):
        trouble = f"  {link['last_error']}" if link["last_error"] else ""
        lines.append(f"link     {link['url'] or 'no hub yet'}  {_link(link)}{trouble}")
    if node:
        lines.append(_backlog(node["backlog"]))
        lines += [_driver_line(each) for each in node.get("origins", [])]
        for each in node["streams"]:
            lost = f", {each['lost']} LOST" if each["lost"] else ""
            lines.append(
                f"stream   {each['name']}: {each['messages']} messages, {size(each['bytes'])}{lost}"
            )
        lines.append(f"up       {span(node['uptime'])}, process {node['pid']}")
    if disk := seen["disk"]:
        lines.append(f"disk     {size(disk['free'])} free of {size(disk['total'])}")
    lines.append(f"clock    {datetime.fromtimestamp(seen['time'], UTC):%Y-%m-%d %H:%M:%S} UTC")
    return "\n".join(lines)


def _backlog(waiting: dict[str, Any] | None) -> str:
    """What those who copy from here have not been given yet."""
    if waiting is None:
        return "backlog  unknown: nobody has copied from here since the node's start"
    if not waiting["messages"]:
        return "backlog  none: whoever copies from here has all"
    return (
        f"backlog  {waiting['messages']} messages, {size(waiting['bytes'])}, the oldest "
        f"{span(waiting['seconds'])} old, wait to be copied from here"
    )


def _link(link: dict[str, Any]) -> str:
    """How a link is; an older node tells of its state alone."""
    if "rtt" not in link:
        return str(link["state"])
    text = f"{link['state']}  rtt {link['rtt']}, {size(link['pending_bytes'])} wait"
    text += f", heard {span(link['seconds_silent'])} ago, {link['compression']}"
    kept = link.get("interest") or {"wide": [], "refused": 0}
    text += f", all of {', '.join(kept['wide'])}" if kept["wide"] else ""
    return f"{text}, {kept['refused']} subjects REFUSED" if kept["refused"] else text


def _driver_line(driver: dict[str, Any]) -> str:
    """How a mirror or source is: what is unknown is said to be."""
    kind = driver.get("kind", "copy")
    line = f"{kind:<8} {driver['stream']} of {driver['origin']}  {driver['state']}"
    behind = driver.get("pending_messages")
    if behind is None:
        line += "  backlog unknown"
    elif behind:
        count, oldest = driver["pending_bytes"], driver["oldest_pending_seconds"]
        line += f"  {behind} messages"
        line += "" if count is None else f", {size(count)}"
        line += "" if oldest is None else f", {span(oldest)}"
        line += f" behind; {driver['catchup_rate']:.0f} messages/s"
        left = driver["eta_seconds"]
        line += ", no end in sight" if left is None else f", {span(left)} left"
    if driver.get("left_out"):
        line += f"  {driver['left_out']} left out"
    cause = driver.get("cause")
    return f"{line}  {cause}" if cause else line


def _version(seen: dict[str, Any], state: dict[str, Any]) -> str:
    if not seen["slots"]:
        return f"version  {seen['version']}"
    slots = ", ".join(f"{name}: {version or 'empty'}" for name, version in seen["slots"].items())
    line = f"version  {seen['version'] or 'none'} in slot {seen['slot'] or '-'}  ({slots})"
    if state["trying"]:
        return f"{line}; on trial"
    last = state["last"]
    if last and last["outcome"] == "rolled_back":
        return f"{line}; {last['version']} was taken back: {last['reason']}"
    return line
