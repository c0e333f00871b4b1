"""What one user may publish and subscribe to, compiled for fast answers.

Rules are evaluated as NATS does: an allow list admits, a deny list overrules. A wildcard
subscription that merely overlaps a deny rule is admitted, and the broker asks
`delivery_denied` for each message instead. So is one whose `>` stands where an allow rule
has `*`: nats-server takes it for any token. It is given only what the rule allows.
"""

from headwater.security.auth_options import PermissionOptions, ResponseRules
from headwater.security.errors import PermissionRuleError
from headwater.security.subjects import covers, is_literal, is_valid_subject, matches, overlaps

CACHE_LIMIT = 256
"""Entries that a decision cache may hold; it is emptied when it would outgrow this."""


class _Rule:
    """One subject pattern with an optional queue pattern."""

    __slots__ = ("queue", "queue_tokens", "tokens")

    def __init__(self, text: str, with_queue: bool) -> None:
        # Splitting also drops spaces that a subject may have, such as U+00A0.
        words = text.split() if with_queue else [text]
        if not 1 <= len(words) <= 2 or not all(map(is_valid_subject, words)):
            raise PermissionRuleError(f"subject {text!r} is not a valid subject")
        self.tokens = words[0].split(".")
        self.queue = words[1] if len(words) == 2 else ""
        self.queue_tokens = self.queue.split(".")

    def takes_queue(self, queue: str) -> bool:
        """Whether a queue group's name is the rule's, or is matched by its pattern."""
        return queue == self.queue or covers(self.queue_tokens, queue.split("."))

    def is_for(self, queue: str) -> bool:
        """Whether the rule counts for subscriptions in a queue group; "" is without one."""
        return not self.queue or (bool(queue) and self.takes_queue(queue))


class Permissions:
    """Compiled permissions of one connection. Not shared between event loops.

    `publish_cache` maps subject bytes to the verdict of `can_publish`; compiled code may
    read it first and call only on a miss. It never holds more than `CACHE_LIMIT` entries.
    """

    __slots__ = (
        "_delivery_cache",
        "_publish_allow",
        "_publish_deny",
        "_subscribe_allow",
        "_subscribe_deny",
        "options",
        "publish_cache",
        "responses",
    )

    def __init__(self, options: PermissionOptions) -> None:
        """Compile `options`. Raises PermissionRuleError on a malformed rule."""
        self.options = options
        self.responses: ResponseRules | None = options.allow_responses
        self.publish_cache: dict[bytes, bool] = {}
        self._delivery_cache: dict[tuple[bytes, bytes | None], bool] = {}
        self._publish_allow: list[_Rule] | None = None
        self._publish_deny: list[_Rule] = []
        self._subscribe_allow: list[_Rule] | None = None
        self._subscribe_deny: list[_Rule] = []
        if options.publish is not None:
            self._publish_allow = _compile(options.publish.allow, with_queue=False)
            self._publish_deny = _compile(options.publish.deny, with_queue=False) or []
        if self.responses is not None and self._publish_allow is None:
            self._publish_allow = []
        if options.subscribe is not None:
            # An empty subscribe list restricts nothing; only `publish` can be closed that way.
            self._subscribe_allow = _compile(options.subscribe.allow, with_queue=True) or None
            self._subscribe_deny = _compile(options.subscribe.deny, with_queue=True) or []

    def restricts_publish(self) -> bool:
        """Whether any subject might be refused to publishers."""
        return self._publish_allow is not None or bool(self._publish_deny)

    def can_publish(self, subject: bytes) -> bool:
        """Whether the user may publish to `subject`; temporary response rights apart."""
        verdict = self.publish_cache.get(subject)
        if verdict is None:
            verdict = self._decide_publish(_tokens(subject))
            if len(self.publish_cache) >= CACHE_LIMIT:
                self.publish_cache.clear()
            self.publish_cache[bytes(subject)] = verdict
        return verdict

    def can_subscribe(self, subject: bytes, queue: bytes | None = None) -> bool:
        """Whether the user may subscribe to `subject`, in queue group `queue` when given."""
        tokens = _tokens(subject)
        group = _text(queue) if queue else ""
        if self._subscribe_allow is not None:
            hits = [rule for rule in self._subscribe_allow if _covers(rule, tokens)]
            queued = [rule for rule in hits if rule.queue]
            if group and queued:
                allowed = any(rule.takes_queue(group) for rule in queued)
            else:
                allowed = len(queued) < len(hits)
            if not allowed:
                return False
        return not _named(self._subscribe_deny, tokens, group)

    def needs_delivery_check(self, subject: bytes, queue: bytes | None = None) -> bool:
        """Whether messages for an admitted subscription must pass `delivery_denied`."""
        tokens = _tokens(subject)
        if not queue and is_literal(".".join(tokens)):
            return False
        if any(overlaps(rule.tokens, tokens) for rule in self._subscribe_deny):
            return True
        group = _text(queue or b"")
        return self._subscribe_allow is not None and not any(
            covers(rule.tokens, tokens) for rule in self._subscribe_allow if rule.is_for(group)
        )

    def delivery_denied(self, subject: bytes, queue: bytes | None = None) -> bool:
        """Whether a message on literal `subject` must be withheld from the subscriber."""
        key = (bytes(subject), queue)
        verdict = self._delivery_cache.get(key)
        if verdict is None:
            tokens, group = _tokens(subject), _text(queue or b"")
            verdict = _named(self._subscribe_deny, tokens, group) or (
                self._subscribe_allow is not None
                and not _named(self._subscribe_allow, tokens, group)
            )
            if len(self._delivery_cache) >= CACHE_LIMIT:
                self._delivery_cache.clear()
            self._delivery_cache[key] = verdict
        return verdict

    def deny_delivery(self) -> list[tuple[bytes, bytes | None]]:
        """Subscribe deny rules as (subject pattern, queue pattern), for compiled matching."""
        return [
            (_raw(".".join(rule.tokens)), _raw(rule.queue) or None)
            for rule in self._subscribe_deny
        ]

    def _decide_publish(self, tokens: list[str]) -> bool:
        if self._publish_allow is not None and not any(
            _covers(rule, tokens) for rule in self._publish_allow
        ):
            return False
        return not any(_covers(rule, tokens) for rule in self._publish_deny)


def _compile(rules: list[str] | None, with_queue: bool) -> list[_Rule] | None:
    return None if rules is None else [_Rule(text, with_queue) for text in rules]


def _named(rules: list[_Rule], tokens: list[str], group: str) -> bool:
    """Whether a rule is for this subject, of a subscription in queue group `group` ("": none)."""
    return any(rule.is_for(group) and _covers(rule, tokens) for rule in rules)


def _covers(rule: _Rule, tokens: list[str]) -> bool:
    """Whether a rule is for a subject. None is for one with an empty token, which reaches nobody;
    so nats-server says."""
    return "" not in tokens and matches(rule.tokens, tokens)


def _tokens(subject: bytes) -> list[str]:
    return _text(subject).split(".")


def _text(raw: bytes) -> str:
    return bytes(raw).decode("utf-8", "surrogateescape")


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
