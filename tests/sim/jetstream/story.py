"""One run: a stream with two consumers on one node, a mirror of it on another, faults, and calm.

Checked at every delivery and answer: what the books of the stream and the consumers say. Checked
after every start and at the end: whole stores against the books, mirror against origin, health.
"""

import json
from dataclasses import dataclass
from typing import Any

from headwater.edge.monitor.pages.healthz import healthz
from headwater.edge.ports.twins.chance import SeededRandom
from tests.sim.jetstream import faults, mirror
from tests.sim.jetstream.client import STREAM, ConsumerClient
from tests.sim.jetstream.machines import Machine
from tests.sim.jetstream.network import Network
from tests.sim.jetstream.plan import Step, draw
from tests.sim.jetstream.stream_book import Message, Purge, StreamBook, short
from tests.sim.jetstream.world import SECOND_NS, World

RETRY_NS = SECOND_NS
WRONG_LAST = (10071, 10070)
FULL = (10023, 10047, 10077, 10049, 10012)
"""Codes of errors with which a node with a full disk refuses."""
CALM_S = 90.0
BEHIND = 3
"""So many times messages are published that the mirror has yet to get when some are removed."""
BEHIND_S = 1.0
"""They are stored in so long."""
CONFIGURED = ("max_msgs", "max_msgs_per_subject", "max_age", "description")


@dataclass(frozen=True)
class Outcome:
    """What a run was like. Two runs of one seed have the same."""

    steps: int
    published: int
    deliveries: int
    starts: int
    checks: int
    rounds: int
    simulated_s: float
    trace: tuple[str, ...]


def shown(config: dict[str, Any]) -> tuple[Any, ...]:
    """What of a stream's configuration is changed in a run."""
    # A limit of -1 is none, as one that is not given.
    values = [config.get(name) for name in CONFIGURED]
    return tuple("" if value in (None, -1, 0) else value for value in values)


class Story:
    """One run of a plan."""

    def __init__(self, seed: int, steps: int, plan: list[Step] | None = None) -> None:
        self.seed = seed
        self.setting, drawn = draw(seed, steps)
        self.plan = drawn if plan is None else plan
        self.chance = SeededRandom(f"clients {seed}")
        self.world = World(seed)

    def run(self) -> Outcome:
        """The whole of it. Raises Violation; `world.trace` says what happened."""
        with self.world:
            try:
                return self._run()
            finally:
                self._end()

    def _run(self) -> Outcome:
        world = self.world
        self._set_up()
        for step in self.plan:
            world.sleep(step.ms / 1000)
            self._do(step)
            self.look()
        self._calm()
        world.judge()
        return Outcome(
            len(self.plan),
            self.sent,
            sum(client.book.deliveries for client in self.clients),
            sum(machine.life for machine in self.machines),
            self.book.checks,
            world.rounds,
            world.now_ns / SECOND_NS,
            tuple(world.trace),
        )

    def _end(self) -> None:
        self.network.end()
        for machine in self.machines:
            machine.switch_off()

    # -- the beginning ------------------------------------------------------------

    def _set_up(self) -> None:
        world, setting = self.world, self.setting
        self.network = Network(world)
        hub = Machine(world, "hub", self.network, dials=False)
        edge = Machine(world, "edge", self.network, dials=True)
        self.machines = (hub, edge)
        self.origin, self.copy = (edge, hub) if setting.origin_dials else (hub, edge)
        self.book = StreamBook(
            world, setting.window_ns, workqueue=setting.stream.get("retention") == "workqueue"
        )
        self.book.limits.tighten(setting.stream)
        self.configs = [shown(setting.stream)]
        """What was confirmed last, and what was asked for since."""
        self.sent = self._events = self.ids_of_life = 0
        self.begun = False
        self.waiting: dict[bytes, Message] = {}
        self.full_until_ns = -1
        self.faults = faults.Faults(self)
        self.mirror = mirror.MirrorCheck(self)
        world.note(f"{setting}")
        self.clients = [ConsumerClient(self, config) for config in setting.consumers]
        for machine in self.machines:
            machine.on_down = self._went_down
            machine.on_start = self._started
            machine.start()
        self._make(self.origin, {"name": STREAM, **setting.stream})
        for client in self.clients:
            client.create()
            client.connect()
        if setting.mirrored:
            self._make(self.copy, self.mirror.config())
        ready = world.wait(lambda: all(client.state == "there" for client in self.clients), 10)
        world.check(ready, "the consumers are not made")
        self.begun = True

    def _make(self, machine: Machine, config: dict[str, Any]) -> None:
        told: list[bytes] = []
        subject = f"$JS.API.STREAM.CREATE.{config['name']}"
        machine.request(subject, json.dumps(config).encode(), lambda _, body: told.append(body))
        self.world.wait(lambda: bool(told), 10)
        self.world.check(bool(told) and b'"error"' not in told[0], f"not made: {told}")

    def event(self) -> int:
        """Number of the next event: what a node does later, it writes later."""
        self._events += 1
        return self._events

    def on_disk(self, answer_to: int, event: int) -> None:
        """The origin's node confirmed, in that start, what was asked at that event."""
        if answer_to != self.origin.life or self.world.now_ns < self.full_until_ns:
            return
        for client in self.clients:
            client.book.on_disk(event)

    def refused(self, what: str, error: dict[str, Any]) -> None:
        """The API says no: only a full disk is a reason."""
        self.world.note(f"{what}: {error}")
        full = self.world.now_ns <= self.full_until_ns
        self.world.check(full and error["err_code"] in FULL, f"{what}: {error}")

    def _went_down(self, machine: Machine, harm: str) -> None:
        self.faults.went_down(machine, harm)
        self.mirror.touched()
        if machine is self.origin:
            self.book.interrupted()
            for client in self.clients:
                client.book.interrupted()

    def _started(self, machine: Machine) -> None:
        self.mirror.touched()
        if not self.begun:
            return
        stream = machine.stream(STREAM)
        if machine is self.copy:
            self.mirror.compare()
            return
        self.world.check(stream is not None, "the stream is gone")
        if stream is not None:
            self.book.compare(stream.store, "the stream after a start")
            self.is_configured(stream)
        for client in self.clients:
            client.after_start()
            client.connect()

    # -- work -----------------------------------------------------------------------

    def _do(self, step: Step) -> None:
        if step.kind not in ("publish", "pull"):
            self.world.note(f"step {step}")
        work = getattr(self, f"_do_{step.kind}", None)
        if work is not None:
            work(step)
        else:
            self.faults.strike(step)

    def _do_publish(self, step: Step) -> None:
        self.retry()
        for _ in range(1 + step.a % 6):
            self.sent += 1
            name = b"m%d %s" % (self.sent, b"." * self.chance.below(300))
            message = Message(name, f"s.{self.chance.below(4)}")
            if self.chance.below(4):
                message.id = b"id%d" % self.sent
            stream = self.origin.stream(STREAM)
            if stream is not None and self.chance.below(8) == 0:
                message.expected = stream.store.last_seq
            self.publish(message)

    def publish(self, message: Message) -> None:
        """Send a message."""
        if self.origin.gone:
            return
        event, life = self.event(), self.origin.life
        self.book.published(message)
        if message.id:
            self.waiting[message.name] = message
        lines = b"Nats-Msg-Id: %s\r\n" % message.id if message.id else b""
        if message.expected >= 0:
            lines += b"Nats-Expected-Last-Sequence: %d\r\n" % message.expected
        block = b"NATS/1.0\r\n" + lines + b"\r\n" if lines else b""

        def told(headers: bytes, payload: bytes) -> None:
            if headers.startswith(b"NATS/1.0 503"):
                return
            answer = json.loads(payload)
            if "error" in answer:
                self._not_taken(message, answer["error"])
                return
            self.waiting.pop(message.name, None)
            duplicate = bool(answer.get("duplicate"))
            self._learns_ids(message)
            self.world.note(f"{short(message.name)} is {answer['seq']}{' again' * duplicate}")
            self.book.took(message, answer["seq"], duplicate)
            if not duplicate:
                self.on_disk(answer_to=life, event=event)

        self.origin.request(message.subject, message.name, told, block)

    def _learns_ids(self, message: Message) -> None:
        """The first id that is asked for after a start has the node look at what is stored."""
        stream = self.origin.stream(STREAM)
        if message.id and stream is not None and self.ids_of_life != self.origin.life:
            self.ids_of_life = self.origin.life
            self.book.loads_ids(stream.store)

    def _not_taken(self, message: Message, error: dict[str, Any]) -> None:
        if message.expected >= 0 and error["err_code"] in WRONG_LAST:
            self.waiting.pop(message.name, None)
            return
        self.refused(f"{short(message.name)} is refused", error)

    def retry(self) -> None:
        """Send again what has an id and no answer."""
        for message in list(self.waiting.values()):
            if self.world.now_ns - message.again_ns > RETRY_NS:
                self.publish(message)

    def _do_again(self, step: Step) -> None:
        """Publish something once more that was acknowledged."""
        known = [m for m in self.book.acked.values() if m.id and m.expected < 0]
        for message in known[-1 - step.a % 40 :][:3]:
            self.publish(message)

    def _do_pull(self, step: Step) -> None:
        for client in self.clients:
            if client.state != "none" or step.b % 4 == 0:
                client.see_to()
            client.fetch(1 + step.a % 12)

    def _do_delete(self, step: Step) -> None:
        there = sorted(set(self.book.acked) - self.book.gone)[-30:]
        if not there or self.origin.gone:
            return
        self.faults.trap(step)
        self.remove(there[step.a % len(there)], no_erase=bool(step.b % 2))

    def remove(self, sequence: int, no_erase: bool = True) -> None:
        """Ask for the removal of a message."""
        self.book.may_go.add(sequence)

        def told(_: bytes, payload: bytes) -> None:
            if json.loads(payload).get("success"):
                self.world.note(f"{sequence} is deleted")
                self.book.gone.add(sequence)

        body = {"seq": sequence, "no_erase": no_erase}
        subject = f"$JS.API.STREAM.MSG.DELETE.{STREAM}"
        self.origin.request(subject, json.dumps(body).encode(), told)

    def _do_purge(self, step: Step) -> None:
        if self.origin.gone:
            return
        subject = f"s.{step.a % 4}" if step.b % 3 == 0 else ""
        keep = step.c % 8 if step.b % 4 == 1 else 0
        below = max(self.book.top - step.c % 12, 0) if step.b % 4 == 2 else 0
        purge = Purge(subject, below, keep, self.world.now_ns, self.book.top)
        self.book.purges.append(purge)

        def told(_: bytes, payload: bytes) -> None:
            answer = json.loads(payload)
            if answer.get("success"):
                self.world.note(f"purged: {answer['purged']}")
                self.book.purged(purge)

        self.faults.trap(step)
        body = {"filter": subject, "keep": keep, "seq": below}
        wanted = {key: value for key, value in body.items() if value}
        self.origin.request(
            f"$JS.API.STREAM.PURGE.{STREAM}", json.dumps(wanted).encode(), told
        )

    def _do_update(self, step: Step) -> None:
        """Another limit of the kind that the stream has."""
        config = {"name": STREAM, **self.setting.stream}
        if "max_msgs" in config:
            config["max_msgs"] += step.a % 20 - 5
        elif "max_msgs_per_subject" in config:
            config["max_msgs_per_subject"] += step.a % 6 - 1
        elif "max_age" in config:
            config["max_age"] += step.a % 20 * SECOND_NS
        else:
            config["description"] = f"{step.a}"
        self.book.limits.tighten(config)
        wanted = shown(config)
        self.configs.append(wanted)

        def told(_: bytes, payload: bytes) -> None:
            answer = json.loads(payload)
            if "error" not in answer:
                self.world.note(f"the stream is configured: {wanted}")
                del self.configs[: self.configs.index(wanted)]

        body = json.dumps(config).encode()
        self.origin.request(f"$JS.API.STREAM.UPDATE.{STREAM}", body, told)

    def is_configured(self, stream: Any) -> None:
        """A stream is as was confirmed last, or as was asked for since; and keeps to that."""
        config = stream.config
        found = shown({name: getattr(config, name) for name in CONFIGURED})
        self.world.check(found in self.configs, f"the stream is {found}, not {self.configs}")
        state = stream.store
        if config.max_msgs > 0:
            self.world.check(
                state.messages <= config.max_msgs,
                f"the stream has {state.messages} messages, the limit is {config.max_msgs}",
            )

    def _do_consumer(self, step: Step) -> None:
        """Delete a consumer; it is made again by the next one who looks."""
        client = self.clients[step.a % len(self.clients)]
        if client.state == "there":
            self.faults.trap(step)
            client.delete()

    def _do_quiet(self, step: Step) -> None:
        """Nothing happens for a while."""
        self.mirror.quiet((2, 6, 15, 30)[step.a % 4])

    def _do_look(self, step: Step) -> None:
        stream = self.origin.stream(STREAM)
        if stream is not None:
            self.book.compare(stream.store, "the stream")
        self.mirror.compare()

    def look(self) -> None:
        """What can be looked at after each step."""
        stream = self.origin.stream(STREAM)
        if stream is None or self.origin.gone:
            return
        for client in self.clients:
            consumer = stream.consumers.get(client.name)
            if consumer is not None and client.state == "there":
                client.book.compare(consumer.numbers(), stream.store.last_seq)
        self.mirror.look()

    # -- the end -------------------------------------------------------------------------

    def _remove_behind(self) -> None:
        """Remove what the mirror has yet to get, and cut the origin's power before that is on disk:
        what was removed is there again, so the mirror must not have passed it over."""
        if not self.mirror.there:
            return
        self.network.cut(silently=False)
        self.mirror.touched()
        first = self.book.top + 1
        step = Step(0, "publish", self.chance.below(6), 0, 0)
        for _ in range(BEHIND):
            self._do_publish(step)
        self.world.sleep(BEHIND_S)
        gone = sorted(set(range(first, self.book.top)) & set(self.book.acked) - self.book.gone)
        if gone:
            self.remove(gone[0])
            self.faults.pass_over(gone[0])
        self.network.mend()
        self.mirror.touched()

    def _calm(self) -> None:
        """Faults have stopped: everything must come right."""
        world = self.world
        world.note("calm")
        self.faults.stop()
        self._all_start()
        self._remove_behind()
        self._all_start()
        for client in self.clients:
            client.careful = True
        done = self._until(self._settled)
        world.check(done, f"it does not come to rest: {self._unsettled()}")
        stream = self.origin.stream(STREAM)
        assert stream is not None
        held = self.book.compare(stream.store, "the stream at the end")
        self.is_configured(stream)
        for client in self.clients:
            client.book.all_delivered(held)
        if self.book.workqueue:
            spent = {
                sequence
                for client in self.clients
                for sequence, one in client.book.known.items()
                if one.count == client.book.max_deliver
            }
            world.check(set(held) <= spent, f"{sorted(set(held) - spent)} are left of the queue")
        self.mirror.at_end(held)
        self._aged(stream)
        for machine in self.machines:
            self._is_well(machine)

    def _all_start(self) -> None:
        up = self.world.wait(lambda: all(m.is_up for m in self.machines), CALM_S)
        self.world.check(up, "a node does not start")
        self.world.sleep(3)

    def _until(self, condition: Any) -> bool:
        end = self.world.now_ns + CALM_S * SECOND_NS
        while self.world.now_ns < end:
            self.retry()
            for client in self.clients:
                client.see_to()
                client.fetch(20)
            self.world.sleep(1.0)
            if condition():
                return True
        return False

    def _unsettled(self) -> list[str]:
        found = [f"{len(self.waiting)} publishes wait for an answer"] if self.waiting else []
        found += [f"{c.name} is {c.state}" for c in self.clients if c.state != "there"]
        stream = self.origin.stream(STREAM)
        if stream is None:
            return ["there is no stream"]
        for name, consumer in stream.consumers.items():
            numbers = consumer.numbers()
            if name in ("pull", "push") and (numbers["unread"] or numbers["ack_pending"]):
                found.append(f"{name}: {numbers}")
        return found + self.mirror.behind()

    def _settled(self) -> bool:
        return not self._unsettled()

    def _aged(self, stream: Any) -> None:
        """What has reached its age is gone."""
        age = max(self.setting.stream.get("max_age", 0), 0)
        if age and stream.config.max_age:
            wait_ns = stream.config.max_age + self.faults.unnoticed_ns
            self.world.sleep(wait_ns / SECOND_NS + 5)
            left = stream.store.messages
            self.world.check(not left, f"{left} messages are older than the stream lets them be")

    def _is_well(self, machine: Machine) -> None:
        assert machine.node is not None
        told = healthz(machine.node)
        self.world.check(told["status"] == "ok", f"{machine.name}: {told}")
        worse = told.get("headwater", {})
        self.world.check("lost_messages" not in worse, f"{machine.name}: {told}")
        self.world.check("quarantined" not in worse, f"{machine.name}: {told}")
        self.world.check("links" not in worse, f"{machine.name}: {told}")
        self.world.check("problems" not in worse, f"{machine.name}: {told}")
