"""JetStream of one account: its streams, its limits and what it uses."""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Any

from headwater.edge.broker.account import Account
from headwater.edge.conf.options import AccountJetStreamOptions
from headwater.edge.facts.version import API_LEVEL
from headwater.edge.jetstream.account import stream_lifecycle
from headwater.edge.jetstream.account.tiers import NO_LIMITS_SHOWN, Tiers, no_room, tier_name
from headwater.edge.jetstream.config import stream_config, stream_sources
from headwater.edge.jetstream.consumer.consumers import limitable
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.host import Host
from headwater.edge.jetstream.model.models import (
    AccountInfo,
    ApiStats,
    StreamConfig,
    TierInfo,
)
from headwater.edge.jetstream.stream.stream import Stream
from headwater.edge.jetstream.stream.subject_index import SubjectIndex
from headwater.edge.subjects.subject_tree import Steps
from headwater.security.errors import StepsExceeded

log = logging.getLogger("headwater.jetstream")

STORAGES = ("file", "memory")


class AccountJetStream:
    """What JetStream is to one account. Made by the node."""

    def __init__(self, node: Host, account: Account, options: AccountJetStreamOptions) -> None:
        self.node = node
        self.account = account
        self.name = account.name
        self.strict = node.strict
        self.streams: dict[str, Stream] = {}
        self.subjects = SubjectIndex()
        self.api = ApiStats(level=API_LEVEL)
        self.tiers = Tiers(options, node.usage)
        self.usage = self.tiers.whole
        self.leaving: dict[tuple[str, str], asyncio.Future[None]] = {}
        """Consumers by stream and name whose deletion is not durable yet; done when it is."""
        self.router: Any = None
        """Serves the API while it is not None; the node sets it."""

    def set_limits(self, options: AccountJetStreamOptions) -> None:
        """Go by these limits from now on; what is above them already stays."""
        self.tiers.set(options)

    def silence(self) -> None:
        """Stop serving the API."""
        if self.router is not None:
            self.router.stop()
            self.router = None

    def close(self) -> None:
        """Stop serving; streams are stopped and keep their data."""
        self.silence()
        for stream in list(self.streams.values()):
            stream_lifecycle.stop(stream, "Server Shutdown")

    # --- streams ---------------------------------------------------------------------------

    def stream(self, name: str) -> Stream:
        """A stream by name. Raises JetStreamError 10059."""
        found = self.streams.get(name)
        if found is None:
            raise errors.STREAM_NOT_FOUND.error()
        return found

    def config_of(self, name: str) -> StreamConfig | None:
        """Configuration of a stream; None when there is none of that name."""
        found = self.streams.get(name)
        return found.config if found is not None else None

    def scope(
        self, pedantic: bool, replicas: int, apart: Sequence[str] = ()
    ) -> stream_config.Scope:
        """What new configurations with that many replicas are checked against. `apart`: see
        `Scope.apart`."""
        limits = self.tiers.of(replicas)
        return stream_config.Scope(
            lookup=self.config_of,
            window_max=self.node.window_max_ns,
            bytes_required=limits.max_bytes_required,
            stream_bytes_max={
                "memory": limits.memory_max_stream_bytes,
                "file": limits.storage_max_stream_bytes,
            },
            pedantic=pedantic,
            replicated=self.node.clustered,
            apart=list(apart),
        )

    def create(self, wanted: StreamConfig, pedantic: bool, apart: Sequence[str] = ()) -> Stream:
        """Make a stream, or return the one that is the same already. `apart`: see `Scope.apart`.
        Raises JetStreamError."""
        self.check_limits(wanted)
        config = self.check_new(wanted, self.scope(pedantic, wanted.num_replicas, apart))
        existing = self.streams.get(config.name)
        if existing is not None:
            if stream_config.same_config(existing.config, config):
                return existing
            raise errors.STREAM_NAME_EXIST.error()
        self.check_reservation(config, None)
        stream_sources.check_filters(config)
        if self.overlapping(config.subjects, ""):
            raise errors.STREAM_SUBJECT_OVERLAP.error()
        if (config.mirror or config.sources) and self.node.origin_driver_factory is None:
            raise errors.invalid_config("mirrors and sources are not available on this server")
        stream = stream_lifecycle.create(self, config, self.incarnation())
        self.node.advisories.stream_action(stream, "create")
        return stream

    def incarnation(self) -> str:
        """A name for a stream that is made now."""
        return str(self.account.kernel.chance.randbytes(16).hex())

    def update(self, stream: Stream, wanted: StreamConfig, scope: stream_config.Scope) -> int:
        """Give a stream a new configuration, checked against `scope` (of `self.scope`). Raises
        JetStreamError; then nothing has changed.

        Returns where `Stream.trim_some` has to go on, 0 when nothing is left to do."""
        config = stream_config.checked_update(stream.config, wanted, scope)
        self.tiers.check_consumers(config)
        self.tiers.check_bytes(config, self.configs(), stream.config)
        stream_config.refuse_tight_limits(stream.config, config, stream.consumers.values())
        self.check_reservation(config, stream.config)
        self.node.holdings.check_room(config, stream.config, self.node.accounts.values())
        if self.overlapping(config.subjects, stream.name):
            raise errors.STREAM_SUBJECT_OVERLAP.error()
        if config.sources and self.node.origin_driver_factory is None:
            raise errors.invalid_config("sources are not available on this server")
        left = stream_lifecycle.update(self, stream, config)
        self.node.advisories.stream_action(stream, "modify")
        return left

    def delete(self, stream: Stream, moved: bool = False) -> Awaitable[None] | None:
        """Delete a stream with its consumers and data, or what is here of one that has `moved` to
        another node; see `stream_lifecycle.delete`."""
        durable = stream_lifecycle.delete(self, stream, moved)
        if not moved:
            self.node.advisories.stream_action(stream, "delete")
        return durable

    async def delete_all(self) -> None:
        """Delete every stream, and wait until that is durable. Raises StoreError."""
        waits = [self.delete(stream) for stream in list(self.streams.values())]
        for durable in waits:
            if durable is not None:
                await durable

    def check_limits(self, wanted: StreamConfig) -> None:
        """Refuse what account or node have no room for, as it came, before anything else is judged,
        and whether there is such a stream or not (nats-server, `jsNonClusteredStreamLimitsCheck`).
        There is no limit of bytes for what names no storage. Raises JetStreamError."""
        others = self.configs()
        self.tiers.check_streams(wanted, others)
        self.tiers.check_consumers(wanted)
        if wanted.max_bytes and wanted.storage:
            self.tiers.check_bytes(wanted, others, None)
            self.tiers.check_node(wanted)

    def check_new(self, wanted: StreamConfig, scope: stream_config.Scope) -> StreamConfig:
        """A complete configuration for a stream that may be made. Raises JetStreamError."""
        self.tiers.check_streams(wanted, self.configs())
        self.node.holdings.check_streams(self.node.accounts.values())
        config = stream_config.checked(wanted, scope)
        if config.num_replicas > 1 and not self.node.clustered:
            raise errors.STREAM_REPLICAS_NOT_SUPPORTED.error()
        self.node.holdings.check_room(config, None, self.node.accounts.values())
        return config

    def check_reservation(self, new: StreamConfig, old: StreamConfig | None) -> None:
        """Refuse a `max_bytes` that account or node can not promise, as far as is known here."""
        before = max(old.max_bytes, 0) if old is not None else 0
        more = max(new.max_bytes, 0) - before
        if more <= 0 and old is not None:
            return
        if not self.tiers.usage(new.storage, new.num_replicas).room_for(more):
            raise no_room(new.storage)

    def configs(self) -> list[StreamConfig]:
        """Configurations of the streams that live here."""
        return [stream.config for stream in self.streams.values()]

    def overlapping(self, subjects: list[str], own_name: str) -> bool:
        """Whether a subject is taken by another stream than `own_name`. Raises JetStreamError."""
        try:
            return self.subjects.overlaps_others(subjects, own_name, Steps())
        except StepsExceeded:
            raise errors.invalid_config(errors.TOO_MANY_SUBJECTS) from None

    def named(self, subject: str) -> list[Stream]:
        """Streams whose subjects overlap with `subject` (empty: all), by name."""
        found = self.subjects.overlapping(subject) if subject else self.streams
        return [found[name] for name in sorted(found)]

    # --- numbers ---------------------------------------------------------------------------

    def consumer_count(self) -> int:
        """Consumers of all streams."""
        return sum(len(stream.consumers) for stream in self.streams.values())

    def info(self) -> AccountInfo:
        """Answer to `$JS.API.INFO`."""
        used: dict[str, Any] = {
            "memory": self.usage["memory"].used,
            "storage": self.usage["file"].used,
            "reserved_memory": self.usage["memory"].reserved,
            "reserved_storage": self.usage["file"].reserved,
            "streams": len(self.streams),
            "consumers": self.consumer_count(),
        }
        return AccountInfo(
            **used,
            limits=self.tiers.flat,
            tiers=self.tier_infos(self.tiers.used(), self.configs(), self.consumers_by_tier())
            if self.tiers.wire
            else {},
            domain=self.node.domain,
            api=self.api,
        )

    def consumers_by_tier(self) -> dict[str, int]:
        """How many consumers have that many replicas, of the streams that live here. All are of
        one tier for an account without tiers: there may be thousands."""
        found: dict[str, int] = {}
        if not self.tiers.wire:
            count = sum(stream.consumers.visible for stream in self.streams.values())
            return {tier_name(1): count} if count else found
        for stream in self.streams.values():
            for consumer in limitable(stream):
                replicas = consumer.config.num_replicas or stream.config.num_replicas
                found[tier_name(replicas)] = found.get(tier_name(replicas), 0) + 1
        return found

    def tier_infos(
        self,
        used: dict[str, tuple[int, int]],
        configs: list[StreamConfig],
        consumers: dict[str, int],
    ) -> dict[str, TierInfo]:
        """By tier what an account with tiers may have and has; empty for one without."""
        tiers = self.tiers
        if not tiers.wire:
            return {}
        found = {}
        for name in {*tiers.wire, *used, *consumers, *(tier_name(c.num_replicas) for c in configs)}:
            mine = [config for config in configs if tier_name(config.num_replicas) == name]
            memory, store = used.get(name, (0, 0))
            found[name] = TierInfo(
                memory=memory,
                storage=store,
                reserved_memory=promised_bytes(mine, "memory"),
                reserved_storage=promised_bytes(mine, "file"),
                streams=len(mine),
                consumers=consumers.get(name, 0),
                limits=tiers.wire.get(name, NO_LIMITS_SHOWN),
            )
        return found


def promised_bytes(configs: list[StreamConfig], storage: str) -> int:
    """Bytes that streams were promised by `max_bytes`, each once."""
    return sum(max(each.max_bytes, 0) for each in configs if each.storage == storage)
