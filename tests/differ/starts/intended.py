"""Starts of which the servers say different things by intention, each with its reason."""

STARTS = {
    "cluster without routes": "the first node of a cluster may stand alone until others dial it; "
    "nats-server does not start with JetStream, a cluster and no route",
    "latency without a system account": "latencies are told in the account itself; nats-server "
    "refuses them, unless it comes to read the accounts first",
}
"""A name, and the reason."""

REFUSED = {
    "cluster without routes": "requires configured routes",
    "latency without a system account": "system account not setup",
}
"""What nats-server says where Headwater starts."""


def intended_start(reason: str) -> str:
    """The name of the difference, when it is by intention that Headwater starts where nats-server
    ends with this reason; otherwise empty."""
    return next((name for name, text in REFUSED.items() if text in reason), "")
