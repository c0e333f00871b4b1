"""Subject transforms (ADR-30): from subjects that match a pattern to subjects built from them.

A destination is made of literal tokens and functions of the source's wildcard tokens: `$1` or
`{{wildcard(1)}}`, `{{partition(n,1,2)}}`, `{{random(n)}}`, `{{split(1,-)}}`,
`{{splitFromLeft(1,3)}}`, `{{splitFromRight(1,3)}}`, `{{sliceFromLeft(1,3)}}`,
`{{sliceFromRight(1,3)}}`, `{{left(1,3)}}`, `{{right(1,3)}}`. Streams, republishing, mirrors,
account mappings and imports all use this one.
"""

import re

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.subjects.tokens import is_valid, subject_matches

from headwater.security.subjects import reference

LITERAL = cython.declare(cython.int, 0)
WILDCARD = cython.declare(cython.int, 1)
PARTITION = cython.declare(cython.int, 2)
RANDOM = cython.declare(cython.int, 3)
SPLIT = cython.declare(cython.int, 4)
SPLIT_LEFT = cython.declare(cython.int, 5)
SPLIT_RIGHT = cython.declare(cython.int, 6)
SLICE_LEFT = cython.declare(cython.int, 7)
SLICE_RIGHT = cython.declare(cython.int, 8)
LEFT = cython.declare(cython.int, 9)
RIGHT = cython.declare(cython.int, 10)

# A linear congruential sequence (Knuth, MMIX): a number by chance for each further token.
NEXT_FACTOR = cython.declare(cython.ulonglong, 6364136223846793005)
NEXT_SUMMAND = cython.declare(cython.ulonglong, 1442695040888963407)

NUMBER_MAX = 2**31 - 1
# Bytes from which on a result is not made any longer: no wire and no store takes so many.
RESULT_MAX = cython.declare(cython.Py_ssize_t, 1 << 16)
KINDS = {
    "wildcard": 1,
    "partition": 2,
    "random": 3,
    "split": 4,
    "splitfromleft": 5,
    "splitfromright": 6,
    "slicefromleft": 7,
    "slicefromright": 8,
    "left": 9,
    "right": 10,
}
INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
CALL = re.compile(r"\{\{\s*([A-Za-z]+)\s*\(([^{}]*)\)\s*\}\}")
UNCLEAN = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
"""Control bytes, and halves of letters."""


NO_TRANSFORM = "invalid mapping destination: invalid transform"


class TransformError(ValueError):
    """A source or destination that makes no transform; the text is the protocol's."""


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fnv1a(text: cython.p_const_uchar, n: cython.Py_ssize_t, seed: cython.uint) -> cython.uint:
    i: cython.Py_ssize_t
    for i in range(n):
        seed = (seed ^ text[i]) * 16777619
    return seed


@cython.cclass
class Step:
    """One token of a destination."""

    def __init__(self, kind: int, text: bytes, tokens: list, number: int):
        self.kind = kind
        self.text = text
        self.tokens = tokens
        self.number = number

    @cython.cfunc
    def put(self, out: list, tokens: list, subject: bytes, pick: cython.ulonglong):
        """Append what this token becomes; one step may make several tokens. `pick` is chance."""
        token: bytes
        if self.kind == LITERAL:
            out.append(self.text)
            return
        if self.kind == WILDCARD:
            out.append(tokens[self.tokens[0]])
            return
        if self.kind == PARTITION:
            out.append(self.partition(tokens, subject))
            return
        if self.kind == RANDOM:
            count: cython.ulonglong = self.number if self.number > 0 else 1
            out.append(b"%d" % (pick % count))
            return
        token = tokens[self.tokens[0]]
        if self.kind == SPLIT:
            out.extend([part for part in token.split(self.text) if part] or [b""])
        else:
            out.extend(self.cut(token))

    @cython.cfunc
    def partition(self, tokens: list, subject: bytes) -> bytes:
        h: cython.uint = 2166136261
        text: bytes
        if self.number <= 0:
            return b"0"
        if not self.tokens:
            h = fnv1a(
                cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject)), len(subject), h
            )
        for position in self.tokens:
            text = tokens[position]
            h = fnv1a(cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(text)), len(text), h)
        return b"%d" % (h % cython.cast(cython.uint, self.number))

    @cython.cfunc
    def cut(self, token: bytes) -> list:
        """The parts of `token`; the token itself when it is too short to be cut."""
        size: cython.longlong = self.number
        n: cython.longlong = len(token)
        start: cython.longlong
        if size <= 0 or size >= n:
            return [token]
        if self.kind == SPLIT_LEFT:
            return [token[:size], token[size:]]
        if self.kind == SPLIT_RIGHT:
            return [token[: n - size], token[n - size :]]
        if self.kind == LEFT:
            return [token[:size]]
        if self.kind == RIGHT:
            return [token[n - size :]]
        start = 0 if self.kind == SLICE_LEFT else n % size
        parts: list = [token[:start]] if start else []
        while start < n:
            parts.append(token[start : start + size])
            start += size
        return parts


@cython.cclass
class Transform:
    """A compiled transform. Build it with `transform`; `apply` is for compiled callers."""

    def __init__(self, source: bytes, destination: bytes, steps: list):
        self.source = source
        self.destination = destination
        self.steps = steps
        self.identity = source == b">" and destination == b">"
        self.any_source = source == b">"
        self.keeps_tail = destination == b">" or destination.endswith(b".>")
        self.source_tokens = source.count(b".") + 1

    @cython.cfunc
    def apply(
        self, subject: cython.p_const_uchar, n: cython.Py_ssize_t, pick: cython.ulonglong
    ) -> bytes:
        """The transformed literal subject; None when the source does not match it. `pick` is a
        number by chance, for `random`."""
        source: cython.p_const_uchar = cython.cast(
            cython.p_const_uchar, PyBytes_AS_STRING(self.source)
        )
        if not self.any_source and not subject_matches(source, len(self.source), subject, n):
            return None
        return self.rewrite(PyBytes_FromStringAndSize(cython.cast(cython.p_char, subject), n), pick)

    @cython.cfunc
    def rewrite(self, subject: bytes, pick: cython.ulonglong) -> bytes:
        """What a subject known to match becomes; `pick` as for `apply`."""
        tokens: list
        out: list = []
        step: Step
        size: cython.Py_ssize_t = 0
        done: cython.Py_ssize_t = 0
        if self.identity:
            return subject
        tokens = subject.split(b".")
        for item in self.steps:
            step = cython.cast(Step, item)
            step.put(out, tokens, subject, pick >> 33)
            pick = pick * NEXT_FACTOR + NEXT_SUMMAND
            while done < len(out):
                size += len(cython.cast(bytes, out[done])) + 1
                done += 1
            if size > RESULT_MAX:
                # Too long for every wire and store already: whoever takes it refuses it.
                break
        if self.keeps_tail:
            out.extend(tokens[self.source_tokens - 1 :])
        return b".".join(out)

    def match(self, subject: bytes, pick: int = 0) -> bytes | None:
        """`apply` for interpreted callers."""
        return self.apply(
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject)), len(subject), pick
        )


def fail(token: str, reason: str) -> TransformError:
    return TransformError(f"invalid mapping destination: {reason} in {token}")


def parse_number(text: str, token: str) -> int:
    number = INTEGER.fullmatch(text.strip(" "))
    if number is None or int(number[0]) > NUMBER_MAX:
        raise fail(token, "function argument is invalid or in the wrong format")
    return int(number[0])


def read_token(token: str) -> Step:
    """The step for one destination token, with wildcard numbers (1-based) as its tokens."""
    number = reference(token)
    if number is not None:
        return Step(1, b"", [number], -1)
    if not is_call(token):
        return Step(0, token.encode(), [], -1)
    if calls_unknown(token):
        raise fail(token, "unknown function")
    call = CALL.fullmatch(token)
    return read_call(token, KINDS[call[1].lower()], re.split(r",\s*", call[2]))


def is_call(token: str) -> bool:
    """Whether a token of a destination is meant as a function."""
    return len(token) > 4 and token.startswith("{{") and token.endswith("}}")


def calls_unknown(token: str) -> bool:
    """Whether a token of a destination is meant as a function that there is not."""
    call = CALL.fullmatch(token)
    return is_call(token) and (call is None or call[1].lower() not in KINDS)


def read_call(token: str, kind: int, args: list) -> Step:
    """The step of a function with its arguments."""
    if args == [""]:
        raise fail(token, "not enough arguments passed to the function")
    if kind == 2:
        positions = [parse_number(arg, token) for arg in args[1:]]
        return Step(kind, b"", positions, parse_number(args[0], token))
    wanted = 1 if kind in (1, 3) else 2
    if len(args) < wanted:
        raise fail(token, "not enough arguments passed to the function")
    if len(args) > wanted:
        raise fail(token, "too many arguments passed to the function")
    first = parse_number(args[0], token)
    if kind == 1:
        return Step(kind, b"", [first], -1)
    if kind == 3:
        return Step(kind, b"", [], first)
    if kind == 4:
        if not args[1] or " " in args[1] or "." in args[1]:
            raise fail(token, "function argument is invalid or in the wrong format")
        return Step(kind, args[1].encode(), [first], -1)
    return Step(kind, b"", [first], parse_number(args[1], token))


@cython.wraparound(True)
def well_formed(subject: str) -> bool:
    """Whether a subject of a transform is one, when the calls in it are taken for words: what
    comes out of the transform is to be clean, without a look at each result."""
    text: bytes = CALL.sub("call", subject).encode("utf-8", "surrogatepass")
    return UNCLEAN.search(subject) is None and is_valid(text, len(text))


@cython.wraparound(True)
def transform(source: str, destination: str, strict: bool = False) -> Transform:
    """Compile a transform. An empty `source` means `>`.

    `strict` is for imports: only wildcards, and each of the source's must be used. Raises
    TransformError.
    """
    source = source or ">"
    froms = source.split(".")
    tos = destination.split(".")
    if (
        not well_formed(source)
        or not well_formed(destination)
        or "*" in tos
        or (froms[-1] == ">") != (tos[-1] == ">")
    ):
        raise TransformError(NO_TRANSFORM)
    stars = [i for i, token in enumerate(froms) if token == "*"]
    steps: list = []
    used = 0
    for token in tos[:-1] if tos[-1] == ">" else tos:
        step: Step = read_token(token)
        if strict and step.kind != LITERAL and step.kind != WILDCARD:
            reason = "the only mapping function allowed for import transforms is {{Wildcard()}}"
            raise fail(token, reason)
        if not stars and froms[-1] != ">" and step.tokens:
            # Nothing varies: a partition is that of the whole subject.
            if step.kind != PARTITION:
                raise fail(token, "wildcard index out of range")
            step.tokens = []
        for number in step.tokens:
            if number < 1 or number > len(stars):
                raise fail(f"{token}: [{number}]", "wildcard index out of range")
        used += len(step.tokens)
        step.tokens = [stars[number - 1] for number in step.tokens]
        steps.append(step)
    if strict and used < len(stars):
        raise fail(destination, "not using all of the token wildcard(s)")
    return Transform(source.encode(), destination.encode(), steps)


def check_mapping(source: str, destination: str) -> None:
    """Refuse a transform of a stream's configuration. Raises TransformError.

    An empty destination is legal here: it means that nothing is rewritten.
    """
    if not destination:
        return
    try:
        transform(source, destination)
    except TransformError as error:
        if str(error) != NO_TRANSFORM:
            raise
        behind_all = False
        for token in destination.split("."):
            if not token or re.search(r"[\t\n\f\r ]", token):
                raise
            if calls_unknown(token):
                raise fail(token, "unknown function") from None
            if behind_all:
                raise fail(token, "invalid transform") from None
            behind_all = token == ">"
        raise TransformError("invalid subject") from None


@cython.wraparound(True)
def reversed_transform(source: str, destination: str) -> Transform:
    """The way back of a strict transform. Raises TransformError."""
    stars: list = [i for i, token in enumerate(source.split(".")) if token == "*"]
    back: list = source.split(".")
    froms: list = []
    number = 0
    for token in destination.split("."):
        step: Step = read_token(token)
        if step.kind == WILDCARD:
            number += 1
            back[stars[step.tokens[0] - 1]] = f"${number}"
            froms.append("*")
        else:
            froms.append(token)
    return transform(".".join(froms), ".".join(back), strict=True)
