"""Addresses of peers, as logs and monitoring show them."""

from typing import Any

MAPPED = "::ffff:"


def plain_address(address: tuple[Any, ...]) -> tuple[Any, ...]:
    """A peer's address, with IPv4 as such: a dual-stack socket shows it mapped into IPv6."""
    host = address[0]
    if host.startswith(MAPPED) and "." in host:
        return (host.removeprefix(MAPPED), address[1])
    return address
