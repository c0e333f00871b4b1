"""The power goes at an origin that acknowledges before it syncs: its mirror keeps what the origin
lost, and goes on with what comes next, since no sequence means two messages."""

import shutil
import sys
from pathlib import Path

from nats.js.api import ExternalStream, StreamConfig, StreamSource

from tests.federation.lab import Lab, free_port
from tests.waiting import until

SYNCED, LOST, NEXT = 100, 50, 20
# A server that believes that the machine was started again.
REBOOTED = """
import sys
from pathlib import Path
from headwater.edge.ports import files
files.BOOT_ID = Path(sys.argv.pop(1))
from headwater.deploy.main import main
main()
"""


async def test_mirror_of_an_origin_that_lost_its_tail(lab: Lab, tmp_path: Path) -> None:
    port = free_port()
    origin = await lab.real(
        'jetstream { store_dir: "{store}", domain: edge }\n'
        f"leafnodes {{ listen: 127.0.0.1:{port} }}",
        "origin",
        "headwater",
    )
    copy = await lab.real(
        'jetstream { store_dir: "{store}", domain: hub }\n'
        f'leafnodes {{ reconnect: "100ms", remotes [ {{ url: "nats://127.0.0.1:{port}" }} ] }}',
        "copy",
        "headwater",
    )
    there = (await lab.client(origin.port)).jetstream(timeout=5)
    here = (await lab.client(copy.port)).jetstream(timeout=5)
    lazy = {"headwater.sync_interval": "1h"}
    await there.add_stream(StreamConfig(name="ORIGIN", subjects=["data"], metadata=lazy))
    source = StreamSource(name="ORIGIN", external=ExternalStream(api="$JS.edge.API"))
    await here.add_stream(StreamConfig(name="MIRROR", mirror=source, metadata=lazy))

    async def arrived(count: int) -> bool:
        return (await here.stream_info("MIRROR")).state.messages == count

    for n in range(SYNCED):
        await there.publish("data", b"%d" % n)
    await until(lambda: arrived(SYNCED), "the first messages are mirrored")
    store, image = origin.directory / "store", tmp_path / "image"
    shutil.copytree(store, image)
    for n in range(SYNCED, SYNCED + LOST):
        await there.publish("data", b"%d" % n)
    await until(lambda: arrived(SYNCED + LOST), "the next messages are mirrored")

    origin.kill()
    shutil.rmtree(store)
    image.rename(store)
    boot = tmp_path / "boot"
    boot.write_text("another")
    origin.program = [sys.executable, "-c", REBOOTED, str(boot), "serve"]
    await origin.start()
    there = (await lab.client(origin.port)).jetstream(timeout=5)
    state = (await there.stream_info("ORIGIN")).state
    assert state.messages == SYNCED
    assert "may have taken acknowledged messages" in origin.text()
    first = state.last_seq + 1
    assert first > SYNCED + LOST
    for n in range(NEXT):
        ack = await there.publish("data", b"next %d" % n)
        assert ack.seq == first + n
    await until(lambda: arrived(SYNCED + LOST + NEXT), "the mirror goes on")
    for number in range(1, SYNCED + LOST + 1):
        assert (await here.get_msg("MIRROR", number)).data == b"%d" % (number - 1)
    for n in range(NEXT):
        assert (await here.get_msg("MIRROR", first + n)).data == b"next %d" % n
