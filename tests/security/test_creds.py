"""Creds files, and nats-py as their other reader."""

import stat
from pathlib import Path

import nats.aio.client
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.security import creds, jwt
from headwater.security.claims import UserClaims
from headwater.security.errors import CredsError
from headwater.security.nkeys import KeyPair, verify

USER = KeyPair.create("U")
TOKEN = jwt.encode(UserClaims(sub=USER.public_key), KeyPair.create("A"))


def test_written_file_is_private_and_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "user.creds"
    creds.write(path, TOKEN, USER.seed)
    assert stat.S_IMODE(path.stat().st_mode) == creds.FILE_MODE
    assert not creds.is_exposed(path)
    assert creds.read(path) == creds.Creds(TOKEN, USER.seed)
    assert creds.read(path).key_pair().public_key == USER.public_key
    assert [entry.name for entry in tmp_path.iterdir()] == ["user.creds"]


def test_writing_replaces_an_exposed_file(tmp_path: Path) -> None:
    path = tmp_path / "user.creds"
    path.write_text("old")
    path.chmod(0o644)
    assert creds.is_exposed(path)
    creds.write(path, TOKEN, USER.seed)
    assert not creds.is_exposed(path)


def test_nats_py_reads_what_we_write(tmp_path: Path) -> None:
    path = tmp_path / "user.creds"
    creds.write(path, TOKEN, USER.seed)
    client = nats.aio.client.Client()
    client._user_credentials = str(path)
    client._setup_nkeys_jwt_connect()
    assert client._user_jwt_cb is not None and client._signature_cb is not None
    assert bytes(client._user_jwt_cb()).decode() == TOKEN
    import base64

    signature = base64.b64decode(client._signature_cb("nonce"))
    assert verify(USER.public_key, b"nonce", signature)


def test_bare_seed_and_bare_token() -> None:
    assert creds.parse(f" {USER.seed}\n") == creds.Creds("", USER.seed)
    assert creds.parse(TOKEN) == creds.Creds(TOKEN, "")


def test_only_user_seeds_are_written(tmp_path: Path) -> None:
    with pytest.raises(CredsError):
        creds.write(tmp_path / "x", TOKEN, KeyPair.create("A").seed)
    with pytest.raises(CredsError):
        creds.write(tmp_path / "missing" / "x", TOKEN, USER.seed)
    with pytest.raises(CredsError):
        creds.read(tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []


@given(st.text(max_size=300))
def test_any_text_fails_cleanly(text: str) -> None:
    with pytest.raises(CredsError):
        creds.parse(text)
    with pytest.raises(CredsError):
        creds.parse(f"-----BEGIN USER NKEY SEED-----\n{text}\n------END USER NKEY SEED------")
