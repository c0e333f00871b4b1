"""A file of JSON that is whole at all times."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from headwater.spark.errors import SourceError


def unfinished(path: Path) -> Path:
    """Where the new content is until it is whole; a kill may leave that behind."""
    return path.with_name(f"{path.name}.new")


def write_whole(path: Path, said: Mapping[str, Any]) -> None:
    """Replace the file in one step, for good: a kill or a power cut leaves the old one or the new.

    Raises SourceError when there is no room, or the folder takes no files; the old one stays.
    """
    new = unfinished(path)
    try:
        with new.open("w") as file:
            json.dump(said, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise SourceError(f"{path} cannot be written: {error.strerror}") from error
