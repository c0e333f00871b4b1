"""Reads over the wire, without a JVM: exactly the rows of the range, or an error that says why."""

import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import cbor2
import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from headwater.spark.errors import (
    AuthError,
    ConnectError,
    LostRangeError,
    StreamRecreatedError,
    UnknownStreamError,
    UnsupportedStreamError,
)
from headwater.spark.source import FilteredReader, HeadwaterSource
from tests.spark.conftest import SERVER_KINDS, start_server
from tests.spark.cutting_proxy import CuttingProxy
from tests.waiting import silence, until_state


def numbered(name: str, count: int, size: int = 20) -> list[tuple[str, bytes, None]]:
    return [(f"{name}.{i % 3}", f"{i}:".encode().ljust(size, b"."), None) for i in range(count)]


def open_source(options: dict[str, str]) -> tuple[Any, list]:
    source = HeadwaterSource(options)
    reader = source.reader(source.schema())
    return reader, reader.partitions()


def read_parts(reader: Any, partitions: list) -> list[list[dict]]:
    return [
        [row for batch in reader.read(part) for row in batch.to_pylist()] for part in partitions
    ]


def read(options: dict[str, str]) -> list[dict]:
    reader, partitions = open_source(options)
    return [row for part in read_parts(reader, partitions) for row in part]


def by_nats_py(server: Any, stream: str) -> list[tuple]:
    async def work(connection: Any, js: Any) -> list[tuple]:
        last = (await js.stream_info(stream)).state.last_seq
        rows = []
        subscription = await js.subscribe(">", stream=stream, ordered_consumer=True)
        while not rows or rows[-1][1] < last:
            message = await subscription.next_msg(timeout=5)
            meta = message.metadata
            micros = round(meta.timestamp.timestamp() * 1_000_000)
            rows.append((message.subject, meta.sequence.stream, micros, message.data))
        return rows

    return server.run(work)


def as_tuples(rows: list[dict]) -> list[tuple]:
    return [
        (row["subject"], row["sequence"], round(row["timestamp"].timestamp() * 1e6), row["payload"])
        for row in rows
    ]


def test_the_same_content_as_nats_py(server: Any, fill: Callable) -> None:
    fill("SAME", [*numbered("SAME", 500), ("SAME.x", b"", None), ("SAME.y", b"\x00\xff\r\n", None)])
    ours = as_tuples(read(server.options("SAME", partitions="3")))
    theirs = by_nats_py(server, "SAME")
    # nats-py keeps times as floating point seconds, so the last microsecond may differ.
    assert [row[:2] + row[3:] for row in ours] == [row[:2] + row[3:] for row in theirs]
    assert max(abs(a[2] - b[2]) for a, b in zip(ours, theirs, strict=True)) <= 1


def test_partitions_are_sequence_ranges(server: Any, fill: Callable) -> None:
    fill("PARTS", numbered("PARTS", 100))
    reader, partitions = open_source(server.options("PARTS", partitions="7"))
    parts = read_parts(reader, partitions)
    assert len(parts) == 7 and all(parts)
    assert [row["sequence"] for part in parts for row in part] == list(range(1, 101))


@pytest.mark.parametrize("partitions", ["1", "5"])
def test_gaps_after_deletes(server: Any, fill: Callable, partitions: str) -> None:
    gone = (1, 2, 10, 11, 12, 39, 40)
    fill("GAPS", numbered("GAPS", 40), delete=gone)
    rows = read(server.options("GAPS", partitions=partitions))
    assert [row["sequence"] for row in rows] == [n for n in range(1, 41) if n not in gone]


def test_an_empty_stream_and_an_empty_range(server: Any, fill: Callable) -> None:
    fill("EMPTY", [])
    assert read(server.options("EMPTY")) == []
    fill("SOME", numbered("SOME", 5))
    assert read(server.options("SOME", starting="6")) == []
    assert read(server.options("SOME", starting="4", ending="3")) == []


def test_a_purged_stream_is_empty(server: Any, fill: Callable) -> None:
    fill("PURGED", numbered("PURGED", 5))
    server.run(lambda connection, js: js.purge_stream("PURGED"))
    assert read(server.options("PURGED")) == []


@pytest.mark.parametrize(
    ("subjects", "wanted"), [("F.1", {1}), ("F.0,F.2", {0, 2}), ("F.*", {0, 1, 2}), ("F.9", set())]
)
def test_subject_filters(server: Any, fill: Callable, subjects: str, wanted: set[int]) -> None:
    fill("F", numbered("F", 60), subjects=["F.>"])
    rows = read(server.options("F", subjects=subjects, partitions="4"))
    assert [row["sequence"] for row in rows] == [n + 1 for n in range(60) if n % 3 in wanted]


def test_start_and_end(server: Any, fill: Callable) -> None:
    fill("SLICE", numbered("SLICE", 30))
    rows = read(server.options("SLICE", starting="11", ending="20"))
    assert [row["sequence"] for row in rows] == list(range(11, 21))


def test_the_end_is_fixed_when_it_is_loaded(server: Any, fill: Callable) -> None:
    fill("FIXED", numbered("FIXED", 10))
    source = HeadwaterSource(server.options("FIXED"))
    server.run(lambda connection, js: js.publish("FIXED.late", b"late"))
    reader = source.reader(source.schema())
    rows = [row for part in read_parts(reader, reader.partitions()) for row in part]
    assert [row["sequence"] for row in rows] == list(range(1, 11))


def test_headers_as_map_and_raw(server: Any, fill: Callable) -> None:
    fill("HEADS", [("HEADS.a", b"1", {"A": "x", "B": "y z"}), ("HEADS.b", b"2", None)])
    rows = read(server.options("HEADS", headers="map"))
    assert [dict(row["headers"]) for row in rows] == [{"A": "x", "B": "y z"}, {}]
    raw = read(server.options("HEADS", headers="raw"))
    assert raw[0]["headers"].startswith(b"NATS/1.0\r\n") and raw[1]["headers"] == b""


def test_columns_without_payload_leave_it_on_the_server(server: Any, fill: Callable) -> None:
    fill("COLS", numbered("COLS", 20, size=1000))
    rows = read(server.options("COLS", columns="stream,sequence"))
    assert rows == [{"stream": "COLS", "sequence": n} for n in range(1, 21)]


def test_several_streams(server: Any, fill: Callable) -> None:
    fill("ONE", numbered("ONE", 5))
    fill("TWO", numbered("TWO", 7))
    rows = read(server.options("ONE,TWO", partitions="2"))
    assert [(row["stream"], row["sequence"]) for row in rows] == [
        *(("ONE", n) for n in range(1, 6)),
        *(("TWO", n) for n in range(1, 8)),
    ]


def test_batches_keep_to_their_size(server: Any, fill: Callable) -> None:
    fill("BIG", numbered("BIG", 300, size=2000))
    reader, partitions = open_source(server.options("BIG", batchBytes="65536"))
    batches = [batch for part in partitions for batch in reader.read(part)]
    assert sum(batch.num_rows for batch in batches) == 300
    assert max(batch.nbytes for batch in batches) < 65536 + 4096
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)


def test_messages_larger_than_one_pull(
    server: Any, fill: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.spark.read.consumer_fetch.PULL_BYTES", 4000)
    sizes = [10, 9000, 10, 60000, 10, 10]
    fill("WIDE", [("WIDE.a", b"x" * size, None) for size in sizes])
    rows = read(server.options("WIDE"))
    assert [len(row["payload"]) for row in rows] == sizes


def test_consumers_are_removed(server: Any, fill: Callable) -> None:
    fill("TIDY", numbered("TIDY", 50))
    read(server.options("TIDY", partitions="3", starting="2"))
    info = server.run(lambda connection, js: js.consumers_info("TIDY"))
    assert info == []


def test_an_unknown_stream(server: Any) -> None:
    with pytest.raises(UnknownStreamError, match="'NOPE' does not exist"):
        HeadwaterSource(server.options("NOPE"))


def test_an_unknown_domain(server: Any) -> None:
    with pytest.raises(UnknownStreamError, match="domain"):
        HeadwaterSource(server.options("NOPE", domain="elsewhere"))


def test_no_server() -> None:
    with pytest.raises(ConnectError, match=r"127\.0\.0\.1:1"):
        HeadwaterSource({"servers": "nats://127.0.0.1:1", "stream": "S"})


def test_a_work_queue_is_refused(server: Any, fill: Callable) -> None:
    fill("QUEUE", numbered("QUEUE", 3), retention="workqueue")
    with pytest.raises(UnsupportedStreamError, match="mirrors"):
        HeadwaterSource(server.options("QUEUE"))


def test_a_start_that_is_gone(server: Any, fill: Callable) -> None:
    fill("GONE", numbered("GONE", 10), delete=(1, 2, 3))
    with pytest.raises(LostRangeError, match="starts at sequence 4"):
        HeadwaterSource(server.options("GONE", starting="2"))
    rows = read(server.options("GONE", starting="2", failOnDataLoss="false"))
    assert [row["sequence"] for row in rows] == list(range(4, 11))


def test_rows_that_go_between_plan_and_read(server: Any, fill: Callable) -> None:
    fill("SHRINK", numbered("SHRINK", 10))
    strict = open_source(server.options("SHRINK"))
    loose = open_source(server.options("SHRINK", failOnDataLoss="false"))
    server.run(lambda connection, js: js.purge_stream("SHRINK", seq=6))
    with pytest.raises(LostRangeError, match="sequences 1 to 5"):
        read_parts(*strict)
    assert [row["sequence"] for row in read_parts(*loose)[0]] == list(range(6, 11))


def test_a_stream_that_was_made_again(server: Any, fill: Callable) -> None:
    fill("AGAIN", numbered("AGAIN", 5))
    opened = open_source(server.options("AGAIN"))
    server.run(lambda connection, js: js.delete_stream("AGAIN"))
    fill("AGAIN", numbered("AGAIN", 5))
    with pytest.raises(StreamRecreatedError):
        read_parts(*opened)


@pytest.mark.parametrize("headers", ["off", "map"])
def test_a_broken_connection_neither_loses_nor_repeats(
    server: Any, fill: Callable, headers: str
) -> None:
    fill("CUT", numbered("CUT", 3000, size=100), delete=(700, 2999, 3000))
    with CuttingProxy(int(server.url.rpartition(":")[2]), cuts=5, after=60_000) as proxy:
        options = server.options("CUT", headers=headers, batchBytes="65536")
        rows = read(options | {"servers": f"nats://127.0.0.1:{proxy.port}"})
        assert proxy.connections > 3
    assert [row["sequence"] for row in rows] == [n for n in range(1, 2999) if n != 700]


def test_a_consumer_that_is_deleted_under_way(
    server: Any, fill: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.spark.read.consumer_fetch.PULL_BYTES", 100_000)
    fill("TAKEN", numbered("TAKEN", 3000, size=1000))
    reader, partitions = open_source(server.options("TAKEN", batchBytes="65536"))
    batches: Iterator[pa.RecordBatch] = reader.read(partitions[0])
    got = next(batches).column("sequence").to_pylist()

    async def drop(connection: Any, js: Any) -> None:
        for info in await js.consumers_info("TAKEN"):
            await js.delete_consumer("TAKEN", info.name)

    server.run(drop)
    for batch in batches:
        got += batch.column("sequence").to_pylist()
    assert got == list(range(1, 3001))


def test_a_server_that_never_serves_ends_in_an_error(
    server: Any, fill: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.spark.wire.waits.MAX_S", 0.1)
    fill("DEAD", numbered("DEAD", 10))
    reader, partitions = open_source(server.options("DEAD", retryTimeout="0.5"))
    with CuttingProxy(int(server.url.rpartition(":")[2]), cuts=99, after=100) as proxy:
        endpoint = reader._options.endpoint
        object.__setattr__(endpoint, "servers", (("127.0.0.1", proxy.port, False),))
        with pytest.raises(ConnectError, match=r"times in 0\.5 s \(retryTimeout\)"):
            read_parts(reader, partitions)


@pytest.mark.parametrize("kind", SERVER_KINDS)
def test_a_server_that_restarts(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.spark.wire.waits.FIRST_S", 0.001)
    monkeypatch.setattr("headwater.spark.read.consumer_fetch.PULL_BYTES", 40_000)
    server = start_server(tmp_path, kind=kind)

    async def work(connection: Any, js: Any) -> None:
        await js.add_stream(name="BACK", subjects=["BACK.>"])
        for subject, payload, _ in numbered("BACK", 2000, size=200):
            await connection.publish(subject, payload)
        await until_state(js, "BACK", lambda state: state.last_seq == 2000)

    try:
        server.run(work)
        reader, partitions = open_source(server.options("BACK", batchBytes="65536"))
        batches = reader.read(partitions[0])
        got = next(batches).column("sequence").to_pylist()
        assert len(got) < 1000
        server.process.terminate()
        server.process.wait(10)
        # More tries fail than any number would allow that does not count seconds.
        with ThreadPoolExecutor(1) as pool:
            port = int(server.url.rpartition(":")[2])
            back = pool.submit(start_server, tmp_path, "", kind, port)
            for batch in batches:
                got += batch.column("sequence").to_pylist()
            server = back.result()
        assert got == list(range(1, 2001))
    finally:
        server.process.terminate()
        server.process.wait(10)


AUTH = """
accounts {{
  APP: {{ jetstream: enabled, users: [
    {{ user: reader, password: "hunter2" }}, {{ nkey: {nkey} }}
    {{ user: deaf, password: "x", permissions: {{ publish: "none" }} }}
  ] }}
}}
"""


async def one_message(connection: Any, js: Any) -> None:
    await js.add_stream(name="SAFE", subjects=["SAFE"])
    await js.publish("SAFE", b"1")


def test_user_and_nkey_authentication(make_server: Callable, tmp_path: Any) -> None:
    from headwater.security.nkeys import KeyPair

    pair = KeyPair.create("U")
    server = make_server(AUTH.format(nkey=pair.public_key))
    seed_file = tmp_path / "user.nk"
    seed_file.write_text(pair.seed)
    server.run(one_message, user="reader", password="hunter2")
    for given in (
        {"user": "reader", "password": "hunter2"},
        {"nkeySeedFile": str(seed_file)},
    ):
        assert len(read(server.options("SAFE", **given))) == 1
    for wrong in ({}, {"user": "reader", "password": "hunter3"}, {"token": "hunter2"}):
        with pytest.raises(AuthError) as caught:
            HeadwaterSource(server.options("SAFE", **wrong))
        assert "hunter" not in str(caught.value)
    with pytest.raises(AuthError, match="Permissions Violation"):
        HeadwaterSource(server.options("SAFE", user="deaf", password="x"))


def test_creds_of_an_operator(make_server: Callable, tmp_path: Any) -> None:
    from headwater.security import creds, jwt
    from headwater.security.claims import (
        NO_LIMIT,
        AccountBody,
        AccountClaims,
        AccountLimits,
        OperatorClaims,
        UserBody,
        UserClaims,
    )
    from headwater.security.nkeys import KeyPair

    operator, account, user, system = (KeyPair.create(kind) for kind in "OAUA")
    limits = AccountLimits.unlimited()
    for name in ("mem_storage", "disk_storage", "streams", "consumer"):
        setattr(limits, name, NO_LIMIT)
    body = AccountBody(limits=limits)
    account_claims = AccountClaims(sub=account.public_key, name="app", nats=body)
    user_claims = UserClaims(sub=user.public_key, name="u", nats=UserBody.unlimited())
    system_claims = AccountClaims(sub=system.public_key, name="sys")
    server = make_server(
        f"operator: {jwt.encode(OperatorClaims(sub=operator.public_key), operator)}\n"
        f"system_account: {system.public_key}\nresolver: MEMORY\nresolver_preload {{\n"
        f"{system.public_key}: {jwt.encode(system_claims, operator)}\n"
        f"{account.public_key}: {jwt.encode(account_claims, operator)} }}\n"
    )
    path = tmp_path / "user.creds"
    creds.write(path, jwt.encode(user_claims, account), user.seed)
    server.run(one_message, user_credentials=str(path))
    assert len(read(server.options("SAFE", credentialsFile=str(path)))) == 1
    with pytest.raises(AuthError):
        HeadwaterSource(server.options("SAFE"))


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1))
    builder = builder.not_valid_after(now + timedelta(days=1)).add_extension(address, False)
    certificate = builder.sign(key, hashes.SHA256())
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_file, key_file


@pytest.mark.parametrize("first", ["false", "true"])
def test_tls(make_server: Callable, tmp_path: Path, first: str) -> None:
    cert, key = write_certificate(tmp_path)
    server = make_server(
        f'tls {{ cert_file: "{cert}", key_file: "{key}", handshake_first: {first} }}'
    )
    context = ssl.create_default_context(cafile=str(cert))
    server.run(one_message, tls=context, tls_handshake_first=first == "true")
    more = {"tlsCaFile": str(cert), "tlsHandshakeFirst": first}
    assert len(read(server.options("SAFE", **more))) == 1
    with pytest.raises(ConnectError, match="certificate"):
        HeadwaterSource(server.options("SAFE", tlsHandshakeFirst=first))


def test_times_bound_a_read(server: Any, fill: Callable) -> None:
    """Between two times, whatever the filters; before and behind all, nothing or everything."""
    fill("TIMES", numbered("TIMES", 10))

    async def more(connection: Any, js: Any) -> str:
        await silence(0.005)
        moment = datetime.now(UTC).isoformat()
        for i in range(5):
            await js.publish("TIMES.late", b"%d" % i)
        return moment

    moment = server.run(more)
    ten, late = list(range(1, 11)), list(range(11, 16))
    for given, wanted in (
        ({"startingTimestamp": moment}, late),
        ({"endingTimestamp": moment}, ten),
        ({"startingTimestamp": moment, "subjects": "TIMES.1"}, []),
        ({"startingTimestamp": "2000-01-01T00:00:00Z", "endingTimestamp": moment}, ten),
        ({"startingTimestamp": "2199-01-01T00:00:00Z"}, []),
        ({"endingTimestamp": "2000-01-01T00:00:00+01:00"}, []),
        ({"startingTimestamp": "9999-12-31T23:59:59Z"}, []),
        ({"endingTimestamp": "9999-12-31T23:59:59Z"}, ten + late),
        ({"startingTimestamp": "1970-01-01T00:00:00+14:00"}, ten + late),
    ):
        assert [row["sequence"] for row in read(server.options("TIMES", **given))] == wanted


def test_nanoseconds(server: Any, fill: Callable) -> None:
    fill("NANO", numbered("NANO", 20))
    rows = read(server.options("NANO", columns="sequence,timestamp,timestamp_ns"))
    for row in rows:
        assert row["timestamp_ns"] // 1000 == round(row["timestamp"].timestamp() * 1e6)
    assert any(row["timestamp_ns"] % 1000 for row in rows)


def test_fields_are_learnt_on_request(server: Any, fill: Callable) -> None:
    messages = [("INFER.a", b'{"n":%d,"at":{"x":%d.5}}' % (i, i), None) for i in range(5)]
    fill("INFER", [*messages, ("INFER.a", b"no json", None)])
    rows = read(server.options("INFER", valueFormat="json", valueSchema="infer"))
    assert [(row["n"], row["at"]) for row in rows[:5]] == [(i, {"x": i + 0.5}) for i in range(5)]
    assert rows[5]["n"] is None and rows[5]["_corrupt_record"] == "no json"


def test_fields_of_clashing_types_are_learnt_as_their_text(server: Any, fill: Callable) -> None:
    messages = (b'{"v":1}', b'{"v":"one","w":{}}', b'{"v":{"x":[true,null]}}', b'{"v":null}')
    fill("CLASH", [("CLASH.a", message, None) for message in messages])
    rows = read(server.options("CLASH", valueFormat="json", valueSchema="infer"))
    assert [row["v"] for row in rows] == ["1", "one", '{"x":[true,null]}', None]
    assert [row["w"] for row in rows] == [None, "{}", None, None]
    assert [row["_corrupt_record"] for row in rows] == [None] * 4


@pytest.mark.parametrize("form", ["cbor", "msgpack"])
def test_what_is_cut_off_teaches_nothing(server: Any, fill: Callable, form: str) -> None:
    whole = {"cbor": cbor2.dumps, "msgpack": msgspec.msgpack.encode}[form]({"a": 1, "b": "x"})
    fill("CUT", [("CUT.a", payload, None) for payload in (whole[:-1], b"", b"\xff", whole)])
    rows = read(server.options("CUT", valueFormat=form, valueSchema="infer"))
    assert [(row["a"], row["b"]) for row in rows] == [(None, None)] * 3 + [(1, "x")]


def narrowed(options: dict[str, str], *filters: Any) -> tuple[list[int], int, list]:
    """Sequences that are read, rows that were planned, and the filters that Spark applies."""
    source = HeadwaterSource(options)
    schema = source.schema()
    reader = FilteredReader(source._options, source._laid_out(schema), source._ranges)
    rest = list(reader.pushFilters(list(filters)))
    parts = reader.partitions()
    rows = [row["sequence"] for part in read_parts(reader, parts) for row in part]
    return rows, sum(work.planned for part in parts for work in part.works), rest


def test_filters_of_sparks_are_met_by_the_server(server: Any, fill: Callable) -> None:
    fill("PUSH", numbered("PUSH", 60), delete=(25,))
    options = server.options("PUSH", partitions="2")
    at, subject = ("sequence",), ("subject",)
    above, below = GreaterThan(at, 20), LessThanOrEqual(at, 30)
    wanted = [n for n in range(21, 31) if n != 25]
    assert narrowed(options, above, below) == (wanted, 9, [])
    assert narrowed(options, EqualTo(at, 25)) == ([], 0, [])
    third = [n for n in range(1, 61) if n % 3 == 1 and n != 25]
    for one in (EqualTo(subject, "PUSH.0"), In(subject, ["PUSH.0"])):
        assert narrowed(options, one) == (third, len(third), [one])
    prefix = StringStartsWith(subject, "PUSH.")
    assert narrowed(options, prefix)[1:] == (59, [prefix])
    other = StringStartsWith(subject, "OTHER.x")
    assert narrowed(options, other)[0] == []
    late = GreaterThan(("timestamp",), datetime(2199, 1, 1))
    assert narrowed(options, late) == ([], 0, [late])
    for since in (datetime(1, 1, 1), datetime(1969, 1, 1)):
        first = GreaterThan(("timestamp",), since)
        assert narrowed(options, first)[1:] == (59, [first])
    until = LessThan(("timestamp",), datetime(9999, 12, 31))
    assert narrowed(options, until)[1:] == (59, [until])
    unknown = EqualTo(("payload",), b"x")
    assert narrowed(options, unknown)[1:] == (59, [unknown])
