"""Each key of a configuration is taken over by a reload, or refused: none is answered with success
and does nothing."""

import json
import re
import signal
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.servers import HOST, Recipe, Server, anchor, headwater, program
from bench.wire import Link
from headwater.edge.conf.options import Options
from headwater.edge.node import reload, reloadable
from headwater.edge.wire.client import ApiError
from tests.dial import dial
from tests.waiting import until_seen

UNSUPPORTED = ("gateway", "mqtt", "listens")
"""No configuration sets them."""


def paths(options: msgspec.Struct, above: str = "") -> list[str]:
    """All paths in options, those inside of what is not there left out."""
    found = []
    for name in options.__struct_fields__:
        value = getattr(options, name)
        here = f"{above}{name}"
        found += paths(value, f"{here}.") if isinstance(value, msgspec.Struct) else [here]
    return found


def changed(options: Any, path: str) -> Any:
    """Options with another value at a path."""
    name, _, rest = path.partition(".")
    old = getattr(options, name)
    if rest:
        new: Any = changed(old, rest)
    elif isinstance(old, bool):
        new = not old
    elif isinstance(old, int | float):
        new = old + 1
    elif isinstance(old, str):
        new = f"{old}x"
    elif isinstance(old, list | tuple):
        new = type(old)([*old, "x"])
    elif isinstance(old, dict):
        new = {**old, "x": "y"}
    else:
        new = "x"
    return msgspec.structs.replace(options, **{name: new})


@pytest.mark.parametrize("path", paths(Options()))
def test_what_is_not_named_is_refused(path: str) -> None:
    if path.startswith(UNSUPPORTED):
        return
    refused = reloadable.needs_restart(Options(), changed(Options(), path))
    assert refused == ([] if reloadable.is_live(path) else [reloadable.spelled(path)])


def test_names_are_those_of_options() -> None:
    known = paths(Options())
    for name in reloadable.LIVE | reloadable.WITHOUT_EFFECT:
        assert any(path == name or path.startswith(f"{name}.") for path in known), name


def test_what_a_refusal_shows_is_not_live() -> None:
    fixed = reload._FIXED
    for path in paths(Options()):
        # A callout is not begun or ended by a reload, but changed; so is how TLS asks for staples.
        if path.startswith(UNSUPPORTED) or path in ("tls", "leaf.tls", "auth.callout"):
            continue
        before, after = Options(), changed(Options(), path)
        if any(read(before) != read(after) for read in fixed.values()):
            assert not reloadable.is_live(path), path


CONFIG = """
jetstream {{
  store_dir: "{dir}/store", max_memory_store: {memory}, max_file_store: 1MB {jetstream} }}
leafnodes {{ port: -1, host: "127.0.0.1" {leaf} }}
pid_file: "{dir}/{pid}"
ports_file_dir: "{dir}/{ports}"
"""
FIRST = {"memory": "1MB", "jetstream": "", "leaf": "", "pid": "first.pid", "ports": "ports"}


class Reloaded:
    """A node with a configuration that is loaded again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "ports").mkdir()
        (folder / "others").mkdir()
        self.path = folder / "node.conf"
        self.write()
        command = ("serve", "-c", str(self.path), "-a", HOST, "-p", "{port}")
        self.recipe = Recipe("headwater", (program("headwater"), *command))

    def write(self, **parts: str) -> None:
        """Another configuration: the first one but for `parts`."""
        self.path.write_text(CONFIG.format(dir=self.folder, **(FIRST | parts)))

    def load(self, server: Server, **parts: str) -> str:
        """Have it loaded; what the log says of it."""
        before = server.log
        self.write(**parts)
        server.signal(signal.SIGHUP)

        def said() -> str:
            log = server.log[len(before) :]
            return log if "Reloaded server configuration" in log or "[ERR]" in log else ""

        return str(until_seen(said))


@pytest.mark.parametrize(
    "parts, name",
    [
        ({"jetstream": ", sync_interval: 1s"}, "jetstream.sync_interval"),
        ({"jetstream": ", strict: false"}, "jetstream.strict"),
        ({"leaf": ", isolate_leafnode_interest: true"}, "leafnodes.isolate_leafnode_interest"),
        ({"leaf": ", advertise: '127.0.0.1:7'"}, "leafnodes.advertise"),
    ],
)
def test_a_running_node_refuses_what_takes_a_restart(
    tmp_path: Path, parts: dict[str, str], name: str
) -> None:
    """Nothing of that configuration is taken, the limit beside it neither."""
    node = Reloaded(tmp_path)
    with Server(node.recipe) as server:
        said = node.load(server, **parts, memory="8MB")
        assert f"config reload not supported for {name}: start the node again" in said
        assert "Reloaded" not in said
        with Link(server.port) as link, pytest.raises(ApiError):
            link.api("STREAM.CREATE.M", name="M", storage="memory", max_bytes=3 << 20)


FIXED = (
    "max_subscriptions: 10", "max_sub_tokens: 4", "max_closed_clients: 10", "max_pending: 2000000",
    "write_timeout: retry", "lame_duck_duration: '40s'", "lame_duck_grace_period: '3s'",
    "disable_sublist_cache: true", "default_js_domain: {A: d}", "allow_non_tls: true",
    "feature_flags: {a: true}", "log_size_limit: 1000000", "log_max_num: 3", "no_auth_user: u",
    "prof_port: 1", "jetstream {unique_tag: 'a:'}", "jetstream {extension_hint: no_extend}",
    "jetstream {max_outstanding_catchup: 32M}", "jetstream {max_buffered_size: 32M}",
    "jetstream {max_buffered_msgs: 10}", "jetstream {info_queue_limit: 10}",
    "jetstream {max_concurrent_io: 4}",
)  # fmt: skip
"""Settings that nats-server does not change while it runs."""


@pytest.mark.parametrize("given", [headwater(), anchor()], ids=lambda given: given.name)
def test_what_neither_server_takes_over(tmp_path: Path, given: Recipe) -> None:
    path = tmp_path / "node.conf"
    accounts = "accounts { A { users: [{user: u, password: p}] } }"
    start = f"store_dir: '{tmp_path}/store'\n{accounts}\njetstream {{ }}\n"
    path.write_text(start)
    command = (*given.command, "-c", str(path), "-a", HOST, "-p", "{port}")
    with Server(Recipe(given.name, command)) as running:
        for line in FIXED:
            known = running.log_path.read_text()
            text = f"{start}{line}\n"
            if line.startswith("jetstream {"):
                text = start.replace("jetstream { }", line)
            path.write_text(text)
            running.signal(signal.SIGHUP)

            def log(known: str = known) -> str:
                new = running.log_path.read_text()[len(known) :]
                return new if "eload" in new and new.endswith("\n") else ""

            assert "config reload not supported for" in until_seen(log), line


def test_limits_and_files_are_taken_over(tmp_path: Path) -> None:
    node = Reloaded(tmp_path)
    with Server(node.recipe) as server, Link(server.port) as link:
        config = {"name": "M", "storage": "memory", "max_bytes": 3 << 20}
        with pytest.raises(ApiError):
            link.api("STREAM.CREATE.M", **config)
        assert [path.name for path in (tmp_path / "ports").iterdir()]
        said = node.load(server, memory="4MB", pid="second.pid", ports="others")
        assert "Reloaded: jetstream.max_memory_store" in said
        link.api("STREAM.CREATE.M", **config)
        assert not (tmp_path / "first.pid").exists()
        assert (tmp_path / "second.pid").read_text() == str(server.pid)
        assert not list((tmp_path / "ports").iterdir())
        assert len(list((tmp_path / "others").iterdir())) == 1
        # What is stored beyond a lower limit stays.
        node.load(server, memory="1MB", pid="second.pid", ports="others")
        assert link.api("STREAM.INFO.M")["config"]["max_bytes"] == 3 << 20
    assert not (tmp_path / "second.pid").exists()
    assert not list((tmp_path / "others").iterdir())


def test_limits_of_what_is_made_are_taken_over(tmp_path: Path) -> None:
    """Consumers and streams that were there keep what they had."""
    node = Reloaded(tmp_path)
    with Server(node.recipe) as server, Link(server.port) as link:
        link.api("STREAM.CREATE.M", name="M", storage="memory", duplicate_window=60 * 10**9)
        wanted = {"durable_name": "C", "ack_policy": "explicit", "max_ack_pending": 9}
        link.api("CONSUMER.CREATE.M.C", stream_name="M", config=wanted)
        limits = "max_ack_pending: 5, duplicate_window: '1s', default_max_consumers: 2"
        node.load(server, jetstream=f", limits {{ {limits} }}")
        refused = [
            ("CONSUMER.CREATE.M.D", {"stream_name": "M", "config": wanted | {"durable_name": "D"}}),
            ("STREAM.CREATE.N", {"name": "N", "duplicate_window": 2 * 10**9}),
        ]
        for subject, body in refused:
            with pytest.raises(ApiError):
                link.api(subject, **body)
        assert link.api("CONSUMER.INFO.M.C")["config"]["max_ack_pending"] == 9
        assert link.api("STREAM.INFO.M")["config"]["duplicate_window"] == 60 * 10**9
        second = {"durable_name": "D", "ack_policy": "explicit"}
        link.api("CONSUMER.CREATE.M.D", stream_name="M", config=second)
        with pytest.raises(ApiError, match="maximum consumers limit"):
            link.api("CONSUMER.CREATE.M.E", stream_name="M", config=second | {"durable_name": "E"})


def test_limits_of_batches_are_taken_over(tmp_path: Path) -> None:
    """Streams that are there go by them, too."""
    node = Reloaded(tmp_path)
    with Server(node.recipe) as server, Link(server.port) as link:
        link.api("STREAM.CREATE.M", name="M", storage="memory", allow_atomic=True, subjects=["m"])

        def answers(batch: str) -> list[str]:
            """What three messages of a batch hear."""
            heads = [
                {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)} for number in (1, 2, 3)
            ]
            return [link.request("m", b"", head).payload.decode() for head in heads]

        assert answers("before") == ["", "", ""]
        node.load(server, jetstream=", limits { batch { max_msgs: 2 } }")
        assert answers("after")[:2] == ["", ""]
        assert "10199" in answers("again")[2]


def answers(client: socket.socket) -> bool:
    """Whether a client is here still."""
    said = b""
    try:
        client.sendall(b"PING\r\n")
        while b"PONG\r\n" not in said:
            said += (data := client.recv(65536))
            if not data:
                return False
    except ConnectionError:
        return False
    return True


@pytest.mark.parametrize("most, left", [(1, 1), (0, 0), (-1, 0)])
@pytest.mark.parametrize("server", ["headwater", "nats-server"])
def test_connections_beyond_the_most_are_cut(
    tmp_path: Path, server: str, most: int, left: int
) -> None:
    """None at all are to be there as with a start: all are cut."""
    path = tmp_path / "node.conf"
    path.write_text("max_connections: 9\n")
    given = headwater() if server == "headwater" else anchor()
    command = (*given.command, "-c", str(path), "-a", HOST, "-p", "{port}")
    with Server(Recipe(given.name, command)) as running:
        clients = [dial(running.port, 5) for _ in range(2)]
        for client in clients:
            client.sendall(b'CONNECT {"verbose": false}\r\n')
            assert answers(client)
        path.write_text(f"max_connections: {most}\n")
        running.signal(signal.SIGHUP)
        until_seen(lambda: "Reloaded server configuration" in running.log)
        assert sum(map(answers, clients)) == left
        for client in clients:
            client.close()


@pytest.mark.parametrize("given", [headwater(), anchor()], ids=lambda given: given.name)
def test_who_asks_for_a_reload_hears_that_it_was_refused(tmp_path: Path, given: Recipe) -> None:
    path = tmp_path / "node.conf"
    start = "accounts { S { users: [{user: s, password: p}] } }\nsystem_account: S\n"
    path.write_text(start)
    command = (*given.command, "-c", str(path), "-a", HOST, "-p", "{port}")
    with Server(Recipe(given.name, command)) as running, Link(running.port, user="s:p@") as link:
        subject = f"$SYS.REQ.SERVER.{link.info['server_id']}.RELOAD"
        for line, word in (("max_payload: 2000", ""), ("max_pending: 9", "max_pending|MaxPending"),
                           ("max_payload: [", "node.conf|Parse error")):  # fmt: skip
            path.write_text(f"{start}{line}\n")
            answer = json.loads(link.request(subject, b"").payload)
            error = answer.get("error", {"code": 500, "description": ""})
            assert error["code"] == 500
            assert bool(error["description"]) == bool(word)
            assert re.search(word, error["description"])
