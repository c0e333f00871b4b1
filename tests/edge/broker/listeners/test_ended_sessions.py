"""What is left to say to a peer whose TLS session is over."""

import ssl
from pathlib import Path

import pytest

from headwater.edge.broker.listeners.tls_filter import TLSFilter
from headwater.security.tls.contexts import client_context, server_context
from tests.certificates import certificate


def sessions(folder: Path) -> tuple[TLSFilter, TLSFilter]:
    """Both ends of a session whose handshake is done."""
    made = certificate(folder)
    near = TLSFilter(
        client_context(ca_file=made.cert_file), server_side=False, server_hostname="127.0.0.1"
    )
    far = TLSFilter(server_context([(made.cert_file, made.key_file)]))
    words = near.send(b"")
    while words or not (near.ready and far.ready):
        far.receive(words)
        near.receive(far.send(b""))
        words = near.send(b"")
    return near, far


@pytest.mark.parametrize("bit", [1, 128])
def test_a_flipped_bit_ends_both_ends_quietly(tmp_path: Path, bit: int) -> None:
    """The end that reads it says so in an alert. Neither fails at what waits to be sent."""
    near, far = sessions(tmp_path)
    assert far.receive(near.send(b"hello")) == b"hello"
    record = bytearray(near.send(b"telemetry"))
    record[-1] ^= bit
    with pytest.raises(ConnectionError) as read:
        far.receive(bytes(record))
    assert isinstance(read.value.__cause__, ssl.SSLError)
    alert = far.send(b"what the far end had to say")
    with pytest.raises(ConnectionError) as heard:
        near.receive(alert)
    assert "BAD_RECORD_MAC" in str(heard.value.__cause__)
    assert near.send(b"what the near end had to say") == b""
    assert far.send(b"more") == b""


def test_a_session_that_was_closed_takes_no_more(tmp_path: Path) -> None:
    near, far = sessions(tmp_path)
    with pytest.raises(ssl.SSLWantReadError):
        near.tls.unwrap()
    with pytest.raises(ConnectionError, match="Client Closed"):
        far.receive(near.send(b""))
    far.send(b"too late")
    assert far.send(b"and later") == b""
