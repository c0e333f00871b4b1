"""Programs of official clients on clusters whose nodes leave, are killed, stand or lead in turn."""

import shutil
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from bench.cluster.nodes import SERVERS, ClusterNodes
from tests.clients.troubles import (
    HERE,
    LAME_DUCK,
    PROGRAMS,
    TROUBLES,
    Outcome,
    Trouble,
    killed,
    stepping,
)
from tests.slow import shared, slow

QUICK: dict[str, Callable[[Trouble], Awaitable[None]]] = {
    "stepping": partial(stepping, times=2), "killed": killed,
}  # fmt: skip
ENDS = {"new-python"}
"""Whose consumers hear nothing more once they were cut off, with nats-server as well."""
LAST_S = 400.0

pytestmark = pytest.mark.alone


async def met(language: str, troubles: dict[str, Callable[[Trouble], Awaitable[None]]]) -> Outcome:
    """What a program sees of a cluster of ours."""
    (program, *_), needed = PROGRAMS[language]
    if not (HERE / needed).exists() or not ("/" in program or shutil.which(program)):
        pytest.skip(f"the client of {language} is not installed; run `make clients`")
    with ClusterNodes(SERVERS["headwater"], more=LAME_DUCK) as nodes:
        trouble = Trouble(nodes, language)
        await trouble.prepare()
        return await trouble.run(troubles)


@slow
@pytest.mark.timeout(LAST_S)
@pytest.mark.parametrize("language", PROGRAMS)
async def test_a_program_goes_through_all_troubles(language: str) -> None:
    outcome = await met(language, TROUBLES)
    assert outcome.wrong() == [], outcome.book.stalls
    assert outcome.book.acked["sync"] and outcome.book.acked["async"]
    if language not in ENDS:
        assert (outcome.unseen, outcome.old_watch) == (0, False), outcome.book.stalls


@pytest.mark.parametrize("language", shared(PROGRAMS, lambda name: name == "python"))
async def test_a_program_sees_a_kill_and_other_leaders(language: str) -> None:
    outcome = await met(language, QUICK)
    assert outcome.wrong() == [], outcome.book.stalls
    assert min(len(outcome.book.acked[who]) for who in ("sync", "async", "asked", "queue")) > 20
    if language not in ENDS:
        assert (outcome.unseen, outcome.old_watch) == (0, False), outcome.book.stalls
