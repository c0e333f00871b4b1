"""What a monitoring request can be refused with."""


class MonitorError(Exception):
    """A request that cannot be answered; the text is NATS's, `status` is the HTTP status."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status
