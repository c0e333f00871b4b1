"""The interfaces through which upper floors plug into a node. `edge` owns them."""

from typing import Any, Protocol, runtime_checkable

from headwater.edge.view.node_view import NodeView


class Service(Protocol):
    """Something that lives and ends with a node: leaf links, discovery, monitoring."""

    name: str

    def start(self, node: NodeView) -> None:
        """Begin. Called before the node says that it is ready; must not block."""

    async def stop(self) -> None:
        """End, and leave nothing behind."""

    def ports(self) -> dict[str, list[str]]:
        """URLs this service listens on, by the name the ports file uses."""

    def status(self) -> dict[str, Any]:
        """Facts for monitoring."""


@runtime_checkable
class EarlyService(Protocol):
    """A service that does something before the node recovers what is stored, which takes long."""

    def before_recovery(self, node: NodeView) -> None:
        """Called before `start`; `stop` is called even when `start` never is."""


@runtime_checkable
class LinkService(Protocol):
    """A service that has links to other nodes."""

    def shown_links(
        self, kind: str, account: str = "", lists: bool = False
    ) -> list[dict[str, Any]]:
        """Links of a kind (`leafs`, `routes`, `remotes` or `origins`) as monitoring shows them,
        perhaps those of one account. Their `lists` of subscriptions may be long."""


@runtime_checkable
class JetStreamPart(Protocol):
    """A service that JetStream is part of: it says who answers, and what is brought back."""

    def join_jetstream(self, node: NodeView, jetstream: Any) -> None:
        """Called with the NodeJetStream before it opens what is stored."""
