"""Accounts that an operator has deleted, each with the signed request, beside their tokens.

A server that was away when an account was deleted still has its token. Without a note of the
deletion it would bring the account back, by synchronisation or when a login looks for it.
"""

import contextlib
import logging
import os
import tempfile
from pathlib import Path

import msgspec

from headwater.security.errors import JWTError
from headwater.security.whole_file import sync_directory

log = logging.getLogger("headwater.security")

SUFFIX = ".deletion"
NOTES_MAX = 65536
"""Deletions that are noted; those beyond it act, and are not noted."""

NOTE_BYTES_MAX = 4 << 20


class Deletion(msgspec.Struct, kw_only=True):
    """The newest deletion of one account."""

    request: str
    """The token that the operator signed."""
    issued_at: int
    """Unix seconds. What was issued until then is deleted; a newer token is another word."""
    revived: bool = False
    """The account was pushed again since: this request counts no more."""


class Deletions:
    """The notes of one directory, all of them in memory, too."""

    __slots__ = ("_directory", "_notes")

    def __init__(self, directory: Path) -> None:
        """Read what is noted; a note that cannot be read is told, and counts for nothing. Raises
        OSError."""
        self._directory = directory
        self._notes: dict[str, Deletion] = {}
        for path in sorted(directory.glob(f"*{SUFFIX}"))[:NOTES_MAX]:
            try:
                with path.open("rb") as file:
                    note = msgspec.json.decode(file.read(NOTE_BYTES_MAX), type=Deletion)
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                log.error(
                    "note %s of a deleted account cannot be read: %s; if a server that still has "
                    "the "
                    "account brings it back, delete it again",
                    path,
                    error,
                )
            else:
                self._notes[path.name.removesuffix(SUFFIX)] = note

    def remember(self, account: str, request: str, issued_at: int) -> None:
        """An account is to be deleted; durable when it returns. Raises JWTError."""
        known = self._notes.get(account)
        if known is not None and known.request == request and not known.revived:
            return
        if account not in self._notes and len(self._notes) >= NOTES_MAX:
            log.warning(
                "more than %d accounts were deleted: the deletion of %s is not noted; if a server "
                "that was away brings it back, delete it again",
                NOTES_MAX,
                account,
            )
            return
        self._keep(account, Deletion(request=request, issued_at=issued_at))

    def revive(self, account: str) -> None:
        """An account was pushed again. Raises JWTError."""
        note = self._notes.get(account)
        if note is not None and not note.revived:
            self._keep(account, msgspec.structs.replace(note, revived=True))

    def covers(self, account: str, issued_at: int) -> bool:
        """Whether a token that another server has, issued at that Unix second, is deleted."""
        note = self._notes.get(account)
        return note is not None and not note.revived and issued_at <= note.issued_at

    def is_spent(self, account: str, request: str) -> bool:
        """Whether a request to delete an account was acted on before, and taken back since."""
        note = self._notes.get(account)
        return note is not None and note.revived and note.request == request

    def standing(self, account: str) -> str:
        """The request that deleted an account, for servers that have not heard it; empty when one
        of the accounts that it deleted is back."""
        note = self._notes.get(account)
        if note is None or note.revived:
            return ""
        same = [other for other in self._notes.values() if other.request == note.request]
        return "" if any(other.revived for other in same) else note.request

    def _keep(self, account: str, note: Deletion) -> None:
        write_durably(self._directory, f"{account}{SUFFIX}", msgspec.json.encode(note))
        self._notes[account] = note


def write_durably(directory: Path, name: str, content: bytes) -> None:
    """Put a file in its place in one step, synced. Raises JWTError."""
    try:
        handle, temporary = tempfile.mkstemp(dir=directory, prefix=".token.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, directory / name)
            sync_directory(directory)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise JWTError(f"cannot keep {name}: {error}") from error
