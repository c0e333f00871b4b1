"""The inventory: one TOML file that says which gateways there are and what they shall run.

`[fleet]`, `[defaults]`, `[[host]]`, `[template]` and `[enrol]`; a host may say for itself whatever
`[defaults]` says. Paths are relative to the file. Everything wrong is told at once.
"""

import difflib
import fnmatch
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
FAILED = "@failed"
SERVICE_WORD = re.compile(r"[A-Za-z0-9][\w.@-]{0,99}")
"""Units and users: they become names of files, and words in a unit."""
DEADLINE_S_MAX = 86400.0
JUMP = re.compile(r"([^@\s]+@)?[^@:\s]+(:\d{1,5})?")


class InventoryError(Exception):
    """The inventory cannot be used; the text has a line for each problem."""


class Fleet(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`[fleet]`."""

    name: str
    hub: list[str]
    """URLs of the ports where leaf nodes join."""
    bundle: str = ""
    """A bundle, or the common beginning of the names of several, one for each target."""
    ca: str = ""
    """File with the CA certificate of the hub."""
    bundle_key: str | list[str] = []
    """Public keys whose bundles gateways take; pinned at the first flash."""


class HostOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What `[defaults]` and each host can say."""

    user: str = "root"
    port: int = 22
    key: str | list[str] = ""
    """Private key files; without one, the agent's keys and the usual files of ~/.ssh."""
    agent: bool = True
    password_file: str = ""
    """File with the password, for gateways without keys."""
    jump: str = ""
    """[user@]host[:port] that is passed on the way."""
    jump_host_key: str = ""
    sudo: bool = False
    """Use `sudo -n`, when the user is not root and the prefix belongs to root."""
    prefix: str = "/opt/headwater"
    data: str = "/var/lib/headwater"
    service: str = "systemd"
    unit: str = "headwater"
    run_as: str = "headwater"
    """User of the node; empty is the one who flashes."""
    deadline: float = 300.0
    """Seconds in which a new version has to join."""
    groups: list[str] = []
    vars: dict[str, Any] = {}


class Host(HostOptions, kw_only=True, forbid_unknown_fields=True):
    """`[[host]]`."""

    name: str
    address: str = ""
    host_key: str = ""


class Template(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`[template]`."""

    config: str = ""


class Enrol(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`[enrol]`."""

    tokens: str = ""
    """Folder with `<name>.enrol` of each gateway."""


class Inventory(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    fleet: Fleet
    defaults: dict[str, Any] = {}
    host: list[Host] = []
    template: Template = msgspec.field(default_factory=Template)
    enrol: Enrol = msgspec.field(default_factory=Enrol)
    folder: str = ""
    """Where the file is."""

    def path(self, text: str) -> Path:
        """A path of the inventory."""
        return Path(self.folder) / Path(text).expanduser()

    def keys(self) -> list[str]:
        """Public keys that sign bundles; entries may be files with one."""
        given = self.fleet.bundle_key
        return [given] if isinstance(given, str) else list(given)


def load(path: Path) -> Inventory:
    """Read an inventory. Raises InventoryError."""
    try:
        raw = tomllib.loads(path.read_text())
    except OSError as error:
        raise InventoryError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InventoryError(f"{path}: {error}") from error
    problems = _unknown(raw)
    defaults, hosts = raw.get("defaults", {}), raw.get("host", [])
    if isinstance(defaults, dict) and isinstance(hosts, list):
        raw["host"] = [_merged(defaults, host) for host in hosts if isinstance(host, dict)]
    if problems:
        raise InventoryError("\n".join(f"{path}: {problem}" for problem in problems))
    try:
        found = msgspec.convert(raw, Inventory)
    except msgspec.ValidationError as error:
        raise InventoryError(f"{path}: {error}") from error
    found.folder = str(path.parent)
    problems = list(_problems(found))
    if problems:
        raise InventoryError("\n".join(f"{path}: {problem}" for problem in problems))
    return found


def _merged(defaults: dict[str, Any], host: dict[str, Any]) -> dict[str, Any]:
    both = {**defaults, **host}
    if isinstance(defaults.get("vars"), dict) and isinstance(host.get("vars"), dict):
        both["vars"] = {**defaults["vars"], **host["vars"]}
    if isinstance(defaults.get("groups"), list) and isinstance(host.get("groups"), list):
        both["groups"] = [*defaults["groups"], *host["groups"]]
    both.setdefault("address", host.get("name", ""))
    return both


def _unknown(raw: dict[str, Any]) -> list[str]:
    """A line for each key that nobody reads."""
    tables: dict[str, type] = {
        "fleet": Fleet, "defaults": HostOptions, "host": Host, "template": Template,
        "enrol": Enrol,
    }  # fmt: skip
    problems = []
    for name, table in raw.items():
        if name not in tables:
            problems.append(f"unknown table [{name}]{_meant(name, list(tables))}")
            continue
        known = [field.name for field in msgspec.structs.fields(tables[name])]
        for each in table if isinstance(table, list) else [table]:
            if not isinstance(each, dict):
                problems.append(f"[{name}] has to be a table")
                continue
            label = f"[[host]] {each.get('name', '')}" if name == "host" else f"[{name}]"
            for key in each:
                if key not in known:
                    problems.append(f"{label}: unknown key {key}{_meant(key, known)}")
    return problems


def _meant(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {close[0]}?" if close else ""


def _problems(found: Inventory) -> list[str]:
    problems = []
    names: set[str] = set()
    places: dict[tuple[str, str, int, str], str] = {}
    if not found.host:
        problems.append("there is no [[host]]")
    for host in found.host:
        if not NAME.fullmatch(host.name):
            problems.append(
                f"{host.name!r} is no name of a gateway: small letters, digits, - and _"
            )
        if host.name in names:
            problems.append(f"two hosts are called {host.name}")
        names.add(host.name)
        place = (host.jump, host.address, host.port, host.prefix)
        first = places.setdefault(place, host.name)
        if first != host.name:
            problems.append(f"{host.name}: {first} has the same address, port and prefix")
        problems += [f"{host.name}: {problem}" for problem in _host_problems(host)]
    named = {"[fleet] ca": found.fleet.ca, "[template] config": found.template.config}
    for label, name in named.items():
        if name and not found.path(name).is_file():
            problems.append(f"{label}: there is no file {found.path(name)}")
    return problems


def _host_problems(host: Host) -> list[str]:
    problems = []
    if host.service not in ("systemd", "supervisor"):
        problems.append("service is systemd or supervisor")
    for key in ("prefix", "data"):
        path = getattr(host, key)
        if not re.fullmatch(r"/[\w./@+-]+", path) or ".." in path.split("/"):
            problems.append(f"{key} has to be a plain absolute path")
    inside = f"{host.data}/".startswith(f"{host.prefix.rstrip('/')}/slots/")
    if inside or host.data.rstrip("/") == host.prefix.rstrip("/"):
        problems.append("data has to be outside of the slots")
    if host.jump and not JUMP.fullmatch(host.jump):
        problems.append("jump is [user@]host[:port]")
    if not 1 <= host.port <= 65535:
        problems.append(f"{host.port} is no port")
    for key in ("unit", "run_as"):
        word = getattr(host, key)
        if not SERVICE_WORD.fullmatch(word) and (word or key == "unit"):
            problems.append(f"{key} is a plain word, not {word!r}")
    if not 1 <= host.deadline <= DEADLINE_S_MAX:
        problems.append(f"deadline is 1 to {DEADLINE_S_MAX:.0f} seconds, not {host.deadline:g}")
    return problems


def chosen(hosts: Sequence[Host], limits: Sequence[str], failed: Sequence[str]) -> list[Host]:
    """Hosts that `--limit` names: names, globs, groups, and @failed. Raises InventoryError."""
    if not limits:
        return list(hosts)
    words = [word for limit in limits for word in limit.split(",") if word]
    found = []
    for word in words:
        matching = [host for host in hosts if _matches(host, word, failed)]
        if not matching and word != FAILED:
            raise InventoryError(f"--limit {word} names no host and no group")
        found += [host for host in matching if host not in found]
    return found


def _matches(host: Host, word: str, failed: Sequence[str]) -> bool:
    if word == FAILED:
        return host.name in failed
    return fnmatch.fnmatchcase(host.name, word) or word in host.groups
