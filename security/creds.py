"""Creds files: a user's JWT and seed in one PEM-like text file."""

import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from headwater.security import nkeys
from headwater.security.errors import CredsError, NKeyError
from headwater.security.whole_file import write_whole

MAX_CREDS_BYTES = 1024 * 1024
FILE_MODE = 0o600

_BLOCK = re.compile(r"-{3,}BEGIN ([A-Z0-9 ]+)-{3,}\s+(\S+)\s+-{3,}END \1-{3,}")

_TEMPLATE = """\
-----BEGIN NATS USER JWT-----
{token}
------END NATS USER JWT------

************************* IMPORTANT *************************
Whoever holds the seed below can sign in as this user.
Keep this file secret.

-----BEGIN USER NKEY SEED-----
{seed}
------END USER NKEY SEED------

*************************************************************
"""


class Creds(NamedTuple):
    """A user's token and the seed that proves it; either is empty when the file lacks it."""

    token: str
    seed: str

    def key_pair(self) -> nkeys.KeyPair:
        """The user's key pair. Raises NKeyError when there is no valid seed."""
        return nkeys.KeyPair.from_seed(self.seed)


def parse(text: str) -> Creds:
    """Creds in a text. Also takes a bare seed or a bare token. Raises CredsError."""
    token = seed = ""
    for match in _BLOCK.finditer(text):
        label, content = match.group(1), match.group(2)
        if label.endswith("JWT") and not token:
            token = content
        elif label.endswith("SEED") and not seed:
            seed = content
    if not token and not seed:
        bare = text.strip()
        if bare.startswith("eyJ") and not bare.split()[1:]:
            token = bare
        else:
            seed = bare
    if seed or not token:
        try:
            nkeys.decode_seed(seed)
        except NKeyError as error:
            raise CredsError("neither a creds file nor a seed") from error
    return Creds(token, seed)


def read(path: str | os.PathLike[str]) -> Creds:
    """Creds of a file; `~` is expanded. Raises CredsError."""
    try:
        with open(Path(path).expanduser(), "rb") as file:
            raw = file.read(MAX_CREDS_BYTES + 1)
    except (OSError, RuntimeError, ValueError) as error:
        raise CredsError(f"cannot read creds: {error}") from error
    if len(raw) > MAX_CREDS_BYTES:
        raise CredsError("a creds file cannot be that large")
    try:
        return parse(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise CredsError("a creds file is text") from error


def render(token: str, seed: str) -> str:
    """Text of a creds file. Raises CredsError when the seed is not a user's."""
    try:
        kind, _ = nkeys.decode_seed(seed)
    except NKeyError as error:
        raise CredsError("not a seed") from error
    if kind != nkeys.PREFIX_USER:
        raise CredsError("a creds file holds a user's seed")
    return _TEMPLATE.format(token=token, seed=seed)


def write(path: str | os.PathLike[str], token: str, seed: str) -> None:
    """Write a creds file readable by its owner only, replacing any other in one step.

    Raises CredsError.
    """
    target = Path(path).expanduser()
    content = render(token, seed).encode("ascii")
    try:
        write_whole(target, content, FILE_MODE)
    except OSError as error:
        raise CredsError(f"cannot write creds: {error}") from error


def is_exposed(path: str | os.PathLike[str]) -> bool:
    """Whether others than its owner may read a file; worth a warning at start."""
    mode = os.stat(Path(path).expanduser()).st_mode
    return bool(stat.S_IMODE(mode) & 0o077)
