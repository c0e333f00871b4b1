"""What differs by intention between made-up accounts on both servers, each with its reason."""

import json
import re
from itertools import combinations

from headwater.edge.subjects.tokens import overlap
from tests.differ.accounts.steps import Step
from tests.differ.accounts.worlds import Part

ACCOUNTS = {
    "end for a token": "nats-server takes the `>` of a subscription for a token that `*` allows, "
    "and delivers what is longer. Here that is not heard",
    "two ways": "an import that may be of two exports is right by either of them. nats-server "
    "judges it by one, which is chance",
    "circle by chance": "imports that lead back are refused. nats-server adds accounts' imports in "
    "an order that is chance, and sees a circle only in some orders",
}
"""A name, and the reason."""

_ENDS = re.compile(rb"SUB \S*>\s+(?:\S+ )?(\d+)\r\n")


def intended(
    parts: list[Part], wanted: list[Step], number: int, ours: dict[str, list[str]],
    theirs: dict[str, list[str]],
) -> str:  # fmt: skip
    """The name of the difference when it is one by intention; otherwise empty. Step -1 is the
    start."""
    if number < 0 and "import forms a cycle" in str(ours) and "starts" in str(theirs):
        return "circle by chance"
    if number < 0:
        return "two ways" if "import not authorized" in str(theirs) and _two_ways(parts) else ""
    unlike = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    ends = {
        f"{step.conn} {sid.decode()}"
        for step in wanted[: number + 1]
        for sid in _ENDS.findall(step.data)
    }
    ruled = any("subscribe" in text and "*" in text for _, _, text in parts)
    unheard = {key for key in unlike if _nobody_here(ours.get(key, []), theirs.get(key, []))}
    unlike = [key for key in unlike if key not in unheard]
    heard = all(set(_somebody(ours.get(key, []))) < set(theirs.get(key, [])) for key in unlike)
    return "end for a token" if unlike and ruled and heard and ends.issuperset(unlike) else ""


def _nobody_here(ours: list[str], theirs: list[str]) -> bool:
    """Whether ours has nothing more than that nobody listens."""
    return _somebody(ours) == theirs


def _somebody(lines: list[str]) -> list[str]:
    """What came, but that nobody listens."""
    return [one for one in lines if "NATS/1.0 503" not in one]


def _two_ways(parts: list[Part]) -> bool:
    exports = [
        (account, kind, json.loads(text)[kind])
        for account, which, text in parts
        for kind in ("stream", "service")
        if which == "exports" and kind in json.loads(text)
    ]
    return any(
        one[:2] == other[:2] and overlap(one[2].encode(), other[2].encode())
        for one, other in combinations(exports, 2)
    )
