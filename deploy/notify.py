"""What systemd is told of a node: `Type=notify` units (sd_notify(3)), without a library."""

import os
import socket


class Notifier:
    """Sends states to NOTIFY_SOCKET; does nothing where there is none."""

    def __init__(self, address: str | None = None) -> None:
        given = os.environ.get("NOTIFY_SOCKET", "") if address is None else address
        self.address = "\0" + given[1:] if given.startswith("@") else given

    def send(self, **fields: str | int) -> None:
        """One notification, such as READY=1 with STATUS=...; never blocks, never fails."""
        if not self.address:
            return
        text = "\n".join(f"{name}={value}" for name, value in fields.items())
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            try:
                sock.sendto(text.encode(), self.address)
            except OSError:
                return
