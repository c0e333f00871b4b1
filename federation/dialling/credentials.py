"""What a soliciting side presents: creds file, NKey seed, user and password, or token."""

import base64
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from headwater.edge.conf.options import DEFAULT_LEAF_PORT, LeafRemoteOptions
from headwater.security import creds, nkeys
from headwater.security.errors import SecurityError


class LeafUrl(msgspec.Struct, frozen=True, kw_only=True):
    """One address of a hub, taken apart."""

    text: str
    """The URL without its user and password, for logs."""
    scheme: str
    host: str
    port: int
    path: str = ""
    """Of a WebSocket's URL."""
    user: str = ""
    password: str = ""
    found: bool = False
    """Whether discovery brought it: whoever answers there has to prove to be a hub."""

    @property
    def websocket(self) -> bool:
        """Whether the link goes through a WebSocket."""
        return self.scheme in ("ws", "wss")

    @property
    def secure(self) -> bool:
        """Whether the scheme asks for TLS."""
        return self.scheme in ("tls", "wss")


def parse_url(url: str) -> LeafUrl:
    """Take a leaf URL apart; the port defaults to 7422. Raises ValueError."""
    parts = urlsplit(url if "://" in url else f"nats-leaf://{url}")
    if not parts.hostname:
        raise ValueError(f"leaf URL {url!r} names no host")
    port = parts.port or DEFAULT_LEAF_PORT
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return LeafUrl(
        text=f"{parts.scheme}://{host}:{port}",
        scheme=parts.scheme,
        host=parts.hostname,
        port=port,
        path=parts.path,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )


def credential_fields(remote: LeafRemoteOptions, url: LeafUrl, nonce: str) -> dict[str, Any]:
    """CONNECT fields that prove who is dialling. Raises SecurityError."""
    fields: dict[str, Any] = {}
    if remote.credentials:
        found = creds.read(remote.credentials)
        fields["jwt"] = found.token
        fields["sig"] = _sign(found.key_pair(), nonce)
    elif remote.nkey:
        pair = _pair(remote.nkey)
        fields["nkey"] = pair.public_key
        fields["sig"] = _sign(pair, nonce)
    if url.user:
        fields["user"] = url.user
        fields["pass"] = url.password
        if not url.password:
            fields["auth_token"] = url.user
    return fields


def _pair(seed_or_path: str) -> nkeys.KeyPair:
    if seed_or_path.startswith("SU"):
        return nkeys.KeyPair.from_seed(seed_or_path)
    return creds.read(seed_or_path).key_pair()


def _sign(pair: nkeys.KeyPair, nonce: str) -> str:
    if not nonce:
        raise SecurityError("the hub offers no nonce to sign")
    return base64.urlsafe_b64encode(pair.sign(nonce.encode())).decode().rstrip("=")
