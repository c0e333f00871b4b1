"""Stories in `transcripts/*.txt`, told again and compared word for word."""

import os
from pathlib import Path

import pytest

from tests.hub.raft.stage import Stage

FOLDER = Path(__file__).parent / "transcripts"
FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_story_is_told_the_same_way(path: Path) -> None:
    stage = Stage()
    told = []
    for block in path.read_text().split("\n\n"):
        lines = [line for line in block.splitlines() if line]
        comments = [line for line in lines if line.startswith("#")]
        command = next((line for line in lines if not line.startswith("#")), None)
        told.append("\n".join(comments))
        if command is not None:
            told[-1] = "\n".join([*comments, command, "----", stage.run(command)])
    text = "\n\n".join(part for part in told if part) + "\n"
    if os.environ.get("HEADWATER_REWRITE"):
        path.write_text(text)
    assert text == path.read_text()


def test_there_are_stories() -> None:
    assert len(FILES) >= 35
