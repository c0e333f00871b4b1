"""A small share of the simulated JetStream in every test run, with seeds never seen before."""

import json
import os
import secrets
import subprocess
import sys

import pytest

from tests.sim.checks.checker import Violation
from tests.sim.jetstream.bugs import BUGS
from tests.sim.jetstream.machines import Machine
from tests.sim.jetstream.network import Network
from tests.sim.jetstream.plan import draw
from tests.sim.jetstream.runner import SEARCH, STEPS, STORIES, attempt, explain
from tests.sim.jetstream.story import Outcome, Story
from tests.sim.jetstream.world import SECOND_NS, World
from tests.sim.planted.bug import Bug
from tests.sim.stories import told
from tests.slow import one_in, slow

KNOWN_SEEDS = (
    (110, 120),
    (131, 120),
    (50027, 120),
    (100167, 120),
    (200021, 120),
    (144, 30),
    (1055, 30),
    (928433808576, 120),
    (261891702149, 120),
    (839921071016, 120),
    (989969874755, 120),
)
"""Seeds and steps that found bugs. After the clock was set and a start, an id from before was
stored twice (144), messages were taken for ten years older (1055), and what waited for an ack was
saved as delivered an hour later (989969874755). A purge of one of a consumer's subjects made it
pass over the others (110, 131). A stream's file that a killed node had not synced counted as
durable after the next start (50027). A power cut in the midst of a small file on a full device
was reported as damage (100167). Some outlived their age because a clock was set back while
its machine was off, which is as it should be (200021). The others are bugs of the check: the last
message was removed before the mirror had it, and was missed (928433808576, 839921071016); what was
sent again and is stored, and not yet answered, took the place of another (261891702149)."""
SAMPLE = (
    *("acks-before-sync", "ids-forgotten", "removed-before-durable", "mirror-takes-what-comes"),
    *("consumer-answered-early", "mirror-passes-over-too-early"),
)
"""The others: `make sim-jetstream ARGS=--bugs`."""
TRACE = """
import json, sys
from tests.sim.jetstream.story import Story
print(json.dumps(Story(int(sys.argv[1]), 40).run().trace))
"""


@pytest.mark.fresh
def test_new_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    seed = secrets.randbelow(1 << 40)
    with capsys.disabled():
        print(f"\nsimulated JetStream: seed={seed} steps={STEPS}")
        print(SEARCH.run(range(seed, seed + 1000), STEPS, seconds=5))


@pytest.mark.parametrize(("seed", "steps"), one_in(3, KNOWN_SEEDS))
def test_seeds_that_found_bugs(seed: int, steps: int) -> None:
    outcome = attempt(seed, steps)
    assert not isinstance(outcome, str), explain(seed, steps, outcome)


def test_what_waits_for_an_ack_is_saved_right_while_the_clock_is_set() -> None:
    """What is written down between the clock's step and the consumer's next turn is right."""
    with World(1) as world:
        machine = Machine(world, "hub", Network(world), False)
        machine.start()
        heard: list[bytes] = []
        for subject, body in (
            ("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]}),
            (
                "CONSUMER.DURABLE.CREATE.S.C",
                {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}},
            ),
        ):
            data = json.dumps(body).encode()
            machine.request(f"$JS.API.{subject}", data, lambda _, body: heard.append(body))
        machine.request("s", b"one", lambda _, body: heard.append(body))
        assert world.wait(lambda: len(heard) == 3, 10)
        machine.request("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1", lambda _, body: heard.append(body))
        assert world.wait(lambda: len(heard) == 4, 10)
        stream = machine.stream("S")
        assert stream is not None
        waiting = stream.consumers["C"].waiting_entries()
        assert len(waiting) == 1
        step = -3600 * SECOND_NS
        machine.clock.set_by_ns += step
        stream.timers.clock_set(step)
        assert stream.consumers["C"].waiting_entries() == waiting
        machine.switch_off()


def test_a_seed_tells_the_same_story_twice() -> None:
    assert STORIES.repeats(7, 40)


def test_a_seed_tells_the_same_story_in_another_process() -> None:
    here = attempt(11, 40)
    assert isinstance(here, Outcome)
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", TRACE, "11"]
    output = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    assert json.loads(output) == list(here.trace)


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name in SAMPLE], ids=lambda b: b.name)
def test_planted_bugs_are_found(bug: Bug) -> None:
    assert SEARCH.hunt(bug, 1) is not None


def test_there_are_enough_planted_bugs() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 20
    assert {bug.name for bug in BUGS} >= set(SAMPLE)


def test_runs_see_what_can_happen() -> None:
    """Of the first seeds every setting, fault and work is in some plan."""
    plans = [draw(seed, STEPS) for seed in range(1, 30)]
    assert len({setting.kind for setting, _ in plans}) == 5
    assert len({setting.origin_dials for setting, _ in plans}) == 2
    assert len({step.kind for _, steps in plans for step in steps}) == 16


@slow
def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def purge(story: Story, step: object) -> None:
        story.world.wrong("something was purged")

    monkeypatch.setattr(Story, "_do_purge", purge)
    seed = next(s for s in range(1, 50) if any(step.kind == "purge" for step in draw(s, 4)[1]))
    text = explain(seed, 4, "something was purged")
    assert f"make sim-jetstream SEED={seed} STEPS=4" in text
    assert "1 of 4 steps are enough" in text
    assert "purge" in text and "WRONG something was purged" in text


def test_what_the_product_logs_as_a_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(story: Story, headers: bytes) -> None:
        raise ValueError("a sink fails")

    monkeypatch.setattr("tests.sim.jetstream.client.ConsumerClient.got", broken)
    found = told(Story(3, 30))
    assert isinstance(found, str)
    assert "service on" in found


def test_time_goes_on_only_when_nothing_is_ready() -> None:
    with World(1) as world:
        seen: list[int] = []
        world.own.call_later(2.0, lambda: seen.append(world.now_ns))
        world.own.call_later(1.0, lambda: world.own.call_soon(lambda: seen.append(world.now_ns)))
        world.sleep(5.0)
    assert [round(ns / SECOND_NS, 3) for ns in seen] == [1.0, 2.0]
    assert world.now_ns >= 5 * SECOND_NS


def test_a_mirror_notices_that_its_link_is_cut_while_its_clock_is_behind() -> None:
    with World(1) as world:
        network = Network(world)
        hub, edge = Machine(world, "hub", network, False), Machine(world, "edge", network, True)
        hub.start()
        edge.start()
        origin = {"name": "M", "mirror": {"name": "S", "external": {"api": "$JS.hub.API"}}}
        heard: list[bytes] = []
        hub.request("$JS.API.STREAM.CREATE.S", b'{"name":"S"}', lambda _, body: heard.append(body))
        create = json.dumps(origin).encode()
        edge.request("$JS.API.STREAM.CREATE.M", create, lambda _, body: heard.append(body))

        def state() -> str:
            assert edge.node is not None
            rows = [service.status().get("origins", []) for service in edge.node.services]
            return str(rows[-1][0]["state"]) if rows[-1] else ""

        assert world.wait(lambda: state() == "live", 20)
        edge.clock.set_by_ns = -3600 * SECOND_NS
        world.sleep(3)
        network.cut(silently=True)
        world.sleep(15)
        assert state() == "offline"
        hub.switch_off()
        edge.switch_off()


def test_what_is_wrong_ends_a_run() -> None:
    with World(1) as world, pytest.raises(Violation, match="so it is"):
        world.own.call_later(1.0, world.wrong, "so it is")
        world.sleep(5.0)
