"""Secrets: plain and bcrypt."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.security import passwords


def test_plain_and_hashed() -> None:
    hashed = passwords.hash_password("s3cret", cost=4)
    assert passwords.is_bcrypt(hashed)
    assert passwords.matches(hashed, "s3cret")
    assert not passwords.matches(hashed, "S3cret")
    assert passwords.matches("s3cret", "s3cret")
    assert not passwords.matches("s3cret", hashed)


def test_other_variants_of_bcrypt() -> None:
    hashed = passwords.hash_password("pw", cost=4)
    assert passwords.matches("$2a$" + hashed[4:], "pw")
    assert not passwords.matches(hashed, "x" * 100)


@given(st.text(max_size=80), st.text(max_size=80))
def test_never_fails(configured: str, presented: str) -> None:
    assert passwords.matches(configured, presented) == (configured == presented)
    assert not passwords.matches("$2a$" + configured, presented)
