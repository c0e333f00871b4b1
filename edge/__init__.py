"""The node itself: wire protocol, broker, storage, JetStream, configuration, monitoring.

    async with headwater.edge.open_node("gateway.conf") as node:
        await node.publish("sensors.boiler", b"71.5")
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.edge.embedded.embedded_node import EmbeddedNode as EmbeddedNode
    from headwater.edge.embedded.embedded_node import open_node as open_node

__all__ = ["EmbeddedNode", "open_node"]


def __getattr__(name: str) -> Any:
    """What is for programs is loaded when a program asks for it: a node has to start soon."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headwater.edge.embedded import embedded_node

    return getattr(embedded_node, name)
