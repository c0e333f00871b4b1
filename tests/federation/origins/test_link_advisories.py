"""What nodes say on their own when links and origins change their state, and what they show."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from headwater.deploy.gateway.report import GatewayReport
from headwater.deploy.gateway.screen import screen
from headwater.federation.leaf import leaf_links
from headwater.federation.origins import origin_follower
from tests.federation.lab import Lab, client_port, leafs
from tests.federation.origins.test_slow_links import Line, line
from tests.waiting import until

EVENTS = "$JS.EVENT.ADVISORY."


class Heard:
    """Advisories of the edge, as a client hears them."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    async def begin(self, lab: Lab, made: Line) -> "Heard":
        """Listen."""
        client = await lab.client(client_port(made.edge))

        async def take(message: Msg) -> None:
            tail = message.subject.removeprefix(EVENTS)
            self.events.append((tail, json.loads(message.data)))

        await client.subscribe(f"{EVENTS}STREAM.ORIGIN_STATE.*", cb=take)
        await client.subscribe(f"{EVENTS}LEAFNODE.*", cb=take)
        await client.flush()
        return self

    def states(self) -> list[str]:
        """States of the mirror, one after the other."""
        return [event["state"] for tail, event in self.events if "ORIGIN_STATE" in tail]

    def links(self) -> list[str]:
        """What links did."""
        return [tail for tail, _ in self.events if tail.startswith("LEAFNODE")]


async def test_states_and_links_are_told_when_they_change(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("SILENCE_S", "ANSWER_TIMEOUT_S", "INFO_TIMEOUT_S"):
        monkeypatch.setattr(origin_follower, name, 1.5)
    made = await line(lab)
    heard = await Heard().begin(lab, made)
    report = gateway_report(made, tmp_path)
    await made.publish("BULK", 10, 1000)
    await made.mirror("COPY", "BULK")
    await until(lambda: heard.states() == ["live"], "it is live")
    assert heard.links() == []
    await until(lambda: "mirror   COPY of BULK  live\n" in shown(report), "it is shown")
    assert "  up  rtt " in shown(report)

    made.wire.silence(True)
    await until(lambda: heard.states() == ["live", "offline"], "nothing is heard")
    told = heard.events[-1][1]
    assert told["type"] == "io.nats.jetstream.advisory.v1.stream_origin_state"
    assert (told["stream"], told["kind"], told["origin"]) == ("COPY", "mirror", "BULK")
    assert told["external"] == "$JS.hub.API"
    assert told["pending_messages"] is None
    assert told["cause"]
    assert f"COPY of BULK  offline  backlog unknown  {told['cause']}" in shown(report)

    made.wire.cut()
    await until(lambda: heard.links() == ["LEAFNODE.DOWN"], "the link is down")
    made.wire.silence(False)
    await until(lambda: heard.links() == ["LEAFNODE.DOWN", "LEAFNODE.UP"], "the link is up")
    up = heard.events[-1][1] if heard.events[-1][0] == "LEAFNODE.UP" else heard.events[-2][1]
    assert (up["name"], up["is_spoke"], up["account"]) == ("hub", True, "$G")
    await until(lambda: heard.states()[-1] == "live", "it goes on")


async def test_a_link_that_takes_no_bytes_is_told(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaf_links, "PATIENCE_NS", 200_000_000)
    made = await line(lab)
    heard = await Heard().begin(lab, made)
    far = await lab.client(client_port(made.hub))
    await far.subscribe("bulk", cb=nothing)
    await far.flush()
    near = await lab.client(client_port(made.edge))
    await until(lambda: leafs(made.edge)[0]["subscriptions"], "the edge knows who listens")
    made.wire.silence(True)
    for _ in range(40):
        await near.publish("bulk", bytes(512 * 1024))
    await until(lambda: "LEAFNODE.STALLED" in heard.links(), "it takes nothing")
    event = next(event for tail, event in heard.events if tail == "LEAFNODE.STALLED")
    # What sockets and the proxy have taken is not counted; that is some megabytes.
    assert event["pending_bytes"] > 1 << 20
    made.wire.silence(False)


async def nothing(message: Msg) -> None:
    """What comes is of no interest."""


async def test_a_backlog_is_shown_with_its_size_age_rate_and_end(lab: Lab, tmp_path: Path) -> None:
    made = await line(lab)
    report = gateway_report(made, tmp_path)
    await made.publish("BULK", 20, 1000)
    made.wire.bytes_per_s = 64 * 1024
    await made.mirror("COPY", "BULK")
    await until(lambda: made.store("COPY").messages == 20, "it follows")
    await made.publish("BULK", 2000, 1000)
    health = made.follower("COPY").health
    await until(lambda: health.state == "catching_up" and health.rate > 10, "it is behind")
    # The edge knows what messages tell it: the first of them left when few were behind.
    await until(lambda: told_behind(report)[0] > 100, "it is told how much")
    assert told_behind(report)[1] > 100_000
    text = next(each for each in shown(report).splitlines() if each.startswith("mirror"))
    told = r"COPY of BULK  catching_up  \d+ messages, [\d.]+ [KM]iB, [\d.]+ (s|min) behind; "
    assert re.search(told + r"\d+ messages/s, [\d.]+ (s|min) left$", text), text


def told_behind(report: GatewayReport) -> tuple[int, int]:
    """Messages and bytes that the only mirror of a gateway is behind."""
    (row,) = report.facts()["origins"]
    return row["pending_messages"], row["pending_bytes"]


def gateway_report(made: Line, folder: Path) -> GatewayReport:
    """What the edge's gateway would tell."""
    settings = folder / "gateway.json"
    settings.write_text(json.dumps({"name": "gw", "data": str(folder)}))
    report = GatewayReport(str(settings))
    report._node = made.edge
    return report


def shown(report: GatewayReport) -> str:
    """The screen of `headwater edge status`."""
    node = json.loads(json.dumps(report.facts()))
    return screen(
        {
            "name": "gw", "node": node, "service": {"running": True, "kind": "systemd"},
            "state": {"trying": None, "last": None}, "slots": {}, "version": "1", "slot": "a",
            "disk": node["disk"], "time": 0,
        }
    )  # fmt: skip
