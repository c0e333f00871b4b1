"""Who may do what is decided in `authorize.py` alone, for every kind of principal."""

import ast

import pytest

from headwater.edge.broker.authorize import Login, Peer
from headwater.edge.broker.rights.grants import Rights
from headwater.edge.broker.rights.rules import Rules
from headwater.security.auth_options import PermissionOptions, ResponseRules, SubjectRules
from headwater.security.permissions import Permissions
from tests.house.test_house import FLOORS, ROOT, sources

DOOR = "edge/broker/authorize.py"
TABLES = ("edge/broker/rights/rules.py", "edge/broker/rights/grants.py", "security/permissions.py")
"""Where permissions are kept; one table may ask the one below it."""

VERDICTS = {
    "can_publish",
    "can_subscribe",
    "needs_delivery_check",
    "delivery_denied",
    "publish_cache",
    "withholds",
    "permits",
    "permits_interest",
    "may",
}
"""What the tables answer, and the method by which the door asks a principal."""

RESERVED = {"reserved", "reserved_reply", "exempt"}

HANDS_OVER = {
    "account.py",
    "client.py",
    "service_import.py",
    "stream_imports.py",
    "msg_trace.py",
    "api_sinks.py",
    "holding_sink.py",
}
"""Modules that give a message to a sink: the routing that has asked, what it is made of, and what
was held behind it."""


def attributes(tree: ast.AST) -> set[str]:
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def called(tree: ast.AST) -> set[str]:
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {func.id for func in calls if isinstance(func, ast.Name)}


@pytest.mark.parametrize("folder", FLOORS)
def test_nobody_else_reads_a_table(folder: str) -> None:
    for path in sources(folder):
        name = str(path.relative_to(ROOT))
        if name in (DOOR, *TABLES):
            continue
        tree = ast.parse(path.read_text())
        assert not attributes(tree) & VERDICTS, name
        assert not called(tree) & RESERVED, name


def test_the_door_reads_them() -> None:
    """The list above would otherwise be of names that nobody uses any more."""
    tree = ast.parse((ROOT / DOOR).read_text())
    asked = attributes(tree)
    assert asked >= {"can_publish", "can_subscribe", "withholds", "permits", "permits_interest"}
    assert {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)} >= RESERVED


def test_messages_are_handed_over_by_routing_alone() -> None:
    """A sink that is handed a message directly would be no door."""
    for path in sources("edge/broker", "edge/jetstream", "edge/system", "federation", "hub"):
        if "deliver" in {
            node.func.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and len(node.args) == 2
        }:
            assert path.name in HANDS_OVER, path


def login(publish: SubjectRules | None, subscribe: SubjectRules | None) -> Login:
    options = PermissionOptions(publish=publish, subscribe=subscribe)
    return Login(None, Rights(Permissions(options), lambda: 0.0))


def test_a_login_without_rights_may_everything() -> None:
    user = Login()
    assert user.may_publish(b"$SYS.REQ.x") and user.may_subscribe(b">") and user.may_receive(b"a")


def test_a_login_is_held_to_its_rules() -> None:
    user = login(SubjectRules(allow=["a.>"], deny=["a.no"]), SubjectRules(deny=["s.no"]))
    for _ in range(2):
        assert user.may_publish(b"a.x") and not user.may_publish(b"a.no")
        assert not user.may_publish(b"b") and user.may_publish(b"a.x")
    assert user.may_subscribe(b"s.*") and not user.may_subscribe(b"s.no")
    assert user.filters(b"s.*", None) and not user.filters(b"t.*", None)
    assert user.may_receive(b"s.yes") and not user.may_receive(b"s.no")


def test_a_granted_answer_is_used_up() -> None:
    """It is not remembered as a subject that may be published on."""
    rules = ResponseRules(max_messages=2, expires=60.0)
    permissions = Permissions(PermissionOptions(allow_responses=rules))
    user = Login(None, Rights(permissions, lambda: 0.0))
    user.answered(b"back")
    assert [user.may_publish(b"back") for _ in range(3)] == [True, True, False]


def test_a_link_is_held_to_its_rules() -> None:
    peer = Peer(
        comes=Rules([b"in.>"]),
        leaves=Rules([b"out.>"]),
        wants=Rules([b"out.>"]),
        asks=Rules([b"in.>"]),
    )
    assert peer.may_publish(b"in.x") and not peer.may_publish(b"out.x")
    assert peer.may_receive(b"out.x") and not peer.may_receive(b"in.x")
    assert peer.may_subscribe(b"out.*") and not peer.may_subscribe(b"in.*")
    assert peer.may_be_asked(b"in.*") and not peer.may_be_asked(b"out.*")
    for subject in (b"$JS.ACK.S.C.1", b"_R_.abc.def"):
        assert peer.may_publish(subject) and not peer.may_receive(subject)
    peer.acks_leave = True
    assert peer.may_receive(b"_R_.abc.def")
    assert peer.may_subscribe(b"$LDS.loop") and peer.may_be_asked(b"$LDS.loop")


def test_an_alias_is_asked_for_under_its_own_name() -> None:
    class Domain:
        """An account whose JetStream has an alias."""

        @staticmethod
        def served_as(subject: bytes) -> bytes:
            return subject.replace(b"$JS.hub.API.", b"$JS.API.")

    options = PermissionOptions(publish=SubjectRules(deny=["$JS.API.STREAM.DELETE.>"]))
    user = Login(Domain, Rights(Permissions(options), lambda: 0.0))
    peer = Peer(Domain, aliased=Rules(None, [b"$JS.API.STREAM.DELETE.>"]))
    for who in (user, peer):
        assert not who.may_publish(b"$JS.hub.API.STREAM.DELETE.V")
        assert who.may_publish(b"$JS.hub.API.STREAM.INFO.V")
