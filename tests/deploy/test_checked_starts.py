"""What `serve -t` says of a configuration is what a start with it does."""

import os
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.servers import program
from tests.ocsp_authority import Authority
from tests.operator_realm import Realm
from tests.slow import one_in

SERVE = (program("headwater"), "serve")
GOOD = "a key that is long enough"


class World:
    """A folder with good and bad files that configurations name, and an environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.realm = Realm()
        for name, content, mode in (
            ("good", GOOD, 0o600),
            ("short", "abc", 0o600),
            ("open", GOOD, 0o644),
        ):
            (folder / name).write_text(content)
            (folder / name).chmod(mode)
        self.environment = {**os.environ, "LONG": GOOD, "SHORT": "abc"}

    def write(self, text: str) -> Path:
        path = self.folder / "node.conf"
        store = self.folder / "store"
        path.write_text("listen: '127.0.0.1:-1'\n" + text.replace("@STORE@", str(store)))
        return path

    def checked(self, path: Path) -> tuple[bool, str]:
        """Whether `-t` takes it, and what it says. It changes nothing."""
        before = self._seen()
        done = self._run("-t", "-c", str(path))
        assert self._seen() == before
        return done.returncode == 0, done.stderr

    def started(self, path: Path) -> tuple[bool, str]:
        """Whether a node starts with it, and what it says."""
        command = [*SERVE, "-c", str(path)]
        lines = []
        with subprocess.Popen(
            command, cwd=self.folder, env=self.environment, text=True, stderr=subprocess.PIPE
        ) as process:
            assert process.stderr is not None
            for line in process.stderr:
                lines.append(line)
                if "Server is ready" in line:
                    process.send_signal(signal.SIGTERM)
        said = "".join(lines)
        assert "Traceback" not in said, said
        return "Server is ready" in said, said

    def _run(self, *flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*SERVE, *flags],
            cwd=self.folder,
            env=self.environment,
            text=True,
            capture_output=True,
            check=False,
            timeout=60,
        )

    def _seen(self) -> list[tuple[str, int]]:
        paths = sorted(self.folder.rglob("*"))
        return [(str(path), stat.S_IMODE(path.stat().st_mode)) for path in paths]


def sealed(text: str) -> str:
    return f"jetstream {{ store_dir: '@STORE@' }}\nheadwater {{ sealing {{ {text} }} }}"


def keyed(text: str) -> str:
    return f"jetstream {{ store_dir: '@STORE@', {text} }}"


TAKEN = [
    keyed("key: abcdefgh"),
    keyed("key: abcdefgh, prev_key: hgfedcba"),
    keyed("enabled: false, key: abc"),
    sealed("key_file: good"),
    sealed("key_env: LONG, previous: [ { key_file: good } ]"),
    sealed("key_command: 'echo abcdefgh'"),
    "headwater { sealing { key_file: short } }",
    "jetstream { store_dir: './made/below' }",
]
REFUSED = {
    keyed("key: abc"): "at least 8 characters",
    keyed("ek: '       a'"): "at least 8 characters",
    keyed("key: abcdefgh, prev_key: abc"): "at least 8 characters",
    keyed("prev_encryption_key: abc"): "at least 8 characters",
    sealed("key_file: short"): "at least 8 characters",
    sealed("key_file: open"): "its mode must be 0600",
    sealed("key_file: none"): "No such file",
    sealed("key_env: NONE"): "the environment has no NONE",
    sealed("key_env: SHORT"): "at least 8 characters",
    sealed("key_file: good, previous: [ { key_env: SHORT } ]"): "at least 8 characters",
    "jetstream { store_dir: good }": "good",
    "jetstream { store_dir: './good/below' }": "good",
}
RESOLVERS = {
    "MEMORY": "",
    "{ type: full, dir: './tokens' }": "",
    "{ type: full, dir: './tokens', limit: -1 }": "",
    "{ type: cache, dir: './tokens' }": "",
    "{ type: full, dir: good }": "good",
    "{ type: full, dir: './good/below' }": "good",
    "URL(ftp://127.0.0.1/)": "none of HTTP",
    "URL(nope)": "none of HTTP",
}


def agree(world: World, text: str) -> tuple[bool, str]:
    path = world.write(text)
    checked, said = world.checked(path)
    started, reason = world.started(path)
    assert checked == started, f"{said}\n{reason}"
    return checked, said


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("text", TAKEN)
def test_what_is_taken_starts(world: World, text: str) -> None:
    taken, said = agree(world, text)
    assert taken, said


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_does_not_start(world: World, text: str) -> None:
    taken, said = agree(world, text)
    assert not taken
    assert REFUSED[text] in said
    assert "abc" not in said.replace("abcdefgh", "")


@pytest.mark.parametrize("resolver", one_in(2, RESOLVERS))
def test_resolvers(world: World, resolver: str) -> None:
    config: Any = world.realm.config(resolver=resolver)
    if resolver.startswith("URL"):
        config = config.partition("resolver_preload")[0]
    taken, said = agree(world, config)
    assert taken == (not RESOLVERS[resolver]), said
    assert RESOLVERS[resolver] in said


def test_a_token_under_the_key_of_another_account(world: World) -> None:
    realm = world.realm
    wrong = realm.config().replace(f"{realm.account('B')}: ", f"{realm.account('A')[:-1]}Z: ")
    taken, said = agree(world, wrong)
    assert not taken and "belongs to" in said


@pytest.mark.parametrize(
    ("issuer", "responder", "wanted"),
    [
        ("", True, "put the issuer behind the certificate, or in ca_file"),
        ("other/ca.pem", True, "put the issuer behind the certificate, or in ca_file"),
        ("node.pem", True, "put the issuer behind the certificate, or in ca_file"),
        ("ca.pem", False, "name one that answers with url in ocsp, or say ocsp: false"),
        ("ca.pem", True, ""),
    ],
    ids=["no issuer", "another issuer", "no authority", "no responder", "both"],
)
@pytest.mark.parametrize("block", one_in(2, ["", "websocket"]))
def test_a_status_of_certificates(
    world: World, block: str, issuer: str, responder: bool, wanted: str
) -> None:
    (world.folder / "other").mkdir()
    Authority(world.folder / "other")
    authority = Authority(world.folder)
    authority.issue("node", responder=responder)
    trusted = f", ca_file: '{world.folder / issuer}'" if issuer else ""
    tls = f"tls {{ cert_file: './node.pem', key_file: './node.key'{trusted} }}"
    text = f"{block} {{ listen: '127.0.0.1:-1', {tls} }}" if block else tls
    with authority:
        taken, said = agree(world, f"ocsp {{ mode: always }}\n{text}")
    assert taken == (not wanted), said
    assert wanted in said


def test_an_issuer_that_cannot_be_read(world: World) -> None:
    Authority(world.folder).issue("node")
    tls = "tls { cert_file: './node.pem', key_file: './node.key', ca_file: './none.pem' }"
    taken, said = agree(world, f"ocsp {{ mode: always }}\n{tls}")
    assert not taken and "none.pem" in said
