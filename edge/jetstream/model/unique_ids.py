"""Random ids as NATS servers make them: of advisories, generated names, private subjects."""

import secrets

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH = 22


def unique_id(length: int = _ID_LENGTH) -> str:
    """A random text of letters and digits, as NATS uses for ids."""
    return "".join(secrets.choice(_DIGITS) for _ in range(length))
