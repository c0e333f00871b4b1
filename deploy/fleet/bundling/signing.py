"""The key that signs bundles: an Ed25519 key in the text form of NKeys, of kind O."""

import os
from pathlib import Path

from headwater.deploy.fleet.bundling.bundler import CannotBundle
from headwater.security.errors import NKeyError
from headwater.security.nkeys import KeyPair


def make_key(path: Path) -> KeyPair:
    """A fresh key in a file of its owner's. Raises CannotBundle when there is one."""
    pair = KeyPair.create("O")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise CannotBundle(f"{path}: {error.strerror}; a key is never overwritten") from error
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{pair.seed}\n")
    return pair


def read_key(path: Path) -> KeyPair:
    """The key in a file. Raises CannotBundle."""
    try:
        return KeyPair.from_seed(path.read_text())
    except (OSError, NKeyError) as error:
        raise CannotBundle(
            f"{path} has no key: {error}; make one with `headwater fleet key --output {path}`"
        ) from error
