"""Keys for stored data: where they come from, and wrapping."""

from pathlib import Path

import pytest

from headwater.security.errors import SealingError
from headwater.security.sealing import (
    KeyRing,
    NodeKey,
    key_from_command,
    key_from_environment,
    key_from_file,
)

SECRET = b"a secret of some length"


def test_one_key_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key"
    path.write_bytes(SECRET + b"\n")
    path.chmod(0o600)
    monkeypatch.setenv("HEADWATER_TEST_KEY", SECRET.decode())
    keys = {
        NodeKey.of(SECRET),
        key_from_file(str(path)),
        key_from_environment("HEADWATER_TEST_KEY"),
        key_from_command(f"cat {path}"),
    }
    assert len(keys) == 1


def test_keys_that_cannot_be_had(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(SECRET)
    path.chmod(0o640)
    with pytest.raises(SealingError, match="0600"):
        key_from_file(str(path))
    with pytest.raises(SealingError, match="No such file"):
        key_from_file(str(tmp_path / "none"))
    with pytest.raises(SealingError, match="HEADWATER_TEST_NONE"):
        key_from_environment("HEADWATER_TEST_NONE")
    with pytest.raises(SealingError, match="command"):
        key_from_command("false")
    with pytest.raises(SealingError, match="characters"):
        NodeKey.of(b"short  ")


def test_wrapping() -> None:
    ring = KeyRing(NodeKey.of(SECRET))
    key = ring.make(1)
    row = ring.wrap(key, b"owner")
    assert key.secret.hex() not in str(row)
    assert ring.unwrap(row, b"owner") == key
    with pytest.raises(SealingError, match="damaged"):
        ring.unwrap(row, b"somebody else")
    newer = KeyRing(NodeKey.of(b"a newer secret"), (NodeKey.of(SECRET),))
    assert newer.unwrap(row, b"owner") == key
    assert not newer.is_newest(row)
    with pytest.raises(SealingError, match="not configured"):
        KeyRing(NodeKey.of(b"a newer secret")).unwrap(row, b"owner")
