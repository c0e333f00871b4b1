"""SSH to a gateway: who it is is proven before anything else, and nothing waits for ever."""

import asyncio
import contextlib
import os
import shlex
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncssh

from headwater.deploy.fleet.flash.inventory import Host, Inventory

CONNECT_S = 20.0
KEEPALIVE_S = 10
KEEPALIVES_MAX = 3
REFUSED_S = 10.0
REFUSED_AGAIN_S = 0.1
STALL_S = 60.0
"""An upload that does not move for so long is given up."""
PIECE = 256 * 1024
OUTPUT_BYTES_MAX = 1 << 20

READY = "headwater-has="
"""Before the number of bytes that a gateway has of a file."""
HOLDER_S = 15
"""An upload of another run that does not move for so long has nobody at its other end."""
APPEND = """\
exec 9>>{part}
if command -v flock >/dev/null && ! flock -n 9; then
  had=$(wc -c < {part})
  if ! flock -w {holder} 9; then
    if [ "$(wc -c < {part})" -gt "$had" ]; then
      echo "another flash of this gateway is uploading; wait for its end" >&2
      exit 1
    fi
    rm -f {part}
    exec 9>>{part}
  fi
fi
echo {ready}$(wc -c < {part})
exec cat >&9
"""
"""Only one appends at a time. The lock goes with `cat`, whatever ends it."""


class Unreachable(Exception):
    """No session on the gateway; the text says why."""


class CommandFailed(Exception):
    """A command on the gateway ended badly."""


class KnownHosts:
    """Host keys that were accepted on first use: one line of `[address]:port key` each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._keys: dict[str, str] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                place, _, key = line.partition(" ")
                if key and not place.startswith("#"):
                    self._keys[place] = key

    def key_of(self, host: Host) -> str:
        """What was remembered; empty when nothing was."""
        return self._keys.get(_address(host), "")

    def remember(self, host: Host, key: str) -> None:
        """Keep a key, in the file at once."""
        self._keys[_address(host)] = key
        with self.path.open("a") as file:
            file.write(f"{_address(host)} {key}\n")


def _address(host: Host) -> str:
    return f"[{host.address}]:{host.port}"


@asynccontextmanager
async def connected(
    inventory: Inventory, host: Host, known: KnownHosts, accept_new: bool
) -> "AsyncIterator[Link]":
    """A session with a gateway that has proven who it is. Raises Unreachable."""
    async with contextlib.AsyncExitStack() as stack:
        tunnel: Any = ()
        if host.jump:
            tunnel = await _jump(stack, inventory, host)
        async with _telling("", host.user):
            trusted = await _trusted(host, known, accept_new, tunnel)
            connection = await asyncssh.connect(
                host.address, host.port, known_hosts=(trusted, [], []),
                tunnel=tunnel, **_login(inventory, host),
            )  # fmt: skip
            await stack.enter_async_context(connection)
        yield Link(connection, host.sudo)


@asynccontextmanager
async def _telling(way: str, user: str) -> "AsyncIterator[None]":
    """Say in words why there is no session, within `CONNECT_S`. `way` begins each text: it names
    the host on the way, when that is the one. Raises Unreachable."""
    try:
        async with asyncio.timeout(CONNECT_S):
            yield
    except TimeoutError:
        raise Unreachable(f"{way}no SSH session within {CONNECT_S:g} s") from None
    except asyncssh.HostKeyNotVerifiable:
        raise Unreachable(
            f"{way}its host key is not the one that is pinned: do not trust this machine before "
            "somebody has looked; if it was set up anew, put its new key into the inventory"
        ) from None
    except asyncssh.PermissionDenied:
        raise Unreachable(f"{way}it does not let {user} in with this key or password") from None
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise Unreachable(
            f"{way}the private key cannot be used: {error}; one with a passphrase is used by an "
            "SSH agent"
        ) from None
    except (OSError, asyncssh.Error) as error:
        raise Unreachable(f"{way}cannot connect: {_said(error)}") from None


def _said(error: BaseException) -> str:
    return str(getattr(error, "strerror", "") or error or type(error).__name__)


def _login(inventory: Inventory, host: Host) -> dict[str, Any]:
    """Who logs in, by what. Raises Unreachable when a file of it is not there."""
    keys = [host.key] if isinstance(host.key, str) else host.key
    words: dict[str, Any] = {
        "username": host.user, "keepalive_interval": KEEPALIVE_S,
        "keepalive_count_max": KEEPALIVES_MAX, "connect_timeout": CONNECT_S,
        "login_timeout": CONNECT_S, "config": None, "compression_algs": None,
    }  # fmt: skip
    for name in (*keys, host.password_file):
        if name and not inventory.path(name).is_file():
            raise Unreachable(f"the inventory names {inventory.path(name)}, which is not there")
    files = [str(inventory.path(key)) for key in keys if key]
    if files:
        words["client_keys"] = files
    if not host.agent:
        words["agent_path"] = None
    if host.password_file:
        words["password"] = inventory.path(host.password_file).read_text().rstrip("\n")
        words["preferred_auth"] = "publickey,password,keyboard-interactive" if files else "password"
        words.setdefault("client_keys", None)
    return words


async def _jump(stack: contextlib.AsyncExitStack, inventory: Inventory, host: Host) -> Any:
    """A connection to the host on the way, whose key has to be in the inventory. Raises
    Unreachable."""
    user, _, place = host.jump.rpartition("@")
    address, _, port = place.partition(":")
    if not host.jump_host_key:
        raise Unreachable(f"the inventory has no jump_host_key for {address}")
    try:
        key = asyncssh.import_public_key(host.jump_host_key)
    except asyncssh.KeyImportError as error:
        raise Unreachable(f"jump_host_key in the inventory is no key: {error}") from None
    words = _login(inventory, host)
    words["username"] = user or host.user
    async with _telling(f"{address} on the way: ", words["username"]):
        return await stack.enter_async_context(
            asyncssh.connect(address, int(port or 22), known_hosts=([key], [], []), **words)
        )


async def _trusted(host: Host, known: KnownHosts, accept_new: bool, tunnel: Any) -> list[Any]:
    """The one key that the gateway has to prove. Raises Unreachable."""
    text = host.host_key or known.key_of(host)
    if text:
        try:
            return [asyncssh.import_public_key(text)]
        except asyncssh.KeyImportError as error:
            raise Unreachable(f"host_key in the inventory is no key: {error}") from None
    shown = await asyncssh.get_server_host_key(host.address, host.port, tunnel=tunnel, config=None)
    if shown is None:
        raise Unreachable("it shows no host key")
    exported = shown.export_public_key().decode().split()
    text = " ".join(exported[:2])
    if not accept_new:
        raise Unreachable(
            f"its host key is not known; if it is {shown.get_fingerprint()}, put "
            f'host_key = "{text}" into the inventory, or accept new keys with --accept-new'
        )
    known.remember(host, text)
    return [shown]


class Link:
    """Commands on one gateway."""

    def __init__(self, connection: Any, sudo: bool) -> None:
        self._connection = connection
        self._prefix = "sudo -n " if sudo else ""
        self.sent_bytes = 0

    def _command(self, script: str) -> str:
        return f"{self._prefix}/bin/sh -c {shlex.quote(script)}"

    async def _process(self, script: str, **how: Any) -> Any:
        """A shell that runs a script. A gateway that serves few sessions may still be ending the
        one before, so its refusal counts only after a while."""
        until = time.monotonic() + REFUSED_S
        while True:
            try:
                return await self._connection.create_process(self._command(script), **how)
            except asyncssh.ChannelOpenError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(REFUSED_AGAIN_S)

    async def run(self, script: str, timeout: float, stdin: str = "") -> str:
        """Output of a shell script. Raises CommandFailed and Unreachable."""
        try:
            async with asyncio.timeout(timeout):
                process = await self._process(script, encoding="utf-8", errors="replace")
                process.stdin.write(stdin)
                process.stdin.write_eof()
                done = await process.wait()
        except TimeoutError:
            raise Unreachable(f"it logs in, but answers nothing within {timeout:g} s") from None
        except (OSError, asyncssh.Error) as error:
            raise Unreachable(f"the connection was cut: {_said(error)}") from None
        if done.exit_status:
            text = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise CommandFailed(text[-1] if text else f"status {done.exit_status}")
        return str(done.stdout)[:OUTPUT_BYTES_MAX]

    async def put(self, data: bytes, remote: str) -> None:
        """A small file, in one step. Raises CommandFailed, Unreachable."""
        place = shlex.quote(remote)
        new = f"{place}.new"
        sync = f"{{ sync {new} || sync || :; }} 2>/dev/null"
        script = f"echo {READY}0; cat > {new} && {sync} && mv -f {new} {place}"
        await self._pipe(script, lambda _: [data], _ignored)

    async def upload(
        self, path: Path, remote: str, begun: Callable[[int], None], progress: Callable[[int], None]
    ) -> None:
        """Append what is missing of a file. `begun` hears how much is there already. Raises
        CommandFailed, Unreachable."""

        def pieces(offset: int) -> Iterator[bytes]:
            begun(offset)
            with path.open("rb") as file:
                file.seek(offset)
                while piece := file.read(PIECE):
                    yield piece

        script = APPEND.format(part=shlex.quote(remote), ready=READY, holder=HOLDER_S)
        await self._pipe(script, pieces, progress)

    async def _pipe(
        self, script: str, pieces: Callable[[int], Iterable[bytes]], progress: Callable[[int], None]
    ) -> None:
        """Run a script that says `READY` and a number once, and send what `pieces` has from
        there on."""
        try:
            async with await self._process(script, encoding=None) as process:
                async with asyncio.timeout(STALL_S):
                    offset = await _announced(process.stdout)
                for piece in pieces(offset) if offset is not None else ():
                    process.stdin.write(piece)
                    async with asyncio.timeout(STALL_S):
                        await process.stdin.drain()
                    self.sent_bytes += len(piece)
                    progress(len(piece))
                process.stdin.write_eof()
                async with asyncio.timeout(STALL_S):
                    done = await process.wait()
        except TimeoutError:
            raise Unreachable(f"the upload did not move for {STALL_S:g} s") from None
        except (OSError, asyncssh.Error) as error:
            raise Unreachable(f"the connection was cut while uploading: {_said(error)}") from None
        if done.exit_status:
            text = (done.stderr or b"").decode("utf-8", "replace").strip().splitlines()
            raise CommandFailed(text[-1] if text else "the upload failed")
        if offset is None:
            raise CommandFailed("its shell did not run what was asked")

    async def lines(self, script: str, stdin: str, timeout: float) -> AsyncIterator[str]:
        """Lines of a script's output as they come, at most `timeout` seconds apart."""
        try:
            async with await self._process(script, encoding="utf-8", errors="replace") as process:
                process.stdin.write(stdin)
                process.stdin.write_eof()
                while line := await _next_line(process.stdout, timeout):
                    yield line
                problem = (await process.stderr.read(OUTPUT_BYTES_MAX)).strip()
                if problem:
                    yield f"! {problem.splitlines()[-1]}"
        except TimeoutError:
            raise Unreachable(f"it said nothing for {timeout:g} s") from None
        except (OSError, asyncssh.Error) as error:
            raise Unreachable(f"the connection was cut: {_said(error)}") from None


async def _announced(output: Any) -> int | None:
    """The number after `READY`, whatever a login says before; None when the output ends."""
    while line := await output.readline():
        found = line.decode("utf-8", "replace").strip()
        if found.startswith(READY) and found.removeprefix(READY).isdigit():
            return int(found.removeprefix(READY))
    return None


async def _next_line(output: Any, timeout: float) -> str:
    """The next line of text; empty at the end. Raises `TimeoutError` after so many seconds."""
    async with asyncio.timeout(timeout):
        line: str = await output.readline()
    return line


def _ignored(count: int) -> None:
    """Progress that nobody follows."""


def cache_folder() -> Path:
    """Where runs are remembered."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "headwater/fleet"
