"""What a gateway's node tells of itself: to the device every second, to its hub now and then.

The device reads `run/status.json` in the data folder: it decides by it whether a new version is
kept (`headwater.deploy.fleet.device.trial`). The hub keeps the newest report of every gateway in a
KV bucket. Reports have a fixed pace, so they cost nothing that grows with messages.
"""

import asyncio
import json
import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.edge.facts.version import VERSION
from headwater.edge.monitor.pages.edgez import EdgeFacts, disk_of
from headwater.security.auth_options import GLOBAL_ACCOUNT
from headwater.security.gateway_roles import REPORT_SUBJECT

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

ENVIRONMENT = "HEADWATER_GATEWAY"
SLOT_ENVIRONMENT = "HEADWATER_SLOT"
LOOK_S = 1.0
REPORT_S = 10.0
REPORT_JITTER = 0.3


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
        self._edge = EdgeFacts()
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
        self._edge.sent = {str(name): int(value) for name, value in told.items()}

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
            new.write_text(json.dumps({**facts, "sent": self._edge.sent}))
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

    def facts(self) -> dict[str, Any]:
        """All that is told, as of now."""
        known = self._edge.facts(self._node)
        return {
            **known,
            "name": self._settings["name"], "slot": self._slot,
            "version": self._about.get("version", VERSION),
            "at": time.clock_gettime(time.CLOCK_BOOTTIME), "ready": True,
            "disk": disk_of(self._settings["data"]),
        }  # fmt: skip
