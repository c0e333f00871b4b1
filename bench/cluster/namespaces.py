"""Nodes in network namespaces of their own, joined by a bridge that links can be cut from."""

import os
import subprocess
from types import TracebackType
from typing import Self


class NoNamespaces(Exception):
    """This process may not make network namespaces, or the machine has no tools for them."""


def ip(*words: str) -> None:
    """Run `ip`, or another program of iproute2. Raises NoNamespaces."""
    try:
        subprocess.run(words, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        told = getattr(error, "stderr", b"") or b""
        raise NoNamespaces(f"{' '.join(words)}: {told.decode().strip() or error}") from error


class Namespaces:
    """A context manager that makes `size` namespaces and removes them; this process reaches the
    nodes at `addresses`."""

    def __init__(self, size: int) -> None:
        self.tag = f"hw{os.getpid() % 100_000}"
        part = os.getpid() % 200 + 20
        self.net = f"10.231.{part}"
        self.addresses = [f"{self.net}.{index + 2}" for index in range(size)]

    def __enter__(self) -> Self:
        try:
            ip("ip", "link", "add", self.tag, "type", "bridge")
            ip("ip", "addr", "add", f"{self.net}.1/24", "dev", self.tag)
            ip("ip", "link", "set", self.tag, "up")
            for index, address in enumerate(self.addresses):
                self._make(index, address)
        except BaseException:
            self.close()
            raise
        return self

    def _make(self, index: int, address: str) -> None:
        space, link = self.space(index), self.link(index)
        ip("ip", "netns", "add", space)
        ip("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
        ip("ip", "link", "set", link, "master", self.tag, "up")
        ip(*self.inside(index), "ip", "addr", "add", f"{address}/24", "dev", "eth0")
        ip(*self.inside(index), "ip", "link", "set", "eth0", "up")
        ip(*self.inside(index), "ip", "link", "set", "lo", "up")

    def space(self, index: int) -> str:
        """A namespace's name."""
        return f"{self.tag}n{index}"

    def link(self, index: int) -> str:
        """The bridge's end of a node's link."""
        return f"{self.tag}v{index}"

    def inside(self, index: int) -> list[str]:
        """Words before a command that is to run in a namespace."""
        return ["ip", "netns", "exec", self.space(index)]

    def cut(self, index: int) -> None:
        """Nothing comes to a node or from it."""
        ip("ip", "link", "set", self.link(index), "down")

    def mute(self, index: int) -> None:
        """What a node sends is lost; it hears the others."""
        ip(
            *self.inside(index),
            "tc",
            "qdisc",
            "add",
            "dev",
            "eth0",
            "root",
            "tbf",
            "rate",
            "8bit",
            "burst",
            "1",
            "limit",
            "1",
        )

    def mend(self, index: int) -> None:
        """The link is whole."""
        ip("ip", "link", "set", self.link(index), "up")
        subprocess.run(
            [*self.inside(index), "tc", "qdisc", "del", "dev", "eth0", "root"],
            check=False,
            capture_output=True,
        )

    def close(self) -> None:
        """Remove everything."""
        for index in range(len(self.addresses)):
            # A namespace goes when its last process has; its end of the link must not wait.
            subprocess.run(
                ["ip", "link", "del", self.link(index)], check=False, capture_output=True
            )
            subprocess.run(
                ["ip", "netns", "del", self.space(index)], check=False, capture_output=True
            )
        subprocess.run(["ip", "link", "del", self.tag], check=False, capture_output=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
