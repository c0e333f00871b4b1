"""What the places and sizes of a page's messages say of each other, so that neither is kept whole.

Messages lie one behind the other, so what one takes leads to the next. A span is the distance from
an entry's place to that of the entry behind it. It is the entry's body and a rest: a header, what
fills eight bytes, and a subject where that is not part of the body. So spans and rests say places
and bodies. The size of a compressed message mostly follows from its body, and what differs is kept.

An entry that is gone has its share of the distance between its neighbours. Where the next message
lies far off, as in another segment, the page has one jump: its spans are those without. Places are
sums of spans, so every `SPAN_STRIDE` entries a mark says where one lies.
"""

import cython

# Bits that a span or a rest has at most, and what a size and a body are less than.
SPAN_WIDEST = cython.declare(cython.uint, 31)
SIZES_END = cython.declare(cython.ulonglong, 1 << 31)
# A rest that no entry has shown yet: the header of a record.
USUAL_REST = cython.declare(cython.ulonglong, 64)
RATIO_MOST = cython.declare(cython.uint, 1 << 16)
# Bytes that are worth a jump, and what one in units is less than.
JUMP_LEAST = cython.declare(cython.ulonglong, 128)
JUMPS_END = cython.declare(cython.ulonglong, 1 << 56)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def width_of(value: cython.ulonglong) -> cython.uint:
    """Bits that a value needs."""
    width: cython.uint = 0
    while value:
        value >>= 1
        width += 1
    return width


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def usual_rest(
    spans: cython.pointer(cython.const[Spans]),
    first: cython.int,
    last: cython.int,
    state: cython.int,
    shift: cython.int,
) -> cython.ulonglong:
    """The least rest of entries in a state that have their neighbour right behind them."""
    least: cython.ulonglong = 0
    found: cython.bint = False
    rest: cython.ulonglong
    i: cython.int
    for i in range(first, last):
        if spans.state[i] == state and spans.state[i + 1] != SPAN_GONE:
            rest = ((spans.place[i + 1] - spans.place[i]) << shift) - spans.body[i]
            if not found or rest < least:
                least = rest
            found = True
    return least if found else USUAL_REST


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def own_span(
    spans: cython.pointer(cython.const[Spans]),
    i: cython.int,
    usual: cython.pointer(cython.const[cython.ulonglong]),
    shift: cython.int,
) -> cython.ulonglong:
    """What an entry's span would be with its neighbour right behind it."""
    return (spans.body[i] + usual[spans.state[i]] + (1 << shift) - 1) >> shift


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def find_jump(
    spans: cython.pointer(Spans),
    first: cython.int,
    last: cython.int,
    usual: cython.pointer(cython.const[cython.ulonglong]),
    shift: cython.int,
) -> cython.bint:
    """Set the page's jump and where it is; False when places do not ascend."""
    far: cython.ulonglong
    own: cython.ulonglong
    before: cython.int = first
    i: cython.int
    spans.jump = 0
    for i in range(first + 1, last + 1):
        if spans.state[i] != SPAN_GONE:
            if spans.place[i] < spans.place[before]:
                return False
            far = spans.place[i] - spans.place[before]
            own = own_span(spans, before, usual, shift)
            if far > own and far - own > spans.jump:
                spans.jump = far - own
                spans.jump_at = before
            before = i
    if spans.jump < JUMP_LEAST >> shift:
        spans.jump = 0
    return spans.jump < JUMPS_END


@cython.cfunc
@cython.nogil
@cython.cdivision(True)
@cython.exceptval(check=False)
def share_out(
    spans: cython.pointer(Spans), i: cython.int, behind: cython.int, own: cython.ulonglong
) -> cython.int:
    """Turn places of `i` and the gone ones before `behind` into spans. An entry before a gap has
    what it would have without one."""
    total: cython.ulonglong = spans.place[behind] - spans.place[i]
    gone: cython.ulonglong = behind - i - 1
    k: cython.int
    if spans.jump and spans.jump_at == i:
        total -= spans.jump
    spans.place[i] = min(own, total) if gone else total
    total -= spans.place[i]
    for k in range(i + 1, behind):
        spans.place[k] = total // gone
        total -= spans.place[k]
        gone -= 1
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def find_spans(
    spans: cython.pointer(Spans), first: cython.int, last: cython.int, shift: cython.int
) -> cython.bint:
    """Turn the places of all entries into spans; False when they do not ascend."""
    usual: cython.ulonglong[3]
    i: cython.int = first
    behind: cython.int
    usual[SPAN_GONE] = 0
    usual[SPAN_PLAIN] = usual_rest(spans, first, last, SPAN_PLAIN, shift)
    usual[SPAN_PACKED] = usual_rest(spans, first, last, SPAN_PACKED, shift)
    if not find_jump(spans, first, last, usual, shift):
        return False
    while i < last:
        behind = i + 1
        while spans.state[behind] == SPAN_GONE:
            behind += 1
        share_out(spans, i, behind, own_span(spans, i, usual, shift))
        i = behind
    spans.place[last] = own_span(spans, last, usual, shift)
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fit_rests(
    spans: cython.pointer(Spans), first: cython.int, last: cython.int, shift: cython.int
) -> cython.bint:
    """Turn bodies into rests; False when one is longer than its span, or far shorter."""
    least: cython.ulonglong = SIZES_END
    most: cython.ulonglong = 0
    rest: cython.ulonglong
    i: cython.int
    for i in range(first, last + 1):
        if spans.state[i] != SPAN_GONE:
            rest = (spans.place[i] << shift) - spans.body[i]
            if rest >= SIZES_END:
                return False
            least, most = min(least, rest), max(most, rest)
            spans.body[i] = rest
    for i in range(SPAN_ENTRIES):
        spans.body[i] = spans.body[i] - least if spans.state[i] != SPAN_GONE else 0
    spans.rest_least = cython.cast(cython.uint, least)
    spans.rest_bits = width_of(most - least)
    return True


@cython.cfunc
@cython.nogil
@cython.cdivision(True)
@cython.exceptval(check=False)
def best_ratio(
    spans: cython.pointer(cython.const[Spans]), first: cython.int, last: cython.int
) -> cython.uint:
    """What a byte of a packed body says of the size, by least squares; 0 when nothing."""
    count: cython.double = 0
    x: cython.double = 0
    y: cython.double = 0
    xx: cython.double = 0
    xy: cython.double = 0
    i: cython.int
    for i in range(first, last + 1):
        if spans.state[i] == SPAN_PACKED:
            count += 1
            x += spans.body[i]
            y += spans.size[i]
            xx += cython.cast(cython.double, spans.body[i]) * spans.body[i]
            xy += cython.cast(cython.double, spans.body[i]) * spans.size[i]
    xx = count * xx - x * x
    xy = count * xy - x * y
    if xx <= 0 or xy <= 0 or xy / xx * (1 << RATIO_BITS) >= RATIO_MOST:
        return 0
    return cython.cast(cython.uint, xy / xx * (1 << RATIO_BITS))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def size_range(
    spans: cython.pointer(cython.const[Spans]),
    first: cython.int,
    last: cython.int,
    ratio: cython.ulonglong,
    lowest: cython.pointer(cython.longlong),
) -> cython.ulonglong:
    """How far sizes of packed entries are apart beyond what their bodies say, and the lowest."""
    least: cython.longlong = SIZES_END
    most: cython.longlong = -cython.cast(cython.longlong, SIZES_END)
    beyond: cython.longlong
    i: cython.int
    lowest[0] = 0
    for i in range(first, last + 1):
        if spans.state[i] == SPAN_PACKED:
            beyond = cython.cast(
                cython.longlong, spans.size[i] - ((spans.body[i] * ratio) >> RATIO_BITS)
            )
            least, most = min(least, beyond), max(most, beyond)
    if most < least:
        return 0
    lowest[0] = least
    return cython.cast(cython.ulonglong, most - least)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fit_sizes(
    spans: cython.pointer(Spans), first: cython.int, last: cython.int
) -> cython.bint:
    """Turn sizes of packed entries into what their bodies do not say, and one more where others
    are plain, which become 0. False when they are out of range. Bodies are not rests yet."""
    ratio: cython.uint = best_ratio(spans, first, last)
    least: cython.longlong = 0
    most: cython.ulonglong = size_range(spans, first, last, ratio, cython.address(least))
    flat: cython.longlong = 0
    apart: cython.ulonglong = size_range(spans, first, last, 0, cython.address(flat))
    packed: cython.bint = False
    said: cython.ulonglong
    i: cython.int
    spans.mixed = False
    for i in range(first, last + 1):
        packed = packed or spans.state[i] == SPAN_PACKED
        spans.mixed = spans.mixed or spans.state[i] == SPAN_PLAIN
    if width_of(apart) <= width_of(most):
        ratio, least, most = 0, flat, apart
    if least <= -cython.cast(cython.longlong, SIZES_END):
        return False
    for i in range(SPAN_ENTRIES):
        if spans.state[i] == SPAN_PACKED:
            said = (spans.body[i] * ratio) >> RATIO_BITS
            spans.size[i] += spans.mixed - said - cython.cast(cython.ulonglong, least)
        else:
            spans.size[i] = 0
    spans.ratio = ratio
    spans.size_least = cython.cast(cython.uint, SIZE_ZERO + least - spans.mixed)
    spans.size_bits = width_of(most + spans.mixed) if packed else 0
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fit_spans(
    spans: cython.pointer(Spans), first: cython.int, last: cython.int, shift: cython.int
) -> cython.bint:
    """Find spans, rests and sizes of what lies from `first` to `last`, the outermost entries that
    are there. `shift` is that of a place's unit. False when they do not say all."""
    begin: cython.ulonglong = spans.place[first]
    least: cython.ulonglong = SIZES_END
    most: cython.ulonglong = 0
    i: cython.int
    for i in range(first, last + 1):
        if spans.state[i] != SPAN_GONE and max(spans.body[i], spans.size[i]) >= SIZES_END:
            return False
    if not find_spans(spans, first, last, shift):
        return False
    for i in range(first, last + 1):
        least, most = min(least, spans.place[i]), max(most, spans.place[i])
    if most >= SIZES_END or not fit_sizes(spans, first, last):
        return False
    if not fit_rests(spans, first, last, shift):
        return False
    for i in range(SPAN_ENTRIES):
        spans.place[i] = spans.place[i] - least if first <= i <= last else 0
    spans.begin = begin - least * first
    spans.span_least = cython.cast(cython.uint, least)
    spans.span_bits = width_of(most - least)
    return spans.span_bits <= SPAN_WIDEST
