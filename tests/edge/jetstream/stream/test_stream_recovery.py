"""What a stream was told and has acknowledged is there after a restart, clean or not."""

from collections.abc import Callable
from typing import Any

import nats
import pytest

ENDS = ("stop", "kill")


async def restart(server: Any, start: Callable[..., Any], how: str) -> Any:
    """End a server, start another on its directory and connect to it."""
    getattr(server, how)()
    return await nats.connect(start().url)


@pytest.mark.parametrize("how", ENDS)
async def test_messages_and_configuration(start_server: Callable[..., Any], how: str) -> None:
    server = start_server()
    nc = await nats.connect(server.url)
    js = nc.jetstream()
    await js.add_stream(name="KEPT", subjects=["kept.*"], max_msgs_per_subject=5)
    for i in range(20):
        await js.publish(f"kept.{i % 2}", b"%d" % i, headers={"Nats-Msg-Id": str(i)})
    await js.delete_msg("KEPT", 15)
    before = await js.stream_info("KEPT")
    await nc.close()

    nc = await restart(server, start_server, how)
    js = nc.jetstream()
    after = await js.stream_info("KEPT")
    assert after.config == before.config
    assert after.created == before.created
    assert after.state == before.state
    found = await js.get_msg("KEPT", 20)
    assert (found.subject, found.data) == ("kept.1", b"19")
    again = await js.publish("kept.1", b"x", headers={"Nats-Msg-Id": "19"})
    assert (again.seq, again.duplicate) == (20, True)
    assert (await js.publish("kept.1", b"x")).seq == 21
    await nc.close()


@pytest.mark.parametrize("how", ENDS)
async def test_changes_and_deletions(start_server: Callable[..., Any], how: str) -> None:
    server = start_server()
    nc = await nats.connect(server.url)
    js = nc.jetstream()
    await js.add_stream(name="CHANGED", subjects=["changed"])
    await js.add_stream(name="GONE", subjects=["gone"])
    await js.publish("changed", b"1")
    await js.publish("gone", b"1")
    await js.update_stream(name="CHANGED", subjects=["changed", "more"], description="new")
    await js.purge_stream("CHANGED")
    await js.delete_stream("GONE")
    await nc.close()

    nc = await restart(server, start_server, how)
    js = nc.jetstream()
    info = await js.stream_info("CHANGED")
    assert info.config.subjects == ["changed", "more"]
    assert info.config.description == "new"
    assert (info.state.messages, info.state.first_seq, info.state.last_seq) == (0, 2, 1)
    assert (await js.publish("more", b"2")).seq == 2
    with pytest.raises(nats.js.errors.NotFoundError):
        await js.stream_info("GONE")
    await nc.close()


@pytest.mark.parametrize("how", ENDS)
async def test_sequences_are_never_used_again(start_server: Callable[..., Any], how: str) -> None:
    server = start_server()
    nc = await nats.connect(server.url)
    js = nc.jetstream()
    await js.add_stream(name="WORK", subjects=["work"], retention="interest")
    for _ in range(3):
        await js.publish("work", b"nobody wants this")
    await nc.close()

    nc = await restart(server, start_server, how)
    js = nc.jetstream()
    assert (await js.publish("work", b"")).seq == 4
    await nc.close()


async def test_ttl_goes_on_after_a_restart(start_server: Callable[..., Any]) -> None:
    server = start_server()
    nc = await nats.connect(server.url)
    js = nc.jetstream()
    await js.add_stream(name="TTL", subjects=["ttl.*"], allow_msg_ttl=True)
    await js.publish("ttl.short", b"", headers={"Nats-TTL": "2"})
    await js.publish("ttl.long", b"", headers={"Nats-TTL": "1h"})
    await nc.close()

    nc = await restart(server, start_server, "stop")
    js = nc.jetstream()
    await js.add_stream(name="EVENTS", subjects=["e"])
    assert (await js.stream_info("TTL")).state.messages == 2
    watcher = await nc.subscribe("never")
    while (await js.stream_info("TTL")).state.messages == 2:
        with pytest.raises(nats.errors.TimeoutError):
            await watcher.next_msg(timeout=0.2)
    assert (await js.get_last_msg("TTL", "ttl.long")).seq == 2
    await nc.close()
