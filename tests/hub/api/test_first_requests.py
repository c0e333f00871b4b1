"""The first request of an account reaches the leader, which had not heard of the account before."""

import asyncio
from pathlib import Path

from headwater.edge.conf.flags import parse_args
from headwater.security.claims import AccountLimits
from tests.hub.api.beside import write_configs
from tests.hub.lab import Lab
from tests.operator_realm import Raw, Realm

ACCOUNTS = "ABCDEFGH"
ANSWER_S = 3.0
"""Ample: a request that nobody has taken gets no answer, however long one waits."""


def first_answer(port: int, realm: Realm, name: str, request: str) -> object:
    """What an account's first client is answered at once, or None."""
    with Raw(port) as client:
        assert client.login(realm.user(name)) == []
        return client.request(f"$JS.API.{request}", b"", ANSWER_S)


async def test_a_new_account_is_answered_wherever_it_asks_first(tmp_path: Path) -> None:
    realm = Realm(more=ACCOUNTS[2:])
    for name in ACCOUNTS:
        limits = AccountLimits.unlimited()
        limits.disk_storage = limits.mem_storage = -1
        realm.bodies[name].limits = limits
    _, configs = write_configs(tmp_path, 3, realm.config)
    lab = Lab(tmp_path, 3)
    try:
        nodes = [
            lab.run(index, parse_args(["-c", str(config)]).options)
            for index, config in enumerate(configs)
        ]
        await lab.settled(3)
        follower = nodes[(lab.leader() or 0) - 1]
        port = int(follower.ports()["nats"][0].rpartition(":")[2])
        requests = ("INFO", "STREAM.NAMES", "STREAM.INFO.NONE", "STREAM.LIST")
        for number, name in enumerate(ACCOUNTS):
            request = requests[number % len(requests)]
            answer = await asyncio.to_thread(first_answer, port, realm, name, request)
            assert isinstance(answer, dict), request
            assert ("error" in answer) == (request == "STREAM.INFO.NONE"), answer
    finally:
        await lab.stop()
