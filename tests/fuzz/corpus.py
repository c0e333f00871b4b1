"""Inputs that once were, or easily would be, somebody's failure: where fuzzing begins.

`corpus/<target>.jsonl` holds one case a line, an object of the target's arguments. Bytes are
written as the characters of Latin-1.
"""

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

FOLDER = Path(__file__).parent / "corpus"
CUT_MAX = 40

Case = dict[str, Any]


def cases(target: str) -> list[Case]:
    """The cases of a target."""
    return [json.loads(line) for line in (FOLDER / f"{target}.jsonl").read_text().splitlines()]


def varied(target: str, field: str, piece: st.SearchStrategy[str]) -> st.SearchStrategy[Case]:
    """Cases of the corpus as they are, and with a piece of one field's text in place of another."""

    def spliced(case: Case, at: int, new: str, cut: int) -> Case:
        text = case[field]
        at %= len(text) + 1
        return {**case, field: text[:at] + new + text[at + cut :]}

    known = st.sampled_from(cases(target))
    places = st.integers(0, 1 << 14)
    return st.one_of(known, st.builds(spliced, known, places, piece, st.integers(0, CUT_MAX)))
