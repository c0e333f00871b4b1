"""The service that a client's suite asks for servers, clusters and restarts of them.

The suite of nats.go starts no `nats-server` by itself: it asks a service for each, over NATS, in
the words of the module `ntf-client`. `python -m tests.clients.tester_service FOLDER SERVER`
starts such a service with a program in the place of `nats-server`, says where it listens, and
runs until it is ended. What nothing asks for is missing: gateways, MQTT and captured traces.
"""

import asyncio
import json
import re
import shlex
import shutil
import signal
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.servers import first_line, free_port
from tests.clients.tester_certificates import Issued, issue
from tests.waiting import until

HOST = "127.0.0.1"
STOP_S = 10.0
PORTED = ("websocket", "leafnode")
"""What gets a port of its own where a suite asks for it."""
USERS = "  USERS{n} {{ jetstream: enabled, users: [{{user: user{n}, pass: pass}}] }}"
ACCOUNTS = "\n".join(
    [
        "accounts {",
        *(USERS.format(n=number) for number in range(1, 6)),
        "  $SYS { users: [{user: system, pass: password}] }",
        "}",
    ]
)
"""What a suite has where it names no accounts."""
OUTCOME = re.compile("Reloaded server configuration|Failed to reload")
"""How a reload ends, in the logs of both servers."""
PLACE = re.compile(r"{{\s*\.([A-Za-z.]+)\s*}}")


@dataclass
class Member:
    """One server of an instance, running or not."""

    name: str
    cluster: str
    folder: Path
    ports: dict[str, int]
    jetstream: bool
    routes: list[int]
    certificates: Issued | None = None
    tls: dict[str, Any] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None

    def shown(self) -> dict[str, Any]:
        """What the suite sees of it."""
        running = self.process is not None and self.process.returncode is None
        extra = {name: port for name, port in self.ports.items() if name in PORTED}
        return {
            "name": self.name,
            "cluster": self.cluster,
            "port": self.ports["client"],
            "ports": extra,
            "running": running,
        }

    def _place(self, text: str) -> str:
        """A part of a configuration with its fields in their places."""
        known = {f"Ports.{name}": str(port) for name, port in self.ports.items()}
        known |= {"ServerName": self.name}
        known |= dict.fromkeys(("StoreDir", "ServerDir"), str(self.folder))
        if self.certificates is not None:
            known |= {
                "TLS.CAFile": str(self.certificates.authority),
                "TLS.CertFile": str(self.certificates.certificate),
                "TLS.KeyFile": str(self.certificates.key),
            }
        return PLACE.sub(lambda found: known[found[1]], text)

    def write(self, parts: dict[str, str]) -> None:
        """Write its configuration: the suite's parts, and what stands for those missing."""
        lines = [f'server_name: "{self.name}"', f"listen: {HOST}:{self.ports['client']}"]
        lines.append(parts.get("accounts", ACCOUNTS))
        lines.append(parts.get("system_account", 'system_account: "$SYS"'))
        lines.append(parts.get("authorization", "no_auth_user: user1"))
        if self.jetstream:
            store = self.folder / "jetstream"
            extra = parts.get("jetstream", "")
            lines.append(f'jetstream {{\n  store_dir: "{store}"\n  {extra}\n}}')
        if self.cluster:
            routes = ", ".join(f"nats://{HOST}:{port}" for port in self.routes)
            listen = f'name: "{self.cluster}", listen: "{HOST}:{self.ports["cluster"]}"'
            lines.append(f"cluster {{ {listen}, routes: [{routes}] }}")
        lines.append(parts.get("tls") or self._tls())
        lines += [parts[name] for name in (*PORTED, "top") if name in parts]
        text = self._place("\n".join(lines)) + "\n"
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "server.conf").write_text(text)

    def _tls(self) -> str:
        if self.certificates is None:
            return ""
        return "\n".join(
            [
                "tls {",
                f'  cert_file: "{self.certificates.certificate}"',
                f'  key_file: "{self.certificates.key}"',
                f'  ca_file: "{self.certificates.authority}"',
                f"  verify: {str(self.tls.get('mode', 'mutual') == 'mutual').lower()}",
                f"  handshake_first: {str(bool(self.tls.get('handshake_first'))).lower()}",
                f"  timeout: {self.tls.get('timeout') or 2.0}",
                "}",
            ]
        )

    async def start(self, command: list[str]) -> None:
        """Start it; returns once it listens."""
        with (self.folder / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command, "-c", str(self.folder / "server.conf"), stdout=log, stderr=log
            )
        await until(self._listens, f"{self.name} listens")
        if self.process.returncode is not None:
            raise RuntimeError(self._log()[-2000:])

    def _log(self) -> str:
        return (self.folder / "log").read_text()

    async def reload(self) -> None:
        """Reload its configuration; returns once its log has the outcome."""
        assert self.process is not None
        known = len(self._log())
        self.process.send_signal(signal.SIGHUP)
        await until(lambda: OUTCOME.search(self._log(), known), f"{self.name} reloads")

    async def _listens(self) -> bool:
        """Whether it does, or has ended."""
        if self.process is None or self.process.returncode is not None:
            return True
        if self.tls.get("handshake_first"):
            try:
                _, writer = await asyncio.open_connection(HOST, self.ports["client"])
            except OSError:
                return False
            writer.close()
            return True
        return bool(await asyncio.to_thread(first_line, self.ports["client"], 1.0))

    async def stop(self) -> None:
        """Stop it as a person would; kill it where that takes too long."""
        if self.process is None or self.process.returncode is not None:
            return
        self.process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


@dataclass
class Instance:
    """What one request made: a server, or those of a cluster."""

    kind: str
    description: str
    members: list[Member]
    folder: Path

    async def remove(self) -> None:
        await asyncio.gather(*(member.stop() for member in self.members))
        shutil.rmtree(self.folder, ignore_errors=True)


class Tester:
    """Answers the suite's requests with servers of one command."""

    def __init__(self, client: Client, folder: Path, command: list[str]) -> None:
        self.client = client
        self.folder = folder
        self.command = command
        self.instances: dict[str, Instance] = {}

    def _member(self, name: str) -> Member:
        everyone = (m for instance in self.instances.values() for m in instance.members)
        return next(member for member in everyone if member.name == name)

    async def create(self, kind: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Make a server or a cluster, with the certificates that are asked for."""
        if kind not in ("server", "cluster"):
            raise ValueError(f"a {kind} is not made here")
        mark = uuid.uuid4().hex
        folder = self.folder / mark
        parts = asked.get("snippets") or {}
        count = asked.get("servers", 1)
        ports = [self._ports(parts) for _ in range(count)]
        tls = asked.get("tls") or {}
        names = tls.get("sans") or ["localhost", HOST]
        issued = issue(folder / "tls", names) if "tls" in asked else None
        cluster = f"C{mark[-8:]}" if kind == "cluster" else ""
        members = [
            Member(
                f"{mark[-8:]}-n{number}",
                cluster,
                folder / str(number),
                own,
                bool(asked.get("jetstream")),
                [other["cluster"] for other in ports if other is not own],
                issued,
                tls,
            )
            for number, own in enumerate(ports, 1)
        ]
        instance = Instance(kind, asked.get("description", ""), members, folder)
        self.instances[mark] = instance
        for member in members:
            member.write(parts)
        await asyncio.gather(*(member.start(self.command) for member in members))
        made = {"id": mark, "description": instance.description, "kind": kind}
        made["servers"] = [member.shown() for member in members]
        if issued is not None:
            made["tls"] = issued.material(tls.get("mode", "mutual") == "mutual")
        return made

    @staticmethod
    def _ports(parts: dict[str, str]) -> dict[str, int]:
        wanted = ("client", "cluster", *(name for name in PORTED if name in parts))
        return {name: free_port() for name in wanted}

    async def answer(self, what: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Do what a request asks; what it answers."""
        match what.split("."):
            case ["create", kind]:
                return await self.create(kind, asked)
            case ["stop", "server"]:
                await self._member(asked["name"]).stop()
                return {"shutdown": True}
            case ["start", "server"]:
                await self._member(asked["name"]).start(self.command)
                return {"started": True}
            case ["update", "server"]:
                member = self._member(asked["name"])
                if asked.get("tls_timeout") is not None:
                    member.tls = {**member.tls, "timeout": asked["tls_timeout"]}
                member.write(asked.get("snippets") or {})
                return {"updated": True}
            case ["reload", "server"]:
                await self._member(asked["name"]).reload()
                return {"reloaded": True}
            case ["destroy"]:
                await self.instances.pop(asked["instance_id"]).remove()
                return {"destroyed": True}
            case ["reset"]:
                await self.remove()
                return {"shutdown": True}
            case ["status"]:
                wanted = asked.get("instance_id")
                chosen = [mark for mark in self.instances if wanted in (None, mark)]
                return {"instances": [self._status(mark) for mark in chosen]}
            case _:
                raise ValueError(f"{what} is not known here")

    def _status(self, mark: str) -> dict[str, Any]:
        instance = self.instances[mark]
        named = {"id": mark, "description": instance.description, "kind": instance.kind}
        return {**named, "servers": [member.shown() for member in instance.members]}

    async def remove(self) -> None:
        """Stop every server that is still here."""
        gone = list(self.instances.values())
        self.instances.clear()
        await asyncio.gather(*(instance.remove() for instance in gone))

    async def hear(self, msg: Msg) -> None:
        try:
            asked = json.loads(msg.data) if msg.data else {}
            answer = await self.answer(msg.subject.removeprefix("tester."), asked)
            await msg.respond(json.dumps(answer).encode())
        except Exception as error:  # Whatever it is, the suite's test hears of it.
            words = {"Nats-Service-Error": repr(error).replace("\n", " ")[:1000]}
            await self.client.publish(msg.reply, b"", headers=words)


async def serve(folder: Path, command: list[str]) -> None:
    """Serve until SIGTERM; the service's own server is one of the same command."""
    own = Member("tester", "", folder / "tester", {"client": free_port()}, False, [])
    own.write({})
    await own.start(command)
    client = await nats.connect(f"nats://{HOST}:{own.ports['client']}")
    tester = Tester(client, folder, command)
    running: set[asyncio.Task[None]] = set()

    async def aside(msg: Msg) -> None:
        task = asyncio.ensure_future(tester.hear(msg))
        running.add(task)
        task.add_done_callback(running.discard)

    await client.subscribe("tester.>", cb=aside)
    await client.flush()
    print(f"nats://{HOST}:{own.ports['client']}", flush=True)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()
    await tester.remove()
    await client.close()
    await own.stop()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), shlex.split(sys.argv[2])))
