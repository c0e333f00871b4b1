"""Pull requests that wait for a stream's next leader: what is left of them.

A client forgets its request when the time that it has named is over. A request that lived on beyond
it would be given messages that nobody waits for. So what it waits elsewhere counts.
"""

from typing import Any

import msgspec

from headwater.edge.jetstream.consumer.pull import PullRequest

PULL_SUBJECT = b"$JS.API.CONSUMER.MSG.NEXT."


def pull_body(request: PullRequest, now: int) -> bytes:
    """What is left of a pull request, as its client would say it; `now` in ns of the monotonic
    clock."""
    if not request.grouped:
        return b"%d" % request.batch
    body: dict[str, Any] = {"batch": request.batch}
    # One that does not wait for more waits for its first message at most.
    waits = not (request.no_wait and request.delivered)
    body |= {"expires": request.expires - now} if request.expires and waits else {}
    body |= {"idle_heartbeat": request.heartbeat} if request.heartbeat and waits else {}
    body |= {"max_bytes": request.max_bytes} if request.max_bytes else {}
    body |= {"no_wait": True} if request.no_wait else {}
    rules = ["group"]
    if request.special:
        rules += ["min_pending", "min_ack_pending", "priority"]
    body |= {rule: value for rule in rules if (value := getattr(request, rule))}
    return msgspec.json.encode(_in_time(body))


def waited(body: bytes, ns: int) -> bytes:
    """The body of a pull request that has waited so long; what has no time stays as it is."""
    try:
        found = msgspec.json.decode(body) if body.lstrip()[:1] == b"{" else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body
    if not isinstance(found, dict) or type(found.get("expires")) is not int:
        return body
    if found["expires"] <= 0:
        return body
    found["expires"] -= ns
    return msgspec.json.encode(_in_time(found))


def _in_time(body: dict[str, Any]) -> dict[str, Any]:
    """A request whose time is over ends at once; heartbeats need two of them to fit."""
    if "expires" in body:
        body["expires"] = max(body["expires"], 1)
        heartbeat = body.get("idle_heartbeat")
        if isinstance(heartbeat, int) and 2 * heartbeat > body["expires"]:
            del body["idle_heartbeat"]
    return body
