"""The fault scripts for clusters, tiny, against real processes."""

from pathlib import Path

import pytest

from bench.cluster.faults import FAULTS, NETWORK, Outcome, Plan, run, table
from bench.cluster.namespaces import NoNamespaces
from tests.slow import one_in, slow


def tiny(path: Path) -> Plan:
    """One round with few clients."""
    return Plan(rounds=1, seconds=2.0, publishers=2, consumers=1, parent=path)


@pytest.mark.parametrize("fault", one_in(2, ["partitioned", "kills"]))
async def test_headwater_keeps_its_promises(tmp_path: Path, fault: str) -> None:
    try:
        outcome = await run(fault, "headwater", tiny(tmp_path))
    except NoNamespaces as error:
        pytest.skip(f"no network namespaces: {error}")
    assert outcome.acked > 0
    assert outcome.broken == 0, outcome
    assert outcome.gap > 0
    assert outcome.gets > 0, "none of them is old"


@slow
async def test_a_leader_that_was_stopped_hands_out_nothing_that_is_done(tmp_path: Path) -> None:
    outcome = await run("pauses", "headwater", Plan(2, seconds=4.0, parent=tmp_path))
    assert outcome.acked > 0
    assert outcome.broken == 0, outcome


@slow
async def test_clients_that_are_cut_off_make_no_gap_for_others(tmp_path: Path) -> None:
    # Cut for 7 s, a client's TCP sends again after 12.6 s. The others have a leader after one.
    try:
        outcome = await run("partitioned", "headwater", Plan(1, seconds=7.0, parent=tmp_path))
    except NoNamespaces as error:
        pytest.skip(f"no network namespaces: {error}")
    assert outcome.broken == 0, outcome
    assert outcome.wait > 7.0, outcome
    assert outcome.gap < outcome.wait / 2, outcome


@slow
async def test_the_same_script_drives_the_real_server(tmp_path: Path) -> None:
    outcome = await run("kills", "real", tiny(tmp_path))
    assert outcome.acked > 0


def test_a_row_for_each_outcome() -> None:
    assert set(NETWORK) < set(FAULTS)
    lines = table([Outcome("kills", "one", 2, 1234, lost=1, gap=0.25)]).splitlines()
    assert lines[2] == "| kills | one | 2 | 1,234 | 1 | 0 | 0 | 0 | 0.2 | 0.0 | 0 | 0 | 0.0 |"
    assert Outcome("kills", "one", lost=1, repeated=1, again=1, differ=1, old=1).broken == 5
