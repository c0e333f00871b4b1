"""Mutation testing of consensus: small changes of `hub/raft`, each to be noticed by the simulator.

A mutant is one change of one place: a comparison turned, a condition always or never true, a
statement left out, a number one more, an argument forgotten. Each runs in a process of its own, in
which the module is compiled from the changed source; the files are never touched.

    python -m tests.sim.planted.mutants [--files election.py,log.py] [--seeds 12] [--share 1/10]
"""

import argparse
import ast
import copy
import os
import signal
import sys
import time
from collections.abc import Iterator
from importlib import abc, machinery
from pathlib import Path
from types import CodeType

RAFT = Path(__file__).parents[3] / "hub" / "raft"
PACKAGE = "headwater.hub.raft"
FILES = (
    "core.py", "election.py", "heartbeat.py", "hibernation.py", "multi_raft.py", "log.py",
    "membership.py", "model/config.py", "model/hard_state.py", "model/snapshot.py", "progress.py",
    "quorum.py", "raft.py", "reads.py", "recovery.py", "replication.py", "transfer.py",
)  # fmt: skip
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}
SAID = ("Message", "reply", "Round", "Pending", "Answer", "MemberProgress", "Assembly", "HardState")
"""Calls whose named arguments are left out one by one."""
SILENT = ("invariant",)
"""Statements that only call these are checks of the product itself; without them the simulator
sees less, and nothing else changes."""


def _variants(node: ast.AST) -> Iterator[tuple[str, ast.AST | None]]:
    """Everything that one place may become; None: nothing."""
    if isinstance(node, ast.Compare):
        for at, op in enumerate(node.ops):
            other = copy.deepcopy(node)
            other.ops[at] = TURNED[type(op)]()
            yield "turned", other
    elif isinstance(node, ast.BoolOp):
        other = copy.deepcopy(node)
        other.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and/or", other
        for at in range(len(node.values)):
            rest = [value for i, value in enumerate(node.values) if i != at]
            less = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
            yield f"without part {at + 1}", less
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "without not", node.operand
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield "left side only", node.left
        other = copy.deepcopy(node)
        other.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        yield "+/-", other
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "flipped", ast.Constant(not node.value)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.If):
        for value in (True, False):
            other = copy.deepcopy(node)
            other.test = ast.Constant(value)
            yield f"if {value}", other
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        if getattr(node.value.func, "id", "") not in SILENT:
            yield "left out", ast.Pass()
    elif isinstance(node, ast.Assign | ast.AugAssign):
        target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
        if isinstance(target, ast.Attribute | ast.Subscript):
            yield "left out", ast.Pass()
    elif isinstance(node, ast.Delete | ast.Continue):
        yield "left out", ast.Pass()


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    name = getattr(node.func, "id", getattr(node.func, "attr", ""))
    if name in SWAPPED and isinstance(node.func, ast.Name):
        other = copy.deepcopy(node)
        other.func = ast.Name(SWAPPED[name], ast.Load())
        yield SWAPPED[name], other
    for at, keyword in enumerate(node.keywords if name in SAID else ()):
        other = copy.deepcopy(node)
        del other.keywords[at]
        yield f"without {keyword.arg}", other


class _Change(ast.NodeTransformer):
    """Puts one variant in the place of the node that has a given number."""

    def __init__(self, number: int, variant: int) -> None:
        self.number = number
        self.variant = variant
        self.seen = -1

    def visit(self, node: ast.AST) -> ast.AST:
        self.seen += 1
        if self.seen == self.number:
            return ast.copy_location(list(_variants(node))[self.variant][1] or ast.Pass(), node)
        return super().visit(node)


class _Number(ast.NodeVisitor):
    """Every place with what it may become, in the order in which `_Change` comes by."""

    def __init__(self) -> None:
        self.seen = -1
        self.depth = 0
        self.found: list[tuple[int, int, int, str]] = []

    def visit(self, node: ast.AST) -> None:
        self.seen += 1
        inside = isinstance(node, ast.FunctionDef)
        self.depth += inside
        if self.depth:
            for variant, (what, _) in enumerate(_variants(node)):
                self.found.append((self.seen, variant, getattr(node, "lineno", 0), what))
        self.generic_visit(node)
        self.depth -= inside


def mutants(file: str) -> list[tuple[int, int, int, str]]:
    """(place, variant, line, what) of every mutant of a file of `hub/raft`."""
    numbering = _Number()
    numbering.visit(ast.parse((RAFT / file).read_text()))
    return numbering.found


def compiled(file: str, place: int, variant: int) -> CodeType:
    """The module with one change."""
    tree = _Change(place, variant).visit(ast.parse((RAFT / file).read_text()))
    return compile(ast.fix_missing_locations(tree), str(RAFT / file), "exec")


class _Finder(abc.MetaPathFinder, abc.Loader):
    """Imports one module from the code given to it."""

    def __init__(self, name: str, code: CodeType) -> None:
        self.name = name
        self.code = code

    def find_spec(self, name: str, path: object, target: object = None) -> object:
        return machinery.ModuleSpec(name, self) if name == self.name else None

    def exec_module(self, module: object) -> None:
        exec(self.code, vars(module))


def _search(file: str, place: int, variant: int, seed: int, seeds: int) -> str:
    """In the child: what the simulator says of this mutant; empty when it says nothing."""
    name = f"{PACKAGE}.{file.removesuffix('.py').replace('/', '.')}"
    for each in [each for each in sys.modules if each.startswith(("headwater.hub", "tests.sim."))]:
        del sys.modules[each]
    sys.meta_path.insert(0, _Finder(name, compiled(file, place, variant)))
    try:
        from tests.sim.runner import STEPS, attempt  # with the mutant in it
    except Exception as error:
        return f"import: {error}"
    for number in range(seeds):
        outcome = attempt(seed + number, STEPS)
        if isinstance(outcome, str):
            return f"seed {number + 1}: {outcome.splitlines()[0]}"
    return ""


def judge(file: str, place: int, variant: int, seed: int, seeds: int) -> str:
    """What is said of a mutant within `seeds` seeds; empty when it survives. One that runs for a
    minute more than it should is noticed too."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(60 + 2 * seeds)
        os.write(write, _search(file, place, variant, seed, seeds).encode()[:200])
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return said or ("it does not end" if status else "")


def preload() -> None:
    """What all children share: everything but consensus itself."""
    import headwater.edge.kernel.kernel
    import headwater.edge.ports.twins.network  # noqa: F401


def main() -> int:
    """Prints survivors; they are the work list, not an error."""
    prog = "python -m tests.sim.planted.mutants"
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    parser.add_argument("--files", default=",".join(FILES))
    parser.add_argument("--lines", default="", help="only these lines, as 10-20")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", default="1/1", help="2/10: the second tenth of all")
    parser.add_argument("--all", action="store_true", help="tell those found, too")
    options = parser.parse_args()
    preload()
    part, parts = map(int, options.share.split("/"))
    low, high = map(int, (options.lines or "0-1000000").split("-"))
    todo = [(f, *m) for f in options.files.split(",") for m in mutants(f) if low <= m[2] <= high]
    todo = todo[part - 1 :: parts]
    begin, survivors = time.monotonic(), 0
    for file, place, variant, line, what in todo:
        said = judge(file, place, variant, options.seed, options.seeds)
        survivors += not said
        if not said or options.all:
            source = (RAFT / file).read_text().splitlines()[line - 1].strip()
            print(f"{file}:{line} [{what}] {source}: {said or 'SURVIVES'}", flush=True)
    print(f"{len(todo)} mutants, {survivors} survive, {time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
