"""Packs what a stream has stored again: with its newest key, without what is to go away.

Records are repacked when a stream that was plain is sealed, when the node's key was replaced, and
when too many messages that a dictionary was made from were erased. `"repack": true` in the
stream's meta says so until it is done, so a start goes on with it. First the log gives away
everything that was written before, then every segment is rewritten in the background, one at a
time, and last the old keys and dictionaries are removed. Of the entries of replicated streams the
log is the only home: there giving away is all.
"""

import logging
from typing import Any

from headwater.edge.ports import files
from headwater.edge.storage.directory.packers import dictionary_path, write_dictionary
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.format.problem import Problem
from headwater.edge.storage.packing.dictionary_pieces import SHARED_MIN
from headwater.edge.storage.segments.index_bytes import index_bytes
from headwater.edge.storage.segments.index_rows import index_of
from headwater.edge.storage.segments.removals import when_removals_last, write_index_later
from headwater.security.errors import SealingError

# How often to look whether the log or the segments have come further, in seconds.
LOOK_SECONDS = 0.05
RETRY = 30.0

log = logging.getLogger("headwater.storage")


class Repacker:
    """Works for one stream at a time. `node` is the NodeStore, `identities` are the JSON of its
    meta files by incarnation."""

    def __init__(self, node: Any, identities: dict[str, dict[str, Any]]) -> None:
        self._identities = identities
        self.stopped = False
        self._node = node
        self._queue: list[Any] = []
        self._boundary = 0
        """Log segments below this number hold records as they were packed before."""
        self._dictionary = 0
        self._dropped: list[int] = []

    @property
    def waiting(self) -> int:
        """Streams that are being packed again, or wait for it."""
        return len(self._queue)

    def resume(self) -> None:
        """Go on where an earlier start was stopped, and with what this one found to do."""
        for store in self._node.stores():
            if self._identity(store).get("repack"):
                self._add(store)
        self.resume_entries()

    def resume_entries(self) -> None:
        """The same for the entries of replicated streams."""
        if self._node.entry_keys.is_pending:
            self._add(self._node.entry_keys)

    def keys(self, store: Any) -> list[dict[str, Any]]:
        """A stream's data keys as they are kept, wrapped; the last one seals."""
        return list(self._identity(store).get("keys", []))

    def is_pending(self, store: Any) -> bool:
        """Whether what a stream has is still to be packed again."""
        return bool(self._identity(store).get("repack"))

    def renew(self, store: Any) -> None:
        """Seal a stream with a new data key from now on, and pack again what it has. The key is on
        disk before anything is sealed with it. Raises StoreError, SealingError."""
        identity = self._identity(store)
        before = dict(identity)
        key = self._node.packers.renew(identity)
        try:
            self._node.rewrite_meta(store, True)
        except OSError as error:
            identity.clear()
            identity.update(before)
            raise StoreError(f"the stream's meta file cannot be written: {error}") from error
        store.packer.add_key(key, True)
        self._node.log.begin_next()
        self._add(store)

    def before_erase(self, store: Any, sequence: int) -> None:
        """A message is about to be erased. Pieces of a dictionary stood in at least `SHARED_MIN`
        messages; when so many of them are erased, it goes away. Raises StoreError."""
        self._node.eraser.add(store, sequence)
        identity = self._identity(store)
        if sequence > identity.get("sampled", 0):
            return
        identity["erased"] = identity.get("erased", 0) + 1
        if identity["erased"] >= SHARED_MIN:
            del identity["sampled"], identity["erased"]
            identity["repack"] = True
            store.packer.drop_dictionary()
            self._node.log.begin_next()
            self._add(store)
        try:
            self._node.rewrite_meta(store, True)
        except OSError as error:
            raise StoreError(f"the stream's meta file cannot be written: {error}") from error

    def _identity(self, store: Any) -> dict[str, Any]:
        return self._identities.get(store.incarnation, {})

    def dictionaries(self, store: Any) -> list[int]:
        """Numbers of a stream's dictionaries."""
        return list(self._identity(store).get("dictionaries", []))

    def _add(self, store: Any) -> None:
        ring = self._node.packers.ring
        unsealing = ring is not None and ring.newest is None
        if store not in self._queue and not unsealing:
            self._queue.append(store)
            if len(self._queue) == 1:
                self._later(LOOK_SECONDS, self._begin)

    def _later(self, seconds: float, step: Any, *args: Any) -> None:
        if not self.stopped:
            self._node.kernel.loop.call_later(seconds, self._step, step, *args)

    def _step(self, step: Any, *args: Any) -> None:
        if self.stopped:
            return
        if self._queue[0].closed:
            self._next()
        else:
            step(*args)

    def _next(self) -> None:
        """Go on with the next stream."""
        self._checkpoint_as_usual()
        self._queue.pop(0)
        if self._queue:
            self._later(LOOK_SECONDS, self._begin)
            return
        log.info("every stream is packed as configured; earlier keys are not needed any more")

    def _begin(self) -> None:
        """Make what repacks, and have the log give away everything written so far."""
        store, node = self._queue[0], self._node
        if store is node.entry_keys:
            self._begin_entries()
            return
        identity = self._identity(store)
        problems: list[Problem] = []
        try:
            packer = node.packers.open(dict(identity))
            node.packers.load_dictionaries(store.directory, identity, packer, problems)
            packer.use_like(store.packer)
            node.log.begin_next()
        except (SealingError, StoreError) as error:
            log.warning(
                "the stream in %s cannot be packed with its new key or dictionary yet (%s): it is "
                "tried again",
                store.directory,
                error,
            )
            self._later(RETRY, self._begin)
            return
        for problem in problems:
            log.warning("%s", problem)
        store.repacker = packer
        listed = identity.get("dictionaries", [])
        self._dropped = [number for number in listed if number != store.packer.dictionary]
        self._boundary = node.log.active.number
        self._await_log(True)

    def _begin_entries(self) -> None:
        """Have the log write all entries again: they are sealed with the newest key then."""
        log_ = self._node.log
        try:
            log_.begin_next()
        except StoreError as error:
            log.warning("entries cannot be sealed again yet (%s): it is tried again", error)
            self._later(RETRY, self._begin_entries)
            return
        self._boundary = log_.active.number
        self._await_entries()

    def _await_entries(self) -> None:
        if self._has_older():
            self._hurry_log()
            self._later(LOOK_SECONDS, self._await_entries)
            return
        self._checkpoint_as_usual()
        if not self._node.entry_keys.forget_older():
            self._later(RETRY, self._await_entries)
            return
        self._node.eraser.wipe_rest()
        self._next()

    def _has_older(self) -> bool:
        """Whether the log still has what was written before."""
        return bool(self._node.log.live[0].number < self._boundary)

    def _hurry_log(self) -> None:
        """Have the log give that away."""
        self._node.checkpointer.before = self._boundary
        self._node.checkpointer.wake()

    def _await_log(self, first: bool = False) -> None:
        store = self._queue[0]
        if self._has_older() or store.copying:
            self._hurry_log()
            self._later(LOOK_SECONDS, self._await_log)
            return
        self._checkpoint_as_usual()
        for segment in store.segments:
            segment.sealed = True
            if segment.last:
                segment.stale = True
            else:
                # It tells of removals alone: nothing in it is packed, but its index may be.
                segment.indexed = False
        self._rewrite()

    def _checkpoint_as_usual(self) -> None:
        """What was written meanwhile may have to go, too."""
        self._node.checkpointer.before = 0
        self._node.checkpointer.wake()

    def _rewrite(self) -> None:
        """Have the compactor rewrite the next segment, until all are."""
        store = self._queue[0]
        stale = [segment for segment in store.segments if segment.stale]
        if not stale and not store.leaving and not store.copying:
            self._write_indexes(store)
            return
        if stale and not store.copying and not stale[0].busy and not stale[0].avoided:
            stale[0].busy = True
            self._node.compactor.add(store, stale[0])
        self._later(LOOK_SECONDS, self._rewrite)

    def _write_indexes(self, store: Any) -> None:
        """Replace index files that the rewriting left behind."""
        node = self._node
        for segment in store.segments:
            if segment.sealed and not segment.indexed:
                index = index_bytes(store, index_of(store, segment, node.log.active.number))
                write_index_later(node.log, node.background, store, segment, index)

        def written(_: object, error: BaseException | None) -> None:
            self._later(0, self._finish)

        def behind() -> None:
            node.background.submit(lambda: None, written)

        when_removals_last(node.log, behind)

    def _finish(self) -> None:
        """Forget old keys and dictionaries."""
        store, node = self._queue[0], self._node
        identity = self._identity(store)
        if store.repacker.unopened:
            log.warning(
                "stream '%s': %d messages cannot be opened; they and their keys stay as they are",
                node.label(store),
                store.repacker.unopened,
            )
        elif not self._forget(store, identity):
            self._later(RETRY, self._finish)
            return
        else:
            log.info("stream '%s' is packed again, with its newest key", node.label(store))
            node.eraser.wipe_rest()
        store.repacker = None
        self._next()

    def _forget(self, store: Any, identity: dict[str, Any]) -> bool:
        before = dict(identity)
        identity.pop("repack", None)
        if "keys" in identity:
            identity["keys"] = identity["keys"][-1:]
        left = [at for at in identity.get("dictionaries", []) if at not in self._dropped]
        if "dictionaries" in identity:
            identity["dictionaries"] = left
        try:
            for number in left:
                write_dictionary(store, number)
            self._node.rewrite_meta(store, True)
            for number in self._dropped:
                files.remove(dictionary_path(store.directory, number), True)
        except OSError as error:
            identity.clear()
            identity.update(before)
            log.warning("the meta in %s cannot be written: %s; tried again", store.directory, error)
            return False
        store.packer.forget_older(set(self._dropped))
        return True
