"""/edgez: how an edge is in one answer: its links, mirrors, sources, streams, and its backlog.

`headwater edge status --url` shows it as one screen, and a gateway's report has the same facts.
"""

import os
from typing import Any
from weakref import WeakKeyDictionary

from headwater.edge.facts.version import VERSION
from headwater.edge.monitor.pages.links import links
from headwater.edge.ports.files import space_of
from headwater.edge.view.node_view import NodeView

STREAMS_MAX = 24
"""Streams that are told one by one; the others count in the sums."""
MIRROR_PREFIXES = (b"$JS.M.", b"$JS.S.")
"""How the deliver subjects of mirrors and sources begin."""
_LINK = ("url", "state", "connects", "last_error")
_OPEN = ("pending_bytes", "stalls", "seconds_silent", "interest")
_STATE = ("messages", "bytes", "first_seq", "last_seq", "lost")
_ORIGIN = (
    "account", "stream", "kind", "origin", "external", "state", "cause", "well",
    "pending_messages", "pending_bytes", "oldest_pending_seconds", "catchup_rate",
    "eta_seconds", "left_out",
)  # fmt: skip


class EdgeFacts:
    """What is told of one node. It remembers what mirrors elsewhere were given: their consumers
    end with the link, and only then the backlog is of interest."""

    def __init__(self) -> None:
        self.sent: dict[str, int] = {}
        """Of each stream, how far mirrors elsewhere have been given it."""

    def record(self, node: NodeView) -> None:
        """Look how far mirrors elsewhere are."""
        for stream in _streams(node):
            self._count_sent(stream)

    def facts(self, node: NodeView) -> dict[str, Any]:
        """All of it, as of now. `backlog` is null while no mirror elsewhere was ever seen."""
        remotes, origins = _remotes(node), _origins(node)
        up = [remote for remote in remotes if remote["state"] == "up"]
        bad = [origin for origin in origins if not origin["well"]]
        why = ""
        if not up:
            why = _trouble(remotes)
        elif bad:
            why = f"stream {bad[0]['stream']} is {bad[0]['state']}"
        return {
            "name": node.server_name, "pid": os.getpid(), "version": VERSION,
            "up": len(up), "joined": bool(up) and not bad, "why": why,
            "links": remotes, "streams": _shown_streams(node), "backlog": self._backlog(node),
            "origins": origins, "uptime": node.uptime_ns() / 1e9,
        }  # fmt: skip

    def _backlog(self, node: NodeView) -> dict[str, Any] | None:
        """Messages that mirrors elsewhere have not been given yet, as far as there are mirrors."""
        self.record(node)
        if not self.sent:
            return None
        messages = size = 0
        seconds = 0.0
        for stream in _streams(node):
            sent, state = self.sent.get(stream.name), stream.store.state()
            if sent is None or state["last_seq"] <= sent or not state["messages"]:
                continue
            span = state["last_seq"] - state["first_seq"] + 1
            waiting = min(state["last_seq"] - sent, span)
            share = waiting / span
            messages += round(state["messages"] * share)
            size += round(state["bytes"] * share)
            first = max(sent + 1, state["first_seq"])
            if stored := stream.store.time_of(first):
                # By the age clock: what was stored in 1970 is not older than the gateway.
                age = stream.timers.now() - stream.timers.age_start_of(first, stored)
                seconds = max(seconds, age / 1e9)
        return {"messages": messages, "bytes": size, "seconds": seconds}

    def _count_sent(self, stream: Any) -> None:
        for consumer in list(stream.consumers.values()):
            subject = (consumer.config.deliver_subject or "").encode()
            if subject.startswith(MIRROR_PREFIXES):
                delivered = consumer.numbers()["delivered_seq"]
                self.sent[stream.name] = max(self.sent.get(stream.name, 0), delivered)


_known: WeakKeyDictionary[NodeView, EdgeFacts] = WeakKeyDictionary()


def facts_of(node: NodeView) -> EdgeFacts:
    """The facts of a node, which remember."""
    found = _known.get(node)
    if found is None:
        found = _known[node] = EdgeFacts()
    return found


def edgez(node: NodeView) -> dict[str, Any]:
    """The page."""
    facts = facts_of(node).facts(node)
    jetstream = node.options.jetstream
    if jetstream.enabled and node.jetstream is not None:
        facts["disk"] = disk_of(str(node.jetstream.directory))
    return facts


def disk_of(folder: str) -> dict[str, int]:
    """Bytes that are free for a node, and in all, where a folder is; nothing where a sandbox
    refuses to say it. Raises OSError."""
    found = space_of(folder)
    if found is None:
        return {}
    return {"free": found.f_bavail * found.f_frsize, "total": found.f_blocks * found.f_frsize}


def _remotes(node: NodeView) -> list[dict[str, Any]]:
    open_links = {leaf["id"]: leaf for leaf in links(node, "leafs")}
    found = []
    for each in links(node, "remotes"):
        row = {key: each[key] for key in _LINK}
        if leaf := open_links.get(each["link"]):
            row |= {"rtt": leaf["rtt"], "compression": leaf["compression"]}
            row |= {key: leaf["headwater"][key] for key in _OPEN}
        found.append(row)
    return found


def _origins(node: NodeView) -> list[dict[str, Any]]:
    found = links(node, "origins")
    return [{key: each.get(key) for key in _ORIGIN} for each in found[:STREAMS_MAX]]


def _streams(node: NodeView) -> list[Any]:
    if node.jetstream is None:
        return []
    return [s for js in node.jetstream.accounts.values() for s in js.streams.values()]


def _shown_streams(node: NodeView) -> list[dict[str, Any]]:
    found = []
    for stream in _streams(node)[:STREAMS_MAX]:
        state = stream.store.state()
        found.append({"name": stream.name, **{key: state[key] for key in _STATE}})
    return found


def _trouble(remotes: list[dict[str, Any]]) -> str:
    if not remotes:
        return "no leaf remote is configured"
    first = remotes[0]
    return first["last_error"] or f"the link to {first['url'] or 'the hub'} is {first['state']}"
