"""What a hub knows of its gateways: whom it enrolled, and the newest report of each.

Both are KV buckets of the gateways' account, so that asking costs as much as there are gateways,
and nothing that grows with messages. Times of reports are those of the hub's clock.
"""

import base64
import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from headwater.edge.wire.client import ApiError, Client
from headwater.security.gateway_roles import ENROLLED_BUCKET, REPORT_BUCKET

SILENT_S = 45.0
"""A gateway whose last report is older has missed three of them."""
AT_ONCE = 256
"""Questions that are under way at a time."""

LIVE, TROUBLED, SILENT, NEVER = "live", "troubled", "silent", "never"


def gateways(client: Client) -> list[dict[str, Any]]:
    """One record for each gateway that ever enrolled or reported, by name. Raises WireError."""
    now = time.time()
    rows: dict[str, dict[str, Any]] = {}
    for _, record in newest(client, ENROLLED_BUCKET):
        row = rows.setdefault(record["name"], {"at": 0})
        if record["at"] >= row["at"]:
            row.update(at=record["at"], key=record["key"])
    reports = {told["name"]: (at, told) for at, told in newest(client, REPORT_BUCKET)}
    names = sorted({*rows, *reports})
    return [_row(name, rows.get(name, {}), reports.get(name), now) for name in names]


def newest(client: Client, bucket: str) -> Iterator[tuple[float, dict[str, Any]]]:
    """Time (Unix seconds) and value of each key of a bucket; those that are no object are left."""
    stream = f"KV_{bucket}"
    try:
        info = client.api(f"STREAM.INFO.{stream}", subjects_filter=">")
    except ApiError:
        return
    subjects = list(info["state"].get("subjects") or {})
    api = f"{client.api_prefix}.STREAM.MSG.GET.{stream}"
    for begin in range(0, len(subjects), AT_ONCE):
        some = subjects[begin : begin + AT_ONCE]
        asked = [(api, json.dumps({"last_by_subj": subject}).encode()) for subject in some]
        for number, answer in client.requests(asked):
            message = json.loads(answer.payload).get("message")
            if message is None:
                continue
            try:
                value = json.loads(base64.b64decode(message.get("data", "")))
            except ValueError:
                continue
            # A gateway may write its own key only: the subject says who it is.
            if isinstance(value, dict):
                name = some[number].split(".")[2]
                yield datetime.fromisoformat(message["time"]).timestamp(), {**value, "name": name}


def _row(
    name: str, enrolled: dict[str, Any], report: tuple[float, dict[str, Any]] | None, now: float
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": name, "state": NEVER, "version": "", "slot": "", "last_seen_s": None, "why": "",
        "backlog": {}, "disk": {}, "clock_offset_s": None, "key": enrolled.get("key", ""),
        "enrolled_at": enrolled.get("at"),
    }  # fmt: skip
    if report is None:
        return row
    at, told = report
    age = max(0.0, now - at)
    well = LIVE if told.get("joined") else TROUBLED
    row.update(
        state=SILENT if age > SILENT_S else well, last_seen_s=round(age, 1),
        version=str(told.get("version", "")), slot=str(told.get("slot", "")),
        why=str(told.get("why", "")), backlog=_numbers(told.get("backlog")),
        disk=_numbers(told.get("disk")),
    )  # fmt: skip
    if isinstance(told.get("wall"), int | float):
        row["clock_offset_s"] = round(told["wall"] - at, 2)
    return row


def _numbers(value: Any) -> dict[str, float]:
    """The numbers of an object: a report is what a gateway says, and trusted no further."""
    if not isinstance(value, dict):
        return {}
    return {str(key): each for key, each in value.items() if isinstance(each, int | float)}


METRICS = (
    ("up", "1 while reports come and the gateway is joined"),
    ("last_seen_seconds", "Age of the newest report"),
    ("backlog_messages", "Messages that mirrors elsewhere have not been given yet"),
    ("backlog_bytes", "Bytes of those"),
    ("backlog_seconds", "Age of the oldest of those"),
    ("disk_free_bytes", "Free space where the gateway stores"),
    ("clock_offset_seconds", "Seconds that the gateway's clock is ahead"),
)


def as_metrics(rows: list[dict[str, Any]]) -> str:
    """Text for Prometheus; see `METRICS`. One more says version and slot."""
    lines = []
    for metric, about in METRICS:
        lines += [f"# HELP headwater_gateway_{metric} {about}",
                  f"# TYPE headwater_gateway_{metric} gauge"]  # fmt: skip
        for row in rows:
            value = _value(row, metric)
            if value is not None:
                lines.append(f"headwater_gateway_{metric}{{gateway={_text(row['name'])}}} {value}")
    lines += ["# HELP headwater_gateway_info Version and slot",
              "# TYPE headwater_gateway_info gauge"]  # fmt: skip
    for row in rows:
        labels = ",".join(
            f"{label}={_text(row[key])}"
            for label, key in (("gateway", "name"), ("version", "version"), ("slot", "slot"))
        )
        lines.append(f"headwater_gateway_info{{{labels}}} 1")
    return "\n".join(lines) + "\n"


def _value(row: dict[str, Any], metric: str) -> Any:
    """The value of a metric; None where it is not known."""
    if metric == "up":
        return int(row["state"] == LIVE)
    if metric == "last_seen_seconds":
        return row["last_seen_s"]
    if metric == "clock_offset_seconds":
        return row["clock_offset_s"]
    if metric == "disk_free_bytes":
        return row["disk"].get("free")
    return row["backlog"].get(metric.removeprefix("backlog_"))


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
