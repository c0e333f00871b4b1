"""Sinks of the JetStream API: the router's, the domain's alias, and the fast path of KV reads.

`$JS.API.>` overlaps with what consumers and direct gets listen on themselves; the router's sink
leaves those subjects alone, so that a request nobody serves is answered as such.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.kernel.kernel import CallbackSink, Endpoint, Msg, Sink
from cython.cimports.libc.string import memcmp

API_LEN = cython.declare(cython.Py_ssize_t, 8)


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
            or starts(tail, n, b"DIRECT.GET", 10)
            or starts(tail, n, b"BLOCK.GET.", 10)
        ):
            return 0
        return CallbackSink.deliver(self, m, sender)


@cython.cclass
class DomainSink(Sink):
    """The alias of an account's JetStream: `$JS.<domain>.API.X` is `$JS.API.X`, and
    `...API.$KV.X` is `$KV.X`.

    What clients and links publish is mapped when it comes in (`Account.mapped`). The sink tells
    links that such subjects are wanted here, and takes what the node itself sends to them.
    """

    def __init__(self, account: Account, domain: str):
        Sink.__init__(self, f"$JS.{domain}.API.>".encode(), None)
        self.account = account

    def listen(self) -> None:
        """Begin to stand for the API."""
        self.account.domain_prefix = self.subject.removesuffix(b">")
        self.account.insert(self)

    def stop(self) -> None:
        """The account has no such alias any more."""
        self.account.domain_prefix = None
        self.account.remove(self)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """1 when somebody took the message under its other name."""
        copy: Msg = m[0]
        asked: bytes = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, m.subject), m.subject_len
        )
        served: bytes = self.account.served_as(asked)
        if self.closed or served is asked:
            return 0
        copy.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(served))
        copy.subject_len = PyBytes_GET_SIZE(served)
        return 1 if self.account.publish(cython.address(copy), sender) > 0 else 0
