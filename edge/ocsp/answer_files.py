"""Answers of OCSP responders, kept in a folder across starts: one file for each certificate."""

import contextlib
import logging
import os
from pathlib import Path

from headwater.security.ocsp.answers import ANSWER_MAX

log = logging.getLogger("headwater.node")

FILES_MAX = 10_000
"""Certificates of which answers are kept; more are asked for anew after a start."""


class AnswerFiles:
    """The folder. What cannot be written is asked for again, so nothing depends on it."""

    def __init__(self, folder: str) -> None:
        """Empty: nothing is kept."""
        self._folder = Path(folder) if folder else None
        self._room = FILES_MAX

    def read(self, key: str) -> bytes:
        """What is kept of a certificate, by the hex SHA-256 of it; empty for nothing."""
        if self._folder is None:
            return b""
        try:
            with (self._folder / key).open("rb") as file:
                return file.read(ANSWER_MAX + 1)
        except OSError:
            return b""

    def write(self, key: str, raw: bytes) -> None:
        """Keep an answer in the place of the one before."""
        if self._folder is None or self._room <= 0:
            return
        try:
            if not self._folder.is_dir():
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._room = FILES_MAX
            self._room = FILES_MAX - len(os.listdir(self._folder))
            beside = self._folder / f"{key}.new"
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(raw)
            beside.replace(self._folder / key)
        except OSError as error:
            log.warning(
                "an answer of OCSP cannot be kept in %s: %s; the next start asks again: make room "
                "there",
                self._folder,
                error,
            )

    def remove(self, key: str) -> None:
        """Keep nothing of a certificate."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / key).unlink()
