"""Versions that a node announces."""

from pathlib import Path
from typing import Final

VERSION: Final = "0.1.0"
"""Headwater's own version."""

NATS_LEVEL: Final = "2.14.0"
"""Version of NATS whose behaviour is implemented; clients switch features by it."""

API_LEVEL: Final = 5
"""Level of the JetStream API (ADR-44). 5 is that of NATS 2.15: a source names the identity of its
sender, and notices by the answer that the sender was made again."""

FEATURE_FLAGS: Final = {"js_ack_fc_v2": False, "js_raft_delete_range": False}
"""Switches of that level of NATS, and where each stands unless the configuration says otherwise."""

PEER_HEADER: Final = b"Headwater-Version"
"""Header by which a node that follows an origin says what it is, and has the origin say so too."""


def peer_block() -> bytes:
    """The header block with that header."""
    return b"NATS/1.0\r\n%b: %b\r\n\r\n" % (PEER_HEADER, VERSION.encode())

COMMIT_FILE: Final = Path(__file__).with_name("git_commit.txt")
"""The build writes it (`setup.py`), where it knows from which commit it builds."""


def _commit() -> str:
    try:
        return COMMIT_FILE.read_text().strip()
    except OSError:
        return ""


GIT_COMMIT: Final = _commit()
"""The first digits of the commit that was built; empty where that is not known."""
