"""What an account may have of JetStream, and what it uses: as a whole, or by tiers.

A tier is named after a number of replicas ("R3"), and its limits are for the streams that have so
many. They count each byte once, however many replicas have it; the limits of an account without
tiers count every replica (nats-server, `jetstream.go`).
"""

from collections.abc import Iterable

from headwater.edge.conf.options import AccountJetStreamOptions
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.models import AccountLimits, StreamConfig
from headwater.edge.jetstream.stream.usage import Usage

NO_TIER = AccountJetStreamOptions(max_memory=0, max_store=0)
"""Of streams with a number of replicas that an account's tiers leave out."""
NO_LIMITS_SHOWN = AccountLimits(
    max_memory=0,
    max_storage=0,
    max_streams=0,
    max_consumers=0,
    max_ack_pending=0,
    memory_max_stream_bytes=0,
    storage_max_stream_bytes=0,
)
"""In the place of overall limits, for an account that has tiers."""
OUT_OF_TIER = AccountLimits(max_memory=0, max_storage=0)
"""In force for streams that no tier is for; there are some when tiers were taken away."""


def tier_name(replicas: int) -> str:
    """The tier of a number of replicas; 0 is one."""
    return f"R{max(1, replicas)}"


class Tiers:
    """Limits in force for one account, and the counters that streams draw on."""

    def __init__(self, options: AccountJetStreamOptions, node: dict[str, Usage]) -> None:
        """`node` has the node's counters by storage."""
        self._node = node
        self.whole = {name: Usage(name, -1, parent) for name, parent in node.items()}
        """Of all streams together, by storage."""
        self._parts: dict[tuple[str, int], Usage] = {}
        self.set(options)

    def set(self, options: AccountJetStreamOptions) -> None:
        """Go by these limits from now on; what is above them already stays."""
        self._options = options
        self.wire = {name: _wire(tier) for name, tier in options.tiers.items()}
        """Limits by tier as answers show them; empty without tiers."""
        self.flat = NO_LIMITS_SHOWN if self.wire else _wire(options)
        """Limits of all streams together, as answers show them."""
        self.whole["memory"].limit = -1 if self.wire else options.max_memory
        self.whole["file"].limit = -1 if self.wire else options.max_store
        for (storage, replicas), part in self._parts.items():
            self._bound(part, storage, replicas)

    def _bound(self, part: Usage, storage: str, replicas: int) -> None:
        part.granted = not self.wire or tier_name(replicas) in self.wire
        part.limit = -1
        if self.wire:
            tier = self._options.tiers.get(tier_name(replicas), NO_TIER)
            part.limit = tier.max_memory if storage == "memory" else tier.max_store

    def of(self, replicas: int) -> AccountLimits:
        """The limits of a stream or consumer with that many replicas."""
        return self.wire.get(tier_name(replicas), OUT_OF_TIER) if self.wire else self.flat

    def chosen(self, replicas: int) -> AccountLimits:
        """As `of`. Raises JetStreamError when no tier is for that many."""
        if self.wire and tier_name(replicas) not in self.wire:
            raise errors.NO_LIMITS.error()
        return self.of(replicas)

    def usage(self, storage: str, replicas: int) -> Usage:
        """The counter that a stream draws on."""
        replicas = max(1, replicas)
        found = self._parts.get((storage, replicas))
        if found is None:
            found = Usage(storage, -1, self.whole[storage])
            found.replicas = replicas
            self._bound(found, storage, replicas)
            self._parts[storage, replicas] = found
        return found

    @property
    def bounded(self) -> bool:
        """Whether there is a limit of bytes."""
        shown = self.wire.values() or (self.flat,)
        return any(each.max_memory >= 0 or each.max_storage >= 0 for each in shown)

    def used(self) -> dict[str, tuple[int, int]]:
        """Bytes in memory and in files by tier, of those with any."""
        found: dict[str, tuple[int, int]] = {}
        for (storage, replicas), part in self._parts.items():
            if part.used:
                memory, store = found.get(tier_name(replicas), (0, 0))
                more = (part.used, 0) if storage == "memory" else (0, part.used)
                found[tier_name(replicas)] = (memory + more[0], store + more[1])
        return found

    def set_totals(self, totals: dict[str, tuple[int, int]]) -> None:
        """What all nodes of the cluster have together by tier, in memory and in files."""
        for index, storage in enumerate(("memory", "file")):
            for name in totals:
                self.usage(storage, int(name[1:]))
            whole = 0
            for (kind, replicas), part in self._parts.items():
                if kind != storage:
                    continue
                total = totals.get(tier_name(replicas), (0, 0))[index]
                whole += total
                part.elsewhere = max(0, total // replicas - part.used)
            self.whole[storage].elsewhere = max(0, whole - self.whole[storage].used)

    def peers(self, config: StreamConfig, others: Iterable[StreamConfig]) -> list[StreamConfig]:
        """Of the account's streams those that share limits with one; it is none of them."""
        tier = tier_name(config.num_replicas)
        return [
            other
            for other in others
            if other.name != config.name
            and (not self.wire or tier_name(other.num_replicas) == tier)
        ]

    def check_streams(self, config: StreamConfig, others: Iterable[StreamConfig]) -> None:
        """Refuse one stream too many. Raises JetStreamError."""
        limit = self.chosen(config.num_replicas).max_streams
        if 0 < limit <= len(self.peers(config, others)):
            raise errors.MAXIMUM_STREAMS_LIMIT.error()

    def check_consumers(self, config: StreamConfig) -> None:
        """Refuse a stream that is to have more consumers than may be on each."""
        if 0 < self.of(config.num_replicas).max_consumers < config.max_consumers:
            raise errors.MAXIMUM_CONSUMERS_LIMIT.error()

    def check_bytes(
        self, config: StreamConfig, others: Iterable[StreamConfig], old: StreamConfig | None
    ) -> None:
        """Refuse a `max_bytes` that does not fit beside what the other streams were promised, and
        a stream that is in no tier. Raises JetStreamError."""
        limits = self.chosen(config.num_replicas)
        memory = config.storage == "memory"
        limit = limits.max_memory if memory else limits.max_storage
        if limit < 0:
            return
        least = 0 if old is not None else 1
        more = max(config.max_bytes, least) * self._copies(config)
        reserved = sum(
            max(other.max_bytes, 0) * self._copies(other)
            for other in self.peers(config, others)
            if other.storage == config.storage
        )
        if reserved + more > limit:
            raise no_room(config.storage)

    def check_node(self, config: StreamConfig) -> None:
        """Refuse a `max_bytes` beyond what the node has left of its own. Raises JetStreamError."""
        if not self._node[config.storage].room_for(config.max_bytes):
            raise no_room(config.storage)

    def _copies(self, config: StreamConfig) -> int:
        return 1 if self.wire else max(1, config.num_replicas)


def no_room(storage: str) -> errors.JetStreamError:
    """What refuses a reservation."""
    if storage == "memory":
        return errors.MEMORY_RESOURCES_EXCEEDED.error()
    return errors.STORAGE_RESOURCES_EXCEEDED.error()


def _wire(options: AccountJetStreamOptions) -> AccountLimits:
    return AccountLimits(
        max_memory=options.max_memory,
        max_storage=options.max_store,
        max_streams=options.max_streams,
        max_consumers=options.max_consumers,
        max_ack_pending=options.max_ack_pending,
        memory_max_stream_bytes=options.memory_max_stream_bytes,
        storage_max_stream_bytes=options.store_max_stream_bytes,
        max_bytes_required=options.max_bytes_required,
    )
