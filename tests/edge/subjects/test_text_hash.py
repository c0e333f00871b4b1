"""The hash of subjects puts similar texts in different places."""

import pytest

from headwater.edge.subjects.text_hash import spread


@pytest.mark.parametrize("length", range(5, 34))
@pytest.mark.parametrize("place", ["front", "end"])
def test_texts_that_differ_in_four_digits_spread(length: int, place: str) -> None:
    filling = b"x" * (length - 4)
    digits = [b"%04d" % number for number in range(4096)]
    texts = [one + filling if place == "front" else filling + one for one in digits]
    # Thrown at random, 4096 texts take some 2590 of 4096 places.
    for seed in (0, 1, 0x1234567890ABCDEF):
        assert spread(seed, texts, 4095) > 2300


def test_texts_of_zeros_differ_by_their_length() -> None:
    assert spread(7, [bytes(length) for length in range(256)], (1 << 32) - 1) == 256
