"""Every attribute that is read is defined somewhere: see `tests/house/attribute_names.py`."""

import ast
from collections.abc import Sequence

import pytest

from tests.house import attribute_names
from tests.house.syntax import nodes
from tests.house.test_house import FLOORS, PRODUCT, ROOT

ELSEWHERE = {
    "verify_code",  # ssl
    "DER", "PEM", "PKCS8", "SubjectPublicKeyInfo",  # cryptography, whose parts load one another
    "SSL_CTX_ctrl", "SSL_ctrl", "from_address", "prctl", "syncfs",  # ctypes, and C behind it
    "appName", "master",  # pyspark's builder of sessions
    "PythonUtils", "Tuple2", "apache", "classTag", "emptyRDD", "executorList",  # Spark in Java
    "_jsc", "hostPort", "makeRDD", "org", "pythonExec", "scala", "statusStore",  # and more of it
    "toJavaRDD", "toSeq",  # and the rest
    "lastStageAttempt", "inputRecords",  # and what it counts
    "is_deltatable", "transaction_version",  # deltalake
    "create_namespace_if_not_exists", "create_table", "load_table", "set_properties",  # pyiceberg
    "add_files", "new_output", "transaction",  # and more of it
    "foreachBatch", "trigger",  # pyspark's writer of streams
    "bytes_recv", "bytes_sent",  # psutil
    "error_status_hint",  # h11, of its errors
    "new_trial",  # argparse, of an option
    "verify_message",  # ssl, of its errors
}  # fmt: skip
"""What libraries define where nobody finds it by looking at them."""

INHERITED = {
    "_decompressor", "_inbound_compressed", "_inbound_is_compressible",  # wsproto's extension
    "baseFilename", "_statstream", "handleError",  # logging's handler
    "call_at", "call_soon", "run_forever",  # asyncio's loop
    "_resp_map",  # nats-py's client
    "__dict__",
}  # fmt: skip
"""What `self` has of a class that is not of the house."""


Modules = dict[str, Sequence[ast.AST]]
"""Nodes of modules, by path."""


@pytest.fixture(scope="module")
def modules() -> Modules:
    return {str(path.relative_to(ROOT)): nodes(path.read_text()) for path in PRODUCT}


@pytest.fixture(scope="module")
def declared() -> set[str]:
    """What declarations of compiled modules name."""
    found = (path for floor in FLOORS for path in (ROOT / floor).rglob("*.pxd"))
    return {name for path in found for name in attribute_names.declared(path)}


def missing(modules: Modules, known: set[str], owner: str = "") -> set[str]:
    """Attributes that are read and not known, as `file:line: name`."""
    return {
        f"{path}:{line}: {name}"
        for path, found in modules.items()
        for name, line in attribute_names.read(found, owner).items()
        if name not in known
    }


def test_what_is_read_of_self_is_a_field(modules: Modules, declared: set[str]) -> None:
    fields = set().union(*map(attribute_names.fields, modules.values()))
    assert not missing(modules, fields | declared | INHERITED, "self")


def test_what_is_read_is_defined(modules: Modules, declared: set[str]) -> None:
    own = set().union(*map(attribute_names.defined, modules.values()))
    others = attribute_names.foreign(modules.values())
    assert not missing(modules, own | declared | others | ELSEWHERE)


def test_a_missed_rename_is_seen(declared: set[str]) -> None:
    text = "class A:\n    b: int\n    def c(self, d): return self.b + self.held_len + d.old_name"
    modules = {"one.py": nodes(text)}
    own = attribute_names.defined(modules["one.py"]) | declared
    assert missing(modules, own) == {"one.py:3: held_len", "one.py:3: old_name"}
    fields = attribute_names.fields(modules["one.py"])
    assert missing(modules, fields, "self") == {"one.py:3: held_len"}
