"""What is said of mirrors and sources while links and origins are not well."""

import json
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import ExternalStream, StreamConfig, StreamSource

from bench.faults.set_clock import SetClock
from bench.links.lab import Hub, ask, connected, fill, holds
from bench.links.lab import Line as Relay
from headwater.edge.monitor.metrics import metrics
from headwater.edge.monitor.pages.healthz import HealthzOptions, healthz
from headwater.federation.origins import origin_driver, origin_follower
from tests.federation.lab import JETSTREAM, Lab, client_port, free_port, leaf_service, leafs
from tests.federation.origins.test_slow_links import Line, line, of
from tests.waiting import until


def sample(made: Line, name: str) -> str:
    """A figure of the edge's mirror, as /metrics shows it."""
    for text in metrics(made.edge).splitlines():
        if text.startswith(f"headwater_link_{name}{{") and 'stream="COPY"' in text:
            return text.rpartition(" ")[2]
    raise AssertionError(f"no {name}")


def now_in(made: Line) -> str:
    """The state that /metrics shows."""
    (found,) = [
        text
        for text in metrics(made.edge).splitlines()
        if text.startswith("headwater_link_state{") and text.endswith(" 1")
    ]
    return found.partition('state="')[2].partition('"')[0]


async def test_a_follower_ends_although_it_is_called_just_then(lab: Lab) -> None:
    """A link comes up, or a consumer is wanted anew, in the moment in which the stream goes."""
    made = await line(lab)
    await made.mirror("COPY", "NOWHERE")
    follower = made.follower("COPY")
    await until(lambda: follower.phase == "waiting", "it tries again later")
    waiting = follower._task
    follower.kick()
    follower.stop()
    await until(lambda: waiting is not None and waiting.done(), "it has ended", 5)
    await made.mirror("OTHER", "NOWHERE")
    await made.publish("NOWHERE", 10, 100)
    other = made.follower("OTHER")
    await until(lambda: other.phase == "flowing" and made.store("OTHER").messages == 10, "it flows")
    flowing = other._task
    other._restart("the test asks for it")
    other.stop()
    await until(lambda: flowing is not None and flowing.done(), "it has ended, too", 5)


async def test_lag_is_counted_against_the_origin(lab: Lab) -> None:
    """Over a slow line the mirror is behind by what the origin has, not by what it had when the
    last message left."""
    made = await line(lab)
    await made.publish("BULK", 20, 1000)
    made.wire.bytes_per_s = 64 * 1024
    await made.mirror("COPY", "BULK")
    await until(lambda: made.store("COPY").messages == 20, "it follows")
    await made.publish("BULK", 2000, 1000)

    def missing() -> int:
        return int(made.hub.jetstream.accounts["$G"].streams["BULK"].store.last_seq) - int(
            made.store("COPY").last_seq
        )

    health = made.follower("COPY").health
    await until(lambda: health.state == "catching_up", "it is behind")
    await until(
        lambda: health.rate > 10 and abs((health.lag() or 0) - missing()) < 200,
        "the lag is the origin's",
    )
    report = health.report()
    assert report["pending_bytes"] > 500_000
    assert report["eta_seconds"] > 1
    assert 0 < report["oldest_pending_seconds"] < 60
    assert now_in(made) == "catching_up"
    assert int(sample(made, "pending_messages")) > 500
    made.wire.bytes_per_s = 0.0
    await until(lambda: health.state == "live" and health.lag() == 0, "it is done")
    assert sample(made, "pending_bytes") == "0"


@pytest.mark.parametrize("patience", [0, 5], ids=["first", "after-others"])
async def test_what_a_dead_link_hides_is_unknown(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, patience: int
) -> None:
    for name in ("SILENCE_S", "ANSWER_TIMEOUT_S", "INFO_TIMEOUT_S"):
        monkeypatch.setattr(origin_follower, name, 1.5)
    made = await line(lab)
    await made.publish("BULK", 10, 1000)
    await made.mirror("COPY", "BULK")
    health = made.follower("COPY").health
    await until(lambda: made.store("COPY").messages == 10 and health.state == "live", "it is live")
    made.follower("COPY")._quiet_tries = patience
    made.wire.silence(True)
    await until(lambda: health.state == "offline", "nothing is heard", 10)
    assert health.lag() is None
    assert sample(made, "pending_messages") == "NaN"
    assert sample(made, "catchup_rate") == "0.0"
    info = (await (await lab.client(client_port(made.edge))).jetstream().stream_info("COPY")).mirror
    assert info is not None
    assert info.lag
    assert info.error is not None
    found = healthz(made.edge)
    assert (found["status_code"], found["headwater"]["degraded"]) == (200, True)
    assert found["headwater"]["links"][0]["stream"] == "COPY"
    assert healthz(made.edge, HealthzOptions(links=True))["status_code"] == 503
    made.wire.silence(False)
    made.wire.cut()
    await until(lambda: health.state == "live", "the link is back")
    assert "headwater" not in healthz(made.edge)


async def test_a_link_that_ended_is_told_at_once(lab: Lab) -> None:
    """Nobody has to be silent for long when the node knows that its link is gone."""
    made = await line(lab)
    await made.publish("BULK", 10, 1000)
    await made.mirror("COPY", "BULK")
    health = made.follower("COPY").health
    await until(lambda: made.store("COPY").messages == 10 and health.state == "live", "it is live")
    made.wire.silence(True)
    made.wire.cut()
    await until(lambda: health.state == "offline", "it is known", origin_follower.SILENCE_S - 1)
    assert health.lag() is None
    await until(lambda: "is not connected" in health.cause, "it says why")
    made.wire.silence(False)
    made.wire.cut()
    await until(lambda: health.state == "live", "the link is back")


async def test_an_origin_that_hears_nothing_hides_what_it_has(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line passes only signs of life from the edge to the hub, and everything back. So the
    origin waits for an answer to flow control, and tells by its heartbeats that it does, and no
    more."""
    monkeypatch.setattr(origin_follower, "INFO_TIMEOUT_S", 1.0)
    made = await line(lab)
    await made.publish("BULK", 10, 1000)
    await made.mirror("COPY", "BULK")
    follower, store = made.follower("COPY"), made.store("COPY")
    await until(lambda: store.messages == 10 and follower.health.state == "live", "it is live")
    made.wire.alter = lambda data: b"PONG\r\n" * data.count(b"PONG\r\n")
    js = (await lab.client(client_port(made.hub))).jetstream()
    while not follower._asked_again:
        last = (await js.publish("bulk", bytes(100_000))).seq

        def taken(last: int = last) -> bool:
            return store.last_seq == last or follower._asked_again

        await until(taken, "it is taken, or the origin waits")
    await until(lambda: follower.health.lag() is None, "the origin tells nothing", 20)
    assert follower.health.state == "offline"
    assert "no answer from here" in follower.health.cause
    assert sample(made, "pending_messages") == "NaN"
    made.wire.alter = bytes
    made.wire.cut()
    await until(lambda: store.last_seq == last and follower.health.lag() == 0, "it has all", 20)
    assert follower.health.state == "live"


async def test_a_stream_that_is_not_there_is_said(lab: Lab) -> None:
    made = await line(lab)
    await made.mirror("COPY", "NOWHERE")
    health = made.follower("COPY").health
    await until(lambda: health.state == "no_such_stream", "the origin says so")
    assert now_in(made) == "no_such_stream"
    js = (await lab.client(client_port(made.hub))).jetstream()
    await js.add_stream(name="NOWHERE", subjects=["nowhere"])
    await until(lambda: health.state == "live", "it is there", 20)


async def test_what_an_origin_said_holds_no_more_when_its_link_has_ended(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is there to have refused: that is said at once, and not with the next try."""
    monkeypatch.setattr(origin_follower, "RETRY_MIN_S", 300.0)
    monkeypatch.setattr(origin_follower, "RETRY_MAX_S", 300.0)
    made = await line(lab)
    await made.mirror("COPY", "NOWHERE")
    health = made.follower("COPY").health
    await until(lambda: health.state == "no_such_stream", "the origin says so")
    made.wire.silence(True)
    made.wire.cut()
    await until(lambda: health.state == "offline", "it is known", 5)
    made.wire.silence(False)
    made.wire.cut()
    await until(lambda: health.state == "no_such_stream", "it is asked again")


@pytest.mark.parametrize("subject", ["$JS.hub.API.>", "$JS.M.>", ">"])
@pytest.mark.parametrize("rule", ["edge", "hub"])
async def test_what_rules_keep_away_is_denied(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, rule: str, subject: str
) -> None:
    """Requests to the origin, its deliveries, or whatever it says."""
    monkeypatch.setattr(origin_follower, "INFO_TIMEOUT_S", 1.0)
    monkeypatch.setattr(origin_follower, "ANSWER_TIMEOUT_S", 1.0)
    port = free_port()
    user = "{ user: leaf, password: pass"
    requests = subject == "$JS.hub.API.>"
    if rule == "hub":
        way = "publish" if requests else "subscribe"
        user += f', permissions {{ {way} {{ deny: "{subject}" }} }}'
    await lab.node(
        JETSTREAM.format(store=lab.directory / "hub", domain="hub")
        + f"leafnodes {{ listen: 127.0.0.1:{port} }}\n"
        f"authorization {{ users: [ {user} }} ] }}"
    )
    way = "deny_exports" if requests else "deny_imports"
    denied = f'{way}: ["{subject}"]' if rule == "edge" else ""
    edge = await lab.node(
        JETSTREAM.format(store=lab.directory / "edge", domain="edge")
        + 'leafnodes { reconnect: "50ms", remotes [ '
        f'{{ url: "nats://leaf:pass@127.0.0.1:{port}", {denied} }} ] }}'
    )
    await until(lambda: leafs(edge), "the link is up")
    js = (await lab.client(client_port(edge))).jetstream()
    await js.add_stream(StreamConfig(name="COPY", mirror=of("BULK")))
    driver: Any = edge.jetstream.accounts["$G"].streams["COPY"].origin_driver
    health = driver.followers[0].health
    await until(lambda: health.state == "denied", "the rule is named")
    assert subject.rstrip(".>") in health.cause
    assert "rules of the link to 'hub'" in health.cause


@pytest.mark.parametrize(
    ("origin", "kind"), [("headwater", "mirror"), ("nats-server", "source")]
)
async def test_a_rule_that_only_the_origin_knows_is_denied(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, origin: str, kind: str
) -> None:
    """The origin answers, and its deliveries end at a rule that nobody told this side."""
    for name in ("SILENCE_S", "CHECK_BEHIND_S", "WATCH_S"):
        monkeypatch.setattr(origin_follower, name, getattr(origin_follower, name) / 4)
    port = free_port()
    hub = await lab.node(
        JETSTREAM.format(store=lab.directory / "hub", domain="hub")
        + f"leafnodes {{ listen: 127.0.0.1:{port} }}\n"
    )
    rule = ', deny_exports: ["$JS.M.>", "$JS.S.>"]'

    config = (
        JETSTREAM.format(store=lab.directory / "edge", domain="edge")
        + f'leafnodes {{ remotes [ {{ url: "nats://127.0.0.1:{port}"{rule} }} ] }}'
    )
    if origin == "headwater":
        edge_port = client_port(await lab.node(config))
    else:
        edge_port = (await lab.real(config)).port
    await until(lambda: leafs(hub), "the link is up")
    below = (await lab.client(edge_port)).jetstream()
    await below.add_stream(name="BULK", subjects=["bulk"])
    await below.publish("bulk", b"1")
    above = (await lab.client(client_port(hub))).jetstream()
    wanted = StreamSource(name="BULK", external=ExternalStream(api="$JS.edge.API"))
    made = StreamConfig(name="COPY", mirror=wanted)
    if kind == "source":
        made = StreamConfig(name="COPY", sources=[wanted])
    await above.add_stream(made)
    driver: Any = hub.jetstream.accounts["$G"].streams["COPY"].origin_driver
    follower = driver.followers[0]
    await until(lambda: follower.health.state == "denied", "it is told", 60)
    assert "a rule on its side may keep it out" in follower.health.report()["cause"]
    seen = follower.recreations
    await until(
        lambda: follower.health.state != "denied" or follower.recreations > seen,
        "it tries again", 60,
    )  # fmt: skip
    assert follower.health.state == "denied"


async def test_a_link_is_given_time_to_say_what_it_asks_for(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A domain that is linked and asks for no requests denies them, unless its link is young."""
    monkeypatch.setattr(origin_driver, "SETTLED_S", 600.0)
    made = await line(lab)
    (conn,) = leaf_service(made.edge).links.of_account("$G")
    asked = [key[0] for key in conn.subs if key[0].startswith(b"$JS.hub.API.")]
    assert asked
    for subject in asked:
        conn.feed(b"LS- %b\r\n" % subject)
    await made.mirror("COPY", "BULK")
    follower = made.follower("COPY")
    await until(lambda: follower.failures > 1, "it was tried")
    assert follower.health.state == "offline"
    monkeypatch.setattr(origin_driver, "SETTLED_S", 0.0)
    await until(lambda: follower.health.state == "denied", "the rule is named")
    assert "'hub' is linked, but asks for no such requests" in follower.health.cause


async def test_a_clock_that_is_set_changes_no_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The age of what is missing is what has passed, also where the gateway's clock jumps."""
    clock = SetClock(tmp_path)
    with Hub("ours") as hub:
        await fill(hub.server, ["BULK"], 1500, 1000)
        async with Relay(hub.leaf_port, 200_000) as relay:
            for name, value in clock.environment:
                monkeypatch.setenv(name, value)
            edge = hub.edge("ours", port=relay.port, more=", compression: off")
            client = await connected(edge)
            mirror = {"name": "BULK", "external": {"api": "$JS.hub.API"}}
            await ask(client, "$JS.API.STREAM.CREATE.COPY", {"name": "COPY", "mirror": mirror})
            await holds(client, "COPY", 20)
            for hours in (5, -5):
                clock.set(hours * 3600)
                info = await ask(client, "$JS.API.STREAM.INFO.COPY")
                told = json.loads(info["config"]["metadata"]["_headwater.mirror"])
                assert told["pending_messages"] > 0
                assert 0 < told["oldest_pending_seconds"] < 600, hours
            await client.close()
