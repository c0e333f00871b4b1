"""`-V` and `trace: true`: the lines of the protocol in the log, as nats-server writes them."""

import re
import signal
import socket
from pathlib import Path

import pytest

from bench.servers import Recipe, Server, free_port, program
from headwater.edge.logging import protocol_log
from tests.waiting import until_seen

BOTH = {
    "headwater": (program("headwater"), "serve"),
    "nats-server": (program("nats-server"),),
}
TRACED = re.compile(r"\[TRC\] (127\.0\.0\.1:\d+ - ([clr]id):\d+( - .*?)?) - (<<-|->>|<->) (.*)")
USER = 'authorization { user: u, password: "secret" }\n'
HELLO = (
    b'CONNECT {"verbose":true,"user":"u","pass":"secret","headers":true,"lang":"py",'
    b'"version":"1","name":"nm"}\r\n'
)
TALK = HELLO + (
    b"PING\r\nSUB foo 1\r\nsub  bar.*   q 2\r\nPUB foo 5\r\nhel\"o\r\n"
    b"HPUB foo 12 17\r\nNATS/1.0\r\n\r\n\x00\xc3\xa9\r\n\r\nPUB foo  r 0\r\n\r\n"
    b"UNSUB 1 10\r\nUNSUB 2\r\nSUB a..b 3\r\nPONG\r\nPUB foo 300\r\n" + b"x" * 300 + b"\r\nPING\r\n"
)


def until(link: socket.socket, word: bytes, count: int = 1) -> None:
    """Read until a word has come `count` times."""
    got = b""
    while got.count(word) < count:
        part = link.recv(65536)
        assert part, got
        got += part


def await_text(log: Path, text: str, count: int = 1) -> str:
    """What a log says once `text` is in it `count` times."""
    until_seen(lambda: log.read_text().count(text) >= count, text)
    return log.read_text()


def talk(port: int, data: bytes, pongs: int, *, piece: int = 1 << 16) -> None:
    """Say `data` in pieces, and leave when `pongs` PONGs have come."""
    with socket.create_connection(("127.0.0.1", port), 10) as link:
        for at in range(0, len(data), piece):
            link.sendall(data[at : at + piece])
        until(link, b"PONG\r\n", pongs)


def traced(log: Path, last: str) -> list[tuple[str, str, str]]:
    """Who, arrow and text of the traced lines of clients, once `last` is among them."""
    said = await_text(log, last).splitlines()
    found = [match for match in map(TRACED.search, said) if match]
    return [(match[3] or "", match[4], match[5]) for match in found]


def in_directions(lines: list[tuple[str, str, str]]) -> dict[str, list[tuple[str, str]]]:
    """The lines of each direction in their order; between the two, it is each server's own."""
    return {
        arrow: [(who, text) for who, found, text in lines if found == arrow]
        for arrow in ("<<-", "->>", "<->")
    }


def conversation(name: str, path: Path, config: str, piece: int = 1 << 16) -> dict[str, object]:
    """What a server logs of `TALK`."""
    path.mkdir(exist_ok=True)
    log = path / f"{name}.log"
    text = f'{USER}trace: true\nlogfile: "{log}"\n{config}'
    with Server(Recipe(name, BOTH[name], text)) as server:
        talk(server.port, TALK, 2, piece=piece)
        lines = traced(log, "[DELSUB 1]")
    assert "secret" not in log.read_text()
    return in_directions(lines)


@pytest.mark.parametrize(
    "config",
    ["", "max_traced_msg_len: 7\n", "trace_headers: true\n"],
    ids=["all", "cut", "headers"],
)
def test_lines_are_those_of_the_real_server(tmp_path: Path, config: str) -> None:
    ours, theirs = (conversation(name, tmp_path, config) for name in BOTH)
    assert ours == theirs
    assert any("->>" in arrow and lines for arrow, lines in theirs.items())


def test_frames_that_come_in_pieces(tmp_path: Path) -> None:
    whole, pieces = (
        conversation("headwater", tmp_path / str(piece), "", piece) for piece in (1 << 16, 7)
    )
    assert whole == pieces


@pytest.mark.parametrize("name", BOTH)
def test_a_reload_begins_and_ends_it(name: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = tmp_path / "server.conf"
    config.write_text(f'logfile: "{log}"\n')
    command = (*BOTH[name], "-c", str(config), "-a", "127.0.0.1", "-p", "{port}")
    with Server(Recipe(name, command)) as server:
        with socket.create_connection(("127.0.0.1", server.port), 10) as link:
            link.sendall(b"CONNECT {}\r\nPUB one 1\r\n1\r\nPING\r\n")
            until(link, b"PONG")
            for number, trace in enumerate(("true", "false")):
                config.write_text(f'logfile: "{log}"\ntrace: {trace}\n')
                server.signal(signal.SIGHUP)
                await_text(log, "Reloaded server configuration", number + 1)
                link.sendall(b"PUB %s 1\r\n1\r\nPING\r\n" % trace.encode())
                until(link, b"PONG")
        lines = traced(log, "PUB true 1")
    shown = [text for _, arrow, text in lines if arrow == "<<-"]
    assert shown == ["[PUB true 1]", 'MSG_PAYLOAD: ["1"]', "[PING]"]


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("kind", ["lid", "rid"])
def test_links_are_traced(kind: str, name: str, tmp_path: Path) -> None:
    hub = free_port()
    block, remote = {
        "lid": ("leafnodes", "leafnodes { remotes [{ url: '%s' }] }"),
        "rid": ("cluster", "cluster { name: c, listen: '127.0.0.1:-1', routes ['%s'] }"),
    }[kind]
    url = f"nats://x:secret@127.0.0.1:{hub}"
    first = (
        f"trace: true\nlogfile: '{tmp_path}/first'\n{block} {{ listen: '127.0.0.1:{hub}'\n"
        "authorization { user: x, password: secret }\n%s}\n" % ("name: c" * (kind == "rid"))
    )
    second = f"trace: true\nlogfile: '{tmp_path}/second'\n{remote % url}\n"
    verb = "LMSG foo 5" if kind == "lid" else "RMSG $G foo 5"
    with (
        Server(Recipe(name, BOTH[name], f"server_name: a\n{first}")) as near,
        Server(Recipe(name, BOTH[name], f"server_name: b\n{second}")) as far,
    ):
        with socket.create_connection(("127.0.0.1", far.port), 10) as link:
            link.sendall(b'CONNECT {"verbose":false}\r\nSUB foo 1\r\nPING\r\n')
            until(link, b"PONG")
            await_text(tmp_path / "first", "S+ $G foo]" if kind == "rid" else "S+ foo]")
            talk(near.port, b'CONNECT {"verbose":false}\r\nPUB foo 5\r\nhello\r\nPING\r\n', 1)
            until(link, b"hello")
        for file, arrow in (("first", "->>"), ("second", "<<-")):
            said = await_text(tmp_path / file, f"{arrow} [{verb}]")
            assert re.search(rf'{kind}:\d+ - {arrow} MSG_PAYLOAD: \["hello"\]', said)
            assert "secret" not in said


def test_no_secret_of_a_connect_is_shown() -> None:
    fields = (
        b'{"user":"u","pass":"se,cr\\"et}","auth_token":"secret","sig":"secret",'
        b'"nkey":"secret","jwt":"secret","name":"n","password" : secret, PASS="secret"'
    )
    shown = protocol_log.without_secrets(fields)
    assert b"cr" not in shown.replace(b"REDACTED", b"") and b'"name":"n"' in shown
    for odd in (b'{"pass":["secret"]}', b'{"pass": {"a":"secret"}}', b'{"p\\u0061ss":"secret"}'):
        assert b"secret" not in protocol_log.without_secrets(odd)
