"""Bundles: signed, whole, for the right machine; anything else is refused before it is used."""

import json
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from headwater.deploy.fleet.bundling.bundler import Recipe, Target, build
from headwater.deploy.fleet.bundling.installed import base_names
from headwater.deploy.fleet.device.bundle_file import CONTEXT, Bundle, BundleError
from headwater.deploy.fleet.device.install import target_problem, way_back
from headwater.deploy.fleet.device.signature import verify
from headwater.security.nkeys import KeyPair

KEY = KeyPair.create("O")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A bundle with one small wheel."""
    wheel = tmp_path / "headwater-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("headwater/x.py", "x = 1\n" * 1000)
        archive.writestr("headwater/noise", os.urandom(30_000))
    return build(Recipe(Target("x86_64", "3.11"), [wheel], KEY), tmp_path)


def read(path: Path, *keys: str) -> dict[str, bytes]:
    """All files of a bundle, verified."""
    bundle = Bundle(path, list(keys) or [KEY.public_key])
    try:
        return {name: content.read() for name, content in bundle.files()}
    finally:
        bundle.close()


def test_signatures_are_those_of_the_library() -> None:
    for length in (0, 1, 64, 1000):
        message = os.urandom(length)
        signature = KEY.sign(message)
        assert verify(KEY.public_key, message, signature)
        assert not verify(KEY.public_key, message + b"x", signature)
        assert not verify(KeyPair.create("O").public_key, message, signature)
        for place in (0, 31, 32, 63):
            wrong = bytearray(signature)
            wrong[place] ^= 1
            assert not verify(KEY.public_key, message, bytes(wrong))
    # A second form of a signature (S + L) must not pass, RFC 8032, 5.1.7.
    order = 2**252 + 27742317777372353535851937790883648493
    s = int.from_bytes(signature[32:], "little") + order
    assert not verify(KEY.public_key, message, signature[:32] + s.to_bytes(32, "little"))
    assert not verify("nonsense", message, signature)
    assert not verify(KEY.public_key, message, b"short")


def test_a_whole_bundle_is_read(small: Path) -> None:
    assert set(read(small)) == {"wheels/headwater-1.2.3-py3-none-any.whl", "bytecode.zip"}
    assert small.name == "headwater-1.2.3-x86_64-cp311.bundle"


def test_only_pinned_keys_count(small: Path) -> None:
    with pytest.raises(BundleError, match="not among the keys"):
        read(small, KeyPair.create("O").public_key)


def test_every_cut_and_every_flipped_byte_is_noticed(small: Path) -> None:
    whole = small.read_bytes()
    good = read(small)
    for size in (0, 10, 511, 600, 2000, len(whole) // 2, len(whole) - 12_000):
        small.write_bytes(whole[:size])
        with pytest.raises(BundleError):
            read(small)
    for place in range(0, len(whole), 197):
        damaged = bytearray(whole)
        damaged[place] ^= 0x40
        small.write_bytes(damaged)
        try:
            assert read(small) == good, place  # padding, or an owner that nobody asks for
        except BundleError:
            continue


def test_a_file_more_or_another_manifest_is_refused(small: Path, tmp_path: Path) -> None:
    with tarfile.open(small) as old:
        members = {m.name: old.extractfile(m).read() for m in old}  # type: ignore[union-attr]
    more = dict(members, **{"../../etc/passwd": b"x"})
    _write(small, more)
    with pytest.raises(BundleError, match="not as the manifest says"):
        read(small)
    manifest = json.loads(members["manifest.json"])
    manifest["version"] = "9.9.9"
    _write(small, dict(members, **{"manifest.json": json.dumps(manifest).encode()}))
    with pytest.raises(BundleError, match="signature"):
        read(small)
    manifest["files"][0]["path"] = "/etc/passwd"
    raw = json.dumps(manifest).encode()
    import base64

    signed = {"key": KEY.public_key,
              "signature": base64.b64encode(KEY.sign(CONTEXT + raw)).decode()}  # fmt: skip
    _write(small, dict(members, **{"manifest.json": raw,
                                   "manifest.sig": json.dumps(signed).encode()}))  # fmt: skip
    with pytest.raises(BundleError, match="impossible file"):
        read(small)


def _write(path: Path, members: dict[str, bytes]) -> None:
    import io

    with tarfile.open(path, "w:") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def test_the_machine_and_its_python_have_to_fit(small: Path) -> None:
    manifest = Bundle(small, [KEY.public_key]).manifest
    assert not target_problem(manifest, "x86_64", "3.11")
    assert "this machine is aarch64" in target_problem(manifest, "aarch64", "3.11")
    assert "this machine has 3.9" in target_problem(manifest, "x86_64", "3.9")


def test_the_downgrade_rule() -> None:
    one, two = {"reads": 1, "writes": 1}, {"reads": 1, "writes": 2}
    three = {"reads": 3, "writes": 3}
    assert not way_back(one, one)
    assert not way_back(one, {})
    assert "no way back" in way_back(two, one)
    assert "cannot read the store" in way_back(three, one)


def test_what_older_pythons_need_is_not_looked_for() -> None:
    """`cryptography` needs typing-extensions below 3.11 alone; pip does not install it here."""
    needed = base_names()
    assert "cffi" in needed
    assert "typing-extensions" not in needed
