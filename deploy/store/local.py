"""The store commands over a directory on which no node runs."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from headwater.deploy.store.remote import connect
from headwater.deploy.store.remote import fetch as fetch_from
from headwater.edge.conf.flags import parse_args
from headwater.edge.conf.options import Options
from headwater.edge.jetstream.backup.backup_file import BackupError, BackupReader
from headwater.edge.jetstream.config.sealing_keys import key_ring
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.jetstream.model.models import StreamConfig
from headwater.edge.jetstream.node.offline import OfflineJetStream, Restorer, backup
from headwater.edge.kernel.kernel import Kernel
from headwater.edge.storage.directory.store_options import StoreOptions
from headwater.edge.storage.node.node_store import NodeStore
from headwater.edge.storage.node.rebuild import Fetch, FetchedMessage
from headwater.edge.storage.node.repair import RepairReport, repair
from headwater.edge.storage.node.sealing_state import StreamSeal, rotate, seals
from headwater.edge.storage.node.verify import Report, verify
from headwater.edge.wire.login import Login

UNLIMITED = 1 << 60
"""Bytes: a command line is not kept from restoring by limits for clients."""

OnProgress = Callable[[str, int, int], None]


def quiet() -> None:
    """What storage logs is in the report."""
    logging.getLogger("headwater").addHandler(logging.NullHandler())


def node_options(store_dir: str, config: str) -> Options:
    """Options of the node whose store it is. Raises ConfigError, FlagError."""
    flags = ["-js", *(["-c", config] if config else []), *(["-sd", store_dir] if store_dir else [])]
    options = parse_args(flags).options
    options.jetstream.max_file_store = UNLIMITED
    options.jetstream.max_memory_store = UNLIMITED
    return options


def directory_of(options: Options) -> Path:
    """The directory that `-sd` names."""
    return Path(options.jetstream.store_dir or "/tmp/nats")


async def _store_options(options: Options) -> StoreOptions:
    """As the node would open its store."""
    js = OfflineJetStream(options, directory_of(options) / "jetstream")
    return replace(js.store_options(), max_store=0, max_memory=0)


def run_verify(options: Options, progress: OnProgress, deep: bool) -> Report:
    """Raises StoreError, OSError."""

    async def work() -> Report:
        wanted = await _store_options(options)
        return await verify(wanted, lambda done, total: progress("verify", done, total), deep)

    return asyncio.run(work())


def run_repair(
    options: Options, progress: OnProgress, url: str, login: Login, origin: str
) -> RepairReport:
    """Raises StoreError, WireError, OSError."""
    client = connect(url, login) if url else None

    def source(account: str, stream: str) -> Fetch | None:
        if client is None:
            return None

        async def ask(sequence: int) -> FetchedMessage | None:
            return fetch_from(client, origin or stream, sequence)

        return ask

    async def work() -> RepairReport:
        return await repair(await _store_options(options), source, progress)

    try:
        return asyncio.run(work())
    finally:
        if client is not None:
            client.close()


def run_quarantine_restore(options: Options, name: str) -> dict[str, Any]:
    """Put a stream back with what the kept log holds of it, by opening the store. Raises
    StoreError, OSError."""

    async def work() -> dict[str, Any]:
        storage = NodeStore(Kernel(asyncio.get_running_loop()), await _store_options(options))
        storage.open()
        try:
            found = storage.restore_quarantined(name)
            return {
                "account": found.account,
                "stream": found.name,
                "messages": int(found.store.messages),
                "lost": len(found.store.lost),
            }
        finally:
            await storage.close()

    return asyncio.run(work())


def run_seals(options: Options) -> list[StreamSeal]:
    """Raises StoreError, OSError."""

    async def work() -> list[StreamSeal]:
        return await seals(await _store_options(options))

    return asyncio.run(work())


def newest_key(options: Options) -> str:
    """Name of the key that seals; empty without one. Raises StoreError."""
    ring = key_ring(options)
    return ring.newest.name if ring is not None and ring.newest is not None else ""


def run_rotate(options: Options, account: str, stream: str) -> StreamSeal:
    """Raises StoreError, OSError."""

    async def work() -> StreamSeal:
        return await rotate(await _store_options(options), account, stream)

    return asyncio.run(work())


def run_backup(
    options: Options, output: Path, wanted: set[str], progress: OnProgress
) -> list[dict[str, Any]]:
    """Raises BackupError, StoreError, OSError."""

    def told(done: int, total: int) -> None:
        progress("backup", done, total)

    return asyncio.run(backup(options, directory_of(options), output, wanted, told))


def run_restore(
    options: Options, source: Path, wanted: set[str], name: str, account: str, progress: OnProgress
) -> list[dict[str, Any]]:
    """Restore the streams of `wanted` (empty: all), one of them as `name`, if that is given.
    Raises BackupError, StoreError, OSError, RestoreError."""
    return asyncio.run(_restore(options, source, wanted, name, account, progress))


class RestoreError(Exception):
    """The configuration in a backup does not fit this store."""


async def _restore(
    options: Options, source: Path, wanted: set[str], name: str, account: str, progress: OnProgress
) -> list[dict[str, Any]]:
    reader = BackupReader(source)
    check_backup(source, wanted)
    restorer = Restorer(options, directory_of(options))
    rows = []
    try:
        for found in reader.streams():
            if wanted and found.name not in wanted:
                for _ in found.chunks():
                    progress("restore", reader.read, reader.size)
                continue
            config = msgspec.convert(renamed(found.config, name), StreamConfig, strict=False)
            target = account or found.account or "$G"
            count = await restorer.restore(
                found, target, config, lambda: progress("restore", reader.read, reader.size)
            )
            rows.append({"account": target, "stream": config.name, "messages": count})
    except (JetStreamError, msgspec.ValidationError) as error:
        raise RestoreError(str(error)) from error
    finally:
        await restorer.close()
    progress("restore", reader.size, reader.size)
    return rows


def renamed(config: dict[str, Any], name: str) -> dict[str, Any]:
    """A stream's configuration under another name. A copy listens to its own name only, since the
    original's subjects are the original's."""
    if not name or name == config["name"]:
        return config
    kept = {key: config[key] for key in config if key not in ("mirror", "sources")}
    return {**kept, "name": name, "subjects": [name]}


def check_backup(
    source: Path, wanted: set[str], progress: OnProgress = lambda what, done, total: None
) -> list[dict[str, Any]]:
    """Verify a backup as a whole before anything is done with it. Raises BackupError, OSError."""
    reader = BackupReader(source)
    rows = []
    for found in reader.streams():
        for _ in found.chunks():
            progress("verify", reader.read, reader.size)
        row = {"account": found.account, "stream": found.name, "messages": found.messages}
        if not wanted or found.name in wanted:
            rows.append(row)
    missing = wanted - {row["stream"] for row in rows}
    if missing:
        raise BackupError(f"{source} has no stream {', '.join(sorted(missing))}")
    progress("verify", reader.size, reader.size)
    return rows
