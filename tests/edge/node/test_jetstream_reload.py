"""JetStream begins and ends by a reload, on both servers alike."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.servers import HOST, Recipe, Server, free_port, program
from bench.wire import Link
from headwater.edge.wire.client import NoResponders
from tests.waiting import until_seen

WITHOUT = "debug: false\n"
WITH = 'jetstream {{ store_dir: "{dir}/{place}", max_mem: 64MB, max_file: 64MB {more} }}\n'
ENDED = "[INF] JetStream Shutdown"
COMMANDS = {"headwater": ("serve",), "nats-server": ()}


class Switched:
    """A server whose JetStream is begun and ended by reloads."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "node.conf"
        self.path.write_text(WITHOUT)
        # The monitor's port is bound before what is stored is read, and stays.
        doors = ("-a", HOST, "-p", "{port}", "-m", str(free_port()))
        command = (program(name), *COMMANDS[name], "-c", str(self.path), *doors)
        self.server = Server(Recipe(name, command))

    def load(self, text: str) -> str:
        """Have a configuration loaded; what the log says of it."""
        log = self.server.log_path
        before = len(log.read_text())
        self.path.write_text(text)
        self.server.signal(signal.SIGHUP)

        def said() -> str:
            new = log.read_text()[before:]
            return new if re.search(r"Reloaded server configuration|\[ERR\]", new) else ""

        return str(until_seen(said))

    def with_jetstream(self, place: str = "store", more: str = "") -> str:
        """Have it run; what the log says of it."""
        return self.load(WITH.format(dir=self.folder, place=place, more=more))

    def without_jetstream(self) -> None:
        """Have it end, which takes a moment after the reload."""
        before = self.server.log_path.read_text().count(ENDED)
        self.load(WITHOUT)
        until_seen(lambda: self.server.log_path.read_text().count(ENDED) > before)

    def info(self) -> bool:
        """Whether INFO tells a client that comes now of JetStream."""
        with Link(self.server.port) as link:
            return bool(link.info.get("jetstream"))


@pytest.fixture(params=sorted(COMMANDS))
def switched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Switched]:
    made = Switched(request.param, tmp_path)
    with made.server:
        yield made


def seen(link: Link) -> tuple[Any, ...]:
    """Messages of stream S, and what its consumers have had."""
    info = link.api("STREAM.INFO.S")["state"]
    consumers = [link.api(f"CONSUMER.INFO.S.{name}") for name in ("C", "P")]
    floors = [each["ack_floor"]["stream_seq"] for each in consumers]
    return info["messages"], info["last_seq"], info["consumer_count"], floors


def delivered(link: Link, count: int) -> list[int]:
    """Sequences of the next messages that a consumer pushes."""
    return [
        int(message.reply.split(".")[5])
        for _, message in zip(range(count), link.messages(), strict=False)
    ]


def test_it_begins_and_ends_and_begins_again(switched: Switched) -> None:
    """A client stays connected all the while, and finds what was stored and acknowledged."""
    assert not switched.info()
    with Link(switched.server.port) as link:
        with pytest.raises(NoResponders):
            link.api("INFO")
        switched.with_jetstream()
        assert switched.info()
        link.api("STREAM.CREATE.S", name="S", subjects=["s"])
        link.api("STREAM.CREATE.M", name="M", subjects=["m"], storage="memory")
        explicit = {"ack_policy": "explicit", "durable_name": "C"}
        link.api("CONSUMER.CREATE.S.C", stream_name="S", config=explicit)
        pushed = {"ack_policy": "explicit", "durable_name": "P", "deliver_subject": "pushed"}
        link.api("CONSUMER.CREATE.S.P", stream_name="S", config=pushed)
        for number in range(3):
            assert json.loads(link.request("s", b"%d" % number).payload)["seq"] == number + 1
        link.request("m", b"1")
        answer = next(link.answers("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1"))
        link.request(answer.reply, b"+ACK")
        before = seen(link)
        switched.without_jetstream()
        assert not switched.info()
        for subject in ("s", "m"):
            with pytest.raises(NoResponders):
                link.request(subject, b"lost")
        # nats-server notices nobody who subscribes when its JetStream has begun again.
        link.subscribe("pushed")
        switched.with_jetstream()
        assert switched.info()
        assert delivered(link, 3) == [1, 2, 3]
        assert seen(link) == before == (3, 3, 2, [1, 0])
        assert link.api("STREAM.NAMES")["streams"] == ["S"]
        assert json.loads(link.request("s", b"3").payload)["seq"] == 4


def test_many_reloads_lose_nothing(switched: Switched) -> None:
    """Each message that was acknowledged is there after all of them."""
    acked = []
    with Link(switched.server.port) as link:
        for turn in range(4):
            switched.with_jetstream()
            if not turn:
                link.api("STREAM.CREATE.S", name="S", subjects=["s"])
            for _ in range(50):
                acked.append(json.loads(link.request("s", b"x" * 100).payload)["seq"])
            switched.without_jetstream()
        switched.with_jetstream()
        assert link.api("STREAM.INFO.S")["state"]["messages"] == len(acked) == acked[-1] == 200


def test_mirrors_go_on(switched: Switched) -> None:
    """Those that were there, and those that are made after."""
    with Link(switched.server.port) as link:
        switched.with_jetstream()
        link.api("STREAM.CREATE.S", name="S", subjects=["s"])
        link.api("STREAM.CREATE.M", name="M", mirror={"name": "S"})
        link.request("s", b"1")
        switched.without_jetstream()
        switched.with_jetstream()
        link.api("STREAM.CREATE.N", name="N", sources=[{"name": "S"}])
        link.request("s", b"2")

        def copied() -> list[int]:
            return [link.api(f"STREAM.INFO.{name}")["state"]["messages"] for name in "MN"]

        until_seen(lambda: copied() == [2, 2], copied)


def test_it_begins_again_in_another_place(switched: Switched) -> None:
    """The place changes while it is off, and not while it runs."""
    switched.with_jetstream()
    with Link(switched.server.port) as link:
        link.api("STREAM.CREATE.S", name="S")
        assert "config reload not supported" in switched.with_jetstream("other")
        assert link.api("STREAM.NAMES")["streams"] == ["S"]
        switched.without_jetstream()
        switched.with_jetstream("other")
        assert not link.api("STREAM.NAMES")["streams"]


@pytest.mark.parametrize("more", [", domain: D", ", sync_interval: 1s"])
def test_what_takes_a_start_is_refused(switched: Switched, more: str) -> None:
    """While it is off, too; then it stays off."""
    assert "config reload not supported" in switched.with_jetstream(more=more)
    assert not switched.info()


def test_a_place_that_cannot_be_is_tried_again(switched: Switched) -> None:
    """The node goes on without; the next reload tries again."""
    blocked = switched.folder / "store"
    blocked.write_text("no folder")
    assert "Can't start JetStream" in switched.with_jetstream()
    assert not switched.info()
    blocked.unlink()
    switched.with_jetstream()
    assert switched.info()
    with Link(switched.server.port) as link:
        link.api("STREAM.CREATE.S", name="S")


def test_it_begins_again_while_it_ends(switched: Switched) -> None:
    """A reload that asks for it comes while what is stored is still being closed."""
    switched.with_jetstream()
    with Link(switched.server.port) as link:
        link.api("STREAM.CREATE.S", name="S", subjects=["s"])
        for _ in range(100):
            link.request("s", b"x" * 1000)
        switched.load(WITHOUT)
        switched.with_jetstream()
        until_seen(switched.info)
        assert link.api("STREAM.INFO.S")["state"]["messages"] == 100


@pytest.mark.parametrize("name", COMMANDS)
def test_it_brings_the_system_account_that_it_needs(name: str, tmp_path: Path) -> None:
    """Where the configuration wants none; what answers there stays when JetStream ends."""
    made = Switched(name, tmp_path)
    without = "no_system_account: true\n"
    made.path.write_text(without)
    with made.server, Link(made.server.port) as link:
        with pytest.raises(NoResponders):
            link.request("$SYS.REQ.USER.INFO", b"")
        said = made.load(f'{without}jetstream {{ store_dir: "{tmp_path}/store" }}\n')
        assert "Reloaded: JetStream" in said
        link.api("STREAM.CREATE.S", name="S", subjects=["s"])
        assert b'"account":"$G"' in link.request("$SYS.REQ.USER.INFO", b"").payload
        made.load(without)
        until_seen(lambda: ENDED in made.server.log_path.read_text())
        assert b'"account":"$G"' in link.request("$SYS.REQ.USER.INFO", b"").payload
