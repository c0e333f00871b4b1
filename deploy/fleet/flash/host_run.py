"""Takes one gateway through all phases. What goes wrong here stays here."""

import json
import shlex
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from headwater.deploy.fleet.device.apply import SETTINGS
from headwater.deploy.fleet.device.bundle_file import INTERPRETER
from headwater.deploy.fleet.flash.config import render
from headwater.deploy.fleet.flash.facts import Facts, parse, script
from headwater.deploy.fleet.flash.inventory import Host, InventoryError
from headwater.deploy.fleet.flash.links import CommandFailed, Link, Unreachable, connected
from headwater.deploy.fleet.flash.plan import Plan, Unfit, make_plan
from headwater.deploy.fleet.flash.results import (
    FAILED,
    PLANNED,
    ROLLED_BACK,
    UNCHANGED,
    UNREACHABLE,
    HostResult,
)
from headwater.deploy.fleet.flash.task import Task

PHASES = ("connect", "facts", "validate", "plan", "upload", "verify", "install", "configure",
          "switch", "start", "joined", "commit")  # fmt: skip
FACTS_S = 90.0
"""Small gateways with slow cards take many seconds to start an interpreter."""
LOG_LINES = 500
STEP_S = 120.0
SILENCE_S = 180.0
"""Beyond the time to join: how long a gateway may say nothing while it installs."""


class HostRun:
    """One gateway in one run."""

    def __init__(self, task: Task, host: Host) -> None:
        self.task = task
        self.host = host
        self.result = HostResult(name=host.name)

    async def run(self, job: "Callable[[HostRun, Link], Any]") -> HostResult:
        """Connect and do a job; never raises but for cancellation."""
        began = time.monotonic()
        self.result.error = "interrupted"
        try:
            self.phase("connect")
            async with connected(
                self.task.inventory, self.host, self.task.known, self.task.accept_new
            ) as link:
                try:
                    await job(self, link)
                finally:
                    self.result.uploaded_bytes = link.sent_bytes
            if self.result.error == "interrupted":
                self.result.error = ""
        except Unreachable as error:
            self.result.state, self.result.error = UNREACHABLE, str(error)
        except (CommandFailed, Unfit, InventoryError, OSError, ValueError) as error:
            self.result.state, self.result.error = FAILED, str(error)
        finally:
            self.result.seconds = time.monotonic() - began
            self.task.board.finished(self.host.name, self.result)
        return self.result

    def phase(self, name: str) -> None:
        """A phase begins."""
        self.result.phase = name
        self.task.board.begun(self.host.name, name)

    # --- phases ---

    async def facts(self, link: Link) -> Facts:
        """Look at the gateway, and set its clock if that was asked for."""
        self.phase("facts")
        text = script(self.host.prefix, self.host.data)
        if self.task.set_clock:
            text = f"date -s @{int(time.time())} >/dev/null\n{text}"
        began = time.time()
        answer = await link.run(text, FACTS_S)
        return parse(answer, (began + time.time()) / 2)

    async def prepare(self, link: Link, plan: Plan) -> None:
        """Folders, the device's program, and what is missing of the bundle."""
        self.phase("upload")
        name = plan.bundle.digest
        async with self.task.uploads:
            await link.run(self._prepare_script(plan), STEP_S)
            await link.put(self.task.agent, f"{self.host.prefix}/agent.pyz")
            part = f"{self.host.prefix}/incoming/{name}.part"
            board = self.task.board
            await link.upload(
                plan.bundle.path, part, lambda has: board.to_upload(plan.bundle.size - has),
                board.uploaded,
            )  # fmt: skip
            if not plan.python:
                await self._bootstrap(link, plan, part)

    def _prepare_script(self, plan: Plan) -> str:
        name = plan.bundle.digest
        lines = [
            "set -e", "umask 022", f"cd_to={shlex.quote(self.host.prefix)}",
            'mkdir -p "$cd_to/incoming" "$cd_to/slots"', 'cd "$cd_to"',
            f"find incoming -type f ! -name '{name}.*' -exec rm -f {{}} +",
            f"[ ! -f incoming/{name}.bundle ] || mv incoming/{name}.bundle incoming/{name}.part",
            f"touch incoming/{name}.part",
            f'[ "$(wc -c < incoming/{name}.part)" -le {plan.bundle.size} ] || '
            f": > incoming/{name}.part",
        ]  # fmt: skip
        if plan.python:
            lines.append(f"ln -sfn {shlex.quote(plan.python)} python")
        return "\n".join(lines)

    async def _bootstrap(self, link: Link, plan: Plan, part: str) -> None:
        """Unpack the bundle's interpreter, once its bytes are known to be the right ones."""
        wanted, place = plan.bundle.sha256_of(INTERPRETER), shlex.quote(part)
        text = f"""set -e
cd {shlex.quote(self.host.prefix)}
[ "$(cat bootstrap/sum 2>/dev/null)" = {wanted} ] && exit 0
found=$(tar -xOf {place} {INTERPRETER} | sha256sum | cut -d' ' -f1)
[ "$found" = {wanted} ] || {{ echo "the interpreter is damaged" >&2; exit 1; }}
rm -rf bootstrap.new; mkdir bootstrap.new
tar -xOf {place} {INTERPRETER} | tar -xzf - -C bootstrap.new
echo {wanted} > bootstrap.new/sum; rm -rf bootstrap; mv bootstrap.new bootstrap
ln -sfn "$PWD/bootstrap/bin/python3" python
"""
        await link.run(text, STEP_S)

    async def agent(self, link: Link, words: str, spec: dict[str, Any]) -> AsyncIterator[Any]:
        """What the device's program says, line by line."""
        prefix = shlex.quote(self.host.prefix)
        text = f"{prefix}/python {prefix}/agent.pyz {words} --prefix {prefix}"
        silence = self.host.deadline + SILENCE_S
        async for line in link.lines(text, json.dumps(spec) + "\n", silence):
            try:
                yield json.loads(line)
            except ValueError:
                yield {"noise": line.strip()}

    async def follow(self, link: Link, words: str, spec: dict[str, Any]) -> None:
        """Have the device's program do its work, and take its result."""
        noise, ended = "", False
        async for said in self.agent(link, words, spec):
            if "noise" in said:
                noise = said["noise"]
            elif said.get("phase") in PHASES:
                self.phase(said["phase"])
            elif "error" in said:
                raise CommandFailed(said["error"])
            elif "result" in said:
                ended = True
                self._record_result(said["result"])
        if not ended:
            raise CommandFailed(noise or "the program on the gateway was ended")

    def _record_result(self, found: dict[str, Any]) -> None:
        self.result.state = found["state"]
        self.result.slot, self.result.version = found["slot"] or "", found["version"]
        self.result.error = found["error"]


async def flash_job(run: HostRun, link: Link) -> None:
    """All phases of flashing."""
    task = run.task
    facts = await run.facts(link)
    run.phase("validate")
    config = render(task.inventory, run.host)
    run.phase("plan")
    run.result.version = facts.slot.get("version", "")
    run.result.slot = facts.status.get("slot") or ""
    plan = make_plan(
        task.inventory, run.host, facts, task.bundles, config, one_way=task.one_way
    )
    run.result.plan = plan.text
    if task.dry_run or plan.unchanged:
        run.result.state = PLANNED if task.dry_run and not plan.unchanged else UNCHANGED
        return
    await run.prepare(link, plan)
    host, name = run.host, plan.bundle.digest
    spec: dict[str, Any] = {key: getattr(host, key, None) for key in SETTINGS}
    spec.update(
        fleet=task.inventory.fleet.name, hubs=task.inventory.fleet.hub, bundle=f"{name}.bundle",
        keys=task.inventory.keys() or [plan.bundle.key], config=plan.config, ca=plan.ca,
        token=plan.token, deadline_s=host.deadline, one_way=task.one_way,
    )  # fmt: skip
    await run.follow(link, "apply", spec)


async def rollback_job(run: HostRun, link: Link) -> None:
    """Back to the version before."""
    prefix = shlex.quote(run.host.prefix)
    there = await link.run(f"[ -f {prefix}/agent.pyz ] && echo yes || echo no", FACTS_S)
    if there.split()[-1] != "yes":
        raise Unfit("this gateway was never flashed")
    await run.follow(link, f"rollback --deadline {run.host.deadline:g}", {})
    if run.result.state == ROLLED_BACK:
        run.result.error = f"the version before did not come up: {run.result.error}"


async def look_job(run: HostRun, link: Link) -> dict[str, Any]:
    """What the gateway says of itself."""
    facts = await run.facts(link)
    run.result.state = UNCHANGED
    run.result.version = facts.slot.get("version", "")
    run.result.slot = facts.status.get("slot") or ""
    run.task.seen[run.host.name] = facts
    if run.task.with_logs:
        log = shlex.quote(f"{run.host.data}/log/node.log")
        try:
            end = await link.run(f"tail -n {LOG_LINES} {log}", FACTS_S)
        except CommandFailed as error:
            end = f"the log cannot be read: {error}\n"
        run.task.logs[run.host.name] = end
    return facts.status
