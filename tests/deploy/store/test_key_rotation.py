"""A node's key is replaced, with its cipher, and kill -9 comes at any moment of it."""

import asyncio
import shutil
import subprocess
from pathlib import Path

import nats
import pytest
from nats.js.api import ConsumerConfig, StreamConfig

from headwater.security.sealing import AES, CHACHA, NodeKey
from tests.deploy.running_node import BIN, Running
from tests.deploy.store.sealed_store import until_packed
from tests.deploy.store.test_sealing_commands import stored
from tests.slow import shared
from tests.waiting import stand_by

MESSAGES = 3000
BODY = b"said in confidence " + bytes(range(200)) * 3
NAMES = ("ONE", "TWO")
OLD, NEW = "the first key of this node", "the second key of this node"
STEPS = 5
"""Moments of a rotation at which the node is killed."""

STEP_S = 0.1
"""Between two of them: the wrapped keys are rewritten at once, what is stored in the background."""


def configured(folder: Path, text: str) -> tuple[str, ...]:
    """The flags of a node with this in its `jetstream` block."""
    path = folder / "node.conf"
    path.write_text(f"jetstream {{ store_dir: {folder / 'store'}, {text} }}\n")
    return ("-c", str(path))


def running(folder: Path, flags: tuple[str, ...]) -> Running:
    return Running(folder / "store", "headwater", *flags)


def body(number: int) -> bytes:
    return b"%d " % number + BODY


async def fill(url: str) -> None:
    """Two streams, one with a consumer that has acknowledged a third of it."""
    client = await nats.connect(url)
    js = client.jetstream()
    for name in NAMES:
        await js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
        for number in range(MESSAGES):
            await client.publish(f"{name}.{number % 5}", body(number))
        assert (await js.publish(f"{name}.end", b"end")).seq == MESSAGES + 1
    await js.add_consumer("ONE", ConsumerConfig(durable_name="c", ack_policy="explicit"))
    pull = await js.pull_subscribe("ONE.>", "c")
    for message in await pull.fetch(MESSAGES // 3):
        await message.ack_sync()
    await client.close()


async def check(url: str) -> None:
    """Everything is there, and the consumer goes on where it was."""
    client = await nats.connect(url)
    js = client.jetstream()
    for name in NAMES:
        state = (await js.stream_info(name)).state
        assert (state.messages, state.first_seq) == (MESSAGES + 1, 1)
        for number in range(0, MESSAGES, 97):
            assert (await js.get_msg(name, number + 1)).data == body(number)
    consumer = await js.consumer_info("ONE", "c")
    assert consumer.ack_floor.stream_seq == MESSAGES // 3 == consumer.delivered.stream_seq
    await client.close()


def refused(folder: Path, flags: tuple[str, ...]) -> str:
    """What a node says that does not start."""
    words = [str(BIN / "headwater"), "serve", "-a", "127.0.0.1", "-p", "-1", *flags]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode != 0
    return done.stderr


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store under the old key."""
    folder = tmp_path_factory.mktemp("sealed")
    with running(folder, configured(folder, f'key: "{OLD}"')) as node:
        asyncio.run(fill(node.url))
    return folder


@pytest.mark.parametrize("at", shared(range(STEPS), lambda at: at < 2))
def test_killed_while_it_is_replaced(at: int, sealed: Path, tmp_path: Path) -> None:
    """Every other time the cipher changes, too."""
    cipher = ("aes", "chacha")[at % 2]
    shutil.copytree(sealed / "store", tmp_path / "store")
    flags = configured(
        tmp_path, f'cipher: {cipher}, key: "{NEW}", prev_encryption_key: "{OLD}"'
    )
    words = [str(BIN / "headwater"), "serve", "-a", "127.0.0.1", "-p", "-1", *flags]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if "Starting JetStream" in line)
        stand_by(STEP_S * at)
        process.kill()
    with running(tmp_path, flags) as node:
        asyncio.run(check(node.url))
        by = NodeKey.of(NEW.encode()).name
        until_packed(node, tmp_path / "store", by=by, cipher=(AES, CHACHA)[at % 2])
        node.process.kill()
        node.process.wait()
    with running(tmp_path, configured(tmp_path, f'cipher: {cipher}, key: "{NEW}"')) as node:
        asyncio.run(check(node.url))
    said = refused(tmp_path, configured(tmp_path, f'cipher: {cipher}, key: "{OLD}"'))
    assert "ONE" in said and "TWO" in said and "nothing was changed" in said
    with running(tmp_path, configured(tmp_path, f'cipher: {cipher}, key: "{NEW}"')) as node:
        asyncio.run(check(node.url))
    kept = stored(tmp_path / "store")
    for secret in (OLD, NEW, "said in confidence"):
        assert secret.encode() not in kept and secret not in said


def test_the_cipher_alone_is_replaced(sealed: Path, tmp_path: Path) -> None:
    """By a kill on the way, and back again."""
    shutil.copytree(sealed / "store", tmp_path / "store")
    for cipher in ("aes", "chacha"):
        flags = configured(tmp_path, f'cipher: {cipher}, key: "{OLD}"')
        with running(tmp_path, flags) as node:
            node.process.kill()
            node.process.wait()
        with running(tmp_path, flags) as node:
            asyncio.run(check(node.url))
            until_packed(node, tmp_path / "store", cipher=AES if cipher == "aes" else CHACHA)
    with running(tmp_path, flags) as node:
        asyncio.run(check(node.url))
