"""Keys and tokens outlast a power cut and an interrupt: with a key, all that it opens would be
lost."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.deploy.gateway.enrol import own_key
from headwater.deploy.keys.folder import KeyFolder, KeysError
from headwater.deploy.keys.realm import Realm
from headwater.security import creds, sealing
from headwater.security.nkeys import KeyPair


def operator(folder: Path) -> None:
    Realm(KeyFolder(folder / "new/folder")).make_operator("O")


def gateway_key(folder: Path) -> None:
    own_key(folder / "new/folder")


def creds_file(folder: Path) -> None:
    pair = KeyPair.create("U")
    creds.write(folder / "gateway.creds", "a.b.c", pair.seed)


def sealing_key(folder: Path) -> None:
    sealing.write_new_key(str(folder / "key"))


@pytest.mark.parametrize("make", [operator, gateway_key, creds_file, sealing_key])
def test_names_are_synced_behind_the_files(
    make: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a power cut takes of a folder or a file is what changed in it since its last sync."""
    sync = os.fsync
    synced: dict[Path, set[str]] = {}
    sizes: dict[int, int] = {}
    """Of files by inode, when they were synced."""

    def names(folder: Path) -> set[str]:
        return {each.name for each in folder.iterdir()}

    def fsync(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        sync(handle)
        if path.is_dir():
            synced[path] = names(path)
        else:
            sizes[path.stat().st_ino] = path.stat().st_size

    monkeypatch.setattr(os, "fsync", fsync)
    make(tmp_path)
    for folder, _, files in os.walk(tmp_path):
        assert names(Path(folder)) == synced.get(Path(folder)), folder
        assert not [name for name in files if name.endswith(str(os.getpid()))]
        for found in (Path(folder, name).stat() for name in files):
            assert found.st_size == sizes.get(found.st_ino), files


def interrupted(monkeypatch: pytest.MonkeyPatch, step: int, make: Callable[[], Any]) -> bool:
    """Whether an interrupt came: it does when the file with that number would get its name."""
    replace, left = os.replace, [step]

    def stop(old: Any, new: Any) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        replace(old, new)

    with monkeypatch.context() as changed:
        changed.setattr(os, "replace", stop)
        try:
            make()
        except KeyboardInterrupt:
            return True
    return False


def test_what_an_interrupt_leaves_unfinished_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator stood without its system account, a user without its creds; and a second try
    was refused, since they were there."""
    step = 0
    while True:
        folder = KeyFolder(tmp_path / str(step))
        realm = Realm(folder)

        def make(realm: Realm = realm) -> None:
            realm.make_operator("O")

        came = interrupted(monkeypatch, step, make)
        if came:
            make()
        with pytest.raises(KeysError, match="operator already"):
            make()
        claims, _ = folder.operator()
        system, _ = folder.account("SYS")
        assert claims.nats.system_account == system.sub
        path = folder.folder / "keys/creds/O/SYS/sys.creds"
        assert folder.user("SYS", "sys").sub == creds.read(path).key_pair().public_key
        assert not list(folder.folder.rglob(".*.[0-9]*"))
        if not came:
            break
        step += 1
    assert step == 8


def test_an_interrupted_user_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = KeyFolder(tmp_path)
    realm = Realm(folder)
    realm.make_operator("O")
    for step in range(3):
        name = f"u{step}"

        def make(name: str = name) -> None:
            realm.make_user("SYS", name)

        assert interrupted(monkeypatch, step, make)
        make()
        path = folder.folder / f"keys/creds/O/SYS/{name}.creds"
        assert folder.user("SYS", name).sub == creds.read(path).key_pair().public_key
