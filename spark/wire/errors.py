"""What goes wrong on the wire between Spark and a node."""


class WireError(ValueError):
    """The peer sent bytes that are not the NATS client protocol."""
