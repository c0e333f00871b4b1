"""Keep what another version of the program stores: a command for when a format changes.

    python -m tests.earlier.record PROGRAM DATE

PROGRAM is that version's `headwater`, DATE the day of the version. It tells the story to each kind
of node, ends it as a power cut of the process would, and writes a packed store and what a client
read of it to `kept/`.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.earlier.portrait import portrait
from tests.earlier.programs import KINDS, connected, running
from tests.earlier.story import tell
from tests.waiting import until

KEPT = Path(__file__).parent / "kept"
NOT_KEPT = "ballast"
"""A reserve of the device, which each start makes anew."""


async def _record(program: str, name: str, kind: str, folder: Path) -> None:
    with running(program, kind, folder) as servers:
        async with connected(servers[0]) as client:
            await tell(client, len(servers))
            seen = [await portrait(client)]

            async def rests() -> bool:
                seen.append(await portrait(client))
                return seen[-1] == seen[-2]

            await until(rests, "mirrors and sources have everything")
        for server in servers:
            server.kill()
        pack = ["tar", "-cJS", "--owner=0", "--group=0", f"--exclude={NOT_KEPT}", "-C", str(folder)]
        subprocess.run(
            [*pack, "-f", str(KEPT / f"{name}-{kind}.tar.xz"), "."], check=True
        )
    text = json.dumps(seen[-1], indent=1, sort_keys=True)
    (KEPT / f"{name}-{kind}.json").write_text(text + "\n")


def main(program: str, name: str) -> None:
    """Record every kind."""
    KEPT.mkdir(exist_ok=True)
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_record(program, name, kind, Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
