"""Changed configurations: those of the tests, put together and changed token by token.

Whether a server takes one is compared, as `-t` says it, and the digests of those that both take.
"""

import os
import random
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.differ.intended_configurations import intended_configuration
from tests.differ.shrink import shrunk
from tests.edge.conf.judged import configurations, judged_by_nats_server, unlike

TOKENS = re.compile(r"""\s+|"[^"\n]*"|'[^'\n]*'|[{}\[\],;:=()#]|//|[^\s{}\[\],;:=()#"']+|.""", re.S)
ODD = Path(__file__).with_name("odd_values.txt").read_text().split("\n")
"""Values that a setting may be changed to."""

SEPARATORS = (
    ":", "=", " ", ": ", " = ", "\n", ",", ";", "{", "}", "[", "]", "#", "//", '"', "'",
)  # fmt: skip


def tokens(text: str) -> list[str]:
    """The text, taken apart."""
    return TOKENS.findall(text)


def changed(seed: int, texts: list[str]) -> list[str]:
    """One configuration, as its tokens."""
    chance = random.Random(seed)
    parts = [chance.choice(texts) for _ in range(chance.choice((1, 1, 2, 3)))]
    found = tokens("\n".join(parts))
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        _change(chance, found, tokens(chance.choice(texts)))
    return found


def _change(chance: random.Random, found: list[str], other: list[str]) -> None:
    """One change, in place."""
    places = [at for at, token in enumerate(found) if not token.isspace()] or [0]
    at = chance.choice(places)
    kind = chance.randrange(8)
    if kind <= 2:
        found[at : at + 1] = [chance.choice(ODD)]
    elif kind == 3:
        del found[at : at + 1]
    elif kind == 4:
        found[at:at] = [*found[at : at + chance.randrange(1, 6)], "\n"]
    elif kind == 5:
        found[at : at + 1] = [chance.choice(SEPARATORS)]
    elif kind == 6:
        words = [token for token in other if not token.isspace()]
        found[at : at + 1] = [chance.choice(words or [""])]
    else:
        token = found[at] if found else ""
        forms = (token.upper(), f'"{token}"', f"[{token}]", f"{token} {token}")
        found[at : at + 1] = [chance.choice(forms)]


class Judges:
    """Both servers' `-t`, for texts that stand in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.texts = configurations(folder)

    def differs(self, text: str) -> str:
        """What each says when they do not agree and that is not by intention; otherwise empty."""
        path = self._folder / "one.conf"
        path.write_text(text)
        accepted, said = judged_by_nats_server(path)
        found = unlike(path, accepted, said)
        path.unlink()
        if not found or intended_configuration(text, found, said):
            return ""
        return f"  ours   {found}\n  theirs {said.strip()}"


def compared(seeds: Iterable[int], most: int) -> tuple[list[str], int]:
    """Configurations by both servers: differences, and how many were tried."""
    found: list[str] = []
    tried = 0
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        judges = Judges(Path(name))
        os.chdir(name)  # What a text includes stands there.
        try:
            for seed in seeds:
                texts = changed(seed, judges.texts)
                tried += 1
                if not judges.differs("".join(texts)):
                    continue
                small = "".join(shrunk(texts, lambda left: bool(judges.differs("".join(left)))))
                found.append(f"configurations seed={seed}\n{small!r}\n{judges.differs(small)}")
                print(found[-1], flush=True)
                if len(found) >= most:
                    break
        finally:
            os.chdir(before)
    return found, tried
