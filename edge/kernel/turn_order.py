"""The order within a turn: what its end consists of, and who hears first of a store's news.

Whoever runs at such a place says its stage; nobody else knows of it. Of one stage, who came first
runs first. Work that reads what another stage has written belongs after it.
"""

from enum import IntEnum


class TurnStage(IntEnum):
    """Stages of a turn's end, all of them before anything is sent. See `Kernel.add_turn_hook`."""

    STATES = 0
    """Consumers' progress and cursors of origins are written: they share the batch of the data."""
    BATCH = 1
    """The commit log closes the batch and hands it to its thread."""
    PROPOSALS = 2
    """A round of groups is asked for, which proposes what led streams have decided, states
    included."""


class NewsStage(IntEnum):
    """Stages of hearing that more of a store is committed, or that it failed. See
    `MessageStore.listen`."""

    STREAM = 0
    """The stream sends PubAcks and wakes its consumers."""
    ORIGINS = 1
    """Origins are told what they may remove."""
