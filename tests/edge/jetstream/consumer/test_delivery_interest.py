"""Which subscriptions start a push consumer, on both servers."""

from typing import Any

from bench.servers import Server
from bench.wire import Link
from tests.inventory.both import Both

CONFIG = """\
jetstream { store_dir: "{dir}" }
accounts {
  A { jetstream: enabled, users: [ { user: a, password: a } ], exports: [ { stream: "to.>" } ] }
  B {
    users: [ { user: b, password: b } ]
    imports: [ { stream: { account: A, subject: "to.>" } } ]
  }
}
"""
# Of a consumer that delivers on `to.x`: the listener's account, subject and queue group, and the
# consumer's group.
CASES = (
    ("a", "to.x", "", ""),
    ("a", "to.*", "", ""),
    ("a", ">", "", ""),
    ("a", "to.x", "q", ""),
    ("a", "to.x", "", "q"),
    ("a", "to.x", "q", "q"),
    ("a", "to.x", "other", "q"),
    ("a", "to.*", "q", "q"),
    ("b", "to.x", "", ""),
    ("b", "to.>", "", ""),
    ("b", "*.x", "", ""),
)
STARTED = {CASES[0], CASES[5], CASES[8], CASES[10]}


def starts(server: Server, case: tuple[str, str, str, str]) -> Any:
    """What is shown of a consumer that is made while somebody listens, and how many of its two
    messages the listener has when it hears of the end."""
    user, subject, queue, group = case
    own, hearer = (Link(server.port, user=f"{name}:{name}@") for name in ("a", user))
    with own as link, hearer as listener:
        listener.send(f"SUB {subject} {queue} 1\r\n".encode())
        listener.flush()
        link.api("STREAM.CREATE.S", name="S", subjects=["s"], storage="memory")
        for _ in range(2):
            link.request("s", b"x")
        config = {"durable_name": "C", "ack_policy": "none", "deliver_subject": "to.x"}
        more = {"deliver_group": group} if group else {}
        link.api("CONSUMER.CREATE.S.C", stream_name="S", config={**config, **more})
        shown = link.api("CONSUMER.INFO.S.C")
        bound = shown.get("push_bound", False)
        if bound:
            assert [listener.next().payload for _ in range(2)] == [b"x", b"x"]
        else:
            assert shown["num_pending"] == 2
        link.api("STREAM.DELETE.S")
        return bound


def test_only_who_wants_the_very_subject_starts_it() -> None:
    """A monitor on `>` uses up nobody's messages."""
    with Both(CONFIG) as both:
        for case in CASES:
            ours, theirs = [starts(server, case) for server in both.servers]
            assert ours == theirs == (case in STARTED), case
