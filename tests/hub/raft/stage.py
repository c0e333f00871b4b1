"""A stage for transcripts: commands in a text file, what the groups did underneath.

Each block of a file is a command, a line `----`, and the expected output up to an empty line.
Run pytest with `HEADWATER_REWRITE=1` to write what is said now into the files; read the diff.
"""

from collections import deque
from dataclasses import replace

from headwater.hub.raft import membership, reads, transfer
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.entry import EntryKind
from headwater.hub.raft.model.errors import RaftError
from headwater.hub.raft.model.hard_state import HardState
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.model.options import Options
from headwater.hub.raft.model.ready import Restored, bootstrap
from headwater.hub.raft.model.snapshot import Part, Snapshot, Wanted
from headwater.hub.raft.raft import Raft

KINDS = {EntryKind.NORMAL: "", EntryKind.EMPTY: "empty", EntryKind.CONFIG: "config"}


class Actor:
    """A node with its disk: what is written, and how far that is synced."""

    def __init__(self, number: int, restored: Restored, boot: int, options: Options) -> None:
        self.raft = Raft(1, number, boot, restored, lambda n: 0, options)
        self.snapshot = restored.snapshot
        self.entries = list(restored.entries)
        self.hard = restored.hard_state
        self.applied: list[bytes] = []
        self.unsynced: deque[int] = deque()
        self.slow = False
        self.now_ns = 0
        self.arrived = b""  # of a leader's state
        self.arriving = 0  # its index


class Stage:
    """Messages lie on the stage until they are delivered or dropped."""

    def __init__(self) -> None:
        self.actors: dict[int, Actor] = {}
        self.messages: list[Message] = []
        self.out: list[str] = []
        self.boot = 1
        self.options = Options(hibernate_ticks=0)

    def run(self, line: str) -> str:
        """One command; returns what happened."""
        self.out = []
        name, *words = line.split()
        places = [word for word in words if "=" not in word]
        named = dict(word.split("=", 1) for word in words if "=" in word)
        try:
            getattr(self, "do_" + name.replace("-", "_"))(*places, **named)
        except RaftError as error:
            self.out.append(f"refused: {error}")
        return "\n".join(self.out) or "ok"

    # -- commands -------------------------------------------------------------

    def do_options(self, **named: str) -> None:
        """options hibernate_ticks=5 lease_reads=1: before the group."""
        self.options = replace(self.options, **{name: int(value) for name, value in named.items()})

    def do_group(self, *nodes: str, spare: str = "") -> None:
        """group 1 2 3 spare=4: first members, and nodes that are none yet."""
        config = Config({int(node): 1 for node in nodes})
        for node in config.voters:
            self.actors[node] = Actor(node, bootstrap(config, node), 1, self.options)
        for node in filter(None, spare.split(",")):
            self._begin(int(node), Restored(Snapshot(0, 0, Config()), seeds=tuple(config.voters)))

    def _begin(self, node: int, restored: Restored) -> None:
        self.boot += 1
        self.actors[node] = Actor(node, restored, self.boot, self.options)

    def do_campaign(self, node: str) -> None:
        """The node's patience ends; a leader has lost its majority before."""
        raft = self._raft(node)
        if raft.is_leader:
            raft.become_follower(raft.term, 0)
        for other in self.actors.values():
            other.raft.elapsed = max(other.raft.elapsed, self.options.election_ticks)
            other.raft.started_quiet = False
        raft.elapsed = raft.timeout
        raft.tick()
        self._work(raft.node)

    def do_tick(self, node: str, times: str = "1") -> None:
        actor = self.actors[int(node)]
        for _ in range(int(times)):
            actor.now_ns += self.options.tick_ns
            actor.raft.tick(actor.now_ns)
            self._work(int(node), quiet=True)
        self._say(node)

    def do_clock(self, node: str, ms: str) -> None:
        """The node's clock jumps by so many milliseconds, forward or back."""
        actor = self.actors[int(node)]
        actor.now_ns += int(ms) * 1_000_000
        reads.clock(actor.raft, actor.now_ns)
        self._work(int(node))

    def do_disk(self, node: str, what: str) -> None:
        """disk 2 slow: its syncs do not end; disk 2 quick: they do, those under way as well."""
        actor = self.actors[int(node)]
        actor.slow = what == "slow"
        self._work(int(node))

    def do_wake(self, node: str) -> None:
        self._raft(node).wake()
        self._work(int(node))

    def do_progress(self, node: str) -> None:
        """What a leader thinks of the others."""
        for other, each in self._raft(node).progress.items():
            self.out.append(
                f"{other}: {each.state.value}, has {each.match}, next {each.next},"
                f" {len(each.inflight)} under way"
            )

    def do_propose(self, node: str, *datas: str) -> None:
        self._raft(node).propose([data.encode() for data in datas])
        self._work(int(node))

    def do_transfer(self, node: str, to: str) -> None:
        transfer.begin(self._raft(node), int(to))
        self._work(int(node))

    def do_add_voter(self, node: str, new: str) -> None:
        membership.add_voter(self._raft(node), int(new), self._raft(new).incarnation)
        self._work(int(node))

    def do_remove(self, node: str, old: str) -> None:
        membership.remove(self._raft(node), int(old))
        self._work(int(node))

    def do_read(self, node: str, number: str) -> None:
        self._raft(node).read(int(number), self.actors[int(node)].now_ns)
        self._work(int(node))

    def do_compact(self, node: str, index: str) -> None:
        actor = self.actors[int(node)]
        log = actor.raft.log
        at = int(index)
        snapshot = Snapshot(at, log.term(at) or 0, log.config_at(at))
        actor.entries = [entry for entry in actor.entries if entry.index > at]
        actor.snapshot = snapshot
        actor.raft.compact(snapshot)

    def do_deliver(
        self, *receivers: str, drop: str = "", only: str = "", order: str = "", times: str = "1"
    ) -> None:
        """Deliver what lies on the stage, to `receivers` or all; one round. `order=back`: the
        last first; `times=2`: everything twice."""
        waiting, self.messages = self.messages * int(times), []
        waiting = waiting[::-1] if order == "back" else waiting
        dropped = {int(node) for node in drop.split(",") if node}
        for m in waiting:
            line = describe(m)
            if m.to in dropped or m.sender in dropped or m.to not in self.actors:
                self.out.append(f"lost       {line}")
            elif (receivers and str(m.to) not in receivers) or (only and m.kind.name != only):
                self.messages.append(m)
            else:
                self.out.append(f"delivered  {line}")
                self.actors[m.to].raft.step(m)
                self._work(m.to)

    def do_settle(self, drop: str = "", ticks: str = "0") -> None:
        """Deliver until nothing is said any more; prints only what became of it."""
        for _ in range(1 + int(ticks)):
            for _ in range(200):
                if not self.messages:
                    break
                self.do_deliver(drop=drop)
            if int(ticks):
                for node, actor in self.actors.items():
                    actor.raft.tick()
                    self._work(node, quiet=True)
        if int(ticks):
            self.do_settle(drop=drop)
        self.out = []
        self.do_status()

    def do_forget(self) -> None:
        """Everything on the stage is lost."""
        self.out = [f"lost       {describe(m)}" for m in self.messages]
        self.messages = []

    def do_restart(self, node: str, clean: str = "yes", disk: str = "kept") -> None:
        actor = self.actors[int(node)]
        seeds = tuple(self.actors)
        restored = Restored(actor.snapshot, actor.entries, actor.hard, clean == "yes", seeds)
        if disk == "new":
            restored = Restored(Snapshot(0, 0, Config()), seeds=seeds)
        self._begin(int(node), restored)
        self._work(int(node))
        self._say(node)

    def do_lose(self, node: str, entries: str) -> None:
        """A disk that lied: the last entries are not there, nor the last vote."""
        actor = self.actors[int(node)]
        del actor.entries[len(actor.entries) - int(entries) :]
        actor.hard = HardState(1, 0, 1, actor.raft.incarnation)

    def do_status(self) -> None:
        for node in self.actors:
            self._say(str(node))

    # -- how it works ---------------------------------------------------------

    def _raft(self, node: str) -> Raft:
        return self.actors[int(node)].raft

    def _say(self, node: str) -> None:
        raft = self._raft(node)
        log = raft.log
        config = log.config
        learners = f" learners {sorted(config.learners)}" if config.learners else ""
        notes = [name for name in ("recovering", "removed") if getattr(raft, name)]
        notes += ["asleep"] if raft.sleep.asleep else []
        self.out.append(
            f"{node}: {raft.role.value} of term {raft.term}, log {log.base_index}-{log.last}"
            f" of term {log.last_term}, committed {log.committed},"
            f" voters {sorted(config.voters)}{learners}{' ' if notes else ''}{', '.join(notes)}"
        )

    def _work(self, node: int, quiet: bool = False) -> None:
        """Do what the group asks, with a disk that is quick."""
        actor = self.actors[node]
        self._sync(actor)
        while actor.raft.has_ready():
            before = actor.raft.role, actor.raft.term
            ready = actor.raft.ready()
            self.messages += ready.messages
            if ready.snapshot is not None:
                actor.snapshot, actor.entries = ready.snapshot, []
                self.out.append(f"  {node} installs a snapshot at {ready.snapshot.index}")
            for m in ready.parts:
                self._keep(actor, m)
            for wanted in ready.wanted:
                self._give(actor, wanted)
            if ready.entries:
                first = ready.entries[0].index - actor.snapshot.index - 1
                actor.entries = actor.entries[:first] + ready.entries
                self.out.append(f"  {node} writes {entries_text(ready.entries)}")
            actor.hard = ready.hard_state or actor.hard
            for entry in ready.committed:
                self.out.append(f"  {node} applies {entries_text([entry])}")
            for state in ready.reads:
                self.out.append(f"  {node} may serve read {state.context} at {state.index}")
            actor.unsynced.append(ready.number)
            self._sync(actor)
            if (actor.raft.role, actor.raft.term) != before:
                self.out.append(f"  {node} is {actor.raft.role.value} of term {actor.raft.term}")

    def _give(self, actor: Actor, wanted: Wanted) -> None:
        """A part of the state, which is a text."""
        snapshot, size = actor.snapshot, actor.raft.options.snapshot_part_bytes
        state = b"state at %d" % snapshot.index
        data = state[wanted.position : wanted.position + size]
        behind = wanted.position + len(data)
        actor.raft.send_part(wanted, Part(wanted.position, behind, data, snapshot, len(state)))

    def _keep(self, actor: Actor, m: Message) -> None:
        """A part has come."""
        if m.index and m.index != actor.arriving:
            actor.arriving, actor.arrived = m.index, b""
        if m.offset == len(actor.arrived):
            actor.arrived += m.part
        if m.index and len(actor.arrived) == m.size:
            actor.arriving, actor.arrived = 0, b""
            actor.raft.snapshot_arrived(m)
        else:
            actor.raft.part_kept(m, len(actor.arrived))

    def _sync(self, actor: Actor) -> None:
        """A quick disk has synced what was written."""
        while actor.unsynced and not actor.slow:
            self.messages += actor.raft.synced(actor.unsynced.popleft())


def entries_text(entries: list) -> str:
    """term/index and what it is."""
    return " ".join(
        f"{entry.term}/{entry.index}:{KINDS[entry.kind] or entry.data.decode()}"
        for entry in entries
    )


def describe(m: Message) -> str:
    """A message in one line."""
    parts = [f"{m.sender}->{m.to} {m.kind.name} term {m.term}"]
    if m.kind in (Kind.VOTE, Kind.PRE_VOTE, Kind.HELLO_REPLY, Kind.SNAPSHOT):
        parts.append(f"end {m.log_term}/{m.index}")
    elif m.kind is Kind.APPEND:
        parts.append(f"after {m.log_term}/{m.index} commit {m.commit}")
        parts += [entries_text(m.entries)] if m.entries else ["nothing"]
    elif m.kind is Kind.APPEND_REPLY and m.reject:
        parts.append(f"not after {m.index}, perhaps after {m.log_term}/{m.hint}")
    elif m.kind is Kind.APPEND_REPLY:
        parts.append(f"has {m.index}")
    elif m.reject:
        parts.append("no")
    return " ".join(parts)
