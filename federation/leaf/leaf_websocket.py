"""Leaf links through WebSockets: the side that dials.

Links that have to look like web traffic pass proxies and firewalls this way. RFC 6455 §4; NATS asks
for the path `/leafnode`, behind the path of the URL if that has one.
"""

import base64

import h11
from wsproto.utilities import generate_accept_token

from headwater.edge.websocket.paths import LEAF_PATH
from headwater.edge.websocket.websocket_filter import WebSocketFilter
from headwater.edge.websocket.websocket_request import DEFLATE_ANSWER
from headwater.federation.dialling.credentials import LeafUrl

ANSWER_HEAD_MAX = 64 * 1024
"""Bytes of the head of a hub's answer."""
UNTOLD = -1
"""What a dialled peer may send before the login is bounded by the connection alone."""


class DialledWebSocket:
    """Stands between a link and its wire: asks for the upgrade, then passes frames.

    Nothing but the request leaves before the peer has agreed.
    """

    def __init__(
        self,
        url: LeafUrl,
        key: bytes,
        *,
        deflate: bool,
        max_payload: int,
    ) -> None:
        """`key` is 16 random bytes; with `deflate` the link offers permessage-deflate."""
        self._key = base64.b64encode(key)
        self._offers = deflate
        self._max_payload = max_payload
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=ANSWER_HEAD_MAX)
        self._request = self._http.send(self._asking(url)) or b""
        self._held = bytearray()
        self._frames: WebSocketFilter | None = None

    def _asking(self, url: LeafUrl) -> h11.Request:
        host = f"[{url.host}]" if ":" in url.host else url.host
        headers = [
            ("Host", f"{host}:{url.port}"),
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Key", self._key.decode()),
            ("Sec-WebSocket-Version", "13"),
        ]
        if self._offers:
            headers.append(("Sec-WebSocket-Extensions", DEFLATE_ANSWER))
        return h11.Request(method="GET", target=url.path.rstrip("/") + LEAF_PATH, headers=headers)

    @property
    def deflates(self) -> bool:
        """As of WebSocketFilter."""
        return self._frames is not None and self._frames.deflates

    @property
    def more(self) -> bool:
        """As of WebSocketFilter."""
        return self._frames is not None and self._frames.more

    def receive(self, data: bytes) -> bytes:
        """Protocol bytes in what came. Raises ConnectionError."""
        if self._frames is None:
            data = self._answered(data)
        return self._frames.receive(data) if self._frames is not None else b""

    def _answered(self, data: bytes) -> bytes:
        """Read on in the answer; what follows it. Raises ConnectionError."""
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise ConnectionError(f"the hub answers no HTTP: {error}") from error
        if event is h11.NEED_DATA:
            return b""
        if not isinstance(event, h11.InformationalResponse) or event.status_code != 101:
            said = f"{event.status_code}" if isinstance(event, h11.Response) else "an end"
            raise ConnectionError(f"the hub refuses a WebSocket with {said}")
        headers = {name.lower(): value for name, value in event.headers}
        if headers.get(b"sec-websocket-accept") != generate_accept_token(self._key):
            raise ConnectionError("the hub's answer does not fit the WebSocket's key")
        extension = headers.get(b"sec-websocket-extensions", b"").split(b";")[0].strip()
        if extension and (extension != b"permessage-deflate" or not self._offers):
            raise ConnectionError("the hub wants a WebSocket extension that was not offered")
        self._frames = WebSocketFilter(server_side=False, compression=bool(extension))
        self._frames.bound(self._max_payload, UNTOLD)
        rest: bytes = self._http.trailing_data[0]
        return rest

    def send(self, data: bytes) -> bytes:
        """Bytes for the wire."""
        if self._frames is None:
            self._held += data
            request, self._request = self._request, b""
            return request
        data = bytes(self._held) + data
        self._held.clear()
        return self._frames.send(data)

    def prove(self) -> None:
        """The login has succeeded."""
        if self._frames is not None:
            self._frames.prove()

    def finish(self, reason: str) -> None:
        """The link ends."""
        if self._frames is not None:
            self._frames.finish(reason)
