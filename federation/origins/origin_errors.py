"""Why a mirror or source cannot follow its origin, and what its state is then."""

from typing import Any

from headwater.federation.origins.health import DENIED, NO_SUCH_STREAM, OFFLINE, RECREATED
from headwater.federation.origins.origin_request import IDENTITY_MISMATCH, STREAM_NOT_FOUND, Answer


class OriginError(Exception):
    """The origin refuses or cannot be reached; `error` is the API's form of it."""

    state = OFFLINE
    """What the mirror or source is then."""

    def __init__(self, text: str, error: dict[str, Any] | None = None) -> None:
        super().__init__(text)
        self.error = error or {"code": 503, "err_code": 0, "description": text}


class Refused(OriginError):
    """The origin answers, and says no."""

    def __init__(self, answer: Answer) -> None:
        error = answer.error or {}
        super().__init__(str(error.get("description", "refused")), answer.error)
        self.state = NO_SUCH_STREAM if answer.code == STREAM_NOT_FOUND else DENIED


class Recreated(OriginError):
    """A mirror holds messages of an origin that is no more."""

    state = RECREATED

    def __init__(self, what: str) -> None:
        text = f"{what}: purge this mirror to take the origin as it is now, or keep it as it is"
        super().__init__(text, {"code": 409, "err_code": IDENTITY_MISMATCH, "description": text})


class Refilling(OriginError):
    """The origin is a mirror that was made again, and has not got back yet what was taken of it."""

    state = RECREATED

    def __init__(self) -> None:
        super().__init__("the origin is a mirror that was made again, and is behind its own origin")


class Nobody(OriginError):
    """No one listens on the origin's API subject."""


class Barred(Nobody):
    """A rule of a link, or the origin's server itself, keeps the API from being reached."""

    state = DENIED


class KeptOut(OriginError):
    """A rule of a link keeps out what the origin would deliver."""

    state = DENIED


class LinkChanged(OriginError):
    """A link came up while an answer was awaited: the request may have gone down with the old."""
