"""Sinks that take messages for a stream which nobody leads at the moment, and how such a message is
given to the sinks of the node that leads it next."""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.headwater.edge.kernel.kernel import (
    FROM_PEER,
    CallbackSink,
    Endpoint,
    Msg,
    Sink,
)
from cython.cimports.headwater.hub.routes.route_conn import RouteConn


@cython.cclass
class HoldingSink(CallbackSink):
    """A sink whose callback says whether it has the message now, or leaves it (False).

    What comes by a route is for the node that sent it: it holds that itself. Only routes in
    `senders` do not, as far as is known. Other nodes are not told of the sink.
    """

    senders = cython.declare(set, visibility="public")

    def __init__(self, subject: bytes, callback: object, senders: set):
        CallbackSink.__init__(self, subject, callback)
        self.senders = senders
        self.interim = True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Hold a message; 0 when it is not held, so that its sender hears that nobody listens."""
        if isinstance(sender, RouteConn) and sender not in self.senders:
            return 0
        return CallbackSink.deliver(self, m, sender)


@cython.ccall
def hand_to(
    sink: Sink,
    subject: bytes,
    reply: bytes,
    headers: bytes,
    payload: bytes,
    sender: Endpoint = None,
) -> cython.bint:
    """Deliver a message to one sink of this node, as if it had just come by a route, `sender` where
    the sink asks for that; whether it took it. `headers` is a whole block or empty."""
    m: Msg
    m.via = FROM_PEER
    body: bytes = headers + payload if headers else payload
    m.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject))
    m.subject_len = PyBytes_GET_SIZE(subject)
    m.reply = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(reply))
    m.reply_len = PyBytes_GET_SIZE(reply)
    m.shown = m.subject
    m.shown_len = 0
    m.body = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(body))
    m.header_len = PyBytes_GET_SIZE(headers)
    m.size = PyBytes_GET_SIZE(body)
    return sink.deliver(cython.address(m), sender) > 0
