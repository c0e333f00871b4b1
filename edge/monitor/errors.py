"""What a monitoring request can be refused with."""


class MonitorError(Exception):
    """A request that cannot be answered; the text is NATS's, `status` is the HTTP status."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class FilteredError(MonitorError):
    """A request that asks for the leader alone, on another node."""

    def __init__(self) -> None:
        super().__init__("filtered response: not leader")
