"""JetStream of one account is taken away and given back by reloads, on both servers alike."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.servers import HOST, Recipe, Server, program
from bench.wire import Link
from headwater.edge.wire.client import ApiError, NoResponders
from tests.operator_realm import SERVERS, Raw, Realm, recipe
from tests.waiting import until_seen

COMMANDS = {"headwater": ("serve",), "nats-server": ()}
CONFIG = """jetstream {{ store_dir: "{dir}/store" }}
accounts {{
  A {{ {granted} users: [ {{ user: a, password: p }} ] }}
  B {{ jetstream: enabled, users: [ {{ user: b, password: p }} ] }}
}}
"""
GRANTED = "jetstream: enabled,"
NOT_ENABLED = 10039


class Granted:
    """A server of whose accounts A has JetStream or not."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "node.conf"
        self.write(GRANTED)
        command = (program(name), *COMMANDS[name], "-c", str(self.path), "-a", HOST, "-p", "{port}")
        self.server = Server(Recipe(name, command))

    def write(self, granted: str) -> None:
        """Say whether A has it."""
        self.path.write_text(CONFIG.format(dir=self.folder, granted=granted))

    def grant(self, granted: str) -> None:
        """Have a configuration loaded."""
        done = "Reloaded server configuration"
        before = self.server.log_path.read_text().count(done)
        self.write(granted)
        self.server.signal(signal.SIGHUP)
        until_seen(lambda: self.server.log_path.read_text().count(done) > before)

    def link(self, user: str = "a") -> Link:
        """A client of an account."""
        return Link(self.server.port, user=f"{user}:p@")


@pytest.fixture(params=sorted(COMMANDS))
def granted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Granted]:
    made = Granted(request.param, tmp_path)
    with made.server:
        yield made


def made(link: Link) -> None:
    """A stream with two messages, one of which is acknowledged, and one in memory."""
    link.api("STREAM.CREATE.S", name="S", subjects=["s"], allow_direct=True)
    link.api("STREAM.CREATE.M", name="M", subjects=["m"], storage="memory", allow_direct=True)
    link.api("STREAM.CREATE.R", name="R", mirror={"name": "S"})
    explicit = {"ack_policy": "explicit", "durable_name": "C"}
    link.api("CONSUMER.CREATE.S.C", stream_name="S", config=explicit)
    for number in range(2):
        link.request("s", b"%d" % number)
    answer = next(link.answers("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1"))
    link.request(answer.reply, b"+ACK")


def test_streams_of_an_account_rest_while_it_has_no_jetstream(granted: Granted) -> None:
    """Nobody answers for them meanwhile; then all that was on disk is there again, with what was
    acknowledged. Another account notices nothing."""
    with granted.link() as link, granted.link("b") as other:
        made(link)
        made(other)
        granted.grant("")
        with pytest.raises(ApiError) as refused:
            link.api("STREAM.INFO.S")
        assert refused.value.err_code == NOT_ENABLED
        for subject in ("s", "m", "$JS.API.DIRECT.GET.S.s"):
            with pytest.raises(NoResponders):
                link.request(subject, b"")
        assert other.request("$JS.API.DIRECT.GET.S.s", b"").payload == b"1"
        granted.grant(GRANTED)
        assert link.api("STREAM.NAMES")["streams"] == ["R", "S"]
        assert link.request("$JS.API.DIRECT.GET.S.s", b"").payload == b"1"
        assert link.api("CONSUMER.INFO.S.C")["ack_floor"]["stream_seq"] == 1
        assert json.loads(link.request("s", b"2").payload)["seq"] == 3
        until_seen(lambda: link.api("STREAM.INFO.R")["state"]["messages"] == 3)
        assert other.api("STREAM.INFO.M")["state"]["messages"] == 0


def test_a_start_without_it_serves_nothing_of_the_account(granted: Granted) -> None:
    """It was taken away while the server did not run."""
    with granted.link() as link:
        made(link)
    granted.server.stop()
    granted.write("")
    granted.server.start()
    with granted.link() as link:
        with pytest.raises(NoResponders):
            link.request("$JS.API.DIRECT.GET.S.s", b"")
        granted.grant(GRANTED)
        assert link.request("$JS.API.DIRECT.GET.S.s", b"").payload == b"1"


@pytest.mark.parametrize("name", SERVERS)
def test_a_token_that_expires_takes_no_stream_away(name: str, tmp_path: Path) -> None:
    """Its sessions end. With a new one all is there again, what is in memory as well; a token
    without JetStream takes that."""
    realm = Realm()
    limits = realm.bodies["A"].limits
    limits.mem_storage = limits.disk_storage = -1
    realm.expires["A"] = int(time.time()) + 3
    config = realm.config(f"jetstream {{ store_dir: '{tmp_path}' }}")
    with Server(recipe(name, config)) as server:

        def push() -> None:
            subject = f"$SYS.REQ.ACCOUNT.{realm.account('A')}.CLAIMS.UPDATE"
            with Raw(server.port) as system:
                assert system.login(realm.user("S")) == []
                answer = system.request(subject, realm.token("A").encode())
                assert answer["data"]["code"] == 200, answer

        with Raw(server.port) as client:
            assert client.login(realm.user()) == []
            for stream, storage in (("S", "file"), ("M", "memory")):
                config = {"name": stream, "subjects": [stream], "storage": storage}
                assert client.request(f"$JS.API.STREAM.CREATE.{stream}", config)["created"]
                assert client.request(stream, b"1")["seq"] == 1
            assert client.rest()
        realm.expires["A"] = 0
        push()
        with Raw(server.port) as client:
            assert client.login(realm.user()) == []
            for stream in ("S", "M"):
                info = client.request(f"$JS.API.STREAM.INFO.{stream}")
                assert info["state"]["messages"] == 1
            limits.mem_storage = limits.disk_storage = 0
            push()
            until_seen(lambda: client.request("$JS.API.INFO")["error"]["err_code"] == NOT_ENABLED)
            limits.mem_storage = limits.disk_storage = -1
            push()
            until_seen(lambda: "error" not in client.request("$JS.API.INFO"))
            assert client.request("$JS.API.STREAM.NAMES")["streams"] == ["S"]
