"""One run: a stream and a consumer on three nodes, whose leaders change while clients of every node
publish, pull and acknowledge.

What is driven is `hub/streams/absences.py`: what is said while nobody leads is held, goes on once,
in its order, within a bound of time and room, or is refused. Nothing is ever sent again here.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwater.edge.ports.twins.chance import SeededRandom
from headwater.hub.streams import absences
from tests.sim.held.members import NAMES, Member, Mesh
from tests.sim.held.plan import draw
from tests.sim.held.said_book import Said, SaidBook, rows_of
from tests.sim.jetstream.plan import Step
from tests.sim.jetstream.world import SECOND_NS, World

STREAM, CONSUMER = "S", "C"
MS_NS = SECOND_NS // 1000
CALM_S = 40.0
HELD_MAX = 60
"""Messages that a node of the simulation holds."""
HOLD_S = 2.5
"""That messages wait for a leader, as `docs/CLUSTER.md` says."""
STAND_S = (1.2, 7.0)
"""For which a node stands still: others may get what was handed out to its clients."""
SLACK_S = 0.9
"""That an absence may be older than that: looks, and rounds of a loop."""


@dataclass(frozen=True)
class Outcome:
    """What a run was like. Two runs of one seed have the same."""

    steps: int
    published: int
    held: int
    changes: int
    checks: int
    simulated_s: float
    trace: tuple[str, ...]


class Story:
    """One run of a plan."""

    def __init__(self, seed: int, steps: int, plan: list[Step] | None = None) -> None:
        self.setting, drawn = draw(seed, steps)
        self.plan = drawn if plan is None else plan
        self.chance = SeededRandom(f"held clients {seed}")
        self.world = World(seed)
        self.book = SaidBook(self.world, self.setting.gentle, self.setting.listened)
        self.numbers = 0
        self.changes = 0
        self.calm = False
        self.leading: set[str] = set()
        self.holding: dict[str, int] = {}
        self.last_pull: Said | None = None
        self.parted: tuple[str, str] | None = None
        self.stalled: tuple[str, ...] | None = None
        """Parted nodes that do not know, or all while one stands still."""
        self.still: Member | None = None
        """The node that stands still."""

    def run(self) -> Outcome:
        """The whole of it. Raises Violation; `world.trace` says what happened."""
        usual, absences.HELD_MAX = absences.HELD_MAX, HELD_MAX
        with self.world:
            try:
                return self._run()
            finally:
                absences.HELD_MAX = usual
                self._end()

    def _end(self) -> None:
        self.mesh.end()
        for member in self.members:
            member.switch_off()

    def _run(self) -> Outcome:
        self._set_up()
        for step in self.plan:
            self.world.sleep(step.ms / 1000)
            getattr(self, f"_do_{step.kind}")(step)
            self.look()
        self._calm()
        self.world.judge()
        said = self.book.said.values()
        return Outcome(
            len(self.plan),
            len(said),
            sum(each.held for each in said),
            self.changes,
            self.book.checks,
            self.world.now_ns / SECOND_NS,
            tuple(self.world.trace),
        )

    # -- the beginning ----------------------------------------------------------------

    def _set_up(self) -> None:
        world = self.world
        self.mesh = Mesh(world)
        self.members = [Member(world, name, self.mesh) for name in NAMES]
        world.note(f"{self.setting}")
        for member in self.members:
            member.on_down = self._went_down
            member.on_start = self._started
            member.start()
        world.check(world.wait(self._founded, 20), "there is no cluster")
        world.sleep(2)
        config = {
            "name": STREAM,
            "subjects": ["s.>"],
            "num_replicas": len(NAMES),
            "storage": self.setting.storage,
        }
        self._ask(f"$JS.API.STREAM.CREATE.{STREAM}", config)
        consumer = {
            "durable_name": CONSUMER,
            "ack_policy": "explicit",
            "ack_wait": 3 * SECOND_NS,
            "mem_storage": self.setting.storage == "memory",
        }
        subject = f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.{CONSUMER}"
        self._ask(subject, {"stream_name": STREAM, "config": consumer})
        world.sleep(1)
        world.after.append(self._watch)

    def _founded(self) -> bool:
        clusters = [member.cluster for member in self.members if member.is_up]
        return all(
            one is not None
            and one.cluster is not None
            and one.cluster.group.leader
            and len(one._transport.conns) == len(NAMES) - 1
            for one in clusters
        )

    def _ask(self, subject: str, body: dict[str, Any]) -> None:
        heard: list[bytes] = []
        payload = json.dumps(body).encode()
        self.members[0].request(subject, payload, lambda _, answer: heard.append(answer))
        world = self.world
        world.check(world.wait(lambda: bool(heard), 10), f"{subject} has no answer")
        world.check("error" not in json.loads(heard[0]), f"{subject}: {heard[0]!r}")

    def _started(self, member: Member) -> None:
        self.book.trouble(loses=False)
        if self.setting.listened:
            member.listen("s.>", lambda reply, headers, payload: None)

    def _went_down(self, member: Member, harm: str) -> None:
        self.book.trouble(loses=True)
        if self.calm:
            return
        delay_ns = (300 + self.chance.below(4000)) * MS_NS
        self.world.later(delay_ns, member.start_again)

    # -- what must hold always ----------------------------------------------------------

    def _watch(self) -> None:
        """After each round: what is held has its bounds."""
        for member in self.members:
            found = member.absences
            if member is self.still:
                continue
            if found is None or member.gone:
                self.leading.discard(member.name)
                continue
            if member.leads(STREAM) != (member.name in self.leading):
                self.leading ^= {member.name}
                leads = member.name in self.leading
                self.world.note(f"{member.name}: {'leads' if leads else 'leads no more'}")
            self._follow(member, found.count)
            rows = [len(absence.held) for absence in found.absent.values()]
            self.world.check(
                sum(rows) == found.count, f"{member.name} counts {found.count}, and holds {rows}"
            )
            self.world.check(
                found.count <= HELD_MAX, f"{member.name} holds {found.count} messages"
            )
            if found.count == HELD_MAX:
                self.book.is_full(member.name)
            for absence in found.absent.values():
                age = found._now() - absence.since
                self.world.check(
                    age <= HOLD_S + SLACK_S,
                    f"{member.name} holds messages for {age:.2f} s",
                )

    def _follow(self, member: Member, held: int) -> None:
        """Behind what was held goes one more message: it is not to overtake."""
        before, self.holding[member.name] = self.holding.get(member.name, 0), held
        if before and not held and member.is_up and not self.calm:
            self._publish(member, 1)

    def look(self) -> None:
        """What can be looked at after each step."""
        self.book.look()

    # -- what clients do -----------------------------------------------------------------

    def _member(self, number: int) -> Member | None:
        """One that runs."""
        all_up = [member for member in self.members if member.is_up and not member.gone]
        up = [member for member in all_up if member is not self.still]
        return up[number % len(up)] if up else None

    def _say(self, member: Member, kind: str) -> Said:
        self.numbers += 1
        found = member.absences
        name = f"{kind}.{member.name}.{self.numbers}".encode()
        held = found is not None and bool(found.absent)
        stalled = self.stalled is not None and member.name in self.stalled
        return Said(name, member.name, member.life, self.world.now_ns, held, stalled)

    def _publish(self, member: Member, count: int) -> None:
        for _ in range(count):
            said = self._say(member, "p")
            self.book.said[said.name] = said
            heard = self._hearing(said, self.book.published)
            member.request("s.a", said.name, heard)

    def _hearing(
        self, said: Said, told: Callable[[Said, bytes, bytes], None]
    ) -> Callable[[bytes, bytes], None]:
        return lambda headers, payload: told(said, headers, payload)

    def _do_publish(self, step: Step) -> None:
        member = self._member(step.a)
        if member is not None:
            self._publish(member, 1 + step.b % 6)

    def _do_burst(self, step: Step) -> None:
        """More than a node holds."""
        member = self._member(step.a)
        if member is not None:
            self._publish(member, HELD_MAX + step.b % 40)

    def _do_pull(self, step: Step) -> None:
        member = self._member(step.a)
        if member is not None:
            self._pull(member, 1 + step.b % 20, (200 + step.c % 2000) / 1000)

    def _pull(self, member: Member, batch: int, seconds: float) -> None:
        said = self._say(member, "pull")
        said.expires_ns = int(seconds * SECOND_NS)
        self.last_pull = said
        self.book.asked.append(said)
        left = batch

        def got(reply: bytes, headers: bytes, payload: bytes) -> None:
            nonlocal left
            if reply.startswith(b"$JS.ACK."):
                left -= 1
                self._got(member, reply)
            if not left or not reply:
                said.refused = said.refused or "ends"

        inbox = f"_INBOX.pull.{self.numbers}"
        member.listen(inbox, got)
        body = json.dumps({"batch": batch, "expires": int(seconds * SECOND_NS)}).encode()
        member.publish(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{CONSUMER}", body, inbox)

    def _got(self, member: Member, reply: bytes) -> None:
        sequence = int(reply.split(b".")[5])
        self.book.got(sequence)
        if not self.chance.below(8) and not self.calm:
            return
        said = self._say(member, "ack")
        self.book.asked.append(said)

        def told(headers: bytes, _: bytes) -> None:
            said.refused = "refused" if headers else "confirmed"
            if not headers:
                self.book.confirmed.add(sequence)

        member.request(reply.decode(), b"+ACK", told)

    # -- faults --------------------------------------------------------------------------

    def _do_handover(self, step: Step) -> None:
        member = self._member(step.a)
        if member is None:
            return
        self.changes += 1
        self.world.note(f"{member.name}: asks the leader to leave")
        subject = f"$JS.API.STREAM.LEADER.STEPDOWN.{STREAM}"
        member.request(subject, b"", lambda headers, payload: None)
        if step.b % 2:
            self._publish(member, 1 + step.c % 5)

    def _all_well(self) -> bool:
        """Whether the stream does without any one node."""
        if self.parted or self.still:
            return False
        if not all(member.is_up and not member.gone for member in self.members):
            return False
        leaders = [member for member in self.members if member.leads(STREAM)]
        if len(leaders) != 1:
            return False
        info = leaders[0].stream(STREAM)
        return info is not None and self._founded()

    def _do_stop(self, step: Step) -> None:
        """As an operator does, when all is well."""
        member = self._member(step.a)
        if member is not None and self._all_well():
            self.changes += 1
            self.book.trouble(loses=True)
            if step.b % 2:
                self._do_handover(step)
            self.world.later((step.c % 120) * MS_NS, self._stop, member)

    def _stop(self, member: Member) -> None:
        well = all(each.is_up and not each.gone for each in self.members)
        if not self.calm and not self.still and well:
            self.book.trouble(loses=True)
            member.stop()

    def _do_kill(self, step: Step) -> None:
        member = self._leader() if step.b % 3 else self._member(step.a)
        if member is not None and self._all_well():
            self.changes += 1
            member.crash("kill")

    def _do_both(self, step: Step) -> None:
        """Two nodes: nobody leads for a while."""
        if self._all_well():
            self.changes += 1
            one = step.a % len(NAMES)
            for offset in (1, 2):
                self.members[(one + offset) % len(NAMES)].crash("kill")

    def _leader(self) -> Member | None:
        running = [each for each in self.members if not each.gone and each is not self.still]
        leaders = [member for member in running if member.leads(STREAM)]
        return leaders[0] if leaders else None

    def _do_part(self, step: Step) -> None:
        """Two nodes do not reach one another. Where somebody else listens they know: what waits on
        a route for a listener may reach that node when it leads, and is taken a second time, as
        with nats-server."""
        if self.parted or self.still:
            return
        one, other = [name for at, name in enumerate(NAMES) if at != step.a % len(NAMES)]
        self.book.trouble(loses=True)
        silently = bool(step.b % 2) and not self.setting.listened
        self.world.note(f"{one} and {other} are parted {'silently' if silently else ''}")
        self.parted = (one, other)
        self.stalled = self.parted if silently else None
        self.mesh.part(one, other, silently)
        self.world.later((200 + step.c % 3000) * MS_NS, self._join)

    def _do_mute(self, step: Step) -> None:
        """Of what the leader says nothing arrives for a while; it hears the others."""
        leader = self._leader()
        if leader is None or not self._all_well():
            return
        name = leader.name
        self.changes += 1
        self.book.trouble(loses=True)
        self.world.note(f"of what {name} says nothing arrives")
        self.parted = self.stalled = (name, name)
        self.mesh.mute(name)
        self.world.later((200 + step.c % 3000) * MS_NS, self._join)

    def _do_stand(self, step: Step) -> None:
        """A node stands still while its client waits for messages."""
        member = self._member(step.a)
        if member is None or not self._all_well():
            return
        self.changes += 1
        self._pull(member, 1 + step.b % 8, STAND_S[1])
        self._publish(member, 1 + step.b % 3)
        self.world.sleep((step.b % 30) / 1000)
        if not self._all_well():
            return
        least, most = (int(each * 1000) for each in STAND_S)
        delay_ns = (least + step.c % (most - least)) * MS_NS
        self.book.trouble(loses=True)
        self.world.note(f"{member.name} stands still")
        self.still, self.stalled = member, NAMES
        member.loop.still_until_ns = self.world.now_ns + delay_ns
        self.world.later(delay_ns + 1, self._go_on)

    def _go_on(self) -> None:
        if self.still is None:
            return
        self.world.note(f"{self.still.name} goes on")
        self.book.trouble(loses=False)
        self.still.loop.still_until_ns = 0
        self.still = self.stalled = None

    def _join(self) -> None:
        if self.parted is not None and self.parted[0] == self.parted[1]:
            self.mesh.unmute(self.parted[0])
        if self.parted is not None:
            self.world.note("the parted nodes are joined")
            self.book.trouble(loses=False)
            self.mesh.join(*self.parted)
            self.parted = self.stalled = None

    def _do_look(self, step: Step) -> None:
        member = self._leader()
        stream = member.stream(STREAM) if member is not None else None
        if stream is not None:
            self.book.compare(rows_of(stream.store), "the stream")

    # -- the end -------------------------------------------------------------------------

    def _calm(self) -> None:
        """Faults have stopped: everything must come right."""
        world = self.world
        world.note("calm")
        self.calm = True
        self._join()
        self._go_on()
        world.wait(lambda: all(m.node is None or not m.stopping for m in self.members), CALM_S)
        for member in self.members:
            member.start_again()
        world.check(world.wait(self._all_well, CALM_S), "nobody leads the stream")
        world.sleep(12)
        self.book.look()
        for member in self.members:
            found = member.absences
            assert found is not None
            held = (found.count, found.bytes, len(found.absent), len(found._holders))
            world.check(held == (0, 0, 0, 0), f"{member.name} holds {held} when all is well")
        self._take_each()
        leader = self._leader()
        assert leader is not None
        rows = self._rows(leader)
        for member in self.members:
            world.check(self._rows(member) == rows, f"{member.name} differs from {leader.name}")
        self.book.compare(rows, "the stream at the end")
        done = world.wait(lambda: self._pulled(rows), CALM_S)
        missing = {sequence for sequence, _ in rows} - self.book.delivered
        world.check(done, f"{sorted(missing)} are not delivered")

    def _take_each(self) -> None:
        """What clients of each node publish is taken."""
        last = []
        for member in self.members:
            self._publish(member, 2)
            last += list(self.book.said.values())[-2:]
        self.world.sleep(3)
        for said in last:
            self.world.check(bool(said.sequence), f"{said.name!r} is not taken: {said.refused}")

    def _rows(self, member: Member) -> list[tuple[int, bytes]]:
        stream = member.stream(STREAM)
        if stream is not None:
            return rows_of(stream.store)
        cluster = member.cluster
        assert cluster is not None and cluster._groups is not None and cluster.driver is not None
        group = next(each.group for each in cluster._all_known() if each.name == STREAM)
        return rows_of(cluster.driver.store.replicas[group].store)

    def _pulled(self, rows: list[tuple[int, bytes]]) -> bool:
        if {sequence for sequence, _ in rows} <= self.book.delivered:
            return True
        last = self.last_pull
        over = last is None or last.at_ns + last.expires_ns + SECOND_NS < self.world.now_ns
        if over or (last is not None and last.answered):
            member = self._member(self.numbers)
            if member is not None:
                self._pull(member, 100, 1.0)
        return False
