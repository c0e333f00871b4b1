"""The rules for differences by intention let nothing else pass."""

import json
from typing import Any

import pytest

from tests.differ.histories import Step, api
from tests.differ.intended import UNSENT, intended_history
from tests.differ.intended_configurations import CONFIGURATIONS, SAID, intended_configuration
from tests.differ.starts.intended import intended_answers, intended_reload


def made(name: str, **config: Any) -> Step:
    return api(f"CONSUMER.CREATE.%.{name}", {"config": {"durable_name": name, **config}})


def delivery(name: str, pending: int) -> str:
    return f"MSG ['%.a', '0', '$JS.ACK.%.{name}.1.2.2.T.{pending}'] b'' b'x'"


def told(**fields: Any) -> str:
    return f"MSG ['%i.1', '0'] b'' {json.dumps(fields, sort_keys=True)}"


STREAM = api("STREAM.CREATE.%", {"name": "%"})
LAST = api("STREAM.CREATE.%", {"name": "%", "max_msgs_per_subject": 2})
FLOWING = made("C", ack_policy="flow_control")
INTEREST = api("STREAM.UPDATE.%", {"name": "%", "retention": "interest"})
ORIGINAL = made("C", replay_policy="original")
LATE = made("C", opt_start_seq=9)
EXPECTS = [("Nats-Expected-Last-Msg-Id", "1")]
REFUSED = {"do": "publish", "reply": "%i.f.9.ok.2.1.$FI", "headers": EXPECTS}
END = {"do": "publish", "reply": "%i.f.9.ok.3.3.$FI", "headers": []}
ASKS = {"do": "publish", "reply": "%i.f.9.ok.3.4.$FI", "headers": []}
NAMED = {"do": "ask", "subject": "$JS.API.STREAM.UPDATE.%", "body": '{"name":"\x7f"}'}
AGAIN = {"do": "publish", "reply": "%i.f.9.ok.2.1.$FI", "headers": []}
PURGE = api("STREAM.PURGE.%", {"seq": 2})
FULL = made("C", max_ack_pending=1)
RESUME = api("CONSUMER.PAUSE.%.C", None)
DELETE = api("STREAM.MSG.DELETE.%", {"seq": 2})
PUSHED = made("D", deliver_subject="%d.D")
GROUPED = made("D", deliver_subject="%d.D", deliver_group="q")
AGED = api("STREAM.CREATE.%", {"name": "%", "max_age": 1})
COUNTS = api("STREAM.CREATE.%", {"name": "%", "allow_msg_counter": True})
PACED = made("C", backoff=[1, 2])
ALL = made("C", ack_policy="all")
LATER = {"do": "ack", "which": 0, "body": "-NAK 1s", "asked": False}
WAIT = {"do": "wait", "seconds": 1}
NONE = "HMSG ['%i.5', '0'] b'NATS/1.0 404 No Messages\\r\\n\\r\\n' b''"
OVER = (
    "HMSG ['%i.5', '0'] b'NATS/1.0 408 Request Timeout\\r\\nNats-Pending-Messages: 8"
    "\\r\\nNats-Pending-Bytes: 0\\r\\n\\r\\n' b''"
)
TAKEN = [STREAM, made("C", filter_subject="%.z"), made("C")]
IN_MEMORY = api("STREAM.CREATE.%", {"name": "%", "storage": "memory"})
BEAT = (
    "HMSG ['%i.4', '0'] b'NATS/1.0 100 Idle Heartbeat\\r\\nNats-Last-Consumer: 1\\r\\n"
    "Nats-Last-Stream: 1\\r\\n\\r\\n' b''"
)
BY_INTEREST = api("STREAM.CREATE.%", {"name": "%", "retention": "interest"})
CONFIG = {"ack_policy": "explicit", "max_deliver": -1}
DELIVERED = {"consumer_seq": 1, "stream_seq": 1}


def state(name: str, floor: int) -> str:
    """What is told of a consumer."""
    at = {"consumer_seq": floor, "stream_seq": floor}
    counts = {"num_ack_pending": 1 - floor, "num_redelivered": 0, "num_pending": 0}
    return told(name=name, config=CONFIG, ack_floor=at, delivered=DELIVERED, **counts)


def waits(name: str, pending: int) -> str:
    """What is told of a consumer for which so many messages wait."""
    counts = {"num_ack_pending": 0, "num_redelivered": 0, "num_pending": pending}
    return told(name=name, config=CONFIG, ack_floor=DELIVERED, delivered=DELIVERED, **counts)


def floor(name: str, sequence: int) -> str:
    """What is told of a consumer whose ack floor is there."""
    at = {"consumer_seq": sequence, "stream_seq": sequence}
    counts = {"num_ack_pending": 0, "num_redelivered": 0, "num_pending": 0}
    return told(name=name, config=CONFIG, ack_floor=at, delivered=DELIVERED, **counts)


def looked(sequence: int) -> str:
    """What is told of a consumer that has delivered nothing, and looked so far."""
    none = {"consumer_seq": 0, "stream_seq": 0}
    at = {"consumer_seq": 0, "stream_seq": sequence}
    counts = {"num_ack_pending": 0, "num_redelivered": 0, "num_pending": 0}
    return told(name="C", config=CONFIG, ack_floor=none, delivered=at, **counts)


CASES: dict[str, tuple[list[Step], str, str, str]] = {
    "a wait of its own": ([STREAM, ORIGINAL], delivery("C", 1), delivery("C", 0),
        "counted before the wait"),
    "a wait of another consumer": ([STREAM, ORIGINAL], delivery("D", 1), delivery("D", 0), ""),
    "a start of its own": ([STREAM, LATE], delivery("C", 0), delivery("C", 1), "before its start"),
    "a start of another consumer": ([STREAM, LATE], delivery("D", 0), delivery("D", 1), ""),
    "what waits before its start": ([STREAM, LATE], waits("C", 0), waits("C", 1),
        "before its start"),
    "what waits behind its start": ([STREAM, LATE], waits("C", 1), waits("C", 0), ""),
    "what waits for another": ([STREAM, LATE], waits("D", 0), waits("D", 1), ""),
    "a wait for what was deleted": ([STREAM, ORIGINAL, DELETE], OVER,
        f"{delivery('C', 0)}\n{OVER.replace(': 8', ': 7')}", "counted before the wait"),
    "a wait for what was not": ([STREAM, ORIGINAL], OVER,
        f"{delivery('C', 0)}\n{OVER.replace(': 8', ': 7')}", ""),
    "what is held when interest comes": ([STREAM, INTEREST],
        told(config={}, state={"messages": 0}), told(config={}, state={"messages": 1}),
        "no interest"),
    "a configuration when interest comes": ([STREAM, INTEREST],
        told(config={"max_msgs": 1}), told(config={"max_msgs": 2}), ""),
    "a refusal when interest comes": ([STREAM, INTEREST], told(error={"err_code": 1}),
        told(config={}, state={"messages": 1}), ""),
    "what goes on behind a purge": ([STREAM, FULL, PURGE], delivery("C", 0), "", "gone"),
    "another that goes on behind a purge": ([STREAM, FULL, PURGE], delivery("D", 0), "", ""),
    "what goes on where messages end": ([AGED, FULL, WAIT], delivery("C", 0), "", "ended in turn"),
    "another that goes on where messages end": ([AGED, FULL, WAIT], delivery("D", 0), "", ""),
    "a count of a purge where messages end": ([AGED, PURGE], told(purged=0, success=True),
        told(purged=1, success=True), "ended before a purge"),
    "a count of a purge where none end": ([STREAM, PURGE], told(purged=0, success=True),
        told(purged=1, success=True), ""),
    "what goes on where none end": ([STREAM, FULL, WAIT], delivery("C", 0), "", ""),
    "a pull that a purge ends": ([STREAM, FULL, PURGE], NONE, OVER, "nothing left behind a purge"),
    "a pull that ends without a purge": ([STREAM, FULL, WAIT], NONE, OVER, ""),
    "a listener of who was given a group": ([STREAM, PUSHED, GROUPED], told(name="D"),
        told(name="D", push_bound=True, total=1), ""),
    "only a listener of who was given a group": ([STREAM, PUSHED, GROUPED], told(name="D", total=1),
        told(name="D", push_bound=True, total=1), "group of a listener"),
    "a listener of who was not": ([STREAM, PUSHED], told(name="D", total=1),
        told(name="D", push_bound=True, total=1), ""),
    "a source that nobody wants": ([STREAM, api("STREAM.CREATE.%M", {"sources": [{"name": "%"}],
        "retention": "interest"})], told(sources=[{"name": "%", "seq": 1}]),
        told(sources=[{"name": "%"}]), "nobody wants a source"),
    "a source that is kept": ([STREAM, api("STREAM.CREATE.%M", {"sources": [{"name": "%"}]})],
        told(sources=[{"name": "%", "seq": 1}]), told(sources=[{"name": "%"}]), ""),
    "a subject for deliveries with a control byte": ([{**NAMED, "body": r'{"x":"\u0000"}'}],
        told(error={"err_code": 10112}), told(error={"err_code": 10094}), "control byte"),
    "a source with a control byte": ([{**NAMED, "body": r'{"sources":[{"name":"\u0000"}]}'}],
        told(error={"err_code": 10141}), told(error={"err_code": 10052}), "control byte"),
    "counts of an account with a mirror": ([api("STREAM.CREATE.%M", {"mirror": {"name": "%"}}),
        api("INFO", None)], told(api={"errors": 0, "total": 4}, storage=9),
        told(api={"errors": 0, "total": 2}, storage=0), "asked by copies"),
    "refusals of an account with a mirror": ([api("STREAM.CREATE.%M", {"mirror": {"name": "%"}}),
        api("INFO", None)], told(api={"errors": 1, "total": 4}),
        told(api={"errors": 0, "total": 4}), ""),
    "counts of an account without copies": ([STREAM, api("INFO", None)], told(total=4),
        told(total=2), ""),
    "an update of who was given up": ([STREAM, made("C", max_deliver=1), made("C")],
        floor("C", 1), floor("C", 0), "given up"),
    "an update of who was not": ([STREAM, made("D", max_deliver=1), made("C"), made("C")],
        floor("C", 1), floor("C", 0), ""),
    "what goes on when it is resumed": ([STREAM, FULL, RESUME], delivery("C", 0), "", "resumed"),
    "what goes on when another is resumed": ([STREAM, FULL, RESUME], delivery("D", 0), "", ""),
    "a delay with a backoff": ([STREAM, PACED, LATER], delivery("C", 0), "", "delay and a backoff"),
    "a delay of another": ([STREAM, PACED, LATER], delivery("D", 0), "", ""),
    "an earlier one is sent again": ([STREAM, ALL, DELETE], delivery("C", 0), "", "all before it"),
    "one more is sent for all that a flow acknowledges": ([LAST, FLOWING, DELETE],
        delivery("C", 1), delivery("C", 0) + "\n" + delivery("C", 0), "all before it"),
    "one more is sent of a flow that nothing left": ([STREAM, FLOWING],
        delivery("C", 1), delivery("C", 0) + "\n" + delivery("C", 0), ""),
    "one more is sent of another than a flow": ([LAST, FLOWING, DELETE],
        delivery("D", 1), delivery("D", 0) + "\n" + delivery("D", 0), ""),
    "nothing left the stream": ([STREAM, ALL], delivery("C", 0), "", ""),
    "a delay without a backoff": ([STREAM, FULL, LATER], delivery("C", 0), "", ""),
    "what left behind a last filter": (TAKEN, state("C", 1), state("C", 0), "last filter"),
    "what is held behind a last filter": ([BY_INTEREST, *TAKEN[1:]], told(name="%", state={"n": 1},
        limit=9), told(name="%", state={"n": 0}, limit=0), "last filter"),
    "what is held behind a last filter where all is kept": (TAKEN, told(name="%", state={"n": 1}),
        told(name="%", state={"n": 0}), ""),
    "a heartbeat behind a last filter": (TAKEN, BEAT, BEAT.replace("Stream: 1", "Stream: 0"),
        "last filter"),
    "a heartbeat of another": ([STREAM, made("C")], BEAT.replace("Stream: 1", "Stream: 0"), BEAT,
        ""),
    "more to who is given other filters": ([*TAKEN[:2], made("C", filter_subject="%.>")],
        waits("C", 0), f"{waits('C', 1)}\n{delivery('C', 0)}", "wants more"),
    "more to another": ([*TAKEN[:2], made("C", filter_subject="%.>")],
        waits("C", 0), f"{waits('C', 0)}\n{delivery('D', 0)}", ""),
    "less to who is given other filters": ([*TAKEN[:2], made("C", filter_subject="%.>")],
        delivery("C", 0), "", ""),
    "more to who wants the same": ([STREAM, made("C"), made("C", max_deliver=2)], waits("C", 0),
        f"{waits('C', 1)}\n{delivery('C', 0)}", ""),
    "a source that is full": ([STREAM, api("STREAM.CREATE.%M", {"sources": [{"name": "%"}]})],
        told(sources=[{"error": {"code": 503, "description": "a message could not be stored"},
        "name": "%"}]), told(sources=[{"name": "%"}]), "full source"),
    "a source that nobody answers for": ([STREAM], told(sources=[{"error": {"code": 503,
        "description": "nobody answers on '$JS.x.API': the origin is not connected"},
        "name": "%"}]), told(sources=[{"name": "%"}]), "silent origin"),
    "a source that is not there": ([STREAM, api("STREAM.CREATE.%M", {"sources": [{"name": "%"}]})],
        told(sources=[{"error": {"code": 503, "description": "not found"}, "name": "%"}]),
        told(sources=[{"name": "%"}]), ""),
    "how far a consumer in memory looked": ([IN_MEMORY, made("C"), DELETE], looked(0), looked(1),
        "looked ahead"),
    "how far one in a file looked": ([STREAM, made("C"), DELETE], looked(0), looked(1), ""),
    "what left behind another": (TAKEN, state("D", 1), state("D", 0), ""),
    "what goes on without a purge": ([STREAM, FULL], delivery("C", 0), "", ""),
    "the end of a batch behind a refusal": ([STREAM, REFUSED, END], told(batch="f"), "",
        "end of a batch"),
    "the end of a batch behind what is stored": ([STREAM, {**REFUSED, "headers": []}, END],
        told(batch="f"), "", ""),
    "how far a batch is behind a refusal": ([STREAM, REFUSED, ASKS], told(batch="f", seq=0),
        told(msgs=2, seq=0), "end of a batch"),
    "how far a batch is behind what is stored": ([STREAM, {**REFUSED, "headers": []}, ASKS],
        told(batch="f", seq=0), told(msgs=2, seq=0), ""),
    "a name with a control byte": ([NAMED], told(error={"err_code": 10052}),
        told(error={"err_code": 10056}), "control byte"),
    "a name too long for a folder": ([STREAM, api("CONSUMER.CREATE.%." + "x" * 256, {})],
        told(config={}), told(error={"err_code": 10012}), "name of a folder"),
    "a name that a folder can have": ([STREAM, api("CONSUMER.CREATE.%." + "x" * 255, {})],
        told(config={}), told(error={"err_code": 10012}), ""),
    "a subject with a control byte": ([{**NAMED, "body": r'{"name":"%","subjects":["\u0000"]}'}],
        told(error={"err_code": 10052}), told(config={}), "control byte"),
    "a name without one": ([{**NAMED, "body": '{"name":"a"}'}],
        told(error={"err_code": 10052}), told(error={"err_code": 10056}), ""),
    "the end of a request for a replay": ([STREAM, ORIGINAL], NONE, OVER, ""),
    "the end of another request": ([STREAM, FULL], NONE, OVER, ""),
    "the next one in place of one that is sent again": ([STREAM, LATER, PURGE],
        delivery("C", 1).replace("C.1", "C.2"), delivery("C", 0), "refused, then purged"),
    "another one that is sent again": ([STREAM, LATER, PURGE],
        delivery("C", 1).replace("C.1", "C.2"), delivery("C", 0).replace("C.1", "C.3"), ""),
    "the end of another batch": ([STREAM, {**REFUSED, "reply": "%i.g.9.ok.2.1.$FI"}, END],
        told(batch="f"), "", ""),
    "what is refused twice": ([STREAM], UNSENT, f"{UNSENT}\n{UNSENT}", "refused in parts"),
    "what is refused here": ([STREAM], UNSENT, NONE, ""),
    "what comes again in a batch": ([STREAM, REFUSED, AGAIN], told(batch="f"), "",
        "repeated in a batch"),
    "what comes again behind what is no count": ([COUNTS, AGAIN, AGAIN], told(batch="f"), "",
        "repeated in a batch"),
    "what comes again behind what is stored": ([STREAM, AGAIN, AGAIN], told(batch="f"), "", ""),
    "what comes next in a batch": ([STREAM, REFUSED, {**END, "reply": "%i.f.9.ok.3.1.$FI"}],
        told(batch="f"), "", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_rule_is_for_what_it_names(case: str) -> None:
    steps, ours, theirs, name = CASES[case]
    assert intended_history(steps, len(steps) - 1, [ours], theirs.splitlines()) == name


OUT = "c.conf:1:1: port 99999 is out of range: use 0 to 65535"
UNREAD = 'c.conf:1:2: unknown field "b": remove it, or correct its name'
VALID = "configuration file is valid (sha256:2)"
CHANGED: dict[str, tuple[str, str, str, str]] = {
    "a port": ("port 99999", OUT, VALID, "port that is none"),
    "a port that both refuse for other reasons": ("port 99999", OUT, "refused", ""),
    "a field of a resolver": ("resolver {b 1}", UNREAD, VALID, "name that is not read"),
    "a field of something else": ("tls {b 1}", UNREAD, VALID, ""),
    "a port and something else": ("port 99999\ntls {b 1}", f"{OUT}\n{UNREAD}", VALID, ""),
    "a block at the end": ("host (\nx\n)", "sha256:1", VALID, "block at the end"),
    "a digest of something else": ("host x", "sha256:1", VALID, ""),
    "a refusal of theirs": ("host x", "sha256:1", "host is no host", ""),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_rule_for_configurations_is_for_what_it_names(case: str) -> None:
    text, ours, theirs, name = CHANGED[case]
    assert intended_configuration(text, ours, theirs) == name


def test_each_rule_for_configurations_has_its_reason() -> None:
    assert SAID.keys() <= CONFIGURATIONS.keys()


OFF = '{"error": {"code": 503, "err_code": 10039}, "type": "t"}'
API = '{"streams": 1, "type": "io.nats.jetstream.api.v1.account_info_response"}'
OF_NONE, OF_A = '{"account": "$G"}', '{"account": "A"}'
BROUGHT = "jetstream: on\naccounts { A {} }"
HEARD: dict[str, tuple[str, str, list[str], list[str], str]] = {
    "JetStream that is gone": ("login {}", "port: 1", ["a"], ["a", OFF], "JetStream that is gone"),
    "JetStream that is there": ("login {}", "jetstream: on", ["a"], ["a", OFF], ""),
    "an answer that another gets": ("login {}", "port: 1", [], ["a", OFF], ""),
    "a page": ("/varz", "port: 1", ["a"], ["a", OFF], ""),
    "accounts beside $G": (
        "login {}", BROUGHT, [OF_NONE, OFF], [API, OF_NONE], "JetStream beside other accounts",
    ),
    "another account": ("login {}", BROUGHT, [OF_A, OFF], [API, OF_A], ""),
    "no accounts": ("login {}", "jetstream: on", [OF_NONE, OFF], [API, OF_NONE], ""),
    "$G that has it": ("login {}", BROUGHT, [OF_NONE], [API, OF_NONE], ""),
    "$G that hears something else": ("login {}", BROUGHT, [OF_NONE, OFF], [API, OF_NONE, "a"], ""),
}  # fmt: skip


@pytest.mark.parametrize("case", HEARD)
def test_a_rule_for_reloads_is_for_what_it_names(case: str) -> None:
    part, second, ours, theirs, name = HEARD[case]
    assert intended_answers(part, second, ours, theirs) == name


def test_only_a_system_account_that_is_gone_is_refused() -> None:
    gone = 'c.conf:1:1: system_account: there is no account "S": add it to `accounts`'
    assert intended_reload(gone, "Reloaded") == "system account that is gone"
    assert intended_reload(gone.replace("system_account", "no_auth_user"), "Reloaded") == ""
