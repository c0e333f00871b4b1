"""Comparison of secrets: plain ones in constant time, bcrypt hashes through bcrypt."""

import hmac

BCRYPT_PREFIXES = ("$2a$", "$2b$", "$2x$", "$2y$")

BCRYPT_MAX_BYTES = 72
"""bcrypt looks at no more than this many bytes of a password."""


def is_bcrypt(secret: str) -> bool:
    """Whether a configured secret is a bcrypt hash and not the secret itself."""
    return secret.startswith(BCRYPT_PREFIXES)


def is_slow(configured: str, presented: str) -> bool:
    """Whether `matches` has to compute a bcrypt hash, which takes a tenth of a second or more."""
    return is_bcrypt(configured) and len(presented) <= BCRYPT_MAX_BYTES


def matches(configured: str, presented: str) -> bool:
    """Whether the `presented` secret is the `configured` one (plain or bcrypt hash)."""
    given = presented.encode("utf-8", "surrogatepass")
    if not is_bcrypt(configured):
        return hmac.compare_digest(configured.encode("utf-8", "surrogatepass"), given)
    if len(given) > BCRYPT_MAX_BYTES or b"\0" in given:
        return False
    import bcrypt

    try:
        return bcrypt.checkpw(given, configured.encode("utf-8", "surrogatepass"))
    except ValueError:
        return False


def hash_password(secret: str, cost: int = 11) -> str:
    """bcrypt hash of `secret` for a configuration file. `cost` is log2 of the rounds."""
    import bcrypt

    return bcrypt.hashpw(secret.encode("utf-8"), bcrypt.gensalt(cost)).decode("ascii")
