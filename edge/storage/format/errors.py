"""What can go wrong with stored data; callers map it to JetStream's codes."""

from typing import NoReturn


class StoreError(Exception):
    """Something that storage refused or could not do."""


class StoreFull(StoreError):
    """No room on the device, in the log or below a configured limit; it may come back."""


class StoreFailed(StoreError):
    """A write or sync failed. Nothing is acknowledged until the data is safe elsewhere."""


class NoLogFile(StoreFull, StoreFailed):
    """There is no room for a file of the log: what there is can be read, and nothing new lasts."""


class KeyMissing(StoreError):
    """There are sealed streams, and none of the configured keys opens them."""


class StoreClosed(StoreError):
    """The store was deleted or its node was closed."""


class Damaged(StoreError):
    """A stored message does not match its checksums. It is never served; the rest is unharmed."""

    def __init__(self, sequence: int, reason: str):
        super().__init__(f"message {sequence} is damaged: {reason}")
        self.sequence = sequence
        self.reason = reason


class InvariantBroken(StoreError):
    """A value that must not exist was about to be written or answered, and is not."""


def invariant(condition: bool, text: str) -> None:
    """Raise `InvariantBroken` unless `condition` holds. Unlike `assert` it is never stripped."""
    if not condition:
        broken(text)


def broken(text: str) -> NoReturn:
    """Raise `InvariantBroken`: what compiled code calls behind a branch of its own, so that the
    text is made only when it is needed."""
    raise InvariantBroken(f"{text}; please report this, with the log")


class StoreLocked(StoreError):
    """Another process uses the directory."""


class FormatError(StoreError):
    """The directory was written by another program, or by a newer version of this one."""
