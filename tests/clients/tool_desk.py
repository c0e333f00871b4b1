"""The `nats` tool at a server, and what it prints with what is of one run taken out."""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.servers import Recipe, Server, free_port
from tests.waiting import until_seen

HERE = Path(__file__).parent
SECONDS = 40.0
"""Until a command that says nothing has failed."""

CONFIG = """
server_name: n1
http: 127.0.0.1:%d
accounts {
    SYS: { users: [ { user: sys, password: pw } ] }
    APP: { jetstream: enabled, users: [ { user: app, password: pw } ] }
}
system_account: SYS
jetstream { store_dir: "{dir}", max_mem: 64MiB, max_file: 4GiB }
"""

COLOURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
OF_ONE_RUN = [
    (re.compile(r"2\.1[45]\.\d+"), "VERSION"),
    (re.compile(r"Client ID: \d+"), "Client ID: N"),
    (re.compile(r"\b\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d(\.\d+)?\b"), "TIME"),
    (re.compile(r"\d{8}[-_ ]\d{6}|Handler: \d+|handler \d+|cid:\d+|Lag: \d+"), "NUMBER"),
    (re.compile(r"\b[NUAOX][A-Z2-7]{55}\b"), "KEY"),
    (re.compile(r"_INBOX\.[\w.]+|(?<=[\w]\.)[A-Za-z0-9]{20,30}\b"), "INBOX"),
    (re.compile(r"\b[A-Za-z0-9]{22}\b"), "ID"),
    (re.compile(r"127\.0\.0\.1:\d+|localhost:\d+"), "ADDRESS"),
    (re.compile(r"/tmp/[\w./-]+"), "PATH"),
    (re.compile(r"(?<![\w.])(\d+h)?(\d+m)?\d+(\.\d+)?(ns|µs|us|ms|s)(?![\w])"), "SPAN"),
    (re.compile(r"\b\d+(\.\d+)? ?(KiB|MiB|GiB)\b"), "BYTES"),
]
PROGRAM = re.compile(r"^\s*(Git Commit|Go Version|Configuration Digest):.*\n?", re.MULTILINE)
"""What a program says of itself; Headwater has no Go version."""

NUMBERS = re.compile(r"[\d,]+(\.\d+)?[KMG%]?|█+")
BUSY = re.compile(
    r"^(account (report|info)|sys server (list|report|info|ping)|sys top|latency|rtt"
    r"|server check server|sys server check|backup|stream report|consumer report)"
)
"""Commands whose numbers are measured: loads, sizes, rates, identities of connections."""

COPIES = re.compile(r"^(kv|stream) add .*--(mirror|source)=")
COPIED = re.compile(
    r"^.*(Last Seen|Lag|Size|Stored|Bytes|Messages|Sequence|Subjects|Consumers):.*\n?", re.MULTILINE
)
"""A command that makes a stream which copies others, and the lines that say how far that is."""

OF_LINKS = re.compile(
    r"^\s*Metadata:\s*(?=_headwater\.)|_headwater\.(mirror|sources\.\d+): .*\n?", re.MULTILINE
)
"""What Headwater alone tells of mirrors and sources: differs by intention (docs/FEDERATION.md)."""

ANY_ORDER = re.compile(
    r"^(sys server (report|account info)|stream (subjects|report|add \S+ --source)|service|kv add)"
)
"""Commands whose rows have no order of their own (as sources of nats-server), or one by what is
measured."""

OTHERWISE = frozenset(("feature_flags", "default_max_consumers", "git_commit"))
"""Keys of nats-server 2.15 that the claimed level has not, and of a Go build."""

HEADERS = "Headers:"
"""The line above a message's headers, which the tool prints in the order of a Go map: in none."""

INSIDE = re.compile(r"^sys server request (ipqueue|subscriptions --detail)")
"""Commands that show how a server is made inside: its queues, and its own subscriptions."""

BARS = re.compile(r"[▏▎▍▌▋▊▉█]+")
"""Of charts: as long as what was measured."""

BORDERS = re.compile(r"[─━═│┃╭╮╰╯├┤┬┴┼╪╞╡|+=\-\s]+")


@dataclass(frozen=True)
class Said:
    """What a command answered: its exit status and both of its outputs, in one."""

    line: str
    status: int
    text: str

    def lines(self) -> list[str]:
        """Its lines without colours, borders of tables, times, keys, ports and paths."""
        text = PROGRAM.sub("", COLOURS.sub("", self.text))
        for pattern, name in OF_ONE_RUN:
            text = pattern.sub(name, text)
        if self.line.startswith("bench"):
            return [line.split("stats:")[0] for line in text.splitlines()]
        if BUSY.match(self.line):
            text = BARS.sub("N", NUMBERS.sub("N", text))
        if COPIES.match(self.line):
            text = COPIED.sub("", text)
        text = OF_LINKS.sub("", text)
        found = [line for raw in text.splitlines() if (line := BORDERS.sub(" ", raw).strip())]
        anyhow = ANY_ORDER.match(self.line) or HEADERS in found
        return sorted(found) if anyhow else found

    def shape(self) -> Any:
        """Keys and types of its JSON, or its lines."""
        if INSIDE.match(self.line):
            return sorted(json.loads(self.text))
        for rows in ([self.text], self.text.splitlines()):
            with contextlib.suppress(ValueError):
                shapes = [shape(json.loads(row)) for row in rows]
                return sorted({json.dumps(one, sort_keys=True) for one in shapes})
        return self.lines()


def shape(value: Any) -> Any:
    """Keys and types; of a list those of its elements, each once and in no order."""
    if isinstance(value, dict):
        return {
            name: shape(one)
            for name, one in sorted(value.items())
            if name not in OTHERWISE and not name.startswith("_headwater.")
        }
    if isinstance(value, list):
        found = {json.dumps(one, sort_keys=True): one for one in map(shape, value)}
        return [found[text] for text in sorted(found)]
    return "number" if type(value) in {int, float} else type(value).__name__


@dataclass
class Desk:
    """A folder of one user of the tool, and the server that the user works with."""

    tool: str
    folder: Path
    url: str = ""
    monitor: int = 0
    """The port with the server's pages."""
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def words(self, line: str) -> list[str]:
        """A command line: `sys` in front has the system's user, otherwise it is the app's."""
        words = shlex.split(line.replace("{dir}", str(self.folder)))
        user = "app"
        if words[0] == "sys":
            user, words = "sys", words[1:]
        login = ["-s", self.url, "--user", user, "--password", "pw"]
        return [self.tool, *login, *words]

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of this machine's user is seen."""
        home = str(self.folder)
        return {**os.environ, "HOME": home, "XDG_CONFIG_HOME": home, "TZ": "UTC", "COLUMNS": "200"}

    def run(self, line: str, given: str = "") -> Said:
        """What a command says; its standard input is empty unless given. The server has seen its
        end then: the next command may ask who is connected."""
        before = self.connected()
        try:
            done = subprocess.run(
                self.words(line), capture_output=True, text=True, env=self.environment,
                timeout=SECONDS, input=given, check=False, cwd=self.folder,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Said(line, -1, f"no answer in {SECONDS:.0f} s")
        until_seen(lambda: self.connected() <= before, f"{line} ended")
        return Said(line, done.returncode, done.stdout + done.stderr)

    def connected(self, subscribed: bool = False) -> set[int]:
        """Connections that the server has now, or those of them with subscriptions; none where it
        has ended."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.monitor}/connz") as page:
                conns = json.load(page)["connections"]
        except OSError:
            return set()
        return {conn["cid"] for conn in conns if conn["subscriptions"] or not subscribed}

    def start(self, line: str) -> Path:
        """Start a command that goes on and subscribes; the file that takes what it says."""
        path = self.folder / f"said-{len(self.running)}"
        before = self.connected(subscribed=True)
        with path.open("wb") as said:
            self.running.append(
                subprocess.Popen(
                    self.words(line),
                    stdout=said,
                    stderr=said,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    cwd=self.folder,
                )  # fmt: skip
            )
        until_seen(lambda: self.connected(subscribed=True) - before, line)
        return path

    def close(self) -> None:
        """End what still runs."""
        for one in self.running:
            one.kill()
            one.wait()


def found(tool: str) -> str | None:
    """A tool where `make clients` puts it, or on PATH."""
    own = HERE / "tools" / tool
    return str(own) if own.exists() else shutil.which(tool)


def play(recipe: Recipe, tool: str, folder: Path, lines: list[str]) -> list[Said]:
    """What every line says at a server of its own; those that go on, last."""
    monitor = free_port()
    config = CONFIG.replace("%d", str(monitor))
    with Server(Recipe(recipe.name, recipe.command, config)) as server:
        desk = Desk(tool, folder, f"nats://127.0.0.1:{server.port}", monitor)
        (folder / "file").write_text("content\n" * 50)
        going: list[tuple[str, Path]] = []
        said = []
        try:
            for raw in lines:
                line = raw.replace("{url}", desk.url)
                if line.startswith("&"):
                    going.append((line, desk.start(line[1:])))
                else:
                    said.append(desk.run(line))
        finally:
            desk.close()
        return said + [Said(line, 0, path.read_text()) for line, path in going]
