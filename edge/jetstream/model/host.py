"""What streams and accounts need of the node that they are on. NodeJetStream is one."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from headwater.edge.jetstream.model.models import ClusterInfo, StreamConfig


class Host(Protocol):
    """A node, as JetStream sees it from below."""

    strict: bool
    domain: str
    server_name: str
    clustered: bool
    @property
    def window_max_ns(self) -> int:
        """The longest window of deduplication."""

    direct_bytes_max: int
    """Of the answers to one direct get."""
    direct_turns: Any
    """Whose turn it is of the batches of direct gets: `read.direct_batch.DirectTurns`."""
    batch_room: Any
    """What open atomic batches may hold: `publish.batch.BatchRoom`."""
    transfers: Any
    """How many block reads are answered at the moment: `read.blocks.Transfers`."""
    usage: dict[str, Any]
    """By kind of storage."""
    advisories: Any
    describe: Callable[[Any, Any, bytes], dict[str, Any]]
    """A client, as advisories show it."""
    limits: Any
    """`JetStreamLimitOptions`: what is made from now on may be no more."""
    accounts: dict[str, Any]
    holdings: Any
    """`Holdings`: how many streams and consumers all accounts together may have."""
    request_queue_limit: int
    """Requests of the API that may wait in an account; 0 for the default."""
    on_near: Callable[[Any], None]
    """Called with a mirror that is driven here when it lacks little of its origin."""
    api_subjects: tuple[bytes, ...]
    """What accounts listen on for requests of the API."""
    origin_driver_factory: Any
    """Makes what drives mirrors and sources; None where nothing does."""
    on_consumer_made: Callable[[Any], None]
    """Called with each new consumer that is led here."""

    def store(self) -> Any:
        """The node's storage. Raises StoreError before it is open."""

    def system_account(self) -> Any:
        """The account that hears of the server itself."""

    def create_store(
        self, account: str, config: StreamConfig, meta: bytes, incarnation: str
    ) -> Any:
        """Storage for a new stream. Raises JetStreamError."""

    def update_meta(self, stream: Any, meta: bytes) -> None:
        """Keep a changed description of a stream. Raises JetStreamError."""

    def delete_store(self, stream: Any) -> Awaitable[None] | None:
        """Remove what is stored of a stream."""

    def set_compression(self, stream: Any) -> None:
        """Act on what the configuration says of compression."""

    def set_durability(self, stream: Any) -> None:
        """Act on what the configuration says of durability."""

    def set_disk_budget(self, stream: Any) -> None:
        """Act on what the configuration says of room on the device."""

    def check_removable(self, stream: Any) -> None:
        """Raise JetStreamError when removals cannot be written down."""

    def durable(self, stream: Any) -> Awaitable[None] | None:
        """Done when what the log has of the stream now is durable."""

    def kept(self, stream: Any) -> Awaitable[None] | None:
        """Done when what was removed from the stream stays removed."""

    def erased(self, stream: Any) -> Awaitable[None] | None:
        """Done when what was to be erased of the stream is overwritten."""

    def cluster_info(self) -> ClusterInfo | None:
        """What answers say of the stream's place."""
