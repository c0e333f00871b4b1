"""Which nodes a stream is put on: those with room, the right tags, and the least to do.

A pure function of what is known of the nodes. Rules and texts are the anchor's: tags are compared
without case, `!tag` excludes, the server tag `!jetstream` keeps everything away, and a unique tag
(a prefix such as `az:`) lets each of its values be used once. Where the anchor takes the node with
the most room first, nodes with at least half as much count as equal here, and the one with the
fewest streams is taken: so nodes on equal machines share the load.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.models import Placement, StreamConfig

KEEP_AWAY = "!jetstream"


@dataclass(frozen=True, slots=True)
class Node:
    """A member of the cluster as a candidate. Bytes of free room by kind of storage."""

    number: int
    name: str
    cluster: str = ""
    tags: Sequence[str] = ()
    online: bool = True
    free: Mapping[str, int] = field(default_factory=dict)
    streams: int = 0
    """Streams and replicas that are on it."""
    replicas: int = 0
    """Those of replicated streams."""
    leads: int = 0
    """Streams whose preferred leader it is."""
    rests: bool = False
    """The stream's account has no JetStream on it: it is taken where there is no other."""


@dataclass(slots=True)
class Reasons:
    """Why nodes were passed over, in the words of the anchor."""

    offline: bool = False
    excluded: bool = False
    storage: bool = False
    unique: bool = False
    not_matched: list[str] = field(default_factory=list)
    excluding: list[str] = field(default_factory=list)

    def text(self) -> str:
        """What error 10005 says."""
        flags = {
            "peer offline": self.offline,
            "exclude tag set": self.excluded,
            "insufficient storage": self.storage,
            "server tag not unique": self.unique,
        }
        parts = ["no suitable peers for placement", *(text for text, on in flags.items() if on)]
        lists = {"tags not matched": self.not_matched, "tags excluded": self.excluding}
        for text, tags in lists.items():
            if tags:
                parts.append(f"{text} [{', '.join(repr(tag) for tag in tags)}]")
        return ", ".join(parts)


def choose(
    config: StreamConfig,
    nodes: Sequence[Node],
    unique_tag: str = "",
    keep: Sequence[int] = (),
    ignore: Sequence[int] = (),
) -> list[int]:
    """Node numbers for a stream, the preferred leader first. Raises JetStreamError 10005.

    `keep` are nodes that have the stream already and stay, as many as there are replicas;
    `ignore` are nodes that must not get it. A placement that names a value of the unique tag may
    have several nodes of one value.
    """
    wanted = max(config.num_replicas, 1)
    if _asks_for(config, unique_tag.lower()):
        unique_tag = ""
    kept = [node for node in nodes if node.number in keep][:wanted]
    reasons = Reasons()
    used = {_unique(node, unique_tag) for node in kept} - {""}
    found = list(kept)
    for node in _ordered(config, [n for n in nodes if n.number not in keep], ignore, reasons):
        if len(found) == wanted:
            break
        value = _unique(node, unique_tag)
        if unique_tag and (not value or value in used):
            reasons.unique = True
            continue
        used.add(value)
        found.append(node)
    if len(found) < wanted:
        raise errors.CLUSTER_NO_PEERS.error(err=reasons.text())
    if not kept:
        found.sort(key=lambda node: (node.rests, node.leads))
    return [node.number for node in found]


def may_stay(config: StreamConfig, node: Node) -> bool:
    """Whether a node that has a stream fits its placement."""
    return _fits(msgspec.structs.replace(config, max_bytes=-1), node, Reasons())


def _ordered(
    config: StreamConfig, nodes: Sequence[Node], ignore: Sequence[int], reasons: Reasons
) -> list[Node]:
    fit = [n for n in nodes if n.number not in ignore and _fits(config, n, reasons)]
    best = max((node.free.get(config.storage, 0) for node in fit), default=0)

    def order(node: Node) -> tuple[bool, int, int, int, int]:
        poor = int(node.free.get(config.storage, 0) * 2 < best)
        shared = node.replicas if config.num_replicas > 1 else 0
        return node.rests, shared, poor, node.streams, node.number

    return sorted(fit, key=order)


def _fits(config: StreamConfig, node: Node, reasons: Reasons) -> bool:
    placement = config.placement or Placement()
    tags = {tag.lower() for tag in node.tags}
    if not node.online:
        reasons.offline = True
        return False
    if placement.cluster and placement.cluster != node.cluster:
        return False
    if KEEP_AWAY in tags:
        reasons.excluded = True
        return False
    for tag in placement.tags:
        name = tag.removeprefix("!")
        excludes = tag.startswith("!")
        if excludes == (name.lower() in tags):
            rejected = reasons.excluding if excludes else reasons.not_matched
            if name not in rejected:
                rejected.append(name)
            return False
    if config.max_bytes > 0 and config.max_bytes > node.free.get(config.storage, 0):
        reasons.storage = True
        return False
    return True


def _asks_for(config: StreamConfig, unique_tag: str) -> bool:
    """Whether the placement names a value of the unique tag, or excludes one. As with the anchor,
    its case counts."""
    tags = config.placement.tags if config.placement is not None else []
    return any(tag.removeprefix("!").startswith(unique_tag) for tag in tags)


def _unique(node: Node, prefix: str) -> str:
    """The node's tag that begins with the unique one; empty without."""
    if not prefix:
        return ""
    return next((tag.lower() for tag in node.tags if tag.lower().startswith(prefix.lower())), "")
