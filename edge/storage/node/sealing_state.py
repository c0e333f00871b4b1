"""Which key each stream of a stopped store is sealed with, and a new one for one of them."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwater.edge.kernel.kernel import Kernel
from headwater.edge.ports.twins.shadow import shadow_of
from headwater.edge.storage.directory.store_lock import StoreLock
from headwater.edge.storage.directory.store_options import StoreOptions
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.node.node_store import NodeStore
from headwater.edge.storage.recovery.stream_recovery import RecoveredStream
from headwater.security.errors import SealingError

PLAIN = "plain"
PENDING = "to be packed again"
SEALED = "sealed"
ENTRIES = "(entries of replicated streams)"


@dataclass
class StreamSeal:
    """How one stream is sealed, or what the log has of replicated streams (`ENTRIES`, in no
    account). `key` names the node's key that wraps its data keys; names give
    nothing away."""

    account: str
    stream: str
    state: str
    key: str = ""
    cipher: str = ""
    data_keys: int = 0


def seal_of(storage: NodeStore, found: RecoveredStream) -> StreamSeal:
    """How a stream that was found is sealed."""
    rows, pending = storage.repacker.keys(found.store), storage.repacker.is_pending(found.store)
    return _seal(found.account, found.name, rows, pending)


def _seal(account: str, name: str, rows: list[dict[str, Any]], pending: bool) -> StreamSeal:
    state = PENDING if pending else SEALED if rows else PLAIN
    last = rows[-1] if rows else {"by": "", "cipher": ""}
    return StreamSeal(account, name, state, str(last["by"]), str(last["cipher"]), len(rows))


async def seals(options: StoreOptions) -> list[StreamSeal]:
    """How every stream is sealed; nothing is changed. Raises StoreError, OSError."""
    with StoreLock(Path(options.directory)) as lock:
        shadow = shadow_of(lock.root).parent
        quiet = replace(options, directory=shadow, scrub_rate=0)  # type: ignore[arg-type]
        storage = NodeStore(Kernel(asyncio.get_running_loop()), quiet)
        found = storage.open()
        try:
            rows = [seal_of(storage, stream) for stream in found]
            entries = storage.entry_keys
            if entries.keys:
                rows.append(_seal("", ENTRIES, entries.keys, entries.is_pending))
            return sorted(rows, key=lambda row: (row.account, row.stream))
        finally:
            storage.stop_now()


async def rotate(options: StoreOptions, account: str, stream: str) -> StreamSeal:
    """Give a stream a new data key. The node's next start packs all of it again, beside its work.
    A process that ends in between leaves the old key, or both. Raises StoreError, OSError."""
    storage = NodeStore(Kernel(asyncio.get_running_loop()), options)
    found = storage.open()
    storage.repacker.stopped = True
    try:
        wanted = [
            one for one in found if one.name == stream and account in ("", one.account)
        ]
        if len(wanted) != 1:
            count, more = len(wanted) or "no", "name the account, too"
            if not wanted:
                more = "`headwater store keys` tells all names"
            raise StoreError(f"{count} streams are called '{stream}'; {more}")
        try:
            storage.repacker.renew(wanted[0].store)
        except SealingError as error:
            raise StoreError(f"stream '{stream}': {error}") from error
        return seal_of(storage, wanted[0])
    finally:
        await storage.close()
