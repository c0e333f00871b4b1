"""Draws from a source of chance: texts and fractions."""

import base64
import string

from headwater.edge.ports.ports import Random

LETTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
ID_LENGTH = 22
"""Letters of an id as NATS servers make them: of servers, advisories, inboxes."""
NONCE_BYTES = 11
_STEPS = 1 << 53
"""As many different fractions as a float tells apart between 0 and 1."""


def draw_text(chance: Random, length: int = ID_LENGTH) -> str:
    """A text of so many letters and digits, as NATS uses for ids."""
    return "".join(LETTERS[chance.below(len(LETTERS))] for _ in range(length))


def draw_nonce(chance: Random) -> str:
    """What a peer signs to prove that it has its key: fifteen letters of base64."""
    return base64.urlsafe_b64encode(chance.randbytes(NONCE_BYTES)).rstrip(b"=").decode()


def draw_between(chance: Random, low: float, high: float) -> float:
    """A number from `low` to `high`, each as likely."""
    return low + (high - low) * chance.below(_STEPS) / _STEPS
