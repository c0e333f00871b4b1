"""Sinks of the JetStream API: the router's, the domain's alias, and the fast path of KV reads.

`$JS.API.>` overlaps with what consumers and direct gets listen on themselves; the router's sink
leaves those subjects alone, so that a request nobody serves is answered as such.
"""

import cython
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.kernel.kernel import CallbackSink, Endpoint, Msg, Sink
from cython.cimports.libc.string import memcmp, memcpy

API_LEN = cython.declare(cython.Py_ssize_t, 8)
# Longest subject that is rewritten without a heap allocation; longer ones are not served.
SUBJECT_MAX = cython.declare(cython.Py_ssize_t, 4096)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def starts(
    text: cython.p_const_uchar,
    n: cython.Py_ssize_t,
    prefix: cython.p_const_char,
    prefix_len: cython.Py_ssize_t,
) -> cython.bint:
    return n >= prefix_len and memcmp(text, prefix, prefix_len) == 0


@cython.cclass
class ApiSink(CallbackSink):
    """Hands API requests to the router, but for pulls, direct gets and block reads."""

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """1 when the request is the router's; an owner of its own serves the others."""
        tail: cython.p_const_uchar = m.subject + API_LEN
        n: cython.Py_ssize_t = m.subject_len - API_LEN
        if (
            starts(tail, n, b"CONSUMER.MSG.NEXT.", 18)
            or starts(tail, n, b"DIRECT.GET.", 11)
            or starts(tail, n, b"BLOCK.GET.", 10)
        ):
            return 0
        return CallbackSink.deliver(self, m, sender)


@cython.cclass
class DomainSink(Sink):
    """Routes `$JS.<domain>.API.X` on as `$JS.API.X`, and `...API.$KV.X` as `$KV.X`."""

    def __init__(self, account: Account, domain: str):
        prefix = f"$JS.{domain}.API.".encode()
        Sink.__init__(self, prefix + b">", None)
        self.account = account
        self.prefix_len = len(prefix)
        account.domain_prefix = prefix

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """1 when somebody took the message under its other name."""
        copy: Msg = m[0]
        text: cython.uchar[4104]
        tail: cython.p_const_uchar = m.subject + self.prefix_len
        n: cython.Py_ssize_t = m.subject_len - self.prefix_len
        if self.closed or n <= 0 or n > SUBJECT_MAX:
            return 0
        if starts(tail, n, b"$KV.", 4) or starts(tail, n, b"$OBJ.", 5):
            copy.subject = tail
            copy.subject_len = n
        elif starts(tail, n, b"CONSUMER.MSG.NEXT.", 18):
            return 0
        else:
            memcpy(cython.address(text[0]), cython.cast(cython.p_const_char, b"$JS.API."), API_LEN)
            memcpy(cython.address(text[API_LEN]), tail, n)
            copy.subject = cython.address(text[0])
            copy.subject_len = n + API_LEN
        return 1 if self.account.publish(cython.address(copy), sender) > 0 else 0
