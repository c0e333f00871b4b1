"""An operator's day with `nsc` and the `nats` tool: accounts are pushed, shared, scoped, revoked.

Both are Go programs: `go build github.com/nats-io/nsc/v2` and `github.com/nats-io/natscli/nats`.
"""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.servers import Server, free_port
from tests.operator_realm import recipe

TOOLS = ("nsc", "nats")
pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, TOOLS)), reason="nsc or nats (Go programs) is not on PATH"
)
SECONDS = 60


class Desk:
    """A folder in which both tools keep everything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.login: tuple[str, ...] = ()
        """What `nats` is told before a command that needs a server."""
        self.environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}

    def run(self, *words: str) -> tuple[int, str]:
        done = subprocess.run(
            words, capture_output=True, text=True, env=self.environment, timeout=SECONDS
        )
        return done.returncode, done.stdout + done.stderr

    def nsc(self, *words: str) -> str:
        places = [f"--{kind}-dir={self.folder / kind}" for kind in ("config", "data", "keystore")]
        status, said = self.run("nsc", *places, *words)
        assert status == 0, said
        return said

    def nats(self, user: str, *words: str) -> tuple[int, str]:
        creds = next(self.folder.rglob(f"{user}.creds"))
        return self.run("nats", "-s", self.url, "--creds", str(creds), *words)

    def push(self) -> None:
        self.nsc("push", "--all", "-u", self.url)


@pytest.mark.parametrize("name", ["headwater", "nats-server"])
def test_a_day_of_an_operator(name: str, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.nsc("add", "operator", "--generate-signing-key", "--sys", "--name", "O")
    for account in ("A", "B"):
        desk.nsc("add", "account", account)
        desk.nsc("add", "user", "--account", account, account.lower())
    desk.nsc("add", "user", "--account", "A", "gone")
    path = tmp_path / "server.conf"
    desk.nsc("generate", "config", "--nats-resolver", "--config-file", str(path))
    config = path.read_text().replace("'./jwt'", f"'{tmp_path / 'jwt'}'")
    with Server(recipe(name, config)) as server:
        desk.url = f"nats://127.0.0.1:{server.port}"
        desk.push()
        for user in ("a", "b", "gone"):
            assert desk.nats(user, "pub", "x", "hi")[0] == 0
        for page in ("list", "info"):
            assert desk.nats("sys", "server", page)[0] == 0
        token = tmp_path / "activation"
        desk.nsc("add", "export", "--account", "A", "--subject", "svc.>", "--service", "--private")
        desk.nsc("generate", "activation", "--account", "A", "--subject", "svc.>",
                 "--target-account", "B", "-o", str(token))
        desk.nsc("add", "import", "--account", "B", "--token", str(token), "--name", "i")
        desk.nsc("edit", "account", "A", "--sk", "generate")
        keys = json.loads(desk.nsc("describe", "account", "A", "--json"))["nats"]["signing_keys"]
        desk.nsc("edit", "signing-key", "--account", "A", "--sk", keys[0], "--role", "r",
                 "--allow-pub", "ok.{{name()}}.>", "--allow-sub", "_INBOX.>")
        desk.nsc("add", "user", "--account", "A", "scoped", "-K", "r")
        desk.push()
        creds = next(tmp_path.rglob("a.creds"))
        words = ["nats", "-s", desk.url, "--creds", str(creds), "reply", "svc.x", "pong"]
        service = subprocess.Popen(words, env=desk.environment, stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 20
            while "pong" not in desk.nats("b", "request", "svc.x", "?", "--timeout=2s")[1]:
                assert time.monotonic() < deadline
        finally:
            service.terminate()
            service.wait()
        assert desk.nats("scoped", "pub", "ok.scoped.a", "1")[0] == 0
        assert "Permissions Violation" in desk.nats("scoped", "pub", "bad", "1")[1]
        desk.nsc("revocations", "add-user", "--account", "A", "--name", "gone")
        desk.push()
        assert "Authorization Violation" in desk.nats("gone", "pub", "x", "1")[1]
        assert desk.nats("a", "pub", "x", "1")[0] == 0


def three_accounts(folder: Path) -> tuple[Desk, Path]:
    """An operator with accounts A, B and C and a user of each, and a configuration with the full
    resolver."""
    desk = Desk(folder)
    desk.nsc("add", "operator", "--generate-signing-key", "--sys", "--name", "O")
    for account in ("A", "B", "C"):
        desk.nsc("add", "account", account)
        desk.nsc("add", "user", "--account", account, account.lower())
    path = folder / "server.conf"
    desk.nsc("generate", "config", "--nats-resolver", "--config-file", str(path))
    return desk, path


@pytest.mark.parametrize("name", ["headwater", "nats-server"])
def test_accounts_are_pulled_pruned_and_removed(name: str, tmp_path: Path) -> None:
    """What was pushed can be had back, and what the operator has no longer, the server forgets."""
    desk, path = three_accounts(tmp_path)
    config = path.read_text().replace("'./jwt'", f"'{tmp_path / 'jwt'}'")
    config = config.replace("allow_delete: false", "allow_delete: true")
    assert "allow_delete: true" in config
    with Server(recipe(name, config)) as server:
        desk.url = f"nats://127.0.0.1:{server.port}"
        desk.nsc("edit", "operator", "--account-jwt-server-url", desk.url)
        desk.push()
        for user in ("a", "b", "c"):
            assert desk.nats(user, "pub", "x", "hi")[0] == 0
        [kept] = tmp_path.rglob("accounts/A/A.jwt")
        pushed = kept.read_text()
        desk.nsc("edit", "account", "A", "--description", "only here")
        assert kept.read_text() != pushed
        desk.nsc("pull", "--all", "--overwrite-newer")
        assert kept.read_text().strip() == pushed.strip()
        assert "B" in desk.nsc("push", "--diff", "-u", desk.url)
        desk.nsc("push", "--account-removal", "C", "-u", desk.url)
        assert "Authorization Violation" in desk.nats("c", "pub", "x", "1")[1]
        creds = next(tmp_path.rglob("b.creds")).read_text()
        desk.nsc("delete", "account", "B", "--force", "--rm-creds", "--rm-nkey")
        desk.nsc("push", "--prune", "-u", desk.url)
        (tmp_path / "b.creds").write_text(creds)
        assert "Authorization Violation" in desk.nats("b", "pub", "x", "1")[1]
        assert desk.nats("a", "pub", "x", "1")[0] == 0


@pytest.mark.parametrize("name", ["headwater", "nats-server"])
def test_a_cache_beside_a_server_that_has_all(name: str, tmp_path: Path) -> None:
    """Two servers of one cluster: one keeps what is pushed, the other asks it for what it needs."""
    desk, path = three_accounts(tmp_path)
    whole = path.read_text().replace("allow_delete: false", "allow_delete: true")
    begin = whole.index("resolver {")
    end = whole.index("}", begin) + 1
    cached = 'resolver { type: cache, dir: "%s", ttl: "1h", limit: 9 }' % (tmp_path / "cached")
    port = free_port()
    cluster = "server_name: %s, cluster { name: Z, listen: '127.0.0.1:%d', routes: [%s] }"
    configs = [
        whole.replace("'./jwt'", f"'{tmp_path / 'jwt'}'") + cluster % ("full", port, ""),
        whole[:begin] + cached + whole[end:]
        + cluster % ("cache", free_port(), f"'nats://127.0.0.1:{port}'"),
    ]
    with Server(recipe(name, configs[0])) as full, Server(recipe(name, configs[1])) as cache:
        desk.url = f"nats://127.0.0.1:{full.port}"
        desk.push()
        desk.url = f"nats://127.0.0.1:{cache.port}"
        for user in ("a", "b", "c"):
            assert soon(lambda user=user: desk.nats(user, "pub", "x", "hi")[0] == 0)  # type: ignore[misc]
        files = {one.stem for one in (tmp_path / "cached").glob("*.jwt")}
        assert len(files) >= 3, files
        pages = desk.nsc("push", "--all", "-u", desk.url)
        assert "pushed" in pages or "full" in pages, pages
        desk.nsc("revocations", "add-user", "--account", "A", "--name", "a")
        desk.nsc("push", "--account", "A", "-u", desk.url)
        assert soon(lambda: "Authorization Violation" in desk.nats("a", "pub", "x", "1")[1])
        desk.nsc("push", "--account-removal", "B", "-u", desk.url)
        assert soon(lambda: "Authorization Violation" in desk.nats("b", "pub", "x", "1")[1])
        assert desk.nats("c", "pub", "x", "1")[0] == 0


def soon(seen: Callable[[], bool]) -> bool:
    """Whether it is seen within some seconds: the other server hears of it later."""
    deadline = time.monotonic() + 20
    while not seen():
        if time.monotonic() > deadline:
            return False
    return True


@pytest.mark.parametrize("name", ["headwater", "nats-server"])
def test_the_nats_tools_own_accounts(name: str, tmp_path: Path) -> None:
    """`nats auth`: an operator's accounts, roles and users, pushed and asked for."""
    desk = Desk(tmp_path)
    desk.environment["XDG_DATA_HOME"] = str(tmp_path / "data")

    def auth(*words: str) -> str:
        status, said = desk.run("nats", *desk.login, "auth", *words)
        assert status == 0, said
        return said

    def user(name: str, account: str, *words: str) -> None:
        auth("user", "add", name, account, "--operator=O", "--defaults", *words)
        file = str(tmp_path / f"{name}.creds")
        auth("user", "credential", file, name, account, "--operator=O")

    auth("operator", "add", "O")
    auth("account", "add", "A", "--operator=O", "--defaults")
    user("a", "A")
    user("system", "SYSTEM")
    [operator], [system], [account] = (
        list(tmp_path.rglob(f"{name}.jwt")) for name in ("O", "SYSTEM", "A")
    )
    key = claim(system, "sub")
    config = f"""
        operator: '{operator}', system_account: {key}
        resolver: {{ type: full, dir: '{tmp_path / "jwt"}' }}
        resolver_preload: {{ {key}: {system.read_text().strip()} }}
    """
    with Server(recipe(name, config)) as server:
        desk.url = f"nats://127.0.0.1:{server.port}"
        desk.login = ("-s", desk.url, "--creds", str(tmp_path / "system.creds"))
        assert "Authorization Violation" in desk.nats("a", "pub", "x", "1")[1]
        auth("account", "push", "A", "--operator=O")
        assert desk.nats("a", "pub", "x", "1")[0] == 0
        had = tmp_path / "had.jwt"
        auth("account", "query", claim(account, "sub"), str(had), "--operator=O")
        assert had.read_text().strip() == account.read_text().strip()
        auth("account", "keys", "add", "A", "r", "--operator=O", "--pub-allow=ok.>",
             "--sub-allow=_INBOX.>")
        auth("account", "push", "A", "--operator=O")
        user("scoped", "A", "--key=r")
        assert desk.nats("scoped", "pub", "ok.a", "1")[0] == 0
        assert "Permissions Violation" in desk.nats("scoped", "pub", "bad", "1")[1]


def claim(path: Path, name: str) -> str:
    """A claim of the token in a file."""
    body = path.read_text().strip().split(".")[1]
    found = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))[name]
    assert isinstance(found, str)
    return found
