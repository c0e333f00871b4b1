"""What the files of a sealed store say of its streams' data keys, while a node runs or after it."""

import json
from pathlib import Path
from typing import Any

from headwater.edge.storage.device.durable_file import TwoCopyFile
from tests.deploy.running_node import Running
from tests.waiting import until_seen


def metas(folder: Path) -> dict[str, dict[str, Any]]:
    """The first row of each stream's meta file, by the stream's name."""
    contents = (TwoCopyFile(path).read() for path in folder.rglob("meta"))
    rows = [json.loads(content.split(b"\n", 1)[0]) for content in contents if content]
    return {row["name"]: row for row in rows}


def until_packed(node: Running, folder: Path, **wanted: object) -> None:
    """Wait until no stream is to be packed again, and each has one data key with these fields.

    The files say so whether or not this start of the node had to do anything for it.
    """

    def packed() -> bool:
        assert node.process.poll() is None, "the node ended"
        rows = metas(folder).values()
        return bool(rows) and all(
            not row.get("repack")
            and len(row["keys"]) == 1
            and wanted.items() <= row["keys"][0].items()
            for row in rows
        )

    until_seen(packed, f"every stream has one data key with {wanted}")
