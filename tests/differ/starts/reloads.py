"""Reloads on both servers: a running one hears of a configuration in which one setting differs.

Compared are whether that is taken over, and what each server then says of itself.
"""

import random
import signal
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from bench.servers import ServerFailed, program
from tests.differ.shrink import shrunk
from tests.differ.starts.compared import Started, told
from tests.differ.starts.intended import intended_answers, intended_page, intended_reload
from tests.differ.starts.settings import DOORS, GLOBAL, Maker, Settings, said, settings
from tests.waiting import until_seen

TAKEN = "Reloaded server configuration"
REFUSED = "Failed to reload server configuration"


class Change:
    """One setting of a configuration that becomes another."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"reload {seed}")
        self.maker = Maker(seed + 1)

    def made(self, lines: list[str]) -> list[str]:
        """The lines with one that is changed, one more, or one less."""
        roll = self.chance.random()
        if roll < 0.6:
            key = self.chance.choice([each for each in GLOBAL if each != "port"])
            return self._put(lines, key, f"{key}: {said(self.chance.choice(GLOBAL[key]))}")
        if roll < 0.75:
            return self._put(lines, "jetstream", self.maker.jetstream())
        if roll < 0.85:
            names = ["A", "B", "S"][: self.chance.choice([2, 3])]
            body = "\n".join(self.maker.account(name) for name in names)
            return self._put(lines, "accounts", f"accounts {{\n{body}\n}}")
        if roll < 0.92:
            return self._put(lines, "authorization", self.maker.authorization())
        door = self.chance.choice(DOORS)
        return self._put(lines, door.split()[0], door)

    def _put(self, lines: list[str], key: str, line: str) -> list[str]:
        """The line in the place of the one with this key; without it where it is the same, and
        sometimes so."""
        left = [each for each in lines if each.split(":")[0].split()[0] != key]
        if line in lines or (len(left) < len(lines) and self.chance.random() < 0.2):
            return left
        return [*left, line]


class Reloaded(Started):
    """One server that hears of a second configuration."""

    def __init__(
        self, name: str, command: tuple[str, ...], first: Settings, second: Settings
    ) -> None:
        super().__init__(name, command, first)
        self.second = second

    def told(self) -> dict[str, Any]:
        """All that is compared, by name; nothing when it does not start."""
        try:
            with self.server as server:
                work = server.log_path.parent
                text = self.recipe_text()
                before = len(server.log_path.read_bytes())
                replace(server.recipe, config=text).argv(server.port, work, server.store)
                server.signal(signal.SIGHUP)

                def log() -> str:
                    new = server.log_path.read_bytes()[before:].decode(errors="replace")
                    return new if TAKEN in new or REFUSED in new else ""

                new = str(until_seen(log))
                if TAKEN not in new:
                    return {"reload": "refused", "reason": new}
                self.wanted = self.second
                return {"reload": "taken", "reason": new, **self._running()}
        except ServerFailed as error:
            return {"reload": "no start", "reason": str(error)}

    def recipe_text(self) -> str:
        """The second configuration, with the monitor of the first one."""
        monitor = self.server.recipe.config.removeprefix(self.wanted.text)
        return f"{self.second.text}{monitor}"


def compared(first: Settings, second: Settings) -> list[tuple[str, Any, Any]]:
    """What the servers say differently of one reload: the part, ours and theirs."""
    both = (
        Reloaded("headwater", (program("headwater"), "serve"), first, second),
        Reloaded("nats-server", (program("nats-server"),), first, second),
    )
    with ThreadPoolExecutor(2) as pool:
        ours, theirs = pool.map(Reloaded.told, both)
    if "no start" in (ours["reload"], theirs["reload"]):
        return []
    if ours["reload"] != theirs["reload"]:
        reasons = (ours["reason"], theirs["reason"])
        return [] if intended_reload(*reasons) else [("reload", *reasons)]
    return [
        (part, ours[part], theirs[part])
        for part in ours
        if part != "reason" and ours[part] != theirs[part] and not intended_page(part)
        and not intended_answers(part, second.text, ours[part], theirs[part])
    ]


def reloads(seeds: Iterable[int], most: int) -> tuple[list[str], int]:
    """Reloads by both servers: differences, and how many were tried."""
    found: list[str] = []
    tried = 0
    for seed in seeds:
        first = settings(seed)
        second = Settings(Change(seed).made(first.lines), first.logins)
        tried += 1
        unlike = compared(first, second)
        # What differs once and then not was a matter of time.
        if not unlike or not compared(first, second):
            continue
        part = unlike[0][0]
        common = [line for line in first.lines if line in second.lines]
        ends = [[each for each in one.lines if each not in common] for one in (first, second)]

        def pair(
            lines: list[str], ends: list[list[str]] = ends, first: Settings = first
        ) -> tuple[Settings, Settings]:
            before, after = (Settings([*lines, *end], first.logins) for end in ends)
            return before, after

        def fails(lines: list[str], part: str = part) -> bool:
            return any(each[0] == part for each in compared(*pair(lines)))

        small = pair(shrunk(common, fails))
        shown = told(small[1], compared(*small) or unlike, seed)
        found.append(f"reload of\n{small[0].text}by {shown}")
        print(found[-1], flush=True)
        if len(found) >= most:
            break
    return found, tried
