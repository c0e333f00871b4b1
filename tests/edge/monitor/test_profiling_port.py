"""The profiling port, beside that of nats-server."""

import http.client
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.servers import Recipe, Server, program
from headwater.edge.monitor.profile_pages import LONGEST_S
from tests.waiting import until_seen

COMMANDS = {
    "headwater": (program("headwater"), "serve"),
    "nats-server": (program("nats-server"),),
}
CONFIG = 'prof_port: -1\nports_file_dir: "{folder}"\n'
BASE = "/debug/pprof/"
ASKED = (
    "/", "/debug/pprof", BASE, BASE + "nope", BASE + "nope?seconds=x", BASE + "cmdline",
    BASE + "symbol", BASE + "profile?seconds=1", BASE + "heap", BASE + "heap?debug=1",
    BASE + "heap?seconds=1", BASE + "heap?seconds=x", BASE + "heap?seconds=-1",
    BASE + "heap?seconds=1&debug=1", BASE + "allocs", BASE + "block", BASE + "block?debug=1",
    BASE + "mutex?seconds=1", BASE + "goroutine", BASE + "goroutine?debug=1",
    BASE + "goroutine?debug=2", BASE + "threadcreate?debug=x", "/debug/vars",
)  # fmt: skip
COMPARED = ("Content-Type", "Content-Disposition", "X-Content-Type-Options", "X-Go-Pprof",
            "Location")  # fmt: skip
Shown = tuple[int, dict[str, str | None], bytes]


class Doors:
    """Servers with a profiling port each, by their names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: dict[str, Server] = {}
        self.found: dict[str, int] = {}

    def open(self, name: str) -> None:
        """Start a server and find its port by the ports file."""
        folder = self.folder / name
        folder.mkdir()
        config = CONFIG.format(folder=folder)
        self.servers[name] = server = Server(Recipe(name, COMMANDS[name], config))
        server.__enter__()
        texts = until_seen(lambda: [one.read_text() for one in folder.glob("*.ports")])
        (url,) = json.loads(texts[0])["profile"]
        self.found[name] = int(url.rpartition(":")[2])


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    doors = Doors(tmp_path_factory.mktemp("ports"))
    for name in COMMANDS:
        doors.open(name)
    yield doors
    for server in doors.servers.values():
        server.__exit__(None, None, None)


def get(port: int, path: str) -> Shown:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    link.request("GET", path)
    answer = link.getresponse()
    body = answer.read()
    link.close()
    return answer.status, {name: answer.getheader(name) for name in COMPARED}, body


@pytest.mark.parametrize("path", ASKED)
def test_the_same_is_answered(doors: Doors, path: str) -> None:
    ours, theirs = (get(doors.found[name], path) for name in COMMANDS)
    assert ours[:2] == theirs[:2] if path != "/debug/pprof" else ours[0] == theirs[0] == 307
    if ours[0] >= 400 or path.endswith("symbol"):
        assert ours[2] == theirs[2]


def test_text_is_for_people(doors: Doors) -> None:
    port = doors.found["headwater"]
    assert b"#\tdict\tbuiltins:0\n" in get(port, BASE + "heap?debug=1")[2]
    assert b"_named\t" in get(port, BASE + "goroutine?debug=1")[2]
    assert b"thread MainThread:" in get(port, BASE + "goroutine?debug=2")[2]
    assert get(port, BASE + "cmdline")[2].endswith(b"headwater")
    assert list(json.loads(get(port, "/debug/vars")[2])) == ["cmdline", "memstats"]


def test_what_is_not_there_says_so(doors: Doors) -> None:
    port = doors.found["headwater"]
    assert get(port, BASE + "trace?seconds=1")[0] == 501
    for name in ("heap", "profile"):
        status, _, why = get(port, f"{BASE}{name}?seconds={LONGEST_S + 1}")
        assert (status, why) == (400, b"a profile lasts 300 seconds at most\n")


@pytest.mark.skipif(shutil.which("go") is None, reason="Go's pprof is not there")
@pytest.mark.parametrize("path", ["profile?seconds=1", "heap?seconds=1", "allocs", "goroutine"])
def test_pprof_reads_what_it_fetches(doors: Doors, path: str, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{doors.found['headwater']}{BASE}{path}"
    command = ["go", "tool", "pprof", "-raw", url]
    read = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PPROF_TMPDIR": str(tmp_path),
        "PATH": str(Path(shutil.which("go") or "").parent), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert read.returncode == 0, read.stderr
    assert "Samples:" in read.stdout


def test_a_second_profile_of_the_processor_is_refused_and_others_go_on(doors: Doors) -> None:
    port = doors.found["headwater"]
    first = b"GET /debug/pprof/profile?seconds=1 HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /debug/pprof/symbol HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), 20) as link:
        link.sendall(first)
        until_seen(lambda: get(port, BASE + "profile?seconds=301")[0] == 500)
        assert get(port, BASE + "profile?seconds=1")[2] == (
            b"Could not enable CPU profiling: cpu profiling already in use\n"
        )
        assert get(port, BASE + "symbol")[0] == 200
        link.sendall(last)
        text = link.makefile("rb").read()
    heads = [part for part in text.split(b"HTTP/1.1 ") if part]
    assert [head[:3] for head in heads] == [b"200", b"200"]
    assert heads[1].endswith(b"num_symbols: 1\n")


def test_a_stop_does_not_wait_for_a_profile(tmp_path: Path) -> None:
    doors = Doors(tmp_path)
    doors.open("headwater")
    server, port = doors.servers["headwater"], doors.found["headwater"]
    asked = b"GET /debug/pprof/profile?seconds=300 HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), 20) as link:
        link.sendall(asked)
        until_seen(lambda: get(port, BASE + "profile?seconds=301")[0] == 500)
        server.signal(signal.SIGTERM)
        assert link.recv(100) == b""
    until_seen(lambda: not server.alive())
    server.__exit__(None, None, None)
