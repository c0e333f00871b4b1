"""Dialling through an HTTP proxy: the CONNECT method of RFC 9110 §9.3.6.

Gateways behind a company's proxy or a managed modem reach their hub this way.
"""

import asyncio
import base64
import socket
from urllib.parse import urlsplit

HEAD_BYTES_MAX = 8192
"""Longest answer of a proxy; anything longer is no proxy."""


def proxy_address(url: str) -> tuple[str, int]:
    """Host and port of a proxy's URL. Raises OSError when it is none."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise OSError(f"proxy {url!r} is not like http://host:port")
    return parts.hostname, parts.port or 80


async def ask_proxy(
    loop: asyncio.AbstractEventLoop,
    sock: socket.socket,
    host: str,
    port: int,
    user: str = "",
    password: str = "",
) -> None:
    """Have the proxy at the other end of `sock` connect to `host`:`port`. Raises OSError."""
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if user:
        secret = base64.b64encode(f"{user}:{password}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {secret}")
    await loop.sock_sendall(sock, ("\r\n".join(lines) + "\r\n\r\n").encode())
    head = b""
    # One byte at a time, so that nothing of what follows the answer is taken.
    while not head.endswith(b"\r\n\r\n"):
        part = await loop.sock_recv(sock, 1)
        if not part or len(head) >= HEAD_BYTES_MAX:
            raise OSError("the proxy ended the connection")
        head += part
    status = head.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(status) < 2 or status[1] != b"200":
        raise OSError(f"the proxy refused: {b' '.join(status[1:]).decode('latin-1')}")
