"""The public half of a curve key (X25519, RFC 7748), without a library that is loaded for it.

A library takes ten times as long to load as this takes to run, and each start makes such a key.
What is encrypted with it (`nkeys.KeyPair.seal`) is the library's work.
"""

from typing import Final

PRIME: Final = (1 << 255) - 19
BASE: Final = 9
"""The u-coordinate of the generator."""
A24: Final = 121665
BITS: Final = 255


def public_half(secret: bytes) -> bytes:
    """The generator times `secret`: 32 bytes of 32. Not for secrets that others may time."""
    times = int.from_bytes(secret, "little") & ((1 << BITS) - 8) | 1 << (BITS - 1)
    x2, z2, x3, z3 = 1, 0, BASE, 1
    for bit in f"{times:0{BITS}b}":
        if bit == "1":
            x2, z2, x3, z3 = x3, z3, x2, z2
        plus, minus = x2 + z2, x2 - z2
        square, other = plus * plus % PRIME, minus * minus % PRIME
        left, right = (x3 - z3) * plus % PRIME, (x3 + z3) * minus % PRIME
        both, apart = left + right, left - right
        spread = square - other
        x2, z2 = square * other % PRIME, spread * (square + A24 * spread) % PRIME
        x3, z3 = both * both % PRIME, BASE * (apart * apart % PRIME)
        if bit == "1":
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, -1, PRIME) % PRIME).to_bytes(32, "little")
