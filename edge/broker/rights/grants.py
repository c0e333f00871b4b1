"""Temporary rights to answer: `allow_responses` of a user's permissions."""

from collections import OrderedDict
from collections.abc import Callable

from headwater.security.auth_options import ResponseRules
from headwater.security.permissions import Permissions

GRANTS_MAX = 4096
"""Reply subjects remembered per connection; the oldest goes first."""


class Rights:
    """What one connection may do: its fixed permissions and the replies it was granted."""

    __slots__ = ("_clock", "_grants", "permissions", "publish_cache", "responses")

    def __init__(self, permissions: Permissions, clock: Callable[[], float]) -> None:
        """`clock` gives seconds since any moment and never jumps."""
        self.permissions = permissions
        self.publish_cache = permissions.publish_cache
        self.responses: ResponseRules | None = permissions.responses
        self._clock = clock
        self._grants: OrderedDict[bytes, tuple[float, int]] = OrderedDict()

    def can_publish(self, subject: bytes) -> bool:
        """Whether a publish to `subject` is allowed; uses up a granted reply."""
        if self.permissions.can_publish(subject):
            return True
        return self.responses is not None and self._use_grant(subject)

    def grant_reply(self, reply: bytes) -> None:
        """A message with this reply subject was delivered.

        What may be answered already is granted nothing new, and one answer of it is used up; so
        nats-server counts them.
        """
        if self.responses is None or self.can_publish(reply):
            return
        limit = self.responses.max_messages
        self._grants[reply] = (self._clock(), limit if limit > 0 else -1)
        if len(self._grants) > GRANTS_MAX:
            self._grants.popitem(last=False)

    def _use_grant(self, subject: bytes) -> bool:
        grant = self._grants.get(subject)
        if grant is None or self.responses is None:
            return False
        since, left = grant
        expires = self.responses.expires
        if expires >= 0 and self._clock() - since > expires:
            del self._grants[subject]
            return False
        if left == 1:
            del self._grants[subject]
        elif left > 1:
            self._grants[subject] = (since, left - 1)
        return True

    def can_subscribe(self, subject: bytes, queue: bytes | None) -> bool:
        """Whether a SUB is allowed."""
        return self.permissions.can_subscribe(subject, queue)

    def filters(self, subject: bytes, queue: bytes | None) -> bool:
        """Whether a subscription overlaps a deny rule, so that deliveries are asked for."""
        return self.permissions.needs_delivery_check(subject, queue)

    def withholds(self, subject: bytes, queue: bytes | None) -> bool:
        """Whether a message on a literal subject may not be delivered."""
        return self.permissions.delivery_denied(subject, queue)
