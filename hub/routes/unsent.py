"""What a turn has queued for clients and not sent: it can be held back until it is known whether it
may go."""

import re

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.headwater.edge.broker.output import Output
from cython.cimports.headwater.edge.kernel.kernel import KIND_CLIENT, Kernel

DELIVERED = re.compile(rb"\$JS\.ACK\.([^. \r\n]+)\.")
"""In front of each delivery stands where its ack goes, which names the stream."""


def unsent_streams(output: Output) -> set[str]:
    """Streams of which deliveries are queued for a client, as far as what is queued says."""
    queued: bytes = PyBytes_FromStringAndSize(
        cython.cast(cython.p_char, output.out + output.out_start),
        output.out_end - output.out_start,
    )
    return {name.decode("utf-8", "replace") for name in DELIVERED.findall(queued)}


def hold_deliveries(kernel: Kernel) -> list[tuple[Output, set[str]]]:
    """Have each client that this turn sends deliveries of streams send nothing until `send_again`
    or its end; and the names of these streams, as far as what is queued says."""
    found: list = []
    output: Output
    names: set
    for item in kernel.dirty:
        if not isinstance(item, Output) or item.kind != KIND_CLIENT:
            continue
        output = item
        if output.closed or output.fd < 0 or output.last_words is not None:
            continue
        names = unsent_streams(output)
        if not names:
            continue
        if output.writing:
            output.loop.remove_writer(output.fd)
        output.writing = True
        found.append((output, names))
    return found


def send_again(kernel: Kernel, output: Output) -> None:
    """Send what was held back, and what was queued behind it."""
    if not output.closed:
        output.writing = False
        kernel.queue_send(output)
        kernel.kick()
