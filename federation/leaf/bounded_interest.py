"""A bound for what the peer of one leaf link may be interested in, and what happens beyond it.

A hub tells a gateway of every subject that anybody behind it subscribes to. Where these are too
many, those that begin with the same word become one: `devices.>` stands for all of `devices.…`. The
hub gets each message that somebody there wants, and some that nobody wants; it drops these. What
cannot become one is refused and counted. When there is room again, the link is made anew, so that
the hub tells of it again.
"""

from collections import Counter
from collections.abc import Collection

SUBJECTS_MAX = 32768
"""Subjects that a gateway keeps for one link: some 600 bytes each."""

RESERVED = 4
"""One in so many is kept for subjects of JetStream and of answers: copies go on by them."""

WORTH = 64
"""One in so many has to begin with the same word for it to be worth one wide subject."""

_OF_SYSTEMS = (36, 95, 42, 62)
"""How subjects begin that nothing wider may stand for: `$JS`, `_INBOX`, and wildcards."""

Key = tuple[bytes, bytes | None]
"""Subject and queue group, as a link keeps its peer's interest."""

WIDE = b""
"""In the place of a queue group: what no peer can add or take back."""


class BoundedInterest:
    """What may be kept of one peer's interest. `most` is the number of subjects, 0 for any."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.words: set[bytes] = set()
        """First words of subjects for which one wide subject stands."""
        self.refused = 0
        self._look_at = 0
        """How many have to be refused before the next look for what can become one."""

    def covers(self, subject: bytes, queue: bytes | None) -> bool:
        """Whether a wide subject stands for this one. Queue groups are kept one by one: the hub
        has to be given their names."""
        return bool(self.words) and queue is None and subject.partition(b".")[0] in self.words

    def has_room(self, subject: bytes, kept: int) -> bool:
        """Whether one more subject may be kept beside so many."""
        if not self.most:
            return True
        reserved = 0 if subject[:1] in (b"$", b"_") else self.most // RESERVED
        return kept < self.most - reserved

    def crowd(self, keys: Collection[Key]) -> tuple[bytes, list[Key]]:
        """The first word by which most is won, and the subjects for which `<word>.>` stands from
        now on. Both are empty where nothing is won."""
        if self.refused < self._look_at:
            return b"", []
        counts = Counter(
            subject.partition(b".")[0]
            for subject, queue in keys
            if queue is None and subject[0] not in _OF_SYSTEMS and b"." in subject
        )
        word, count = counts.most_common(1)[0] if counts else (b"", 0)
        if count < self.most // WORTH:
            self._look_at = 2 * self.refused + self.most // WORTH
            return b"", []
        self.words.add(word)
        start = word + b"."
        return word, [key for key in keys if key[1] is None and key[0].startswith(start)]

    def missing(self, kept: int) -> bool:
        """Whether something was refused for which there is room now."""
        return self.refused > 0 and kept < self.most // 2

    def cause(self) -> str:
        """What is missing at the peer; "" for nothing."""
        if not self.refused:
            return ""
        return (
            f"the peer wants more than {self.most} subjects, and {self.refused} were refused: "
            "their subscribers get nothing from here; set max_subscriptions, or an account or "
            "permissions that show this node less"
        )

    def status(self) -> dict[str, object]:
        """Facts for monitoring: wide subjects, how many were refused, and what that means."""
        return {
            "wide": [f"{word.decode('utf-8', 'replace')}.>" for word in sorted(self.words)],
            "refused": self.refused,
            "cause": self.cause(),
        }
