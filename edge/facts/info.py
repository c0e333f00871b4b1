"""INFO: what a node tells of itself (NATS client protocol, INFO fields)."""

import platform
from typing import Any

import msgspec

from headwater.edge.facts.version import API_LEVEL, GIT_COMMIT, NATS_LEVEL


class NodeFacts(msgspec.Struct, kw_only=True):
    """Facts that are the same for every connection of a node."""

    server_id: str
    server_name: str
    xkey: str = ""
    """Public key by which others may encrypt for the node."""
    host: str
    port: int
    max_payload: int
    headers: bool = True
    jetstream: bool = False
    domain: str = ""
    cluster: str = ""
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    auth_required: bool = False
    connect_urls: list[str] = []
    ws_connect_urls: list[str] = []
    """Told to WebSocket clients instead of `connect_urls`."""
    lame_duck: bool = False


ORDER = """
server_id server_name version proto git_commit go host port headers auth_required tls_required
tls_verify tls_available max_payload jetstream client_id client_ip nonce cluster domain connect_urls
ldm compression connect_info remote_account acc_is_sys api_lvl info_on_connect leafnode_urls xkey
"""
PLACES = {name: place for place, name in enumerate(ORDER.split())}
"""Where fields stand in INFO, as nats-server writes them."""


def identity_fields(facts: NodeFacts) -> dict[str, Any]:
    """What INFO and the page of the node both begin with: who it is, and where it listens. There
    are clients that refuse an INFO with a field that nats-server's does not have."""
    commit = {"git_commit": GIT_COMMIT} if GIT_COMMIT else {}
    return {
        "server_id": facts.server_id,
        "server_name": facts.server_name,
        "version": NATS_LEVEL,
        "proto": 1,
        **commit,
        "go": f"python{platform.python_version()}",
        "host": facts.host,
        "port": facts.port,
    }


def info_fields(facts: NodeFacts, *, cid: int, client_ip: str, nonce: str = "") -> dict[str, Any]:
    """Fields of the INFO that a new connection gets."""
    fields: dict[str, Any] = {
        **identity_fields(facts),
        "headers": facts.headers,
        "max_payload": facts.max_payload,
        "client_id": cid,
        "client_ip": client_ip,
        "api_lvl": API_LEVEL,
    }
    optional = {
        "jetstream": facts.jetstream,
        "domain": facts.domain,
        "cluster": facts.cluster,
        "auth_required": facts.auth_required,
        "tls_required": facts.tls_required,
        "tls_verify": facts.tls_verify,
        "tls_available": facts.tls_available,
        "nonce": nonce,
        "connect_urls": facts.connect_urls,
        "ldm": facts.lame_duck,
        "xkey": facts.xkey,
    }
    fields.update({key: value for key, value in optional.items() if value})
    return fields


def place_of(name: str) -> int:
    """Where a field stands; those that NATS does not know are last."""
    return PLACES.get(name, len(PLACES))


def info_line(fields: dict[str, Any]) -> bytes:
    """The protocol line for `fields`."""
    ordered = {name: fields[name] for name in sorted(fields, key=place_of)}
    return b"INFO " + msgspec.json.encode(ordered) + b" \r\n"
