"""A user whose token expires while a query runs, with both servers: newer credentials in the same
file are used, and without them the error says what to do."""

import os
import pickle
import select
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headwater.security import creds
from headwater.security.claims import NO_LIMIT
from headwater.spark.errors import AuthError
from headwater.spark.source import HeadwaterSource
from tests.operator_realm import Realm
from tests.spark.conftest import SERVER_KINDS, Server, end, start_server
from tests.waiting import until_seen

COUNT = 20
LIFE_S = 2.5
"""Seconds that a token is good for; a token ends at a whole second, up to one before."""


class Plant:
    """A server in operator mode, a stream of `COUNT` messages, and a file of credentials."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.realm = Realm()
        limits = self.realm.bodies["A"].limits
        for name in ("mem_storage", "disk_storage", "streams", "consumer"):
            setattr(limits, name, NO_LIMIT)
        self.server: Server = start_server(folder, self.realm.config(), kind)
        self.file = folder / "reader.creds"
        writer = folder / "writer.creds"
        self.write(writer, 0)
        self.publishes = {"user_credentials": str(writer)}

    def write(self, path: Path, exp: int) -> None:
        """A new user into a file, whole at any moment."""
        user = self.realm.user("A", exp=exp)
        creds.write(path.with_suffix(".new"), user.token, user.pair.seed)
        os.replace(path.with_suffix(".new"), path)

    def publish(self) -> None:
        """`COUNT` messages more."""

        async def work(_: Any, stream: Any) -> None:
            await stream.add_stream(name="S", subjects=["s"])
            for _ in range(COUNT):
                await stream.publish("s", b"x")

        self.server.run(work, **self.publishes)

    def source(self) -> HeadwaterSource:
        """A source that logs in with the file."""
        return HeadwaterSource(self.server.options("S", credentialsFile=str(self.file)))

    def expires(self) -> int:
        """Write a user that soon expires; returns when."""
        moment = int(time.time() + LIFE_S)
        self.write(self.file, moment)
        return moment


@pytest.fixture(params=SERVER_KINDS)
def plant(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Plant]:
    made = Plant(tmp_path, request.param)
    made.publish()
    yield made
    end(made.server)


def has_expired(moment: int, reader: Any = None) -> None:
    """Wait until the server takes the token no more, and has said so to a query's driver.

    nats-server takes it until its last second has gone by.
    """
    until_seen(lambda: time.time() > moment + 1.1, "the token has expired", 10)
    if reader is not None:
        kept = [reader._connection._socket]
        until_seen(lambda: select.select(kept, [], [], 0)[0], "the server has cut it", 10)


def rows(reader: Any, start: Any, stop: Any) -> int:
    """Read a microbatch as tasks on another machine would: from pickled copies."""
    parts = pickle.loads(pickle.dumps(reader.partitions(start, stop)))
    there = pickle.loads(pickle.dumps(reader))
    return sum(batch.num_rows for part in parts for batch in there.read(part))


def test_a_query_goes_on_with_newer_credentials(plant: Plant) -> None:
    moment = plant.expires()
    source = plant.source()
    reader: Any = source.streamReader(source.schema())
    start = reader.initialOffset()
    stop = reader.latestOffset(start, ReadAllAvailable())
    assert rows(reader, start, stop) == COUNT
    has_expired(moment, reader)
    plant.write(plant.file, 0)
    plant.publish()
    again = reader.latestOffset(stop, ReadAllAvailable())
    assert rows(reader, stop, again) == COUNT
    reader.stop()


def test_a_task_goes_on_with_newer_credentials(plant: Plant) -> None:
    """The batch was planned before, and its task has a file of that name too."""
    moment = plant.expires()
    source = plant.source()
    reader: Any = source.reader(source.schema())
    parts = reader.partitions()
    has_expired(moment)
    plant.write(plant.file, 0)
    assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == COUNT


def test_without_newer_ones_the_error_says_what_to_do(plant: Plant) -> None:
    moment = plant.expires()
    source = plant.source()
    reader: Any = source.streamReader(source.schema())
    start = reader.initialOffset()
    batch: Any = source.reader(source.schema())
    parts = batch.partitions()
    has_expired(moment, reader)
    expected = f"expired at 2.*Put a newer one into {plant.file}, and start again"
    with pytest.raises(AuthError, match=expected):
        reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(AuthError, match=expected):
        list(batch.read(parts[0]))
    reader.stop()
