"""The rules of the house: import floors, sizes, types and lint. DESIGN §2 and §11."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import build_accel
from headwater.edge.kernel.turn_order import NewsStage, TurnStage
from tests.house import import_graph
from tests.house.syntax import module as parsed
from tests.house.syntax import nodes

ROOT = Path(__file__).resolve().parents[2]
FLOORS = {"security": 0, "edge": 1, "federation": 2, "hub": 3, "spark": 4, "deploy": 5}
FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 60
BENCH_COMPILED = ("bench/loadgen.py",)
"""Compiled on demand by `bench/build.py`, since it is no part of the product."""

ALLOWED_BESIDE = {"spark": ("security", "edge.wire")}
"""Spark jobs run in other processes and reach a node only over the wire."""

ROOMS = {
    "edge": """
        ports facts wire kernel subjects conf logging broker
        storage jetstream observed view sharing websocket ocsp monitor system node embedded
    """,
    "edge/broker": "rights . imports listeners logins",
    "edge/storage": """
        format device index packing log segments directory erase recovery upkeep node
    """,
    "edge/jetstream": """
        model config replication stream publish progress consumer read account backup api node
    """,
    "edge/conf": "problems lexer grammar options quantities enforcement reader shares .",
    "edge/monitor": "errors query steps pages .",
    "security": ". tls ocsp resolvers authenticator callout",
    "spark": """
        errors credentials java home options tables wire read write source session check cluster
        jobs . autoload
    """,
    "deploy": "console interrupted demo fleet gateway hub keys store .",
    "deploy/fleet": "device bundling pyz flash .",
    "federation": "dialling leaf origins .",
    "hub": "raft . routes stored cluster streams meta api node enrolment",
    "hub/raft": "model .",
}
"""Rooms of a folder, low to high; `.` is what lies in the folder itself. A module imports its own
room and those before it. A module can stand in the order by its name."""

FAMILY_MIN = 2
"""Files of tests that begin with another one's name, from which on they want a folder."""

FOLDER_FILES_MAX = 20
"""Modules of one folder, its `__init__` not counted."""

READS = {
    "time": r"(time|monotonic|perf_counter|process_time|thread_time|clock_gettime)(_ns)?|sleep",
    "datetime": r"now|utcnow|today",
    "date": r"today",
    "random": r"\w+",
    "secrets": r"(?!compare_digest)\w+",
    "os": r"urandom|getrandom",
    "uuid": r"uuid[14]",
}
"""Attributes that read a clock or chance, by the module or class they are of."""
MACHINE = {
    "edge.ports.ports": "the ports' side of the machine",
    "edge.ports.machine_clock": "the same for compiled code",
    "edge.ports.uptime": "tells a run of the machine from the next, which no clock does",
    "edge.ports.twins.chance": "draws from a seed",
    "edge.wire.client": "no part of a node: programs use it",
}
"""These ask the machine themselves, and why. Everybody else gets a `Clock`, a `Random` or timers
from the `Kernel`."""


TESTS_BESIDE = {
    "abuse": "what an outsider tries, across all folders",
    "clients": "official clients of other languages",
    "differ": "generated input on both servers, of every kind",
    "earlier": "stores that earlier versions wrote, with all that is in them",
    "edge/broker/transcripts": "texts that the test beside them tells again",
    "edge/storage/log/durability": "docs/DURABILITY.md: its rules, its table and the page itself",
    "edge/storage/whole": "faults of every file of a store at once, which no room bears alone",
    "fuzz": "random bytes at every door",
    "growth": "what is kept of things that came and went, in all rooms of a node",
    "house": "rules of all packages, docs and tests",
    "inventory": "what nats-server does, line by line, with the tests of each",
    "hub/raft/transcripts": "texts that the test beside them tells again",
    "sim": "the simulator",
}
"""Folders of tests that mirror nothing, by why they are there; what is in them goes along."""


def sources(*folders: str) -> list[Path]:
    """Python files of the given top-level folders."""
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return sorted(path for path in found if "__pycache__" not in path.parts)


PRODUCT = sources(*FLOORS)
EVERYTHING = PRODUCT + sources("bench", "tests")


def imported(tree: ast.AST) -> set[str]:
    """Modules of the house that a module imports, cimports included."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    found = set()
    for name in names:
        match = re.match(r"(?:cython\.cimports\.)?headwater\.([\w.]+)", name)
        if match:
            found.add(match.group(1))
    return found


@pytest.mark.parametrize("path", PRODUCT, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down_only(path: Path) -> None:
    floor = path.relative_to(ROOT).parts[0]
    for name in imported(parsed(path.read_text())):
        other = name.partition(".")[0]
        assert other in FLOORS, f"headwater.{name} is no floor of the house"
        assert FLOORS[other] <= FLOORS[floor], f"{floor} must not import {name}"
        if floor in ALLOWED_BESIDE and other != floor:
            allowed = any(f"{name}.".startswith(f"{each}.") for each in ALLOWED_BESIDE[floor])
            assert allowed, f"{floor} must not import {name}"


def test_declarations_import_down_only() -> None:
    for folder, floor in FLOORS.items():
        for path in (ROOT / folder).rglob("*.pxd"):
            for name in re.findall(r"from headwater\.(\w+)", path.read_text()):
                assert FLOORS[name] <= floor, f"{path} must not cimport {name}"


@pytest.mark.parametrize("place", ROOMS)
def test_rooms_import_down_only(place: str) -> None:
    order = ROOMS[place].split()
    prefix = place.replace("/", ".") + "."
    inside = [path.relative_to(ROOT / place).parts for path in sources(place)]
    rooms = {parts[0] for parts in inside if len(parts) > 1}
    modules = import_graph.modules(ROOT, FLOORS)
    named = {name for name in order if f"{prefix}{name}" in modules} - rooms
    assert rooms | named | {"."} == {*order, "."}
    loose = [path.name for path in (ROOT / place).glob("*.py") if path.name != "__init__.py"]
    assert bool(loose) == ("." in order), f"{place}: which room does {loose} belong to?"
    for module, needed in import_graph.imports(ROOT, FLOORS).items():
        for name in needed if module.startswith(prefix) else ():
            if name.startswith(prefix):
                own, other = (room_of(text[len(prefix) :], order) for text in (module, name))
                assert order.index(other) <= order.index(own), f"{module} must not import {name}"


def room_of(name: str, order: list[str]) -> str:
    """The room of a module whose name begins at its place; `.` when it is in none."""
    room = name.partition(".")[0]
    return next((each for each in (name, room) if each in order), ".")


def test_folders_have_rooms_before_they_are_full() -> None:
    for folder in {path.parent for path in PRODUCT}:
        modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(modules) <= FOLDER_FILES_MAX, f"{folder} wants rooms"


def test_imports_make_no_circle() -> None:
    folders = (*FLOORS, "bench", "tests")
    graph = import_graph.imports(ROOT, folders)
    assert all(
        any(name.startswith(f"{folder}.") for needed in graph.values() for name in needed)
        for folder in folders
    ), "a folder whose imports are not seen"
    for circle in import_graph.circles(graph):
        pytest.fail(
            "a circle of imports: move what both need below both, or let the lower one take a "
            f"Protocol\n{import_graph.arrows(graph, circle)}"
        )


def test_a_circle_is_seen_through_functions_types_and_declarations(tmp_path: Path) -> None:
    texts = {
        "a.py": "def f():\n    from headwater.edge.b import g\n",
        "b.py": "if TYPE_CHECKING:\n    from headwater.edge import c\n",
        "c.py": "import cython\n",
        "c.pxd": "from headwater.edge.d cimport D, E\n",
        "d.py": "from cython.cimports.headwater.edge.a import A\n",
        "below.py": "import os\n",
        "above.py": "import headwater.edge.a\nfrom headwater.edge.below import x\n",
    }
    (tmp_path / "edge").mkdir()
    for name, text in texts.items():
        (tmp_path / "edge" / name).write_text(text)
    graph = import_graph.imports(tmp_path, ["edge"])
    assert import_graph.circles(graph) == [["edge.a", "edge.b", "edge.c", "edge.d"]]
    assert "edge.a -> edge.b\n" in import_graph.arrows(graph, ["edge.a", "edge.b"]) + "\n"


def test_a_circle_is_seen_beside_the_product(tmp_path: Path) -> None:
    for name, text in {"bench/a.py": "from bench import b", "bench/b.py": "import bench.a"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    graph = import_graph.imports(tmp_path, ["bench"])
    assert import_graph.circles(graph) == [["bench.a", "bench.b"]]


@pytest.mark.parametrize("path", EVERYTHING, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    lines = text.splitlines()
    assert len(lines) <= FILE_LINES_MAX
    for node in nodes(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = code_lines(node, lines)
            assert length <= FUNCTION_LINES_MAX, f"{node.name} has {length} lines"


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> int:
    """Lines of a function's code: without docstrings, its own or those of fields, and comments."""
    texts = [
        each
        for each in ast.walk(function)
        if isinstance(each, ast.Expr)
        and isinstance(each.value, ast.Constant)
        and isinstance(each.value.value, str)
    ]
    told = {n for each in texts for n in range(each.lineno, (each.end_lineno or 0) + 1)}
    whole = range(function.lineno, (function.end_lineno or 0) + 1)
    code = (lines[n - 1].strip() for n in whole if n not in told)
    return sum(bool(line) and not line.startswith("#") for line in code)


def test_docstrings_and_comments_are_no_code() -> None:
    text = 'def one(a):\n    """One."""\n\n    # Two.\n    b = 1\n    """Field."""\n    return b'
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    assert code_lines(function, text.splitlines()) == 3


@pytest.mark.parametrize("path", PRODUCT, ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_say_what_they_are(path: Path) -> None:
    assert ast.get_docstring(parsed(path.read_text())), "a module needs a docstring"


def test_every_compiled_module_is_listed_and_compiled() -> None:
    listed = set(build_accel.COMPILED) | set(BENCH_COMPILED)
    marked = {
        str(path.relative_to(ROOT))
        for path in PRODUCT + sources("bench")
        if re.search(r"^import cython$", path.read_text(), re.MULTILINE)
    }
    assert marked == listed
    for name in build_accel.COMPILED:
        built = list((ROOT / name).parent.glob(Path(name).stem + ".*.so"))
        assert built, f"{name} is not compiled; run make ext"


def test_what_is_compiled_and_not_listed_goes(tmp_path: Path) -> None:
    """Python would load it in place of its source, however old it is."""
    (tmp_path / "edge").mkdir()
    stray, kept = (tmp_path / "edge" / f"{name}.cpython-311.so" for name in ("stray", "clock"))
    stray.touch()
    kept.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_accel, "COMPILED", ("edge/clock.py",))
        build_accel.remove_strays(tmp_path)
    assert kept.exists() and not stray.exists()


def test_nothing_is_left_for_later() -> None:
    pattern = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    for path in PRODUCT:
        assert not pattern.search(path.read_text()), path


def test_storage_does_file_work_through_the_port() -> None:
    pattern = re.compile(
        r"\b(?:os\.(?!eventfd|EFD|strerror|getpid)\w+|shutil|fcntl|tempfile|time\.time_ns|uuid4)\b"
    )
    told = re.compile(r"\.(?:unlink|mkdir|rmdir)\(|\.(?<!files\.)(?<!ports\.)rename\(")
    for path in sources("edge/storage"):
        for wrong in (pattern, told):
            assert not wrong.search(path.read_text()), f"{path}: see headwater.edge.ports.files"


def direct_reads(path: Path) -> list[str]:
    """Where a module asks the machine for the time or for chance, as `line: what`."""
    found = []
    for node in nodes(path.read_text()):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            read = re.fullmatch(READS.get(name, "(?!)"), node.attr)
            text = f"{name}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module in READS:
            read = [a.name for a in node.names if re.fullmatch(READS[node.module], a.name)]
            text = f"from {node.module} import {read}"
        else:
            read = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "clock_gettime"
            text = "clock_gettime"
        if read:
            found.append(f"{getattr(node, 'lineno', 0)}: {text}")
    return found


def test_time_and_chance_come_through_ports() -> None:
    modules = import_graph.modules(ROOT, ["edge", "federation"])
    found = {module: reads for module, path in modules.items() if (reads := direct_reads(path))}
    for module, reads in found.items():
        assert module in MACHINE, f"{module}: ask the kernel, or take a Clock or Random: {reads}"
    assert MACHINE.keys() <= found.keys(), f"reads nothing: {MACHINE.keys() - found.keys()}"


@pytest.mark.parametrize(
    "text",
    [
        "now = time.monotonic_ns", "datetime.datetime.now(UTC)", "random.uniform(0, 1)",
        "from time import time", "from random import choice", "secrets.token_hex(4)",
        "os.urandom(8)", "clock_gettime(CLOCK_REALTIME, p)", "from uuid import uuid4",
    ],
)  # fmt: skip
def test_a_direct_read_is_seen(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(text)
    assert direct_reads(tmp_path / "a.py")


def test_what_asks_nobody_is_no_direct_read(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import time\nclock.time()\nsecrets.compare_digest(a, b)\nloop.time()\n"
        "time.strftime(form, time.gmtime(at))\nfrom datetime import datetime\n"
    )
    assert not direct_reads(tmp_path / "a.py")


def test_tests_mirror_the_rooms() -> None:
    """A folder of tests has the name of a folder, or of a module when several files test it."""
    used = set()
    for folder in sorted({path.parent for path in (ROOT / "tests").rglob("*.*")}):
        name = folder.relative_to(ROOT / "tests").as_posix()
        beside = {each for each in TESTS_BESIDE if f"{name}/".startswith(f"{each}/")}
        used |= beside
        if beside or "__pycache__" in folder.parts or name == ".":
            continue
        mirrored = ROOT / name
        assert mirrored.is_dir() or mirrored.with_suffix(".py").is_file(), f"{folder}: of what?"
        if mirrored.is_dir() and [path.name for path in mirrored.glob("*.py")] == ["__init__.py"]:
            loose = sorted(path.name for path in folder.glob("test_*.py"))
            assert not loose, f"{name} has rooms only; move {loose} to the room they test"
    assert used == TESTS_BESIDE.keys(), f"gone: {TESTS_BESIDE.keys() - used}"


def test_tests_that_differ_by_a_suffix_stand_in_a_folder() -> None:
    """`test_a.py`, `test_a_b.py`, `test_a_c.py` are the folder `a`, or stand in it."""
    for folder in {path.parent for path in sources("tests")}:
        for kind, names in families(path.stem for path in folder.glob("test_*.py")).items():
            assert kind == folder.name, f"{folder}: make a folder `{kind}` of {sorted(names)}"


def families(names: Iterable[str]) -> dict[str, set[str]]:
    """Of names of test files: those that go on with the whole name of another one, by its name;
    where there are at least two of them."""
    stems = {name.removeprefix("test_") for name in names}
    found = {each: {one for one in stems if one.startswith(f"{each}_")} for each in stems}
    return {each: longer for each, longer in found.items() if len(longer) >= FAMILY_MIN}


def test_a_family_of_tests_is_seen() -> None:
    assert families(["test_a", "test_a_b", "test_a_c"]) == {"a": {"a_b", "a_c"}}
    assert not families(["test_a", "test_a_b", "test_ab_c"])


PLACES = {
    "turn_hooks": {"edge.kernel.kernel"},
    "listener": {"edge.storage.index.store", "federation.service"},
}
"""Who may name a kernel's hooks, and assign an attribute `listener`: a store's own, and the leaf
listener of a service, which is a socket."""


def reached_in(path: Path) -> set[str]:
    """Names of `PLACES` that a module reaches for: hooks in any way, a listener to assign it."""
    found = set()
    for node in nodes(path.read_text()):
        if isinstance(node, ast.Attribute) and (
            node.attr == "turn_hooks"
            or (node.attr == "listener" and not isinstance(node.ctx, ast.Load))
        ):
            found.add(node.attr)
        called = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
        if called in ("getattr", "setattr"):
            found.update(getattr(each, "value", "") for each in node.args[1:2])
    return found & PLACES.keys()


def test_the_order_of_a_turn_is_declared_in_one_place() -> None:
    """Hooks and listeners come by `add_turn_hook` and `listen`, with a stage of `turn_order`."""
    for name, allowed in PLACES.items():
        found = {
            module
            for module, path in import_graph.modules(ROOT, [*FLOORS]).items()
            if name in reached_in(path)
        }
        assert found == allowed, f"{name}: name a stage of edge/kernel/turn_order.py instead"
    used = set(re.findall(r"\b(?:Turn|News)Stage\.\w+", "".join(p.read_text() for p in PRODUCT)))
    stages = {f"{kind.__name__}.{one.name}" for kind in (TurnStage, NewsStage) for one in kind}
    assert used == stages


@pytest.mark.parametrize(
    "text",
    [
        "kernel.turn_hooks.insert(0, task)", "node.kernel.turn_hooks.add(task, 0)",
        "store.listener = task", "a, stream.store.listener = b", "del store.listener",
        "setattr(store, 'listener', task)", "getattr(kernel, 'turn_hooks')",
    ],
)  # fmt: skip
def test_whoever_goes_past_the_order_is_seen(text: str, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(text)
    assert reached_in(tmp_path / "one.py")


def test_the_quick_run_covers_every_package() -> None:
    chosen = [line.partition("::")[0] for line in (ROOT / "tests/check.txt").read_text().split()]
    assert all((ROOT / path).exists() for path in chosen), "a path in tests/check.txt is gone"
    found = [path for floor in FLOORS for path in (ROOT / "tests" / floor).rglob("test_*.py")]
    for folder in {path.parent for path in found}:
        name = str(folder.relative_to(ROOT))
        assert any(f"{path}/".startswith(f"{name}/") for path in chosen), f"check.txt lacks {name}"


@pytest.mark.timeout(600)
def test_ruff_and_mypy_are_clean() -> None:
    done = subprocess.run(
        [sys.executable, "lint.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_download_was_left_in_the_root() -> None:
    """A wheel or an archive that somebody fetched there is easily committed with the rest."""
    asked = ["git", "-C", str(ROOT), "ls-files", "--", ":(glob)*"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    # An unpacked archive is no clone: there all files of the root count.
    unpacked = [path.name for path in ROOT.iterdir() if path.is_file()]
    names = unpacked if found.returncode else found.stdout.splitlines()
    kinds = {Path(name).suffix for name in names}
    assert kinds <= {"", ".md", ".py", ".toml", ".txt"}
