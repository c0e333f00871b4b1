"""The start image: what is in it is loaded from it, and what was edited since is not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.deploy import start_image

PROGRAM = """
import sys
from headwater.deploy.start_image import StartImage
image = StartImage(sys.argv[1])
sys.meta_path.insert(0, image)
import gateway.pump
print(gateway.pump.SAID, type(gateway.pump.__loader__).__name__, gateway.__path__)
print(gateway.pump.__loader__.get_source("gateway.pump"))
image.keep()
"""


class Package:
    """A package of two modules, and programs that import it by way of an image."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.image = folder / "image"
        self.module = folder / "gateway" / "pump.py"
        self.module.parent.mkdir()
        (self.module.parent / "__init__.py").touch()
        self.module.write_text("SAID = 'first'")

    def run(self, **environment: str) -> str:
        """The first line that the program prints."""
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(self.image)],
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment}
            | {"PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
            check=True,
        )
        first, source, *_ = done.stdout.splitlines()
        assert source == self.module.read_text()
        return first


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return Package(tmp_path)


def test_a_second_start_loads_from_the_image(package: Package) -> None:
    found = f"['{package.module.parent}']"
    assert package.run() == f"first SourceFileLoader {found}"
    assert package.run() == f"first ImageLoader {found}"


def test_what_was_edited_is_loaded_from_its_source(package: Package) -> None:
    package.run()
    package.module.write_text("SAID = 'something else'")
    assert package.run().startswith("something else SourceFileLoader")
    # That start wrote what it had missed.
    assert package.run().startswith("something else ImageLoader")


def test_an_edit_of_the_same_size_and_second_is_seen(package: Package) -> None:
    package.run()
    before = package.module.stat().st_mtime_ns
    package.module.write_text("SAID = 'fifth'")
    second = before // 10**9 * 10**9
    os.utime(package.module, ns=(second, second + (before + 1) % 10**9))
    # Python's own bytecode files cannot tell the two apart, so they go.
    for cached in (package.module.parent / "__pycache__").iterdir():
        cached.unlink()
    assert package.run().startswith("fifth SourceFileLoader")


@pytest.mark.parametrize("damage", [b"", b"\xff" * 100, b"\0" * 8, b"\x08" + bytes(7) + b"i"])
def test_a_damaged_image_is_none(package: Package, damage: bytes) -> None:
    package.run()
    package.image.write_bytes(damage)
    assert package.run().startswith("first SourceFileLoader")
    assert package.run().startswith("first ImageLoader")


def test_a_removed_module_is_not_found(package: Package) -> None:
    package.run()
    package.module.unlink()
    with pytest.raises(subprocess.CalledProcessError) as caught:
        package.run()
    assert "No module named 'gateway.pump'" in caught.value.stderr


def test_nothing_is_written_where_bytecode_is_not(package: Package) -> None:
    package.run(PYTHONDONTWRITEBYTECODE="1")
    assert not package.image.exists()


def test_an_image_is_for_one_search_path(package: Package) -> None:
    package.run()
    assert start_image._read(str(package.image))[0] == {}


def test_this_installation_has_one() -> None:
    """`make ext` writes it, by a start of a node with JetStream."""
    folder = Path(start_image.__file__).parent / "__pycache__"
    (image,) = folder.glob("serve.{}.{}.image".format(*sys.version_info[:2]))
    with image.open("rb") as file:
        assert b"headwater.edge.jetstream.node.node" in file.read()


def test_a_start_that_is_over_keeps_none_of_the_image_in_memory(package: Package) -> None:
    package.run()
    program = PROGRAM + (
        "\nrows = open('/proc/self/smaps').read().split(sys.argv[1])[1].splitlines()\n"
        "print(next(row.split()[1] for row in rows if row.startswith('Rss:')))\n"
        "print(image._missed, gateway.pump.__loader__.get_code('gateway.pump').co_name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(package.image)],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(package.folder)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    *_, resident, last = done.stdout.splitlines()
    assert resident == "0"
    # What is asked for later is read again.
    assert last.endswith("] <module>")
