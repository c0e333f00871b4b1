"""What a gateway's node tells of itself: to the device every second, to its hub now and then.

The device reads `run/status.json` in the data folder: it decides by it whether a new version is
kept (`headwater.deploy.fleet.device.trial`). The hub keeps the newest report of every gateway in a
KV bucket. Reports have a fixed pace, so they cost nothing that grows with messages.
"""

import asyncio
import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.edge.facts.version import VERSION
from headwater.security.auth_options import GLOBAL_ACCOUNT
from headwater.security.gateway_roles import REPORT_SUBJECT

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

ENVIRONMENT = "HEADWATER_GATEWAY"
SLOT_ENVIRONMENT = "HEADWATER_SLOT"
LOOK_S = 1.0
REPORT_S = 10.0
REPORT_JITTER = 0.3
STREAMS_MAX = 24
"""Streams that are reported one by one; the others count in the sums."""
MIRROR_PREFIXES = (b"$JS.M.", b"$JS.S.")
"""How the deliver subjects of mirrors and sources begin."""


class GatewayReport:
    """Looks at its node, writes the status file, and reports."""

    name = "gateway"

    def __init__(self, settings_path: str) -> None:
        self._settings = json.loads(Path(settings_path).read_text())
        self._file = Path(self._settings["data"]) / "run/status.json"
        slot = Path(os.environ.get(SLOT_ENVIRONMENT, "/"))
        about = slot / "slot.json"
        self._about = json.loads(about.read_text()) if about.exists() else {}
        self._slot = slot.name
        self._sent: dict[str, int] = {}
        """Of each stream, how far mirrors elsewhere have been given it."""
        self._task: asyncio.Task[None] | None = None
        self._next_report = 0.0
        self._was_up = False

    def start(self, node: "NodeView") -> None:
        """Begin."""
        self._node = node
        self._restore()
        self._task = node.loop.create_task(self._run())

    async def stop(self) -> None:
        """End; the file stays, and gets old."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def ports(self) -> dict[str, list[str]]:
        """Nothing is listened on."""
        return {}

    def status(self) -> dict[str, Any]:
        """What is told."""
        return self.facts()

    def _restore(self) -> None:
        try:
            told = json.loads(self._file.read_text()).get("sent", {})
        except (OSError, ValueError, AttributeError):
            return
        self._sent = {str(name): int(value) for name, value in told.items()}

    async def _run(self) -> None:
        while True:
            facts = self.facts()
            self._write(facts)
            now = self._node.loop.time()
            up = bool(facts["up"])
            if now >= self._next_report or (up and not self._was_up):
                self._send(facts)
                self._next_report = now + REPORT_S * random.uniform(
                    1 - REPORT_JITTER, 1 + REPORT_JITTER
                )
            self._was_up = up
            await asyncio.sleep(LOOK_S)

    def _write(self, facts: dict[str, Any]) -> None:
        """Not synced: what it says is only of now."""
        new = self._file.with_name(".status.new")
        try:
            self._file.parent.mkdir(exist_ok=True)
            new.write_text(json.dumps({**facts, "sent": self._sent}))
            os.replace(new, self._file)
        except OSError:
            return  # A full device; whoever waits for news sees that there are none.

    def _send(self, facts: dict[str, Any]) -> None:
        remotes = self._node.options.leaf.remotes
        if not remotes:
            return
        account = self._node.account(remotes[0].account or GLOBAL_ACCOUNT)
        subject = f"{REPORT_SUBJECT}.{self._settings['name']}"
        report = {**facts, "wall": time.time()}
        account.send(subject.encode(), json.dumps(report).encode(), own=True)

    # --- what is told ---

    def facts(self) -> dict[str, Any]:
        """All of it, as of now."""
        links, origins = self._links(), self._drivers()
        up = [link for link in links if link["state"] == "up"]
        bad = [driver for driver in origins if not driver["well"]]
        joined = bool(up) and not bad
        why = ""
        if not joined:
            why = f"stream {bad[0]['stream']} is {bad[0]['state']}" if up else _trouble(links)
        disk = shutil.disk_usage(self._settings["data"])
        return {
            "name": self._settings["name"], "pid": os.getpid(), "slot": self._slot,
            "version": self._about.get("version", VERSION),
            "at": time.clock_gettime(time.CLOCK_BOOTTIME), "ready": True,
            "up": len(up), "joined": joined, "why": why, "links": links,
            "streams": self._streams(), "backlog": self._backlog(), "origins": origins,
            "disk": {"free": disk.free, "total": disk.total},
            "uptime": (time.time_ns() - self._node.started_ns) / 1e9,
        }  # fmt: skip

    def _links(self) -> list[dict[str, Any]]:
        service = self._service("leafnodes")
        status = service.status() if service is not None else {"remotes": [], "leafs": []}
        open_links = {leaf["id"]: leaf for leaf in status["leafs"]}
        kept = ("url", "state", "connects", "last_error")
        found = []
        for each in status["remotes"]:
            row = {key: each[key] for key in kept}
            if leaf := open_links.get(each["link"]):
                row |= {"rtt": leaf["rtt"], "compression": leaf["compression"]}
                facts = leaf["headwater"]
                row |= {key: facts[key] for key in ("pending_bytes", "stalls", "seconds_silent")}
            found.append(row)
        return found

    def _drivers(self) -> list[dict[str, Any]]:
        service = self._service("origins")
        found = service.status()["origins"] if service is not None else []
        kept = (
            "account", "stream", "kind", "origin", "external", "state", "cause", "well",
            "pending_messages", "pending_bytes", "oldest_pending_seconds", "catchup_rate",
            "eta_seconds", "left_out",
        )  # fmt: skip
        return [{key: each.get(key) for key in kept} for each in found[:STREAMS_MAX]]

    def _service(self, name: str) -> Any:
        return next((each for each in self._node.services if each.name == name), None)

    def _all_streams(self) -> list[Any]:
        jetstream = self._node.jetstream
        if jetstream is None:
            return []
        return [s for js in jetstream.accounts.values() for s in js.streams.values()]

    def _streams(self) -> list[dict[str, Any]]:
        found = []
        for stream in self._all_streams()[:STREAMS_MAX]:
            state = stream.store.state()
            kept = ("messages", "bytes", "first_seq", "last_seq", "lost")
            found.append({"name": stream.name, **{key: state[key] for key in kept}})
        return found

    def _backlog(self) -> dict[str, Any]:
        """Messages that mirrors elsewhere have not been given yet, as far as there are mirrors."""
        messages = size = 0
        oldest = 0
        for stream in self._all_streams():
            self._count_sent(stream)
            sent, state = self._sent.get(stream.name), stream.store.state()
            if sent is None or state["last_seq"] <= sent or not state["messages"]:
                continue
            span = state["last_seq"] - state["first_seq"] + 1
            waiting = min(state["last_seq"] - sent, span)
            share = waiting / span
            messages += round(state["messages"] * share)
            size += round(state["bytes"] * share)
            first = stream.store.time_of(max(sent + 1, state["first_seq"]))
            oldest = min(oldest, first) if oldest and first else oldest or first
        seconds = max(0.0, (self._node.kernel.now_ns - oldest) / 1e9) if oldest else 0.0
        return {"messages": messages, "bytes": size, "seconds": seconds}

    def _count_sent(self, stream: Any) -> None:
        for consumer in list(stream.consumers.values()):
            subject = (consumer.config.deliver_subject or "").encode()
            if subject.startswith(MIRROR_PREFIXES):
                delivered = consumer.numbers()["delivered_seq"]
                self._sent[stream.name] = max(self._sent.get(stream.name, 0), delivered)


def _trouble(links: list[dict[str, Any]]) -> str:
    if not links:
        return "no leaf remote is configured"
    first = links[0]
    return first["last_error"] or f"the link to {first['url'] or 'the hub'} is {first['state']}"
