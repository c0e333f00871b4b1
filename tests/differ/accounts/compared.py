"""Made-up accounts on both servers, and what each of their clients sees."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable

from bench.servers import Server, ServerFailed
from tests.differ.accounts.intended import intended
from tests.differ.accounts.steps import Step, steps
from tests.differ.accounts.worlds import Part, config, world
from tests.differ.frames import Frame
from tests.differ.pair import Pair
from tests.differ.shrink import shrunk
from tests.differ.starts.compared import pruned
from tests.differ.talk import Talk, settle

Answers = dict[str, list[str]]
"""What came on a connection, by its number and its subscription."""
Unlike = tuple[int, Answers, Answers]
"""The number of a step, and what came of it from both servers."""

AGAIN = 3
"""So often a world must differ: a member of a group that hears a message by two imports gets one
of them by chance."""
SMALLER_S = 60.0
"""How long a world is made smaller."""
STARTS = "starts"
NAMES = re.compile(r'_R_\.[\w.]+|\$JS\.ACK\.\S+|"rtt": ?\d+|"id":\d+|\d{4}-\d\d-\d\dT[\d:.]+Z')
"""Names and times that a server makes itself."""


class Clients:
    """The clients of one world, each with a connection to both servers."""

    def __init__(self, ports: tuple[int, int]) -> None:
        self.ports = ports
        self.talks: dict[int, tuple[Talk, Talk]] = {}
        self.asked: dict[tuple[int, int], list[str]] = {}
        """Replies of messages that came, by connection and side."""

    def play(self, wanted: list[Step]) -> Unlike | None:
        """The first step after which something differs."""
        try:
            for number, step in enumerate(wanted):
                self._send(step)
                for which in [step.conn, *(one for one in self.talks if one != step.conn)]:
                    settle(*self.talks[which])
                    for talk in self.talks[which] if step.slow else ():
                        talk.until_quiet()
                ours, theirs = self._answers(0), self._answers(1)
                if ours != theirs:
                    return number, ours, theirs
            return None
        finally:
            for pair in self.talks.values():
                for one in pair:
                    one.close()

    def _send(self, step: Step) -> None:
        if step.conn not in self.talks:
            self.talks[step.conn] = (Talk(self.ports[0]), Talk(self.ports[1]))
            for one in self.talks[step.conn]:
                one.read(5)
        for side, talk in enumerate(self.talks[step.conn]):
            asked = self.asked.get((step.conn, side), [])
            if not step.which:
                talk.send(step.data, [])
            elif len(asked) >= step.which:
                talk.send(step.data.replace(b"@", asked[-step.which].encode()), [])

    def _answers(self, side: int) -> Answers:
        """Messages of one subscription come in any order when they come by several imports."""
        found: Answers = {}
        for conn, pair in sorted(self.talks.items()):
            for frame in pair[side].take():
                reply = frame.words[2] if frame.message and len(frame.words) > 2 else ""
                if reply and not reply.startswith("$JS.ACK"):
                    self.asked.setdefault((conn, side), []).append(reply)
                sid = frame.words[1] if frame.message else frame.verb
                found.setdefault(f"{conn} {sid}", []).append(shown(frame))
        return {key: sorted(lines) for key, lines in found.items()}


def shown(frame: Frame) -> str:
    """A frame as a line, without what a server makes itself."""
    payload = _bare(frame.payload.decode("latin-1"))
    return NAMES.sub("OWN", f"{frame.verb} {frame.words} {frame.header!r} {payload}")


def _bare(text: str) -> str:
    """Bodies of JSON, also such that are told in others."""
    if not text.startswith("{"):
        return text
    told = pruned(json.loads(text))
    for key in ("request", "response"):
        if key in told:
            told[key] = _bare(told[key])
    told.get("client", {}).pop("rtt", None)
    return json.dumps(told, sort_keys=True)


def differs(parts: list[Part], wanted: list[Step]) -> Unlike | None:
    """What the servers do differently, each time that it is tried, unless that is by intention."""
    return each_time([lambda: _once(parts, wanted)] * AGAIN)


def each_time(tries: list[Callable[[], Unlike | None]]) -> Unlike | None:
    """What all of several tries find: the same lines must be on one side only. A mapping that
    takes a reply apart, which a server makes up, comes to something else each time."""
    unlike: Counter[tuple[str, str, str]] | None = None
    found: Unlike | None = None
    for once in tries:
        found = once()
        if found is None:
            return None
        lines = _lines(found)
        unlike = lines if unlike is None else unlike & lines
        if not unlike:
            return None
    return found


def _lines(found: Unlike) -> Counter[tuple[str, str, str]]:
    """What one side has more than the other: the side, the subscription, and the line."""
    _, *sides = found
    ours, theirs = (
        Counter((key, line) for key, lines in side.items() for line in lines) for side in sides
    )
    more = {"ours": ours - theirs, "theirs": theirs - ours}
    return Counter({(side, *at): n for side, lines in more.items() for at, n in lines.items()})


def _once(parts: list[Part], wanted: list[Step]) -> Unlike | None:
    text = config(parts)
    try:
        with Pair(text) as pair:
            found = played(pair.ports, parts, wanted)
    except ServerFailed:
        ours, theirs = (_start(server) for server in Pair(text).servers)
        # The words of a refusal are compared where configurations are.
        if STARTS not in (ours, theirs):
            return None
        unlike = (-1, {"": [ours]}, {"": [theirs]})
        return None if intended(parts, wanted, *unlike) else unlike
    return found


def played(ports: tuple[int, int], parts: list[Part], wanted: list[Step]) -> Unlike | None:
    """What differs on servers that run with these parts."""
    found = Clients(ports).play(wanted)
    return None if found is None or intended(parts, wanted, *found) else found


def _start(server: Server) -> str:
    try:
        with server:
            return STARTS
    except ServerFailed as error:
        return str(error)


def accounts(seeds: Iterable[int], most: int) -> tuple[list[str], int]:
    """Worlds of these seeds: differences, and how many steps were tried."""
    found: list[str] = []
    tried = 0
    for seed in seeds:
        parts = world(seed)
        wanted = steps(seed, parts)
        tried += len(wanted)
        unlike = differs(parts, wanted)
        if unlike is None:
            continue
        found.append(told(seed, *smaller(parts, wanted[: unlike[0] + 1])))
        print(found[-1], flush=True)
        if len(found) >= most:
            break
    return found, tried


def smaller(parts: list[Part], wanted: list[Step]) -> tuple[list[Part], list[Step]]:
    """What the difference takes of a world and its steps."""

    def fails(left: list[Part]) -> bool:
        return differs(left, wanted) is not None

    if not wanted:
        return shrunk(parts, fails, SMALLER_S), wanted
    with Pair(config(parts)) as pair:

        def fails_after(left: list[Step]) -> bool:
            # What is made in JetStream stays from one try to the next.
            slow = any(step.slow for step in left)
            if slow:
                return differs(parts, left) is not None
            again = [lambda: played(pair.ports, parts, left)] * AGAIN
            return each_time(again) is not None

        wanted = shrunk(wanted, fails_after, SMALLER_S)
    return shrunk(parts, fails, SMALLER_S), wanted


def told(seed: int, parts: list[Part], wanted: list[Step]) -> str:
    """A difference for a person."""
    unlike = differs(parts, wanted)
    lines = [f"accounts seed={seed}", *(f"  {part}" for part in parts)]
    lines += [f"  {number} {step}" for number, step in enumerate(wanted)]
    if unlike is None:
        return "\n".join([*lines, "  differs no more when it is small"])
    number, ours, theirs = unlike
    keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    lines.append(f"  step {number}")
    for key in keys:
        lines += [f"    {key}", f"      ours   {ours.get(key)}", f"      theirs {theirs.get(key)}"]
    return "\n".join(lines)
