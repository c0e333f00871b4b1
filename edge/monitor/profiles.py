"""Profiles in the form of pprof (github.com/google/pprof, `profile.proto`), whose tools read them.

A Python process has no profiles of Go's: its stacks are those of threads and tasks, and its heap is
what is alive by type, counted from a part of it where there is much.
"""

import asyncio
import collections
import contextlib
import gc
import gzip
import itertools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from headwater.edge.monitor.errors import MonitorError

Line = tuple[str, str, int]
"""A function, its file, and the line that it has come to."""
Stack = tuple[Line, ...]
"""The innermost function first."""
Samples = dict[Stack, tuple[int, ...]]
"""How much each stack has of what a profile counts."""



class Counts(NamedTuple):
    """What was counted: kinds, each with its unit, and as many numbers for each stack."""

    kinds: tuple[tuple[str, str], ...]
    samples: Samples

    def since(self, before: "Counts") -> "Counts":
        """What it has more of, or less, than `before`."""
        samples: Samples = {}
        zeros = (0,) * len(self.kinds)
        for stack in self.samples | before.samples:
            now, then = self.samples.get(stack, zeros), before.samples.get(stack, zeros)
            more = tuple(one - other for one, other in zip(now, then, strict=True))
            if any(more):
                samples[stack] = more
        return Counts(self.kinds, samples)


SAMPLED_MAX = 50_000
"""Objects of the heap whose size is asked; of more, every so many."""
TICK_S = 0.01
UNSIGNED = 2**64 - 1
VARINT = 0
TEXT = 2


def number(value: int) -> bytes:
    """A number as a varint; a negative one in 64 bits, as two's complement."""
    out = bytearray()
    value &= UNSIGNED
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(at: int, value: int | bytes) -> bytes:
    """A field of a message."""
    if isinstance(value, int):
        return number(at << 3 | VARINT) + number(value)
    return number(at << 3 | TEXT) + number(len(value)) + value


class Tables:
    """Texts, functions and places that samples refer to."""

    def __init__(self) -> None:
        self.texts = {"": 0}
        self.functions: dict[tuple[str, str], int] = {}
        self.locations: dict[Line, int] = {}

    def text(self, text: str) -> int:
        """The number of a text."""
        return self.texts.setdefault(text, len(self.texts))

    def kind(self, kind: tuple[str, str]) -> bytes:
        """What is counted, and its unit."""
        return field(1, self.text(kind[0])) + field(2, self.text(kind[1]))

    def location(self, line: Line) -> int:
        """The number of a place, from 1 on."""
        self.functions.setdefault(line[:2], len(self.functions) + 1)
        return self.locations.setdefault(line, len(self.locations) + 1)

    def written(self) -> bytes:
        """The tables' own fields."""
        out = []
        for (name, file, line), at in self.locations.items():
            inside = field(1, self.functions[name, file]) + field(2, line)
            out.append(field(4, field(1, at) + field(4, inside)))
        for (name, file), at in self.functions.items():
            named = field(1, at) + field(2, self.text(name)) + field(3, self.text(name))
            out.append(field(5, named + field(4, self.text(file))))
        out += [field(6, text.encode("utf-8", "replace")) for text in self.texts]
        return b"".join(out)


def packed(counts: Counts, lasted_ns: int = 0) -> bytes:
    """A profile as it is read: compressed."""
    tables = Tables()
    named = [tables.kind(kind) for kind in counts.kinds]
    out = [field(1, kind) for kind in named]
    for stack, values in counts.samples.items():
        where = b"".join(number(tables.location(line)) for line in stack)
        out.append(field(2, field(1, where) + field(2, b"".join(map(number, values)))))
    out += [field(10, lasted_ns), field(11, named[-1]), field(12, 1)]
    return gzip.compress(b"".join([*out, tables.written()]))


def stack_of(frame: FrameType | None) -> Stack:
    """Where a frame is, and who called it."""
    found = []
    while frame is not None:
        code = frame.f_code
        found.append((code.co_qualname, code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


def shown(name: str, counts: Counts) -> str:
    """A profile as text for people: the most first."""
    rows = sorted(counts.samples.items(), key=lambda item: item[1], reverse=True)
    total = ", ".join(
        f"{sum(values[at] for _, values in rows)} {unit} of {kind}"
        for at, (kind, unit) in enumerate(counts.kinds)
    )
    out = [f"{name} profile: total {total}"]
    for stack, values in rows:
        out.append(" ".join(map(str, values)))
        out += [f"#\t{function}\t{file}:{line}" for function, file, line in stack]
        out.append("")
    return "\n".join(out) + "\n"


def stacks(tasks: bool) -> Counts:
    """What every thread is doing right now, and every task where `tasks` says so."""
    counted: collections.Counter[Stack] = collections.Counter()
    counted.update(stack_of(frame) for frame in sys._current_frames().values())
    for task in asyncio.all_tasks() if tasks else ():
        frames = reversed(task.get_stack())
        counted[tuple(itertools.chain.from_iterable(stack_of(one)[:1] for one in frames))] += 1
    name = "goroutine" if tasks else "threadcreate"
    return Counts(((name, "count"),), {stack: (times,) for stack, times in counted.items()})


def place_of(kind: type) -> Line:
    """A type as a line of a stack. Some types give their objects a module, and have no other."""
    module: object = kind.__module__
    return kind.__qualname__, module if isinstance(module, str) else "", 0


def heap() -> Counts:
    """What is alive, by its type."""
    objects = gc.get_objects()
    step = len(objects) // SAMPLED_MAX + 1
    counts: collections.Counter[type] = collections.Counter()
    sizes: collections.Counter[type] = collections.Counter()
    for one in objects[::step]:
        counts[type(one)] += step
        sizes[type(one)] += step * sys.getsizeof(one, 0)
    del objects
    samples: Samples = {(place_of(kind),): (counts[kind], sizes[kind]) for kind in counts}
    return Counts((("inuse_objects", "count"), ("inuse_space", "bytes")), samples)


def waits() -> Counts:
    """Waits for locks, of which none is recorded, as by nats-server unless it is asked to."""
    return Counts((("contentions", "count"), ("delay", "nanoseconds")), {})


NOW: dict[str, Callable[[], Counts]] = {
    "allocs": heap,
    "block": waits,
    "goroutine": lambda: stacks(tasks=True),
    "heap": heap,
    "mutex": waits,
    "threadcreate": lambda: stacks(tasks=False),
}
"""Profiles of what is right now, by their names."""


def used_by_thread() -> dict[int, int]:
    """How long each other thread has been on a processor, in ns, by its identity."""
    found = {}
    own = threading.get_ident()
    for thread in threading.enumerate():
        if thread.ident is None or thread.ident == own:
            continue
        path = Path(f"/proc/self/task/{thread.native_id}/schedstat")
        with contextlib.suppress(OSError):
            found[thread.ident] = int(path.read_text().split()[0])
    return found


class CpuProfiles:
    """What the threads of the process do for a while, looked at from a thread; one at a time."""

    def __init__(self) -> None:
        self.busy = False

    def begin(self, lasts_ns: int, clock: Callable[[], int]) -> "asyncio.Future[bytes]":
        """A profile, once it is complete; `clock` counts nanoseconds. The future raises
        MonitorError when the system refuses what it needs."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[bytes] = loop.create_future()

        def finish(profile: bytes | MonitorError) -> None:
            if done.done():
                return
            if isinstance(profile, bytes):
                done.set_result(profile)
            else:
                done.set_exception(profile)

        def work() -> None:
            made: bytes | MonitorError
            try:
                made = self._looked(lasts_ns, clock)
            except Exception as error:
                made = _failed(error)
            self.busy = False
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(finish, made)

        self.busy = True
        try:
            threading.Thread(target=work, name="profile", daemon=True).start()
        except RuntimeError as error:
            self.busy = False
            finish(_failed(error))
        return done

    def _looked(self, lasts_ns: int, clock: Callable[[], int]) -> bytes:
        begin = clock()
        tick = threading.Event()
        counts: collections.Counter[Stack] = collections.Counter()
        spent: collections.Counter[Stack] = collections.Counter()
        before = used_by_thread()
        while clock() - begin < lasts_ns:
            tick.wait(TICK_S)
            frames = sys._current_frames()
            used = used_by_thread()
            for ident, ns in used.items():
                more = ns - before.get(ident, 0)
                if more > 0 and ident in frames:
                    stack = stack_of(frames[ident])
                    counts[stack] += 1
                    spent[stack] += more
            before = used
            del frames
        samples: Samples = {stack: (times, spent[stack]) for stack, times in counts.items()}
        kinds = (("samples", "count"), ("cpu", "nanoseconds"))
        return packed(Counts(kinds, samples), clock() - begin)


def _failed(error: Exception) -> MonitorError:
    return MonitorError(f"the processor's profile cannot be made: {error}", 500)


cpu_profiles = CpuProfiles()
