"""What differs from nats-server by intention, each with its reason."""

import re
from typing import Any

from tests.differ.lines import Step

LINES = {
    "control byte": "a word of a frame may hold no control byte, and a carriage return only ends a "
    "line: so nothing that one client sends can begin another frame elsewhere. nats-server passes "
    "them on, and drops the last byte of a line with a carriage return inside, depending on where "
    "packets end",
    "HMSG": "nats-server takes HMSG from a client as a publication without a subject",
    "told once": "of a pedantic client's subject nats-server complains twice when a packet ends "
    "within the message",
    "denied answer": "that nobody listens is told where the login may listen; nats-server tells it "
    "on a denied subject, too, when a wildcard subscription matches it",
    "large trace": "nats-server looks for a trace in a message that is too large, whose connection "
    "ends anyway",
}
"""Differences of the client protocol: a name, and the reason."""

_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_TWICE = "-ERR 'Invalid Publish Subject'"


def intended_lines(steps: list[Step], number: int, ours: Any, theirs: Any) -> str:
    """The name of the difference when it is one by intention; otherwise empty."""
    sent = b"".join(data for _, data, _ in steps[: number + 1])
    if _CONTROL.search(sent):
        return "control byte"
    if b"hmsg" in sent.lower():
        return "HMSG"
    if b"Nats-Trace" in sent and "Maximum Payload Violation" in str(ours):
        return "large trace"
    told, queued = theirs
    heard = {key: seen for key, seen in told.items() if "503" not in key}
    if b"a.b.c" in sent and heard != told and (heard, queued) == tuple(ours):
        return "denied answer"
    if _once(ours) == _once(theirs):
        return "told once"
    return ""


def _once(answers: Any) -> Any:
    told, queued = answers
    return {
        key: [one for at, one in enumerate(seen) if one != _TWICE or _TWICE not in seen[:at]]
        for key, seen in told.items()
    }, queued


HISTORIES = {
    "wildcard listener": "a push consumer delivers to whoever listens where it delivers, also by a "
    "wildcard; nats-server takes a literal subscription only and waits in silence. Not generated",
    "group of a listener": "a push consumer that an update gave a group delivers to that group; "
    "nats-server goes on delivering to a listener without one that was there before",
    "delay of nothing": "a NAK with a delay of 0 is due at once; nats-server looks for such ones "
    "each 10 ms, and sends them by sequence. Not generated",
    "first of nothing": "a stream that never had a message begins at 0, purged or not; nats-server "
    "says 1 after a purge",
    "counter with markers": "a counter stream that was made with delete markers can be changed. "
    "nats-server takes it and refuses each update of it, for the TTLs that the markers turned on",
    "moments": "a schedule whose time is past is carried out at once; nats-server does so within a "
    "second. Such schedules are not generated. A message ends as soon as it is old enough",
    "last filter": "of a consumer whose last filter an update took away nats-server counts no new "
    "message, until it is asked for one: it listens for an empty list of subjects",
    "given up": "the ack floor passes a message that was delivered as often as it may be. "
    "nats-server says so of its own state, and tells the floor of what it has stored, which "
    "stays",
    "positions": "whoever wants nothing of the last messages stands behind them. nats-server has "
    "it look at them only when something comes that it wants, which shows after a purge",
    "purged behind": "the ack floor stays before the first message that waits for its ack; when a "
    "purge takes one behind that, nats-server tells the consumer sequence of that one",
    "deleted 0": "nats-server counts a message 0 as deleted in an empty stream in a file",
    "words of JSON": "sentences of the decoder name types of the language of the server",
}
"""Differences of histories, which `player.pruned` leaves out, and why."""


def intended_history(steps: list[dict[str, Any]], number: int, ours: Any, theirs: Any) -> str:
    """The name of the difference when it is one by intention; otherwise empty."""
    done = steps[: number + 1]
    if "counter stream cannot use message TTLs" in "".join(theirs):
        return "counter with markers" if "allow_msg_counter" in "".join(ours) else ""
    if _without("first_seq", ours) == _without("first_seq", theirs):
        return "first of nothing" if '"last_seq": 0' in "".join(ours) else ""
    if _last_filter_taken(done) and _without("num_pending", ours) == _without(
        "num_pending", theirs
    ):
        return "last filter"
    texts = [str(step) for step in done]
    purged = any("STREAM.PURGE" in text or "Nats-Rollup" in text for text in texts)
    filtered = purged and '"filter_subject' in "".join(texts)
    if filtered and _without("stream_seq", ours) == _without("stream_seq", theirs):
        return "positions"
    if _without("ack_floor", ours) != _without("ack_floor", theirs):
        return ""
    if any('"max_deliver": ' in text and '"max_deliver": -1' not in text for text in texts):
        return "given up"
    waits = '"num_ack_pending": 0' not in "".join(ours)
    return "purged behind" if purged and waits else ""


def _without(key: str, lines: list[str]) -> list[str]:
    """Answers without one key of what is told of consumers."""
    value = r"\{[^}]*\}|[^,}]+"
    return [re.sub(rf'"{key}": ({value})', "", line) for line in lines]


def _last_filter_taken(steps: list[dict[str, Any]]) -> bool:
    """Whether a consumer that had filters was changed to have none."""
    filtered: set[str] = set()
    for step in steps:
        subject = step.get("subject", "")
        if ".CONSUMER.CREATE." in subject:
            if '"filter_subject' in step["body"]:
                filtered.add(subject)
            elif subject in filtered:
                return True
    return False
