"""Leaf links through WebSockets, with a nats-server at either end."""

import asyncio
import json
import os
import urllib.request
from typing import Any

import pytest
from nats.js.api import ExternalStream, StreamConfig, StreamSource

from headwater.federation.dialling.credentials import parse_url
from headwater.federation.leaf.leaf_websocket import DialledWebSocket
from tests.federation.lab import Lab, RealServer, free_port, leaf_service
from tests.federation.leaf.test_leaf_tls import certificate
from tests.waiting import until

HUB = """
jetstream {{ store_dir: "{{store}}", domain: hub }}
http: "127.0.0.1:{http}"
leafnodes {{ listen: "127.0.0.1:{leaf}", {compression} }}
websocket {{ listen: "127.0.0.1:{port}", {hub_tls}, compression: {deflate} }}
authorization {{ user: u, password: secret }}
"""
EDGE = """
jetstream {{ store_dir: "{{store}}", domain: edge }}
leafnodes {{ {compression}, reconnect: 1, remotes [ {{
  url: "{url}", ws_compression: {deflate}, ws_no_masking: {unmasked}, {compression} {edge_tls}
}} ] }}
"""
PAIRS = [("real", "headwater"), ("headwater", "real"), ("headwater", "headwater")]
WAYS = ["ws", "ws-deflate", "ws-s2", "ws-deflate-s2", "ws-unmasked", "wss", "wss-deflate", "wss-s2"]


async def pair(lab: Lab, hub: str, edge: str, way: str) -> tuple[RealServer, RealServer, int]:
    """A hub and an edge that are linked by a WebSocket, and the hub's monitoring port."""
    port = free_port()
    hub_tls, edge_tls = "no_tls: true", ""
    if way.startswith("wss"):
        certificate(lab.directory)
        made = lab.directory / "cert.pem"
        hub_tls = f'tls {{ cert_file: "{made}", key_file: "{lab.directory / "key.pem"}" }}'
        edge_tls = f', tls {{ ca_file: "{made}" }}'
    values: dict[str, Any] = {
        "http": free_port(),
        "port": port, "leaf": free_port(), "hub_tls": hub_tls, "edge_tls": edge_tls,
        "deflate": str("deflate" in way).lower(), "unmasked": str("unmasked" in way).lower(),
        "compression": 'compression: "s2_fast"' if "s2" in way else 'compression: "off"',
        "url": f"{way.partition('-')[0]}://u:secret@127.0.0.1:{port}",
    }  # fmt: skip
    above = await lab.real(HUB.format(**values), name="hub", program=hub)
    below = await lab.real(EDGE.format(**values), name="edge", program=edge)
    return above, below, values["http"]


def compression(port: int) -> str:
    """What the hub does to what it sends to its edge."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/leafz") as answer:
        (link,) = json.load(answer)["leafs"]
    return str(link["compression"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("hub", "edge"), PAIRS, ids=["-".join(each) for each in PAIRS])
async def test_messages_and_mirrors_pass(lab: Lab, hub: str, edge: str, way: str) -> None:
    above, below, monitor = await pair(lab, hub, edge, way)
    upper = await lab.client(above.port, user="u", password="secret")
    lower = await lab.client(below.port)
    big = os.urandom(300_000)

    async def linked() -> bool:
        try:
            await lower.jetstream(domain="hub").account_info()
        except Exception:
            return False
        return True

    await until(linked, f"the link is up: {above.log} {below.log}", 40)
    await upper.jetstream().add_stream(name="S", subjects=["s"])
    for number in range(100):
        await upper.jetstream().publish("s", b"telemetry %d " % number * 20)
    await upper.jetstream().publish("s", big)
    origin = StreamSource(name="S", external=ExternalStream(api="$JS.hub.API"))
    await lower.jetstream().add_stream(StreamConfig(name="COPY", mirror=origin))

    async def copied() -> bool:
        return bool((await lower.jetstream().stream_info("COPY")).state.messages == 101)

    await until(copied, f"the mirror has everything: {above.log} {below.log}", 40)
    assert (await lower.jetstream().get_msg("COPY", 101)).data == big

    async def answer(message: Any) -> None:
        await message.respond(message.data)

    await lower.subscribe("echo", cb=answer)
    await lower.flush()

    async def echoed() -> bool:
        try:
            return (await upper.request("echo", big, timeout=2)).data == big
        except Exception:
            return False

    await until(echoed, "an answer comes back")
    mode = await asyncio.to_thread(compression, monitor)
    s2 = "s2" in way and "deflate" not in way
    assert mode == "s2_fast" if s2 else mode in ("off", "not supported")


@pytest.mark.parametrize("scheme", ["ws", "wss"])
async def test_a_hub_with_another_key_hears_no_word(lab: Lab, scheme: str) -> None:
    """With `hub_pins` TLS comes first, even where the URL does not ask for it."""
    port = free_port()
    certificate(lab.directory)
    files = f'cert_file: "{lab.directory / "cert.pem"}", key_file: "{lab.directory / "key.pem"}"'
    hub = await lab.real(
        f'leafnodes {{ listen: "127.0.0.1:{free_port()}" }}\n'
        f'websocket {{ listen: "127.0.0.1:{port}", tls {{ {files} }} }}'
    )
    edge = await lab.node(
        f'leafnodes {{ reconnect: 1, remotes [ {{ url: "{scheme}://u:secret@127.0.0.1:{port}", '
        f'hub_pins: ["{"0" * 64}"] }} ] }}'
    )
    (remote,) = leaf_service(edge).remotes
    await until(lambda: "Pinned Certificate" in remote.last_error, "the hub is refused")
    assert remote.connects == 0
    assert "lid_ws" not in hub.text()


ANSWER = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
FITS = b"Sec-WebSocket-Accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\r\n"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "refuses a WebSocket with 404"),
        (b"INFO {}\r\n\r\n", "answers no HTTP"),
        (ANSWER + b"\r\n", "does not fit"),
        (ANSWER + FITS + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n", "not offered"),
        (b"HTTP/1.1 101 " + b"x" * 80_000, "answers no HTTP"),
    ],
)
def test_answers_that_are_no_upgrade(answer: bytes, words: str) -> None:
    url = parse_url("ws://edge:secret@hub.example:443/plant/7/")
    link = DialledWebSocket(
        url, bytes(16), deflate=False, max_payload=1 << 20
    )
    asked = link.send(b"CONNECT with a secret")
    assert asked.startswith(b"GET /plant/7/leafnode HTTP/1.1\r\n")
    assert b"Host: hub.example:443\r\n" in asked
    assert b"secret" not in asked
    with pytest.raises(ConnectionError, match=words):
        link.receive(answer)


def test_frames_follow_the_answer_in_any_pieces() -> None:
    link = DialledWebSocket(parse_url("ws://hub"), bytes(16), deflate=False, max_payload=1 << 20)
    link.send(b"held")
    came = b"".join(
        link.receive(bytes([byte])) for byte in ANSWER + FITS + b"\r\n" + b"\x82\x05INFO "
    )
    assert came == b"INFO "
    assert link.send(b"")[0] == 0x82
