"""Decides for one gateway, from its facts and the inventory, what is to be done; does nothing."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from headwater.deploy.fleet.device.apply import RESTART_KEYS
from headwater.deploy.fleet.device.bundle_file import INTERPRETER, Bundle, BundleError
from headwater.deploy.fleet.device.install import ROOM_FACTOR, slot_identity, way_back
from headwater.deploy.fleet.flash.facts import CLOCK_SKEW_MAX_S, Facts
from headwater.deploy.fleet.flash.inventory import Host, Inventory, InventoryError

SUFFIX = ".bundle"


class Unfit(Exception):
    """A gateway cannot be flashed as it is; the text says what to do."""


class LocalBundle(msgspec.Struct, frozen=True):
    """A bundle beside the inventory, verified."""

    path: Path
    digest: str
    manifest: dict[str, Any]
    key: str
    size: int

    @property
    def carries_python(self) -> bool:
        """Whether there is an interpreter in it."""
        return any(entry["path"] == INTERPRETER for entry in self.manifest["files"])

    def sha256_of(self, name: str) -> str:
        """Digest of one of its files."""
        return next(str(e["sha256"]) for e in self.manifest["files"] if e["path"] == name)


class Plan(msgspec.Struct, kw_only=True):
    """What is to be done with one gateway."""

    bundle: LocalBundle
    config: str
    ca: str
    token: str
    unchanged: bool
    python: str
    """Interpreter there; empty when the bundle's is used."""
    remarks: list[str]

    @property
    def text(self) -> str:
        """One line for people."""
        version = self.bundle.manifest["version"]
        what = f"install {version} from {self.bundle.path.name}"
        if self.unchanged:
            what = "nothing to do"
        return "; ".join([what, *self.remarks])


def local_bundles(inventory: Inventory) -> list[LocalBundle]:
    """The bundles that the inventory names. Raises InventoryError and BundleError."""
    if not inventory.fleet.bundle:
        raise InventoryError("[fleet] names no bundle; make one with `headwater fleet bundle`")
    given = inventory.path(inventory.fleet.bundle)
    stem = given.name.removesuffix(SUFFIX)
    paths = [given] if given.exists() else []
    paths += [path for path in sorted(given.parent.glob(f"{stem}-*{SUFFIX}")) if path not in paths]
    if not paths:
        raise InventoryError(
            f"there is no {given} and no {stem}-*{SUFFIX} beside it; make one with "
            "`headwater fleet bundle`"
        )
    return [_local(path, inventory.keys()) for path in paths]


def _local(path: Path, keys: Sequence[str]) -> LocalBundle:
    """Open and verify everything: a damaged bundle must not travel. Raises BundleError."""
    pinned = list(keys) or [_signer(path)]
    bundle = Bundle(path, pinned)
    try:
        for _ in bundle.files():
            pass
        size = path.stat().st_size
        return LocalBundle(path, bundle.digest, bundle.manifest, bundle.key, size)
    finally:
        bundle.close()


def _signer(path: Path) -> str:
    """Who says to have signed a bundle, where the inventory names no key."""
    import tarfile

    try:
        with tarfile.open(path, "r:") as archive:
            content = archive.extractfile("manifest.sig")
            return str(json.loads(content.read())["key"]) if content else ""
    except (tarfile.TarError, KeyError, ValueError, OSError) as error:
        raise BundleError(f"{path.name} is no whole bundle: {error}") from error


def make_plan(
    inventory: Inventory, host: Host, facts: Facts, bundles: Sequence[LocalBundle], config: str,
    *, one_way: bool = False,
) -> Plan:  # fmt: skip
    """What is to be done. Raises Unfit."""
    check(host, facts)
    bundle = fitting(facts, bundles)
    ca = inventory.path(inventory.fleet.ca).read_text() if inventory.fleet.ca else ""
    settings = {key: getattr(host, key) for key in RESTART_KEYS}
    more = json.dumps([ca, settings])
    identity = slot_identity(bundle.digest, config, more)
    state = facts.status.get("state") or {}
    unchanged = (
        facts.slot.get("identity") == identity
        and bool(facts.status.get("slot"))
        and state.get("committed") == facts.status.get("slot")
        and state.get("trying") is None
        and bool(facts.status["service"]["running"])
    )
    plan = Plan(
        bundle=bundle, config=config, ca=ca, token=_token(inventory, host), unchanged=unchanged,
        python=facts.pythons.get(bundle.manifest["target"]["python"], ""), remarks=[],
    )  # fmt: skip
    if not unchanged:
        _check_room(host, facts, bundle)
        old = facts.slot.get("store") or {}
        problem = way_back(bundle.manifest["store"], old)
        if problem and not one_way:
            raise Unfit(problem)
        _add_remarks(plan, facts, problem)
    return plan


def _add_remarks(plan: Plan, facts: Facts, problem: str) -> None:
    before = facts.slot.get("version")
    plan.remarks.append(f"in the place of {before}" if before else "for the first time")
    if problem:
        plan.remarks.append(problem)
    if not plan.python:
        plan.remarks.append("with the bundle's own Python")
    if abs(facts.skew_s) > 300:
        plan.remarks.append(f"its clock is {facts.skew_s:+.0f} s off")


def check(host: Host, facts: Facts) -> None:
    """Raise Unfit for a machine that cannot be a gateway as it is."""
    if not facts.complete:
        raise Unfit("its shell does not answer as a shell; is the login shell /bin/sh or alike?")
    if facts.system != "Linux":
        raise Unfit(f"it runs {facts.system or 'an unknown system'}; gateways run Linux")
    if facts.glibc is None:
        raise Unfit(f"its C library is {facts.libc or 'unknown'}; there are wheels for glibc only")
    if not facts.writable:
        raise Unfit(
            f"{host.prefix} cannot be written by this user: it is read-only, or sudo is needed"
        )
    if host.service == "systemd" and facts.init != "systemd":
        raise Unfit('it does not run systemd; set service = "supervisor"')
    if host.service == "systemd" and facts.uid != 0:
        raise Unfit("systemd units need root; set user = root, or sudo = true")
    if abs(facts.skew_s) > CLOCK_SKEW_MAX_S:
        raise Unfit(
            f"its clock is {facts.skew_s / 86400:+.0f} days off, so that no certificate and no "
            "token is valid; set it, or flash with --set-clock"
        )


def fitting(facts: Facts, bundles: Sequence[LocalBundle]) -> LocalBundle:
    """The bundle for a machine; one that uses its own Python goes first. Raises Unfit."""
    machine = "armv7l" if facts.machine.startswith("armv7") else facts.machine
    own = [each for each in bundles if each.manifest["target"]["machine"] == machine]
    if not own:
        there = ", ".join(sorted({each.manifest["target"]["machine"] for each in bundles}))
        raise Unfit(f"there is no bundle for {facts.machine}, only for {there}")
    for each in own:
        if each.manifest["target"]["python"] in facts.pythons:
            return _fits_glibc(each, facts)
    for each in own:
        if each.carries_python:
            return _fits_glibc(each, facts)
    wanted = ", ".join(sorted({each.manifest["target"]["python"] for each in own}))
    has = ", ".join(facts.pythons) or "none"
    raise Unfit(
        f"it has Python {has}, the bundles are for {wanted}; make one for it, or with --interpreter"
    )


def _fits_glibc(bundle: LocalBundle, facts: Facts) -> LocalBundle:
    needed = tuple(bundle.manifest["target"].get("glibc", (2, 17)))
    assert facts.glibc is not None
    if facts.glibc < needed:
        raise Unfit(
            f"its glibc is {'.'.join(map(str, facts.glibc))}, the bundle needs "
            f"{'.'.join(map(str, needed))}; build the wheel on an older system"
        )
    return bundle


def _check_room(host: Host, facts: Facts, bundle: LocalBundle) -> None:
    needed = bundle.size * (ROOM_FACTOR + 1)
    if facts.free_bytes < needed:
        raise Unfit(
            f"no space for {host.prefix}: {facts.free_bytes >> 20} MB free, "
            f"{needed >> 20} MB needed"
        )


def _token(inventory: Inventory, host: Host) -> str:
    if not inventory.enrol.tokens:
        return ""
    path = inventory.path(inventory.enrol.tokens) / f"{host.name}.enrol"
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
