"""Subject mappings of an account: what clients and leaf links publish goes to another subject.

A mapping has destinations with weights in percent, for every cluster or for the one this node
belongs to. What the weights leave over keeps its subject, unless the source is itself one of the
destinations: then it is lost on purpose (NATS "Subject Mapping and Partitioning", ADR-30).
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.headwater.edge.kernel.kernel import Kernel
from cython.cimports.headwater.edge.subjects.tokens import is_literal
from cython.cimports.headwater.edge.subjects.transform import Transform

from headwater.edge.subjects.placeholders import tokenized
from headwater.edge.subjects.transform import transform

FULL_WEIGHT = 100


@cython.cclass
class Mapping:
    """One source with its destinations; `limits[i]` is the cumulated weight of `transforms[i]`."""

    transforms: list
    limits: list
    certain: Transform

    def __init__(self, transforms: list, limits: list):
        self.transforms = transforms
        self.limits = limits
        self.certain = transforms[0] if limits and limits[0] == FULL_WEIGHT else None


@cython.cclass
class Mappings:
    """All mappings of one account. A literal source goes before wildcards, these in their order."""

    kernel: Kernel
    literal: dict
    wild: list
    sources = cython.declare(frozenset, visibility="readonly")

    def __init__(self, kernel: Kernel, mappings: list, cluster: str):
        """`mappings` are `MappingOptions`; `cluster` is this node's. Raises TransformError."""
        self.kernel = kernel
        self.literal = {}
        self.wild = []
        self.sources = frozenset([item.source.encode() for item in mappings])
        for item in mappings:
            source: bytes = item.source.encode()
            mapping = build(item.source, item.destinations, cluster)
            if is_literal(source, len(source)):
                self.literal[source] = mapping
            else:
                self.wild.append((transform(item.source, tokenized(item.source)), mapping))

    @cython.ccall
    def apply(self, subject: bytes) -> bytes:
        """The subject to publish on; empty when the message is to be lost."""
        n: cython.Py_ssize_t = PyBytes_GET_SIZE(subject)
        text: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject))
        found: object = self.literal.get(subject)
        if found is not None:
            return self.choose(cython.cast(Mapping, found), subject)
        for pattern, mapping in self.wild:
            if cython.cast(Transform, pattern).apply(text, n, 0) is not None:
                return self.choose(cython.cast(Mapping, mapping), subject)
        return subject

    @cython.cfunc
    def choose(self, mapping: Mapping, subject: bytes) -> bytes:
        """What a subject that matches `mapping` becomes, by chance where weights say so."""
        share: cython.int
        i: cython.Py_ssize_t
        if mapping.certain is not None:
            return mapping.certain.rewrite(subject, self.kernel.random())
        share = cython.cast(cython.int, self.kernel.random() % 100)
        for i in range(len(mapping.limits)):
            if share < cython.cast(cython.int, mapping.limits[i]):
                chosen: Transform = mapping.transforms[i]
                return chosen.rewrite(subject, self.kernel.random())
        return b""


def build(source: str, destinations: list, cluster: str) -> Mapping:
    """The mapping that holds in `cluster`: its own destinations, or else those for every one."""
    local: list = [item for item in destinations if item.cluster and item.cluster == cluster]
    chosen: list = local or [item for item in destinations if not item.cluster]
    named: bool = source in [item.subject for item in destinations]
    left: int = FULL_WEIGHT - sum([item.weight for item in chosen])
    transforms: list = []
    limits: list = []
    total: int = 0
    for item in sorted(chosen, key=by_weight):
        total += item.weight
        transforms.append(transform(source, item.subject))
        limits.append(total)
    if left > 0 and not named:
        transforms.append(transform(source, tokenized(source)))
        limits.append(FULL_WEIGHT)
    return Mapping(transforms, limits)


def by_weight(item: object) -> int:
    """Sorts destinations."""
    return item.weight
