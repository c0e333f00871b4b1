"""What differs from nats-server by intention, each with its reason."""

import json
import re
from typing import Any

from tests.differ.lines import Step

LINES = {
    "control byte": "a word of a frame may hold no control byte, and a carriage return only ends a "
    "line: so nothing that one client sends can begin another frame elsewhere. nats-server passes "
    "them on, and drops the last byte of a line with a carriage return inside, depending on where "
    "packets end",
    "line feed": "a line feed ends a line. Behind `PUB ` nats-server takes it for the subject",
    "HMSG": "nats-server takes HMSG from a client as a publication without a subject",
    "told once": "of a pedantic client's subject nats-server complains twice when a packet ends "
    "within the message",
    "denied answer": "that nobody listens is told where the login may listen; nats-server tells it "
    "on a denied subject, too, when a wildcard subscription matches it",
    "behind an error": "a client that says -ERR is cut; nats-server still does what stands behind "
    "that in the same packet",
    "large trace": "nats-server looks for a trace in a message that is too large, whose connection "
    "ends anyway",
}
"""Differences of the client protocol: a name, and the reason."""

_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_FED = re.compile(rb"(?i)PUB[ \t]+\n")
_TWICE = "-ERR 'Invalid Publish Subject'"


def intended_lines(steps: list[Step], number: int, ours: Any, theirs: Any) -> str:
    """The name of the difference when it is one by intention; otherwise empty."""
    sent = b"".join(data for _, data, _ in steps[: number + 1])
    if _CONTROL.search(sent):
        return "control byte"
    if _FED.search(sent):
        return "line feed"
    if b"hmsg" in sent.lower():
        return "HMSG"
    if b"-err" in sent.lower() and "<closed>" in str(ours):
        return "behind an error"
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
    "group of a listener": "a push consumer that an update gave a group delivers to that group; "
    "nats-server goes on delivering to a listener without one that was there before",
    "delay of nothing": "a NAK with a delay of 0 is due at once; nats-server looks for such ones "
    "each 10 ms, and sends them by sequence. Not generated",
    "counter with markers": "a counter stream that was made with delete markers can be changed. "
    "nats-server takes it and refuses each update of it, for the TTLs that the markers turned on",
    "delay and a backoff": "a NAK with a delay is due when that is over. Of a consumer with a "
    "backoff nats-server waits longer, by what the wait of this delivery is above the first one",
    "ended in turn": "each message ends when it is old enough, so a consumer that waited for acks "
    "of the first ones goes on with the next. nats-server ends several at once, maybe all",
    "ended before a purge": "what was old enough at a purge had ended, and is not counted in it. "
    "nats-server may end it later",
    "nothing left behind a purge": "a pull that does not wait, but for acks of others, ends as "
    "soon as a purge leaves nothing. nats-server lets it wait until its time is over",
    "control byte": "no stream has one in its name or its subjects, and nothing is delivered to a "
    "subject with one: whatever is sent to such a "
    "subject is refused, and names stand in logs and in names of files. nats-server takes them",
    "moments": "a schedule whose time is past is carried out at once; nats-server does so within a "
    "second. Such schedules are not generated. A message ends as soon as it is old enough; "
    "nats-server looks each 250 ms or less often, so who asks is asked again (`player.py`)",
    "last filter": "of a consumer whose last filter an update took away nats-server counts and "
    "delivers no new message, until it is asked for one: it listens for an empty list of subjects. "
    "Nor does it hear of what leaves the stream, whose acks it awaits. By interest such "
    "messages are not stored",
    "moved by a marker": "who was given nothing of what ended stands where it stood. To "
    "nats-server a delete marker is a roll-up, too, which moves consumers behind what has ended",
    "all before it": "a message that leaves the stream is awaited no more. Where an ack is for all "
    "before it, nats-server takes it for one, too: what nobody acknowledged is not sent again",
    "rate of nothing": "a consumer with a rate delivers what is larger than the stream's largest "
    "message, with its subjects; nats-server never does, for it takes that for the most it may "
    "send at once. Not generated",
    "resumed": "a consumer that is resumed before its time goes on at once. nats-server does so at "
    "the next message, request or ack",
    "nobody wants a source": "a source tells up to which message it was taken, also when by "
    "interest nobody wanted those. nats-server tells the last one that it stored",
    "asked by copies": "a mirror or source begins at once: it asks the account's API, and copies, "
    "before nats-server does",
    "told before": "what a new message removes may let a consumer go on: the delivery tells that "
    "the new one waits, and goes before the answer. nats-server counts it a moment later",
    "given up": "the ack floor passes a message that was delivered as often as it may be. "
    "nats-server says so of its own state, and tells the floor of what it has stored, which "
    "stays",
    "looked ahead": "what a consumer has delivered is the last message that it delivered. Of one "
    "in memory, or after a purge, nats-server tells how far it has looked, if it wanted nothing of "
    "what it found, or all of it was deleted",
    "wants more": "who is given other filters goes on behind what was stored while it waited. "
    "nats-server has it look at messages only when one comes that it wants: those behind the last "
    "such one it delivers when an update makes it want them",
    "full source": "a source whose stream takes no message says why; nats-server tries again and "
    "says nothing",
    "silent origin": "a source whose origin nobody answers for says so; nats-server tries again "
    "and says nothing",
    "before its start": "what was stored before a consumer begins does not wait for it. "
    "nats-server counts it when it comes, until it is asked for the consumer",
    "refused, then purged": "what was refused is due at once. nats-server forgets so at a purge, "
    "and sends it when its ack is due",
    "name of a folder": "a consumer without durable_name may have a longer name, in a file "
    "store as in memory; nats-server has a folder for each, which cannot be called so",
    "up to more": "messages up to a sequence that was not given out yet are all. nats-server finds "
    "none in a file, and all in memory",
    "counted before the wait": "a message that waits for its time in a replay waits. nats-server "
    "counts it as delivered, and delivers it when it was removed since",
    "no interest": "when a stream comes to keep by interest, what nobody wants goes after the "
    "answer. nats-server removes what goes before that, and keeps what only filters leave out",
    "positions": "whoever wants nothing of the last messages stands behind them. nats-server has "
    "it look at them only when something comes that it wants, which shows after a purge, and in "
    "heartbeats",
    "purged behind": "the ack floor stays before the first message that waits for its ack; when a "
    "purge takes one behind that, nats-server tells another consumer sequence, and does not move "
    "the floor for an ack of one before that",
    "gone": "what left the stream waits for no ack and no delivery. nats-server counts what waits "
    "for an ack until it is due again, when the purge left the stream's first message; and what "
    "waits to be delivered, when the purge kept some messages. It says nothing to a consumer that "
    "waited for such an ack, which goes on at the next message or ack. Of what was deleted it "
    "counts what the filters leave out that a consumer has by now",
    "end of a batch": "a fast batch ends with an answer. nats-server gives none when the message "
    "before its end was refused for the last id that it expected: it waits for that to be stored",
    "repeated in a batch": "a fast batch ends where a sequence comes again, and its end is "
    "answered. nats-server gives no answer when the message before was refused, and none to that "
    "batch ever after: it waits for the refused one to be stored",
    "refused in parts": "a publish to a subject that is none is refused once. nats-server says so "
    "twice when the message comes in parts",
    "pending without headers": "what is left behind a batch is told of a batch without headers, "
    "too. nats-server counts none of its messages. Not generated",
    "deleted 0": "nats-server counts a message 0 as deleted in an empty stream in a file",
    "words of JSON": "sentences of the decoder name types of the language of the server",
    "minus nothing": "a sequence may be written as -0; nats-server takes that for a number with a "
    "sign. Not generated",
    "again and again": "a field that stands more than 16 times in a request is refused. "
    "nats-server reads each. Not generated",
    "no such sequence": "a stream begins at 2^63 - 1 at most, and is not purged up to more; "
    "nats-server takes 2^64 - 1, finds nothing in a file from 2^63 on, and begins at 0 again. Not "
    "generated",
}
"""Differences of histories, which `player.pruned` leaves out, and why."""

PURGES = re.compile("STREAM.PURGE|Nats-Rollup|Nats-Schedule")
BOUND = '"push_bound": true, '
BY_INTEREST = '"retention": "interest"'
SOURCED = re.compile(r'(?<="name": "%"), "seq": \d+(?=\})')
TAKES = re.compile(rf"{PURGES.pattern}|MSG\.DELETE")
MARKS = re.compile('"subject_delete_marker_ttl": [1-9]')
LEAVES = re.compile(r'MSG\.DELETE|max_msgs|max_bytes|max_age|Nats-(TTL|Rollup|Schedule)')
UNSENT = "-ERR (\"'Invalid Publish Subject'\",)"
NO_WAIT_ENDS = re.compile(
    r"404 No Messages|408 Request Timeout|\\r\\nNats-Pending-(Messages|Bytes): -?\d+"
)
FOLDER_NAME_MAX = 255
_NAMED = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]|\\u00([01][0-9a-f]|7f)", re.IGNORECASE)
_UNSTORED = re.compile(r'"error": \{"code": 503, "description": "a message could not be [^}]*\}, ')
_UNANSWERED = re.compile(r'"error": \{"code": 503, "description": "nobody answers on [^}]*\}, ')
_REFUSED = re.compile(r'"err_code": (10052|10112|10141)\b')
_COPIES = re.compile(r'"(mirror|sources)" ?:', re.IGNORECASE)
_USED = re.compile(r'"(total|consumers|memory|storage|streams)": \d+')
_USED_OR_REFUSED = re.compile(rf'{_USED.pattern}|"errors": \d+')
PURGED = re.compile(r'"purged": \d+, ')
DELAYED = re.compile(r"-NAK (\{|\d)")
COUNTS = ("num_ack_pending", "num_redelivered", "num_pending")

Told = dict[str, dict[str, Any]]


def intended_history(steps: list[dict[str, Any]], number: int, ours: Any, theirs: Any) -> str:
    """The name of the difference when it is one by intention; otherwise empty."""
    if _given_a_group(steps[: number + 1]):
        ours, theirs = ([line.replace(BOUND, "") for line in each] for each in (ours, theirs))
        if ours == theirs:
            return "group of a listener"
    sourced = any('"sources": [' in str(one) and BY_INTEREST in str(one) for one in steps)
    if sourced and [SOURCED.sub("", line) for line in ours] == theirs:
        return "nobody wants a source"
    if ours != theirs and [_UNSTORED.sub("", line) for line in ours] == theirs:
        return "full source"
    if ours != theirs and [_UNANSWERED.sub("", line) for line in ours] == theirs:
        return "silent origin"
    return _intended(steps, number, ours, theirs)


def _intended(steps: list[dict[str, Any]], number: int, ours: Any, theirs: Any) -> str:
    done = steps[: number + 1]
    if ours != theirs and ours == [line for line in theirs if line != UNSENT] + [UNSENT]:
        return "refused in parts"
    if "counter stream cannot use message TTLs" in "".join(theirs):
        return "counter with markers" if "allow_msg_counter" in "".join(ours) else ""
    if _NAMED.search(str(steps[number].get("body"))) and _REFUSED.search("".join(ours)):
        return "control byte"
    if _asked_by_copies(steps, number, ours, theirs):
        return "asked by copies"
    taken = _last_filter_taken(done)
    if taken and _without("num_pending", ours) == _without("num_pending", theirs):
        return "last filter"
    marks = [mark for name in taken for mark in (f"$JS.ACK.%.{name}.", f"{name} in order")]
    if taken and _without_asked(marks, ours) == _without_asked(marks, theirs):
        return "last filter"
    if taken and _bare(ours) == _bare(theirs) and _unlike(ours, theirs) <= taken:
        return "last filter"
    stored = steps[number]["do"] == "publish"
    by_interest = taken and '"retention": "interest"' in str(steps[0])
    if by_interest and (stored or _but_what_is_held(ours) == _but_what_is_held(theirs)):
        return "last filter"
    if stored and _counted(sorted(ours), sorted(theirs), range(2)):
        return "told before"
    if _wants_more(done, ours, theirs):
        return "wants more"
    begin = _consumers(done, r"opt_start_seq|CONSUMER\.RESET")
    fewer = _counted(ours, theirs, range(-9, 1)) or _fewer_wait(ours, theirs)
    if fewer and _unlike(ours, theirs) <= begin:
        return "before its start"
    if _comes_to_interest(done) and _but_what_is_held(ours) == _but_what_is_held(theirs):
        return "no interest"
    if moved := _moved_on(done, ours, theirs):
        return moved
    if not theirs and len(ours) == 1 and _ends_a_batch(done, ".3.$FI"):
        return "end of a batch"
    if _ends_a_batch(done, ".4.$FI") and ours[:-1] == theirs[:-1] and '"seq": 0' in theirs[-1]:
        return "end of a batch"
    if _one_answer_more(ours, theirs) and _repeats_in_a_batch(done):
        return "repeated in a batch"
    folder = len(steps[number].get("subject", "").rpartition(".")[2]) > FOLDER_NAME_MAX
    if folder and '"err_code": 10012' in "".join(theirs) and '"config"' in "".join(ours):
        return "name of a folder"
    if '"up_to_seq"' in str(steps[number]) and "404 No Results" in "".join(theirs):
        return "up to more"
    if _before_the_wait(done, ours, theirs):
        return "counted before the wait"
    if _refused_and_purged(done) and _sent_again(ours, theirs):
        return "refused, then purged"
    late = [
        mark for name in _given_a_group(done) for mark in (f"$JS.ACK.%.{name}.", f"{name} in order")
    ]
    both = [[one for one in each if "Idle Heartbeat" not in one] for each in (ours, theirs)]
    if late and [one for one in both[1] if not any(mark in one for mark in late)] == both[0]:
        return "group of a listener"
    if _heartbeats(ours) != _heartbeats(theirs):
        return "positions" if _behind(ours, theirs) else ""
    rest = [_bare(lines) for lines in (ours, theirs)]
    return _of_consumers(done, _told(ours), _told(theirs)) if rest[0] == rest[1] else ""


def _wants_more(steps: list[dict[str, Any]], ours: list[str], theirs: list[str]) -> bool:
    """Whether nats-server delivers more, or counts more that waits, when the last step changes the
    filters of a consumer."""
    subject = steps[-1].get("subject", "")
    name = subject.rpartition(".")[2]
    if ".CONSUMER.CREATE." not in subject or _made(steps, name) < 2:
        return False
    bare = [_without("num_pending", lines) for lines in (ours, theirs)]
    here, there = (_without_deliveries({name}, lines) for lines in bare)
    return '"filter_subject' in steps[-1]["body"] and here == there and len(ours) <= len(theirs)


def _before_the_wait(steps: list[dict[str, Any]], ours: list[str], theirs: list[str]) -> bool:
    """Whether nats-server went ahead with a consumer whose messages wait for their time."""
    waits = _consumers(steps, '"replay_policy": "original"')
    counted = _counted(ours, theirs, range(2)) or (
        _without("num_pending", ours) == _without("num_pending", theirs)
    )
    if counted and _unlike(ours, theirs) <= waits:
        return True
    ended = [sorted(NO_WAIT_ENDS.sub("", line) for line in each) for each in (ours, theirs)]
    others = _without_deliveries(waits, ended[1])
    taken = any(TAKES.search(str(one)) for one in steps)
    return taken and others != ended[1] and others == ended[0]


def _moved_on(steps: list[dict[str, Any]], ours: list[str], theirs: list[str]) -> str:
    """The name of the difference when ours went on with a consumer that waited in nats-server."""
    counts = [[PURGED.sub("", line) for line in lines] for lines in (ours, theirs)]
    if '"max_age": ' in steps[0].get("body", "") and ours != counts[0] == counts[1]:
        return "ended before a purge"
    full = _consumers(steps, '"max_ack_pending": ')
    others = _without_deliveries(full, ours)
    purges = PURGES.search(str(steps[-1])) is not None
    if others != ours and others == theirs and purges:
        return "gone"
    rest = _without_deliveries(full, theirs)
    if others != ours and others == rest and '"max_age": ' in steps[0].get("body", ""):
        return "ended in turn"
    ended = [sorted(NO_WAIT_ENDS.sub("", line) for line in lines) for lines in (ours, theirs)]
    if full and purges and ended[0] == ended[1]:
        return "nothing left behind a purge"
    resumed = ".CONSUMER.PAUSE." in steps[-1].get("subject", "")
    waited = {steps[-1]["subject"].rpartition(".")[2]} if resumed else set()
    others = _without_deliveries(waited, ours)
    if others != ours and others == theirs:
        return "resumed"
    before = _consumers(steps, '"ack_policy": "all"')
    others = _without_deliveries(before, ours)
    if others != ours and others == theirs and LEAVES.search(str(steps)):
        return "all before it"
    flowing = _consumers(steps, '"ack_policy": "flow_control"')
    quiet = [[one for one in each if "Idle Heartbeat" not in one] for each in (ours, theirs)]
    others, rest = (_without_deliveries(flowing, each) for each in quiet)
    if others == rest and quiet[0] != quiet[1] and flowing and LEAVES.search(str(steps)):
        return "all before it"
    paced = _consumers(steps, '"backoff": ')
    if paced and DELAYED.search(str(steps)):
        left = [_without_deliveries(paced, lines) for lines in (ours, theirs)]
        if left[0] == left[1] and ours != left[0]:
            return "delay and a backoff"
    return ""


def _without_deliveries(names: set[str], lines: list[str]) -> list[str]:
    marks = [mark for name in names for mark in (f"$JS.ACK.%.{name}.", f"{name} in order")]
    return [line for line in lines if not any(mark in line for mark in marks)]


def _of_consumers(steps: list[dict[str, Any]], ours: Told, theirs: Told) -> str:
    """The name of what differs in how far consumers are, when all of it is by intention."""
    purged = any(PURGES.search(str(step)) for step in steps)
    leaves = any(LEAVES.search(str(step)) for step in steps)
    marked = any(MARKS.search(str(step)) for step in steps)
    memory = '"storage": "memory"' in steps[0].get("body", "")
    changed = {name for name in ours if _made(steps, name) > 1}
    limited = _consumers(steps, '"max_deliver": [1-9]')
    found = ""
    for name, one in ours.items():
        other = theirs[name]
        filters = one["config"].get("filter_subject") or one["config"].get("filter_subjects")
        floor, floor_there = one["ack_floor"], other["ack_floor"]
        at, at_there = one["delivered"], other["delivered"]
        if marked and at == floor and at_there == floor_there and _less_far(at, at_there):
            found = "moved by a marker"
            continue
        in_memory = memory or one["config"].get("mem_storage")
        if (in_memory or purged) and (filters or leaves) and _less_far(at, at_there):
            found = "looked ahead"
            at = at_there
        if at != at_there:
            if not purged or not filters or at["consumer_seq"] != at_there["consumer_seq"]:
                return ""
            if at["stream_seq"] < at_there["stream_seq"]:
                return ""
            found = "positions"
        before = one["config"]["ack_policy"] in ("all", "flow_control")
        if leaves and before and _not_before(floor_there, floor):
            found = "all before it"
            continue
        fewer = [other[key] - one[key] for key in COUNTS]
        if any(fewer):
            left = purged or (leaves and name in changed)
            if not left or min(fewer) < 0 or not _not_before(floor, floor_there):
                return ""
            found = "gone"
            continue
        if floor == floor_there:
            continue
        moved = at != at_there and floor["consumer_seq"] == floor_there["consumer_seq"]
        waits = purged and one["num_ack_pending"] > 0
        same_place = floor["consumer_seq"] == floor_there["consumer_seq"]
        if moved and floor["stream_seq"] >= floor_there["stream_seq"]:
            found = "positions"
        elif name in limited and _not_before(floor, floor_there):
            found = "given up"
        elif purged and (
            floor["stream_seq"] == floor_there["stream_seq"]
            or (waits and floor["consumer_seq"] <= floor_there["consumer_seq"])
            or (waits and _not_before(floor, floor_there))
            or (same_place and floor["stream_seq"] > floor_there["stream_seq"])
        ):
            found = "purged behind"
        else:
            return ""
    return found


def _made(steps: list[dict[str, Any]], name: str) -> int:
    """How often a consumer of this name was asked for."""
    return sum(f".CONSUMER.CREATE.%.{name}" in step.get("subject", "") for step in steps)


def _less_far(at: dict[str, int], at_there: dict[str, int]) -> bool:
    same = at["consumer_seq"] == at_there["consumer_seq"]
    return same and at["stream_seq"] < at_there["stream_seq"]


def _bare(lines: list[str]) -> list[str]:
    for key in ("delivered", "ack_floor", *COUNTS):
        lines = _without(key, lines)
    return lines


def _not_before(floor: dict[str, int], other: dict[str, int]) -> bool:
    return all(floor[key] >= other[key] for key in ("consumer_seq", "stream_seq"))


def _told(lines: list[str]) -> Told:
    """What answers tell of consumers, by name."""
    found = {}
    for line in lines:
        text = line[line.find("] ") :]
        if '"ack_floor"' in text:
            whole = json.loads(text[text.index("{") :])
            found.update({one["name"]: one for one in whole.get("consumers") or [whole]})
    return found


def _consumers(steps: list[dict[str, Any]], has: str) -> set[str]:
    """Names of consumers with something in the requests about them."""
    asked = [step for step in steps if ".CONSUMER." in step.get("subject", "")]
    return {one["subject"].rpartition(".")[2] for one in asked if re.search(has, str(one))}


def _unlike(ours: list[str], theirs: list[str]) -> set[str]:
    """Names of the consumers of which lines that stand at the same place tell different things;
    empty for a line that tells of none."""
    found = set()
    for here, there in zip(ours, theirs, strict=True):
        if here == there:
            continue
        delivered = re.search(r"\$JS\.ACK\.[^.]+\.([^.]+)\.", here)
        told, told_there = _told([here]), _told([there])
        if delivered:
            found.add(delivered[1])
        elif told.keys() == told_there.keys() and told:
            found |= {name for name in told if told[name] != told_there[name]}
        else:
            found.add("")
    return found


HELD = ("state", "purged", "limit", "total", "num_pending", "delivered", "ack_floor")
MISSING = ("no message found", "404 Message Not Found", "Nats-Stream: ", '"message": {')


def _but_what_is_held(lines: list[str]) -> list[str]:
    """Answers without what a stream holds, and what of it waits for consumers."""
    return [_but_held(line) for line in lines]


def _but_held(line: str) -> str:
    at = line.find("{", line.find("] "))
    if any(one in line for one in MISSING):
        return "a message, or none"
    try:
        told = json.loads(line[at:]) if at > 0 else {}
    except ValueError:
        return line
    for one in [told, *(told.get("consumers") or [])] if isinstance(told, dict) else []:
        for key in HELD:
            one.pop(key, None)
    return line[:at] + json.dumps(told, sort_keys=True) if told else line


def _heartbeats(lines: list[str]) -> list[int]:
    return [int(seq) for line in lines for seq in re.findall(r"Nats-Last-Stream: (\d+)", line)]


def _behind(ours: list[str], theirs: list[str]) -> bool:
    """Whether heartbeats differ in nothing but that ours are farther in the stream."""
    bare = [
        [re.sub(r"Nats-Last-Stream: \d+", "", line) for line in lines] for lines in (ours, theirs)
    ]
    pairs = zip(_heartbeats(ours), _heartbeats(theirs), strict=False)
    return bare[0] == bare[1] and all(here >= there for here, there in pairs)


def _given_a_group(steps: list[dict[str, Any]]) -> set[str]:
    """Names of consumers that were made to push without a group, and then were given one."""
    without: set[str] = set()
    found: set[str] = set()
    for step in steps:
        if ".CONSUMER.CREATE." in step.get("subject", ""):
            name = step["subject"].rpartition(".")[2]
            if '"deliver_group"' in step["body"]:
                found |= without & {name}
            elif '"deliver_subject"' in step["body"]:
                without.add(name)
    return found


def _without(key: str, lines: list[str]) -> list[str]:
    """Answers without one key of what is told of consumers."""
    value = r"\{[^}]*\}|[^,}]+"
    return [re.sub(rf'"{key}": ({value})', "", line) for line in lines]


def _without_asked(marks: list[str], lines: list[str]) -> list[str]:
    """Answers without what some consumers delivered, and what requests hear meanwhile: that time is
    over, or how far the consumer is."""
    marks = [*marks, "408 Request Timeout", "100 Idle Heartbeat"]
    return [line for line in lines if not any(mark in line for mark in marks)]


def _comes_to_interest(steps: list[dict[str, Any]]) -> bool:
    """Whether a stream was made to keep by interest later than at its creation."""
    kept = [
        '"retention": "interest"' in step["body"]
        for step in steps
        if re.search("STREAM.(CREATE|UPDATE)", step.get("subject", ""))
    ]
    return any(kept[1:]) and not all(kept)


def _ends_a_batch(steps: list[dict[str, Any]], operation: str) -> bool:
    """Whether the last step ends a fast batch, or asks how far it is, and the message before it
    expected a last id."""
    batches = [step for step in steps if step.get("reply", "").endswith(".$FI")]
    if len(batches) < 2 or batches[-1] is not steps[-1]:
        return False
    names = {step["reply"].split(".")[1] for step in batches[-2:]}
    ends = steps[-1]["reply"].endswith(operation)
    return ends and len(names) == 1 and "Nats-Expected-Last-Msg-Id" in str(batches[-2]["headers"])


def _one_answer_more(ours: list[str], theirs: list[str]) -> bool:
    """Whether ours has the end of a batch more than theirs, and nothing else."""
    more = [line for line in ours if line not in theirs]
    rest = [line for line in ours if line in theirs]
    return len(more) == 1 and '"batch": ' in more[0] and rest == theirs


def _repeats_in_a_batch(steps: list[dict[str, Any]]) -> bool:
    """Whether the last step has no higher sequence than the one before it in its fast batch, which
    goes on behind gaps, and whose headers, or a stream of counts, may have had that one refused."""
    batches = [step for step in steps if step.get("reply", "").endswith(".$FI")]
    if not batches or batches[-1] is not steps[-1]:
        return False
    name, _, gap, sequence = steps[-1]["reply"].split(".")[1:5]
    same = [step for step in batches[:-1] if step["reply"].split(".")[1] == name]
    if not same or gap != "ok":
        return False
    before = same[-1]["reply"].split(".")
    refused = bool(same[-1]["headers"]) or '"allow_msg_counter": true' in steps[0].get("body", "")
    return int(sequence) <= int(before[4]) and before[3] == "ok" and refused


def _refused_and_purged(steps: list[dict[str, Any]]) -> bool:
    """Whether a purge came behind a NAK."""
    refused = [at for at, step in enumerate(steps) if "-NAK" in step.get("body", "")]
    return bool(refused) and any(PURGES.search(str(step)) for step in steps[refused[0] :])


def _sent_again(ours: list[str], theirs: list[str]) -> bool:
    """Whether ours has deliveries that are not the first, and theirs has no other ones."""
    again = re.compile(r"\$JS\.ACK\.%\.\w+\.([2-9])\.")
    more = [line for line in theirs if line not in ours and "$JS.ACK" in line]
    extra = [line for line in ours if line not in theirs and again.search(line)]
    return bool(extra) and len(more) <= len(extra) and not any(map(again.search, more))


def _counted(ours: list[str], theirs: list[str], more: range) -> bool:
    """Whether deliveries differ in nothing but that ours count so many more messages that wait."""
    last = re.compile(r"(\$JS\.ACK\.\S+\.T\.)(\d+)")
    counts = [[int(n) for one in lines for _, n in last.findall(one)] for lines in (ours, theirs)]
    bare = [[last.sub(r"\1", one) for one in lines] for lines in (ours, theirs)]
    return bare[0] == bare[1] and all(a - b in more for a, b in zip(*counts, strict=True))


def _asked_by_copies(steps: list[Any], number: int, ours: list[str], theirs: list[str]) -> bool:
    """Whether an account with copies tells of itself, and only counts of what it has differ."""
    if not steps[number].get("subject", "").endswith("API.INFO") or not _COPIES.search(str(steps)):
        return False
    # What asks for a copy that is deleted meanwhile is refused.
    used = _USED_OR_REFUSED if ".STREAM.DELETE." in str(steps) else _USED
    bare = [[used.sub("", line) for line in lines] for lines in (ours, theirs)]
    return bare[0] == bare[1]


def _fewer_wait(ours: list[str], theirs: list[str]) -> bool:
    """Whether what is told of consumers differs in nothing but that fewer messages wait in ours."""
    if _without("num_pending", ours) != _without("num_pending", theirs):
        return False
    here, there = _told(ours), _told(theirs)
    return all(here[name]["num_pending"] <= there[name]["num_pending"] for name in here)


def _last_filter_taken(steps: list[dict[str, Any]]) -> set[str]:
    """Names of consumers that had filters and were changed to have none."""
    taken: set[str] = set()
    filtered: set[str] = set()
    for step in steps:
        subject = step.get("subject", "")
        if ".CONSUMER.CREATE." in subject:
            if '"filter_subject' in step["body"]:
                filtered.add(subject)
            elif subject in filtered:
                taken.add(subject.rpartition(".")[2])
    return taken
