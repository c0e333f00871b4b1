"""Connections that a proxy vouches for by signing the nonce; the same on both servers."""

import base64
import json
import os
import signal
import urllib.request
from pathlib import Path

import pytest

from bench.servers import Recipe, Server, free_port, program
from headwater.security.nkeys import KeyPair
from tests.operator_realm import SERVERS, Raw, Realm, recipe

REFUSED = "-ERR 'Authorization Violation'"


def signed(raw: Raw, pair: KeyPair) -> str:
    signature = pair.sign(raw.info["nonce"].encode())
    return base64.urlsafe_b64encode(signature).decode().rstrip("=")


def closed_reasons(monitor: int) -> list[str]:
    url = f"http://127.0.0.1:{monitor}/connz?state=closed"
    with urllib.request.urlopen(url, timeout=5) as page:
        return [row["reason"] for row in json.load(page)["connections"]]


def test_a_user_that_needs_a_proxy(both: tuple[str, Path]) -> None:
    name, directory = both
    proxy, other = KeyPair.create("U"), KeyPair.create("U")
    monitor = free_port()
    path = directory / "server.conf"
    text = f"""
      http: "127.0.0.1:{monitor}"
      authorization {{ users: [ {{user: held, password: p, proxy_required: true}},
                               {{user: free, password: p}} ] }}
      proxies {{ trusted: [ {{key: {proxy.public_key}}}%s ] }}
    """
    path.write_text(text % f", {{key: {other.public_key}}}")
    command = (program(name), "serve") if name == "headwater" else (program(name),)
    start = Recipe(name, (*command, "-c", str(path), "-a", "127.0.0.1", "-p", "{port}"))
    stranger = KeyPair.create("U")
    with Server(start) as server:
        kept, lost = Raw(server.port), Raw(server.port)
        assert kept.login(user="held", **{"pass": "p"}, proxy_sig=signed(kept, proxy)) == []
        assert lost.login(user="held", **{"pass": "p"}, proxy_sig=signed(lost, other)) == []
        with Raw(server.port) as raw:
            assert raw.login(user="free", **{"pass": "p"}) == []
        for user, signer in (("held", None), ("held", stranger), ("free", stranger)):
            with Raw(server.port) as raw:
                more = {} if signer is None else {"proxy_sig": signed(raw, signer)}
                assert raw.login(user=user, **{"pass": "p"}, **more) == [REFUSED]
        reasons = closed_reasons(monitor)
        assert reasons[-3:] == ["Proxy Required", "Proxy Not Trusted", "Proxy Not Trusted"]
        with urllib.request.urlopen(f"http://127.0.0.1:{monitor}/connz", timeout=5) as page:
            shown = [row.get("proxy") for row in json.load(page)["connections"]]
        assert shown == [{"key": proxy.public_key}, {"key": other.public_key}]
        with urllib.request.urlopen(f"http://127.0.0.1:{monitor}/varz", timeout=5) as page:
            trusted = json.load(page)["proxies"]["trusted"]
        assert trusted == [{"key": proxy.public_key}, {"key": other.public_key}]
        path.write_text(text % "")
        os.kill(server.pid, signal.SIGHUP)
        assert lost.rest()[-1:] in ([REFUSED], ["-ERR 'proxy is not trusted'"], [])
        assert kept.send() == []
        kept.close()


@pytest.mark.parametrize("name", SERVERS)
def test_a_token_that_needs_a_proxy(name: str) -> None:
    realm, proxy = Realm(), KeyPair.create("U")
    config = realm.config(f"proxies {{ trusted: [ {{key: {proxy.public_key}}} ] }}")
    user = realm.user("A", proxy_required=True)
    with Server(recipe(name, config)) as server:
        with Raw(server.port) as raw:
            assert raw.login(user) == [REFUSED]
        with Raw(server.port) as raw:
            assert raw.login(user, proxy_sig=signed(raw, proxy)) == []


@pytest.fixture(params=SERVERS)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    return request.param, tmp_path


@pytest.mark.parametrize("name", SERVERS)
def test_a_leaf_that_needs_a_proxy(name: str) -> None:
    proxy = KeyPair.create("U")
    port = free_port()
    config = f"""
      leafnodes {{ listen: "127.0.0.1:{port}"
        authorization {{ user: l, password: p, proxy_required: true }} }}
      proxies {{ trusted: [ {{key: {proxy.public_key}}} ] }}
    """
    with Server(recipe(name, config)):
        for signer, good in ((None, False), (KeyPair.create("U"), False), (proxy, True)):
            with Raw(port) as raw:
                fields = {"user": "l", "pass": "p", "name": "x", "version": "2.11.0"}
                if signer is not None:
                    fields["proxy_sig"] = signed(raw, signer)
                said = raw.send(f"CONNECT {json.dumps(fields)}\r\n")
                assert (REFUSED in said) is not good, said
