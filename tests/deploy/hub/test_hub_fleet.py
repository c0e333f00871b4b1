"""`headwater hub fleet`: gateways as their hub sees them, by what they report themselves."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.servers import Recipe, Server, program
from headwater.deploy.gateway.enrol import enrol
from headwater.deploy.keys.folder import KeyFolder
from headwater.deploy.keys.push import login_as
from headwater.edge.wire.client import Client
from tests.deploy.keys.hub_of_keys import ACCOUNT, Hub, run, running_hub
from tests.waiting import until_seen

EDGE = """
server_name: gw-1
jetstream {{ store_dir: "{{dir}}", domain: gw-1 }}
leafnodes {{ reconnect: "200ms", remotes: [ {{ urls: ["{hub}"], credentials: "{creds}" }} ] }}
"""


@contextmanager
def gateway(hub: Hub, folder: Path) -> Iterator[Server]:
    """A node that is told to be a gateway."""
    data = folder / "data"
    made = run("keys", "gateway", "gw-1", "gw-2", "--account", ACCOUNT, "--dir", hub.keys,
               "--json", "--output", folder / "enrol")  # fmt: skip
    creds = enrol(Path(made["tokens"][0]).read_text(), [hub.leaf_url], data / "keys")
    enrol(Path(made["tokens"][1]).read_text(), [hub.leaf_url], folder / "other")
    (folder / "gateway.json").write_text(json.dumps({"name": "gw-1", "data": str(data)}))
    slot = folder / "slots/a"
    slot.mkdir(parents=True)
    (slot / "slot.json").write_text(json.dumps({"version": "7.7.7"}))
    recipe = Recipe(
        "gw-1", (program("headwater"), "serve"), EDGE.format(hub=hub.leaf_url, creds=creds),
        (("HEADWATER_GATEWAY", str(folder / "gateway.json")), ("HEADWATER_SLOT", str(slot))),
    )  # fmt: skip
    with Server(recipe, parent=folder) as server:
        yield server


def seen(hub: Hub, creds: str) -> dict[str, Any]:
    """The gateways by name."""
    words = ("hub", "fleet", "--server", hub.url, "--creds", creds)
    text = run(*words, "--json", status=3)
    return {row["name"]: row for row in json.loads(text)["gateways"]}


def test_a_hub_sees_who_enrolled_and_what_they_report(tmp_path: Path) -> None:
    with running_hub(tmp_path) as hub, gateway(hub, tmp_path) as node:
        creds = run("keys", "user", "ana", "--account", ACCOUNT, "--dir", hub.keys).strip()
        until_seen(lambda: seen(hub, creds)["gw-1"]["state"] == "live", what="the first report")
        rows = seen(hub, creds)
        assert (rows["gw-1"]["version"], rows["gw-1"]["slot"]) == ("7.7.7", "a")
        assert rows["gw-2"]["state"] == "never"
        assert rows["gw-1"]["key"].startswith("U")
        assert abs(rows["gw-1"]["clock_offset_s"]) < 5
        assert rows["gw-1"]["disk"]["free"] > 0

        with Client(f"nats://127.0.0.1:{node.port}") as edge:
            edge.api("STREAM.CREATE.WORK", name="WORK", subjects=["work.>"])
            for _ in range(10):
                edge.request("work.x", b"x" * 100)
        with Client(hub.url, login_as(KeyFolder(hub.keys), ACCOUNT)) as client:
            mirror = {"name": "WORK", "external": {"api": "$JS.gw-1.API"}}
            client.api("STREAM.CREATE.M", name="M", mirror=mirror)
            until_seen(lambda: client.api("STREAM.INFO.M")["state"]["messages"] == 10, "mirror")
        status = tmp_path / "data/run/status.json"
        until_seen(lambda: json.loads(status.read_text())["sent"] == {"WORK": 10}, "it is sent")
        told = json.loads(status.read_text())
        assert told["backlog"] == {"messages": 0, "bytes": 0, "seconds": 0.0}

        words = ("hub", "fleet", "--server", hub.url, "--creds", creds)
        text = run(*words, "--metrics", status=3)
        assert 'headwater_gateway_up{gateway="gw-1"} 1' in text
        assert 'headwater_gateway_up{gateway="gw-2"} 0' in text
        assert 'headwater_gateway_info{gateway="gw-1",version="7.7.7",slot="a"} 1' in text
        assert "1 of 2 live" in run(*words, status=3)
    # The hub is away: what is stored now waits.
