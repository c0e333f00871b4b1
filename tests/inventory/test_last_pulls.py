"""Section 3.2: who waits for messages when a server is told to stop hears that it stops."""

import json
import signal

from tests.inventory.both import Both, Line

CONFIG = 'server_name: N\njetstream { store_dir: "{dir}" }\n'
FREE = b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'


def request(subject: str, reply: str, body: object) -> bytes:
    """The frame of a request."""
    text = json.dumps(body).encode()
    return b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), reply.encode(), len(text), text)


def test_who_waits_is_told_of_the_end() -> None:
    told = []
    with Both(CONFIG) as both:
        for server in both.servers:
            line = Line(server.port)
            line.asked(FREE + b"SUB made 1\r\nSUB pulled 2\r\n")
            stream = {"name": "S", "subjects": ["s"]}
            consumer = {"durable_name": "C", "ack_policy": "explicit"}
            line.send(request("$JS.API.STREAM.CREATE.S", "made", stream))
            assert line.reader.readline().startswith(b"MSG made 1 ")
            line.reader.readline()
            body = {"stream_name": "S", "config": consumer}
            line.send(request("$JS.API.CONSUMER.DURABLE.CREATE.S.C", "made", body))
            assert line.reader.readline().startswith(b"MSG made 1 ")
            line.reader.readline()
            pull = {"batch": 3, "expires": 60_000_000_000}
            assert line.asked(request("$JS.API.CONSUMER.MSG.NEXT.S.C", "pulled", pull)) == ["PONG"]
            server.signal(signal.SIGTERM)
            told.append(line.heard())
    assert told[0] == told[1]
    assert "NATS/1.0 409 Server Shutdown" in told[0]
