"""A copy of a stream passes over a removal when no crash can take it back, and not before."""

import json
from typing import Any

import pytest

from tests.sim.jetstream.machines import Machine
from tests.sim.jetstream.network import Network
from tests.sim.jetstream.world import World

WRITE_S = 5.0
REMOVALS = {
    "deleted": ("STREAM.MSG.DELETE.S", {"seq": 2, "no_erase": True}, [3]),
    "first": ("STREAM.MSG.DELETE.S", {"seq": 1, "no_erase": True}, [2, 3]),
    "purged": ("STREAM.PURGE.S", {"filter": "s.2"}, [3]),
}


def asked(world: World, machine: Machine, subject: str, body: Any) -> dict[str, Any]:
    heard: list[bytes] = []
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    machine.request(subject, data, lambda _, answer: heard.append(answer))
    assert world.wait(lambda: bool(heard), 20)
    found: dict[str, Any] = json.loads(heard[0])
    assert "error" not in found
    return found


def consumer(name: str, **more: Any) -> dict[str, Any]:
    config = {
        "name": name,
        "deliver_subject": name,
        "ack_policy": "none",
        "deliver_policy": "by_start_sequence",
        **more,
    }
    return {"stream_name": "S", "config": config}


@pytest.mark.parametrize("removal", list(REMOVALS))
def test_a_copy_waits_for_what_it_would_pass_over(removal: str) -> None:
    request, body, left = REMOVALS[removal]
    with World(1) as world:
        machine = Machine(world, "hub", Network(world), False)
        machine.start()
        asked(world, machine, "$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"]})
        for number in (1, 2, 3):
            asked(world, machine, f"s.{number}", b"")
        start = left[0] - 1
        got: dict[str, list[int]] = {"copy": [], "client": []}
        for name, seen in got.items():

            def hear(reply: bytes, _: bytes, __: bytes, seen: list[int] = seen) -> None:
                seen.append(int(reply.split(b".")[5]))

            machine.listen(name, hear)
        machine.set_write_delay(WRITE_S)
        answers: list[bytes] = []
        machine.request(
            f"$JS.API.{request}", json.dumps(body).encode(), lambda _, data: answers.append(data)
        )
        made: list[bytes] = []
        for name in got:
            config = consumer(name, opt_start_seq=start, direct=name == "copy", mem_storage=True)
            machine.request(
                f"$JS.API.CONSUMER.CREATE.S.{name}",
                json.dumps(config).encode(),
                lambda _, data: made.append(data),
            )
        world.sleep(1)
        assert not answers
        assert got == {"copy": [], "client": left}
        assert world.wait(lambda: bool(answers), 3 * WRITE_S)
        assert world.wait(lambda: got["copy"] == left, 1)
        machine.switch_off()


def test_a_copy_does_not_wait_for_removals_elsewhere() -> None:
    with World(1) as world:
        machine = Machine(world, "hub", Network(world), False)
        machine.start()
        asked(world, machine, "$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"]})
        for number in (1, 2, 3, 4):
            asked(world, machine, f"s.{number}", b"")
        asked(world, machine, "$JS.API.STREAM.MSG.DELETE.S", {"seq": 3, "no_erase": True})
        got: list[int] = []
        machine.listen("copy", lambda reply, _, __: got.append(int(reply.split(b".")[5])))
        machine.set_write_delay(WRITE_S)
        body = json.dumps({"seq": 1, "no_erase": True}).encode()
        machine.request("$JS.API.STREAM.MSG.DELETE.S", body, lambda _, data: None)
        config = consumer("copy", opt_start_seq=2, direct=True)
        machine.request(
            "$JS.API.CONSUMER.CREATE.S.copy", json.dumps(config).encode(), lambda _, data: None
        )
        world.sleep(1)
        assert got == [2, 4]
        machine.switch_off()


def test_the_answer_to_a_copy_passes_over_nothing_that_can_come_back() -> None:
    """It says from where on messages come: what lies before that is not asked for again."""
    with World(1) as world:
        machine = Machine(world, "hub", Network(world), False)
        machine.start()
        asked(world, machine, "$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"]})
        for number in (1, 2, 3):
            asked(world, machine, f"s.{number}", b"")
        machine.set_write_delay(WRITE_S)
        purged: list[bytes] = []
        machine.request("$JS.API.STREAM.PURGE.S", b"", lambda _, data: purged.append(data))

        def passed(name: str, **more: Any) -> int:
            body = consumer(name, opt_start_seq=2, mem_storage=True, **more)
            answer = asked(world, machine, f"$JS.API.CONSUMER.CREATE.S.{name}", body)
            return int(answer["delivered"]["stream_seq"])

        assert passed("copy", direct=True) == 1
        assert passed("client") == 3
        assert not purged
        assert world.wait(lambda: bool(purged), 20)
        assert passed("later", direct=True) == 3
        machine.switch_off()
