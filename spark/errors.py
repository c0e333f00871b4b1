"""Errors of the Spark source. Every message says what to do; none holds a secret."""


class SourceError(Exception):
    """Base of what the Spark source raises."""


class OptionError(SourceError, ValueError):
    """An option is unknown, missing, malformed or contradicts another one."""


class ConnectError(SourceError, ConnectionError):
    """No server could be reached, or the connection broke. Trying again may help."""


class ControlLineError(ConnectError):
    """The server takes no protocol line as long as one of ours: to try again would not help."""


class ExpiredError(ConnectError):
    """The server ended a connection, as its credentials have expired or were revoked.

    To connect again helps when their file has newer ones by then.
    """


class AuthError(SourceError):
    """The server refused the credentials, or does not permit an operation."""


class ApiError(SourceError):
    """JetStream answered with an error.

    `code` is the HTTP-like status (400 to 503), `err_code` JetStream's own number, 0 if none.
    """

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(f"JetStream error {code} ({err_code}): {description}")
        self.code = code
        self.err_code = err_code
        self.description = description

    def __reduce__(self) -> tuple[type, tuple[int, int, str]]:
        return type(self), (self.code, self.err_code, self.description)


class UnknownStreamError(SourceError):
    """The stream does not exist in this account and domain."""


class UnsupportedStreamError(SourceError):
    """Reading this stream would change it: work queues and interest streams delete what is read."""


class StreamRecreatedError(SourceError):
    """The stream was deleted and made again after the read was planned."""


class LostRangeError(SourceError):
    """Sequences of the planned range are gone from the stream."""


class InterruptedRead(SourceError):
    """A consumer went away or missed a delivery; the read goes on after the last row."""


class PublishError(SourceError):
    """A message cannot be published, or the stream refused it."""


class FencedError(SourceError):
    """Another driver writes for the same query: this one must stop."""
