"""NKeys against the published test vectors of the format and the `nkeys` package."""

import nkeys as reference
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.bindings import crypto_scalarmult_base

from headwater.security import nkeys
from headwater.security.errors import NKeyError

REFERENCE_PREFIXES = {
    "A": reference.PREFIX_BYTE_ACCOUNT,
    "C": reference.PREFIX_BYTE_CLUSTER,
    "N": reference.PREFIX_BYTE_SERVER,
    "O": reference.PREFIX_BYTE_OPERATOR,
    "U": reference.PREFIX_BYTE_USER,
}


@pytest.mark.parametrize("prefix", "ACNOU")
def test_seed_and_public_key_agree_with_reference(prefix: str) -> None:
    pair = nkeys.KeyPair.create(prefix)
    other = reference.from_seed(bytearray(pair.seed.encode()))
    assert pair.public_key == other.public_key.decode()
    assert pair.public_key[0] == prefix
    assert pair.seed[:2] == f"S{prefix}"
    assert len(pair.public_key) == nkeys.PUBLIC_KEY_LENGTH
    assert len(pair.seed) == nkeys.SEED_LENGTH


@pytest.mark.parametrize("prefix", "ACNOU")
def test_reference_seed_is_understood(prefix: str) -> None:
    raw = bytes(range(32))
    seed = reference.encode_seed(raw, REFERENCE_PREFIXES[prefix])
    pair = nkeys.KeyPair.from_seed(bytes(seed))
    assert pair.prefix == prefix
    assert pair.seed.encode() == bytes(seed)


def test_signatures_verify_both_ways() -> None:
    pair = nkeys.KeyPair.create("U")
    other = reference.from_seed(bytearray(pair.seed.encode()))
    assert other.verify(b"nonce", pair.sign(b"nonce"))
    assert nkeys.verify(pair.public_key, b"nonce", bytes(other.sign(b"nonce")))
    assert not nkeys.verify(pair.public_key, b"other", pair.sign(b"nonce"))
    assert not nkeys.verify(nkeys.KeyPair.create("U").public_key, b"n", pair.sign(b"n"))


@given(st.binary(min_size=32, max_size=32))
def test_curve_keys_agree_with_libsodium(seed: bytes) -> None:
    assert nkeys.decode(nkeys.KeyPair("X", seed).public_key) == ("X", crypto_scalarmult_base(seed))


def test_curve_key_names_but_does_not_sign() -> None:
    pair = nkeys.KeyPair.create("X")
    assert pair.public_key[0] == "X" and pair.seed[:2] == "SX"
    assert nkeys.KeyPair.from_seed(pair.seed).public_key == pair.public_key
    with pytest.raises(NKeyError):
        pair.sign(b"nonce")


def test_public_key_check_knows_kinds() -> None:
    user = nkeys.KeyPair.create("U").public_key
    assert nkeys.is_public_key(user)
    assert nkeys.is_public_key(user, "U")
    assert not nkeys.is_public_key(user, "A")
    assert not nkeys.is_public_key(user[:-1] + ("A" if user[-1] != "A" else "B"))


@given(st.text(max_size=70))
def test_any_text_decodes_or_fails_cleanly(text: str) -> None:
    for decode in (nkeys.decode, nkeys.decode_seed, nkeys.KeyPair.from_seed):
        with pytest.raises(NKeyError):
            decode(text)
    assert not nkeys.is_public_key(text)
    assert not nkeys.verify(text, b"", b"")


@given(st.sampled_from("ACNOPUX"), st.binary(min_size=32, max_size=32))
def test_encoding_round_trips(prefix: str, raw: bytes) -> None:
    assert nkeys.decode(nkeys.encode(prefix, raw)) == (prefix, raw)


@given(st.sampled_from("ACNOUX"), st.binary(min_size=32, max_size=32), st.integers(0, 57))
def test_a_changed_character_never_passes(prefix: str, raw: bytes, index: int) -> None:
    seed = nkeys.encode_seed(prefix, raw)
    changed = seed[:index] + ("A" if seed[index] != "A" else "B") + seed[index + 1 :]
    try:
        assert nkeys.decode_seed(changed) == (prefix, raw)
    except NKeyError:
        return
    # The last character carries bits that belong to nothing.
    assert index == len(seed) - 1
