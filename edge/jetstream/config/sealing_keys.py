"""The node's keys for sealing stored data, as configured."""

from headwater.edge.conf.options import KeySourceOptions, Options, SealingOptions
from headwater.edge.storage.format.errors import StoreError
from headwater.security.errors import SealingError
from headwater.security.sealing import (
    AES,
    CHACHA,
    KeyRing,
    NodeKey,
    key_from_command,
    key_from_environment,
    key_from_file,
)

_CIPHERS = {"": CHACHA, "chacha": CHACHA, "aes": AES}


def key_ring(options: Options) -> KeyRing | None:
    """None when nothing about keys is configured. `headwater.sealing` may give the key where
    `jetstream.key` gives none; previous keys of both open. Raises StoreError."""
    sealing = options.headwater.sealing or SealingOptions()
    settings = options.jetstream
    try:
        newest = NodeKey.of(settings.key.encode()) if settings.key else key_of(sealing)
        previous = [NodeKey.of(settings.previous_key.encode())] if settings.previous_key else []
        previous += [key for key in map(key_of, sealing.previous) if key is not None]
        if newest is None and not previous:
            return None
        return KeyRing(newest, tuple(previous), _CIPHERS[sealing.cipher or settings.cipher])
    except SealingError as error:
        raise StoreError(f"sealing at rest: {error}") from error


def lacking(options: Options) -> list[str]:
    """What is wrong with the keys that files and the environment hold, without asking a command
    for one. Empty when nothing is, or when nothing is stored."""
    sealing = options.headwater.sealing
    if sealing is None or not options.jetstream.enabled:
        return []
    found = []
    for source in (sealing, *sealing.previous):
        try:
            if source.key_file or source.key_env:
                key_of(source)
        except SealingError as error:
            found.append(f"sealing at rest: {error}")
    return found


def key_of(source: KeySourceOptions) -> NodeKey | None:
    """The key that a part of the configuration names; None when it names none. Raises
    SealingError."""
    if source.key_file:
        return key_from_file(source.key_file)
    if source.key_env:
        return key_from_environment(source.key_env)
    return key_from_command(source.key_command) if source.key_command else None
