"""`headwater keys`: files as of nsc, enrolment at a hub, and revocation that cuts at once."""

import contextlib
import json
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from bench.servers import program
from headwater.deploy.gateway.enrol import EnrolmentError, enrol
from headwater.deploy.keys.folder import KeyFolder
from headwater.deploy.keys.push import login_as
from headwater.edge.logging.log_limit import PEER_LINES
from headwater.edge.wire.client import Client, Refused
from headwater.edge.wire.login import Login
from headwater.edge.wire.message import WireError
from headwater.security import creds, jwt
from headwater.security.gateway_roles import ENROL_INBOX, ENROL_SUBJECT, GATEWAY, key_of_role
from headwater.security.nkeys import KeyPair
from tests.deploy.keys.hub_of_keys import ACCOUNT, Hub, make_keys, run, running_cluster, running_hub
from tests.measuring import within
from tests.operator_realm import Raw, User
from tests.waiting import stand_by, until_seen

KILLS = 8
"""Moments at which a command is killed."""
REFUSALS = 500
"""Requests of one peer; the log would take 200 lines a second of all peers together."""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with running_hub(tmp_path_factory.mktemp("hub")) as made:
        yield made


def tokens(hub: Hub, folder: Path, *names: str, ttl: str = "1h") -> list[str]:
    """Enrolment tokens of gateways."""
    made = run("keys", "gateway", *names, "--account", ACCOUNT, "--dir", hub.keys, "--json",
               "--ttl", ttl, "--output", folder / "enrol")  # fmt: skip
    return [Path(path).read_text() for path in made["tokens"]]


def test_files_are_where_nsc_looks_and_secret(tmp_path: Path) -> None:
    keys = make_keys(tmp_path)
    info = json.loads((keys / "stores/plant-op/.nsc").read_text())
    assert info == {"managed": False, "name": "plant-op", "kind": "operator", "version": "1"}
    account = jwt.decode_account((keys / "stores/plant-op/accounts/plant/plant.jwt").read_text())
    seed = keys / "keys/keys/A" / account.sub[1:3] / f"{account.sub}.nk"
    assert seed.stat().st_mode & 0o777 == 0o600
    path = run("keys", "user", "ana", "--account", ACCOUNT, "--dir", keys).strip()
    assert path == str(keys / "keys/creds/plant-op/plant/ana.creds")
    assert jwt.decode_user(creds.read(path).token).iss == account.sub


@pytest.mark.skipif(shutil.which("nsc") is None, reason="nsc is not installed")
def test_nsc_reads_the_files(tmp_path: Path) -> None:
    keys = make_keys(tmp_path)
    run("keys", "user", "ana", "--account", ACCOUNT, "--dir", keys)
    where = ["--config-dir", tmp_path, "--data-dir", keys / "stores", "--keystore-dir",
             keys / "keys"]  # fmt: skip
    for what in (["describe", "user", "ana", "-a", ACCOUNT], ["validate", "-a", ACCOUNT]):
        done = subprocess.run(["nsc", *where, *what], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_second_operator_and_a_second_account_are_refused(tmp_path: Path) -> None:
    keys = make_keys(tmp_path)
    assert "left as it is" in run("keys", "operator", "other", "--dir", keys, status=1)
    assert "left as it is" in run("keys", "account", ACCOUNT, "--dir", keys, status=1)
    assert "headwater keys operator" in run(
        "keys", "account", "x", "--dir", tmp_path / "none", status=1
    )


def test_a_thousand_gateways_take_one_command(tmp_path: Path) -> None:
    keys = make_keys(tmp_path)
    began = time.monotonic()
    made = run("keys", "gateway", "--count", 1000, "--account", ACCOUNT, "--dir", keys, "--json",
               "--output", tmp_path / "enrol")  # fmt: skip
    assert len({Path(path).read_text() for path in made["tokens"]}) == 1000
    assert within(time.monotonic() - began, 30)


def test_a_gateway_gets_credentials_for_its_own_subjects_only(hub: Hub, tmp_path: Path) -> None:
    (token,) = tokens(hub, tmp_path, "gw-1")
    path = enrol(token, [hub.leaf_url], tmp_path / "gw-1")
    assert path.stat().st_mode & 0o777 == 0o600
    with Client(hub.url, Login(creds=str(path))) as client:
        client.subscribe("gw-1.>")
        client.publish("gw-1.temperature", b"21")
        assert client.next().payload == b"21"
        for subject in ("gw-2.temperature", "$JS.API.INFO", "$JS.hub.API.INFO",
                        "$KV.HEADWATER_FLEET.gw-2", "$KV.HEADWATER_ENROLLED.gw-1.x",
                        "$HEADWATER.ENROL.gw-2", "other"):  # fmt: skip
            with pytest.raises(Refused, match=r"Permissions Violation"):
                client.publish(subject)
                client.request("gw-1.nobody")
    for subject in (">", "_INBOX.>", "gw-2.>", "$JS.gw-2.API.>", "$KV.>"):
        with (
            Client(hub.url, Login(creds=str(path))) as client,
            pytest.raises(Refused, match=r"Permissions Violation"),
        ):
            client.subscribe(subject)


def test_a_token_works_once_for_its_name_and_its_time(hub: Hub, tmp_path: Path) -> None:
    (token,) = tokens(hub, tmp_path, "gw-3")
    enrol(token, [hub.leaf_url], tmp_path / "gw-3")
    enrol(token, [hub.leaf_url], tmp_path / "gw-3")  # the same gateway, whose answer was lost
    with pytest.raises(EnrolmentError, match="used by another key"):
        enrol(token, [hub.leaf_url], tmp_path / "thief")
    (late,) = tokens(hub, tmp_path, "gw-4", ttl="1s")
    deadline = jwt.decode_user(creds.parse(late).token).exp
    stand_by(deadline + 0.01 - time.time())
    with pytest.raises(EnrolmentError):
        enrol(late, [hub.leaf_url], tmp_path / "gw-4")


def test_only_what_can_be_a_gateways_name_is_reported_about(hub: Hub) -> None:
    """The account's own users may publish reports, too."""
    with Client(hub.url, login_as(KeyFolder(hub.keys), ACCOUNT)) as client:
        for name in ("*", ">", "GW", "ä", "$SYS", "g" * 64, "g" * 3000):
            client.publish(f"$HEADWATER.REPORT.{name}", b"{}")
        client.publish("$HEADWATER.REPORT.gw-9", b"{}")

        def reported() -> dict[str, int]:
            asked = {"subjects_filter": ">"}
            info = client.api("STREAM.INFO.KV_HEADWATER_FLEET", **asked)
            return info["state"].get("subjects", {})

        until_seen(lambda: "$KV.HEADWATER_FLEET.gw-9" in reported(), "the report")
        assert set(reported()) == {"$KV.HEADWATER_FLEET.gw-9"}


def test_refusals_of_one_peer_fill_no_log(hub: Hub, tmp_path: Path) -> None:
    """All of its requests are answered, over any listener; few of them make a line."""
    (text,) = tokens(hub, tmp_path, "gw-loud")
    token = creds.parse(text)
    user = User(KeyPair.from_seed(token.seed), token.token)
    inbox, asked = f"{ENROL_INBOX}.gw-loud.x", f"{ENROL_SUBJECT}.gw-loud"

    def told() -> int:
        return hub.server.log_path.read_text().count(f"refused to enrol {asked}:")

    def refused(peer: Raw, publish: str, count: int) -> None:
        peer.socket.sendall(f"{publish} {asked} {inbox} 1\r\nx\r\n".encode() * count)
        answers = 0
        while answers < count:
            line = peer.file.readline()
            assert line
            answers += b"MSG " in line

    def has_room(peer: Raw, publish: str) -> bool:
        refused(peer, publish, 1)
        return told() > 0

    began = time.monotonic()
    for port, login, subscribe, publish in (
        (hub.server.port, Raw.login, f"SUB {inbox} 1", "PUB"),
        (hub.leaf_port, Raw.link, f"LS+ {inbox}", "LMSG"),
    ):
        with Raw(port) as peer:
            assert not any("-ERR" in line for line in login(peer, user))
            peer.send(f"{subscribe}\r\n")
            # Other tests of this second may have had all of its lines.
            until_seen(partial(has_room, peer, publish), "a line about the peer")
            refused(peer, publish, REFUSALS)
    seconds = time.monotonic() - began
    assert told() <= PEER_LINES * (int(seconds) + 2)


def test_an_enrolment_token_opens_nothing_else(hub: Hub, tmp_path: Path) -> None:
    (token,) = tokens(hub, tmp_path, "gw-5")
    text = creds.parse(token)
    with Client(hub.url, Login(jwt=text.token, seed=text.seed)) as client:
        client.publish("telemetry.gw-5.x")
        with pytest.raises(Refused):
            client.next()


def test_a_lost_gateway_is_cut_at_every_node(hub: Hub, tmp_path: Path) -> None:
    (token, spare) = tokens(hub, tmp_path, "gw-6", "gw-7")
    stolen = enrol(token, [hub.leaf_url], tmp_path / "gw-6")
    other = enrol(spare, [hub.leaf_url], tmp_path / "gw-7")
    login = Login(creds=str(stolen))
    with Client(hub.url, login) as thief, Client(hub.url, Login(creds=str(other))) as well:
        began = time.monotonic()
        done = run("keys", "revoke", "gw-6", "--account", ACCOUNT, "--dir", hub.keys, "--json",
                   "--server", hub.url)  # fmt: skip
        assert done["nodes"] == ["hub"]
        with pytest.raises(WireError, match=r"Revoked|closed"):
            thief.next()
        assert within(time.monotonic() - began, 5)
        well.subscribe("gw-7.>")
        well.publish("gw-7.still", b"here")
        assert well.next().payload == b"here"
    with pytest.raises(Refused):
        Client(hub.url, login)
    # In a later second, too: a token that is made now is no older than the revocation.
    revoked_at = int(time.time())
    until_seen(lambda: time.time() >= revoked_at + 1)
    with pytest.raises(EnrolmentError, match="revoked"):
        enrol(token, [hub.leaf_url], tmp_path / "gw-6")


def enrolled(token: str, hub: Hub, folder: Path) -> Path | None:
    """Credentials; None while the hub does not give any yet."""
    try:
        return enrol(token, [hub.leaf_url], folder)
    except EnrolmentError:
        return None


def test_a_lost_gateway_is_cut_wherever_it_is(tmp_path: Path) -> None:
    """It joined one node of a cluster, is revoked at another, and none lets it in again."""
    with running_cluster(tmp_path) as nodes:
        hub = nodes[0]
        (token,) = tokens(hub, tmp_path, "gw-1")
        stolen = until_seen(lambda: enrolled(token, hub, tmp_path / "gw-1"), "its credentials")
        with ExitStack() as stack:
            thieves = [
                stack.enter_context(Client(node.url, Login(creds=str(stolen)))) for node in nodes
            ]
            began = time.monotonic()
            done = run("keys", "revoke", "gw-1", "--account", ACCOUNT, "--dir", hub.keys, "--json",
                       "--server", nodes[2].url)  # fmt: skip
            assert sorted(done["nodes"]) == ["hub-0", "hub-1", "hub-2"]
            for thief in thieves:
                with pytest.raises(WireError, match=r"Revoked|closed"):
                    thief.next()
            assert within(time.monotonic() - began, 5)
        for node in nodes:
            with pytest.raises(Refused):
                Client(node.url, Login(creds=str(stolen)))


def test_revoking_whom_nobody_knows_says_so(hub: Hub) -> None:
    words = ("keys", "revoke", "gw-99", "--account", ACCOUNT, "--dir", hub.keys)
    assert "name the hub with --server" in run(*words, status=1)
    assert "never enrolled gw-99" in run(*words, "--server", hub.url, status=1)


def test_a_rotated_key_that_is_dropped_ends_what_it_signed(tmp_path: Path) -> None:
    with running_hub(tmp_path) as hub:
        (token,) = tokens(hub, tmp_path, "gw-1")
        path = enrol(token, [hub.leaf_url], tmp_path / "gw-1")
        words = ("keys", "rotate", "--account", ACCOUNT, "--dir", hub.keys, "--server", hub.url)
        run(*words)
        Client(hub.url, Login(creds=str(path))).close()
        run(*words, "--drop")
        with pytest.raises(Refused):
            Client(hub.url, Login(creds=str(path)))
        Client(hub.url, login_as(KeyFolder(hub.keys), ACCOUNT)).close()


def test_a_rotation_that_is_killed_leaves_keys_that_work(tmp_path: Path) -> None:
    """At any moment the account's token names a key whose seed is there."""
    store = KeyFolder(make_keys(tmp_path))
    words = [program("headwater"), "keys", "rotate", "--account", ACCOUNT, "--dir", store.folder]

    def newest() -> str:
        claims, _ = store.account(ACCOUNT)
        key = key_of_role(claims, GATEWAY)
        seed = store.key_path(key).read_text()
        assert KeyPair.from_seed(seed).public_key == key
        assert stat.S_IMODE(store.key_path(key).stat().st_mode) == 0o600
        return key

    begin, before = time.monotonic(), newest()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    whole = time.monotonic() - begin
    assert newest() != before
    for part in range(1, KILLS + 1):
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
            # What it writes, it writes at the end.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(whole * (0.5 + 0.5 * part / KILLS))
            process.kill()
        newest()
    before = newest()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    assert newest() != before
