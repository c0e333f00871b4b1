"""Small files in two copies that are written in place, as a full device has no room for others."""

import contextlib

import pytest

from headwater.edge.ports.twins.chance import SeededRandom
from headwater.edge.ports.twins.files import TwinFiles
from headwater.edge.storage.device.durable_file import TwoCopyFile


class Cut(Exception):
    """The power goes."""


def full_disk(sizes: int) -> tuple[TwinFiles, TwoCopyFile]:
    """A disk with a file of that many bytes of content, and room for nothing else."""
    disk = TwinFiles()
    file = TwoCopyFile(disk.root / "x")
    file.write(b"a" * sizes)
    disk.sync_all()
    disk.capacity = disk.used
    return disk, file


@pytest.mark.parametrize("size", [10, 900, 9000])
@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_anywhere_is_no_damage(size: int, seed: int) -> None:
    """The old content or the new one is there, it can be written again, and nothing is reported."""
    cut_at, done = 0, False
    while not done:
        cut_at += 1
        disk, file = full_disk(size)
        left = cut_at

        def watch(what: str, path: str) -> None:
            nonlocal left
            left -= what in ("write", "sync")
            if not left:
                raise Cut

        disk.watch = watch
        done = True
        try:
            file.write(b"b" * size)
        except Cut:
            done = False
        disk.watch = None
        disk.power_cut(SeededRandom(seed))
        again = TwoCopyFile(disk.root / "x")
        content = again.read()
        assert content in ((b"b" * size,) if done else (b"a" * size, b"b" * size))
        assert again.damaged == 0
        again.write(b"c" * size)
        last = TwoCopyFile(disk.root / "x")
        assert (last.read(), last.damaged, last.begun) == (b"c" * size, 0, -1)
    assert cut_at > 6


def test_a_flipped_bit_is_damage() -> None:
    disk, file = full_disk(900)
    with contextlib.suppress(OSError):
        file.write(b"b" * 900)
    disk.flip(("x",), 700, 1)
    again = TwoCopyFile(disk.root / "x")
    assert (again.read(), again.damaged) == (b"b" * 900, 1)
