"""What differs by intention between both clusters, each with its reason."""

from typing import Any

from tests.differ.histories import Step
from tests.differ.intended import intended_history

CLUSTERS = {
    "no such stream": "who asks for a snapshot or for the consumers of a stream that is not there "
    "hears that, as on a single node. In a cluster nats-server says nothing, or lists none",
    "more replicas": "a consumer of two replicas is kept wherever its stream is, for it is led "
    "with it. nats-server keeps it on two of three nodes. `player.py` leaves that out",
    "sequence of nothing": "an expected sequence without digits refuses a publish to a replicated "
    "stream, too. nats-server then says nothing",
    "ends behind its message": "that a request is over is told behind its last message. Of a "
    "replicated consumer nats-server tells it before",
    "silent after an id": "a replicated stream goes on behind a publish that expected another last "
    "id. With nats-server it answers nothing any more, publishes and batches included. Not "
    "generated",
    "waits where a stream was": "who waits at a consumer whose stream is moved hears that another "
    "leads it, and asks again. With one replica nats-server says nothing, and nothing more comes",
    "broken move": "a number of replicas below 0 with a place leaves a stream of nats-server "
    "without a leader. Not generated",
}
"""A name, and the reason."""

PASSING = {
    "no such stream", "sequence of nothing", "ends behind its message", "waits where a stream was",
}  # fmt: skip
"""Those behind which both clusters are as they were: the history goes on."""


def intended(steps: list[Step], number: int, ours: Any, theirs: Any) -> str:
    """The name of the difference when it is one by intention; otherwise empty."""
    asked = steps[number].get("subject", "")
    if "SNAPSHOT" in asked or "CONSUMER.LIST" in asked:
        silent = not theirs or '"consumers": []' in theirs[0]
        if len(ours) == 1 and '"err_code": 10059' in ours[0] and silent:
            return "no such stream"
    empty = any(key.startswith("Nats-Expected-Last") and not value
                for key, value in steps[number].get("headers", []))  # fmt: skip
    if empty and not theirs and '"err_code": 10071' in str(ours):
        return "sequence of nothing"
    if "409 Batch Completed" in str(ours) and sorted(ours) == sorted(theirs):
        return "ends behind its message"
    moved = any("STREAM.MOVE." in step.get("subject", "") for step in steps[: number + 1])
    if moved and ours != theirs == [each for each in ours if "409 Leadership" not in str(each)]:
        return "waits where a stream was"
    return intended_history(steps, number, ours, theirs)
