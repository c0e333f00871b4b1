"""One run: an origin on one node; on another its mirror, and a stream with it and one more as
sources; a link between them, faults, and calm.

The origin is written, trimmed, deleted and made again. Checked when a copy was started, now and
then, and at the end: copies against what was sent (`copies.py`), and what they say of themselves.
"""

import json
from dataclasses import dataclass
from typing import Any

from headwater.edge.ports.twins.chance import SeededRandom
from headwater.federation.origins.health import RECREATED
from tests.sim.jetstream import faults
from tests.sim.jetstream.machines import Machine
from tests.sim.jetstream.mirror import CUT_NS
from tests.sim.jetstream.network import Network
from tests.sim.jetstream.plan import Step
from tests.sim.jetstream.stream_book import Message, Purge, StreamBook, short
from tests.sim.jetstream.world import SECOND_NS, World
from tests.sim.links.copies import Making, MirrorCopy, Origin, Said, SourcedCopy
from tests.sim.links.plan import draw

CALM_S = 120.0
FULL = (10023, 10047, 10077, 10049, 10012, 10024)
NOT_FOUND = 10059
MIRROR, SOURCED, FAR, NEAR = "M", "A", "S", "L"
SPRING_S = 0.15
FULL_NS = 15 * SECOND_NS
"""A disk that was full lately may be a reason to refuse."""


@dataclass(frozen=True)
class Outcome:
    """What a run was like. Two runs of one seed have the same."""

    steps: int
    sent: int
    makings: int
    starts: int
    checks: int
    simulated_s: float
    trace: tuple[str, ...]


class Touched:
    """Remembers when something was wrong last, for `faults.Faults`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.at_ns = 0

    def touched(self) -> None:
        """Something is wrong, or came right."""
        self.at_ns = self.world.now_ns

    @property
    def calm_ns(self) -> int:
        """For how long nothing was wrong."""
        return self.world.now_ns - self.at_ns


class Story:
    """One run of a plan."""

    def __init__(self, seed: int, steps: int, plan: list[Step] | None = None) -> None:
        self.setting, drawn = draw(seed, steps)
        self.plan = drawn if plan is None else plan
        self.chance = SeededRandom(f"link clients {seed}")
        self.world = World(seed)

    def run(self) -> Outcome:
        """The whole of it. Raises Violation; `world.trace` says what happened."""
        with self.world:
            try:
                return self._run()
            finally:
                self.network.end()
                for machine in self.machines:
                    machine.switch_off()

    def _run(self) -> Outcome:
        world = self.world
        self._set_up()
        for step in self.plan:
            world.sleep(step.ms / 1000)
            self._do(step)
        self._calm()
        world.judge()
        return Outcome(
            len(self.plan),
            self.sent,
            len(self.far.makings),
            sum(machine.life for machine in self.machines),
            self.checks,
            world.now_ns / SECOND_NS,
            tuple(world.trace),
        )

    # -- the beginning ------------------------------------------------------------

    def _set_up(self) -> None:
        world, setting = self.world, self.setting
        self.network = Network(world)
        hub = Machine(world, "hub", self.network, dials=False, compression=setting.compression)
        edge = Machine(world, "edge", self.network, dials=True, compression=setting.compression)
        self.machines = (hub, edge)
        self.origin, self.copy = (edge, hub) if setting.origin_dials else (hub, edge)
        self.api = f"$JS.{self.origin.name}.API"
        self.far, self.near = Origin(FAR), Origin(NEAR)
        self.mirror = MirrorCopy(world, self.far)
        self.sourced = SourcedCopy(
            world, [self.far, self.near], setting.wants, setting.stored_as
        )
        self.touched = Touched(world)
        self.sent = self.checks = 0
        self.changing = ""
        """What is asked of the origin's node: "delete", "create" or nothing."""
        self.emptying = self.begun = False
        self.full_until_ns = self.struck_full_ns = -FULL_NS
        """Until when, and since when, a disk may be felt to be full."""
        self.faults = faults.Faults(_Struck(self))
        world.note(f"{setting}")
        for machine in self.machines:
            machine.on_down = self._went_down
            machine.on_start = self._started
            machine.start()
        for machine, config in (
            (self.origin, setting.origin()),
            (self.copy, {"name": NEAR, "subjects": ["l.>"]}),
            (self.copy, self._mirror()),
            (self.copy, setting.sources(self.api)),
        ):
            self._make(machine, config)
        self.begun = True
        self._meet_makings()
        for origin in (self.far, self.near):
            origin.newest().confirmed = True

    def _mirror(self) -> dict[str, Any]:
        return {"name": MIRROR, "mirror": {"name": FAR, "external": {"api": self.api}}}

    def _make(self, machine: Machine, config: dict[str, Any]) -> None:
        told: list[bytes] = []
        subject = f"$JS.API.STREAM.CREATE.{config['name']}"
        machine.request(subject, json.dumps(config).encode(), lambda _, body: told.append(body))
        self.world.wait(lambda: bool(told), 10)
        self.world.check(bool(told) and b'"error"' not in told[0], f"not made: {told}")

    def _meet_makings(self) -> None:
        """Learn which making of each origin is there."""
        for origin, machine in ((self.far, self.origin), (self.near, self.copy)):
            stream = machine.stream(origin.name)
            if stream is None or machine.gone or stream.incarnation in origin.makings:
                continue
            self.world.note(f"{origin.name} is {stream.incarnation}")
            book = StreamBook(self.world, window_ns=0)
            if origin is self.far and self.setting.bounded:
                book.limits.max_msgs = self.setting.bounded
            origin.makings[stream.incarnation] = Making(book)

    # -- faults -------------------------------------------------------------------

    def _went_down(self, machine: Machine, harm: str) -> None:
        self.faults.went_down(machine, harm)
        self.touched.touched()
        if machine is self.origin:
            self.changing = ""
            self.far.newest().book.interrupted()
        else:
            self.emptying = False

    def _started(self, machine: Machine) -> None:
        self.touched.touched()
        if not self.begun:
            return
        self._meet_makings()
        if machine is self.copy:
            self.compare()
            return
        stream = machine.stream(FAR)
        for incarnation, making in self.far.makings.items():
            there = stream is not None and stream.incarnation == incarnation
            self.world.check(
                there or making.ended or not making.confirmed,
                "the origin is gone, and nobody has deleted it",
            )
        if stream is not None:
            book = self.far.makings[stream.incarnation].book
            book.compare(stream.store, "the origin after a start")

    def _refused(self, what: str, payload: bytes) -> bool:
        """Whether an answer is an error, which a full disk alone may give."""
        error = json.loads(payload).get("error")
        if error is None:
            return False
        self.world.note(f"{what}: {error}")
        full = self.world.now_ns < max(self.full_until_ns, self.struck_full_ns + FULL_NS)
        self.world.check(full and error["err_code"] in FULL, f"{what}: {error}")
        return True

    # -- work ---------------------------------------------------------------------

    def _do(self, step: Step) -> None:
        self._meet_makings()
        if step.kind not in ("publish", "local"):
            self.world.note(f"step {step}")
        work = getattr(self, f"_do_{step.kind}", None)
        if work is not None:
            work(step)
        else:
            self.faults.strike(step)
        if step.kind == "full":
            self.struck_full_ns = self.world.now_ns

    def _do_publish(self, step: Step) -> None:
        if self.changing or self.origin.stream(FAR) is None:
            return
        for _ in range(1 + step.a % 8):
            self._publish(self.origin, self.far, f"s.{self.chance.below(3)}")

    def _do_local(self, step: Step) -> None:
        for _ in range(1 + step.a % 3):
            self._publish(self.copy, self.near, "l.0")

    def _publish(self, machine: Machine, origin: Origin, subject: str) -> None:
        stream = machine.stream(origin.name)
        if machine.gone or stream is None:
            return
        making = origin.makings[stream.incarnation]
        self.sent += 1
        payload = b"%s%d %s" % (origin.name.encode(), self.sent, b"." * self.chance.below(300))
        message = Message(payload, subject)
        making.subjects[payload] = subject
        making.book.published(message)

        def told(headers: bytes, answer: bytes) -> None:
            if headers.startswith(b"NATS/1.0 503") or self._refused(short(payload), answer):
                return
            making.confirmed = True
            making.book.took(message, json.loads(answer)["seq"], False)

        machine.request(subject, payload, told)

    def _do_delete(self, step: Step) -> None:
        book = self.far.newest().book
        there = sorted(set(book.acked) - book.gone)[-30:]
        if not there or self.origin.gone or self.changing:
            return
        sequence = there[step.a % len(there)]
        book.may_go.add(sequence)
        body = json.dumps({"seq": sequence, "no_erase": bool(step.b % 2)}).encode()
        self.origin.request(f"$JS.API.STREAM.MSG.DELETE.{FAR}", body, lambda _, payload: None)

    def _do_purge(self, step: Step) -> None:
        if self.origin.gone or self.changing:
            return
        book = self.far.newest().book
        below = max(book.top - step.c % 12, 0) if step.b % 2 else 0
        book.purges.append(Purge("", below, 0, self.world.now_ns, book.top))
        body = json.dumps({"seq": below} if below else {}).encode()
        self.origin.request(f"$JS.API.STREAM.PURGE.{FAR}", body, lambda _, payload: None)

    def _do_recreate(self, step: Step) -> None:
        """Delete the origin; `resume` makes it again."""
        stream = self.origin.stream(FAR)
        if not self.setting.recreated or self.changing or self.origin.gone or stream is None:
            return
        self.changing = "delete"
        self.far.makings[stream.incarnation].ended = True
        self.touched.touched()
        self.origin.request(f"$JS.API.STREAM.DELETE.{FAR}", b"", self._deleted)

    def _deleted(self, _: bytes, payload: bytes) -> None:
        self.changing = ""
        if not self._refused("the origin is not deleted", payload):
            self.world.note("the origin is deleted")

    def _do_resume(self, step: Step) -> None:
        """Have an origin that was deleted made again."""
        if self.changing or self.origin.gone or self.origin.stream(FAR) is not None:
            return
        self.changing = "create"
        self.touched.touched()
        body = json.dumps(self.setting.origin()).encode()
        self.origin.request(f"$JS.API.STREAM.CREATE.{FAR}", body, self._created)

    def _created(self, _: bytes, payload: bytes) -> None:
        self.changing = ""
        if not self._refused("the origin is not made", payload):
            self._meet_makings()
            self.far.newest().confirmed = True

    def _do_empty(self, step: Step) -> None:
        """As the operator does with a mirror whose origin is another."""
        if self.row("mirror").get("state") != RECREATED or self.emptying or self.copy.gone:
            return
        self.emptying = True
        self.mirror.kept.seen = {}
        self.touched.touched()
        self.copy.request(f"$JS.API.STREAM.PURGE.{MIRROR}", b"", self._emptied)

    def _emptied(self, _: bytes, payload: bytes) -> None:
        self.emptying = False
        self.mirror.kept.seen = {}
        if not self._refused("the mirror is not purged", payload):
            self.world.note("the mirror is purged")

    def _do_spring(self, step: Step) -> None:
        """The power of the node with the copies fails while its slow disk writes what came."""
        machine = self.copy
        if machine.gone:
            return
        self._do_publish(step)
        self._do_local(step)
        machine.set_write_delay(2 * SPRING_S)
        life = machine.life

        def fail() -> None:
            machine.set_write_delay(0.0)
            if not machine.gone and machine.life == life and not self.faults.calm:
                machine.crash("power")

        self.world.later(int(SPRING_S * SECOND_NS), fail)

    # -- looks --------------------------------------------------------------------

    def row(self, kind: str, origin: str = FAR) -> dict[str, Any]:
        """What the node says of a mirror or source; {} when it is off."""
        node = self.copy.node
        if node is None or self.copy.gone:
            return {}
        rows = [row for service in node.services for row in service.status().get("origins", [])]
        found = [row for row in rows if (row["kind"], row["origin"]) == (kind, origin)]
        return found[0] if found else {}

    def compare(self) -> dict[str, set[int]]:
        """Both copies as they are."""
        self.checks += 1
        if self.copy.node is None:
            return {}
        mirror, sourced = self.copy.stream(MIRROR), self.copy.stream(SOURCED)
        if mirror is not None and not self.emptying:
            self.mirror.compare(mirror.store)
        return {} if sourced is None else self.sourced.compare(sourced.store)

    def lacking(self) -> dict[str, list[int]]:
        """What is at an origin, and a copy has yet to get: by kind, and origin."""
        there = self.copy.stream(MIRROR), self.copy.stream(SOURCED)
        far, near = self.origin.stream(FAR), self.copy.stream(NEAR)
        if None in (*there, far, near):
            return {}
        taken = self.sourced.compare(there[1].store)  # type: ignore[union-attr]
        held = self._held(far)
        wanted = [n for n, message in held if self.setting.wants(message.subject.decode())]
        sourced = taken.get(far.incarnation, set())  # type: ignore[union-attr]
        near_taken = taken.get(near.incarnation, set())  # type: ignore[union-attr]
        mirror = there[0].store  # type: ignore[union-attr]
        return {
            "mirror S": [n for n, _ in held if mirror.get(n) is None and n > mirror.last_seq],
            "source S": [n for n in wanted if n > max(sourced, default=0)],
            "source L": [n for n, _ in self._held(near) if n not in near_taken],
        }

    def _held(self, stream: Any) -> list[tuple[int, Any]]:
        store = stream.store
        rows = ((n, store.get(n)) for n in range(store.first_seq, store.committed + 1))
        return [(n, message) for n, message in rows if message is not None]

    def mirrors_another(self) -> bool:
        """Whether the mirror has messages of an origin that is no more."""
        stream, far = self.copy.stream(MIRROR), self.origin.stream(FAR)
        if stream is None or far is None:
            return False
        first = next(iter(self._held(stream)), None)
        if first is None:
            return False
        making = self.far.of(first[1].payload)
        return making is not self.far.makings[far.incarnation]

    def _do_look(self, step: Step) -> None:
        self.compare()

    def _do_quiet(self, step: Step) -> None:
        """Nothing happens for a while; then it is seen what the copies say of themselves."""
        self.world.sleep((2, 15, 30)[step.a % 3])
        self.compare()
        calm_ns = self.touched.calm_ns
        up = all(machine.is_up and not machine.gone for machine in self.machines)
        wrong = any(m.disk.full or m.write_delay_s for m in self.machines)
        if not up or wrong or self.origin.stream(FAR) is None:
            return
        for kind, name in (("mirror", FAR), ("source", FAR), ("source", NEAR)):
            row = self.row(kind, name)
            self.world.check(bool(row), f"there is no {kind} of {name}")
            said = Said(self.world, row, far=name == FAR)
            if not self.network.up:
                said.cut_off(calm_ns)
            elif kind == "mirror" and self.mirrors_another():
                said.of_another(calm_ns)
            else:
                said.at_rest(calm_ns, self.lacking().get(f"{kind} {name}", []))

    # -- the end ------------------------------------------------------------------

    def _calm(self) -> None:
        """Faults have stopped: everything must come right."""
        world = self.world
        world.note("calm")
        self.faults.stop()
        up = world.wait(lambda: all(m.is_up for m in self.machines), CALM_S)
        world.check(up, "a node does not start")
        world.sleep(3)
        self._settle()
        self._part()
        self.compare()
        stream = self.origin.stream(FAR)
        assert stream is not None
        self.far.makings[stream.incarnation].book.compare(stream.store, "the origin at the end")
        self._is_whole(stream)

    def _settle(self) -> None:
        """Wait until everything is where it should be."""
        world = self.world
        end = world.now_ns + int(CALM_S * SECOND_NS)
        settled = False
        step = Step(0, "resume", 0, 0, 0)
        while world.now_ns < end and not settled:
            self._do_resume(step)
            self._do_empty(step)
            world.sleep(1.0)
            self._meet_makings()
            settled = not self._unsettled()
        world.check(settled, f"it does not come to rest: {self._unsettled()}")
        world.judge()

    def _part(self) -> None:
        """The link is cut, and nothing else is wrong: the copies say so, and take afterwards what
        the origin got meanwhile."""
        world = self.world
        silently = bool(self.chance.below(2))
        world.note(f"parted, {'silently' if silently else 'openly'}")
        self.network.cut(silently)
        self.touched.touched()
        world.sleep(CUT_NS / SECOND_NS + 1)
        # A cut of the plan may have been due to end.
        for kind in () if self.network.up else ("mirror", "source"):
            Said(world, self.row(kind), far=True).cut_off(self.touched.calm_ns)
        self._do_publish(Step(0, "publish", 2, 0, 0))
        world.sleep(1)
        self.network.mend()
        self.touched.touched()
        self._settle()

    def _unsettled(self) -> list[str]:
        found = [f"{key} lacks {lacks[:9]}" for key, lacks in self.lacking().items() if lacks]
        if self.origin.stream(FAR) is None or self.mirrors_another() or self.emptying:
            return [*found, "the origin is another"]
        for kind, name in (("mirror", FAR), ("source", FAR), ("source", NEAR)):
            row = self.row(kind, name)
            if not row or row["state"] != "live" or row["pending_messages"] != 0:
                found.append(f"{kind} of {name}: {row}")
        return found

    def _is_whole(self, far: Any) -> None:
        """The mirror has what the origin has, and nothing else of it but what went since."""
        mirror = self.copy.stream(MIRROR)
        assert mirror is not None
        for sequence, message in self._held(far):
            copied = mirror.store.get(sequence)
            there = copied is not None
            self.world.check(there, f"the mirror lacks {sequence}")
            same = not there or copied.payload == message.payload
            self.world.check(same, f"{sequence} differs")


class _Struck:
    """The story as `faults.Faults` knows it."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self.world = story.world
        self.machines, self.network = story.machines, story.network
        self.origin, self.chance = story.origin, story.chance
        self.mirror = story.touched

    @property
    def full_until_ns(self) -> int:
        """Until when a full disk may still be felt."""
        return self._story.full_until_ns

    @full_until_ns.setter
    def full_until_ns(self, at: int) -> None:
        self._story.full_until_ns = at


