"""Publishing into streams is answered as nats-server does: acks, refusals, limits, features."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

Steps = list[tuple[Any, ...]]
Compare = Callable[[Steps], Awaitable[None]]
STORAGES = ("memory", "file")


def create(name: str, **config: Any) -> tuple[Any, ...]:
    return f"STREAM.CREATE.{name}", {"name": name, **config}


def publish(subject: str, payload: bytes = b"x", **headers: str) -> tuple[Any, ...]:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return f"={subject}", payload, named or None


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_expectations(compare: Compare, storage: str) -> None:
    await compare(
        [
            create("EXP", subjects=["exp.*"], storage=storage),
            publish("exp.a"),
            publish("exp.b"),
            publish("exp.a", Nats_Expected_Stream="OTHER"),
            publish("exp.a", Nats_Expected_Stream="EXP"),
            publish("exp.a", Nats_Expected_Last_Sequence="1"),
            publish("exp.a", Nats_Expected_Last_Sequence="3"),
            publish("exp.a", Nats_Expected_Last_Sequence="abc"),
            publish("exp.a", Nats_Expected_Last_Subject_Sequence="2"),
            publish("exp.a", Nats_Expected_Last_Subject_Sequence="4"),
            publish("exp.new", Nats_Expected_Last_Subject_Sequence="0"),
            publish("exp.new", Nats_Expected_Last_Subject_Sequence="0"),
            publish("exp.a", Nats_Expected_Last_Subject_Sequence_Subject="exp.*"),
            publish(
                "exp.a",
                Nats_Expected_Last_Subject_Sequence="6",
                Nats_Expected_Last_Subject_Sequence_Subject="exp.*",
            ),
            publish("exp.a", Nats_Expected_Last_Msg_Id="none"),
            publish("exp.a", Nats_Msg_Id="one"),
            publish("exp.a", Nats_Expected_Last_Msg_Id="one", Nats_Msg_Id="two"),
            publish("exp.a", Nats_Expected_Last_Msg_Id="one"),
            ("STREAM.DELETE.EXP",),
        ]
    )


async def test_duplicates(compare: Compare, storage: str) -> None:
    await compare(
        [
            create("DUP", subjects=["dup.*"], storage=storage),
            publish("dup.a", Nats_Msg_Id="1"),
            publish("dup.a", b"other", Nats_Msg_Id="1"),
            publish("dup.b", Nats_Msg_Id="2"),
            publish("dup.b", Nats_Msg_Id="1"),
            ("STREAM.INFO.DUP",),
            ("STREAM.DELETE.DUP",),
        ]
    )


async def test_limits_that_refuse(compare: Compare, storage: str) -> None:
    await compare(
        [
            create("LM", subjects=["lm.*"], storage=storage, max_msgs=2, discard="new"),
            *[publish("lm.1")] * 3,
            create("LB", subjects=["lb.*"], storage=storage, max_bytes=100, discard="new"),
            *[publish("lb.1", b"x" * 50)] * 3,
            ("STREAM.INFO.LB",),
            create(
                "LS",
                subjects=["ls.*"],
                storage=storage,
                max_msgs_per_subject=1,
                discard="new",
                discard_new_per_subject=True,
            ),
            publish("ls.1"),
            publish("ls.1"),
            publish("ls.2"),
            create("LZ", subjects=["lz.*"], storage=storage, max_msg_size=5),
            publish("lz.1", b"123456"),
            publish("lz.1", b"12345"),
            *[(f"STREAM.DELETE.{name}",) for name in ("LM", "LB", "LS", "LZ")],
        ]
    )


async def test_limits_that_drop(compare: Compare, storage: str) -> None:
    await compare(
        [
            create("OM", subjects=["om.*"], storage=storage, max_msgs=2),
            *[publish("om.1")] * 3,
            ("STREAM.INFO.OM",),
            create("OB", subjects=["ob.*"], storage=storage, max_bytes=200),
            *[publish("ob.1", b"x" * 50)] * 4,
            ("STREAM.INFO.OB",),
            create("OS", subjects=["os.*"], storage=storage, max_msgs_per_subject=2),
            *[publish("os.1"), publish("os.2")] * 3,
            ("STREAM.INFO.OS", {"subjects_filter": ">"}),
            (
                "STREAM.UPDATE.OS",
                {"name": "OS", "subjects": ["os.*"], "storage": storage, "max_msgs_per_subject": 1},
            ),
            ("STREAM.INFO.OS", {"subjects_filter": ">"}),
            *[(f"STREAM.DELETE.{name}",) for name in ("OM", "OB", "OS")],
        ]
    )


async def test_roll_up(compare: Compare, storage: str) -> None:
    await compare(
        [
            create("RU", subjects=["ru.*"], storage=storage),
            publish("ru.1", Nats_Rollup="sub"),
            (
                "STREAM.UPDATE.RU",
                {"name": "RU", "subjects": ["ru.*"], "storage": storage, "allow_rollup_hdrs": True},
            ),
            *[publish("ru.1"), publish("ru.2")] * 2,
            publish("ru.1", Nats_Rollup="sub"),
            ("STREAM.INFO.RU", {"subjects_filter": ">"}),
            publish("ru.1", Nats_Rollup="nope"),
            publish("ru.1", Nats_Rollup="all"),
            ("STREAM.INFO.RU", {"subjects_filter": ">"}),
            ("STREAM.DELETE.RU",),
        ]
    )


async def test_interest_without_consumers(compare: Compare, storage: str) -> None:
    await compare(
        [
            create("IN", subjects=["in.*"], storage=storage, retention="interest"),
            publish("in.1"),
            publish("in.1", Nats_Msg_Id="a"),
            publish("in.1", Nats_Msg_Id="a"),
            ("STREAM.INFO.IN",),
            ("STREAM.DELETE.IN",),
        ]
    )


async def test_transform_and_first_sequence(compare: Compare, storage: str) -> None:
    await compare(
        [
            create(
                "TR",
                subjects=["tr.*"],
                storage=storage,
                first_seq=100,
                subject_transform={"src": "tr.*", "dest": "out.{{wildcard(1)}}"},
            ),
            ("STREAM.INFO.TR",),
            publish("tr.1"),
            ("STREAM.MSG.GET.TR", {"seq": 100}),
            ("STREAM.INFO.TR", {"subjects_filter": ">"}),
            ("STREAM.DELETE.TR",),
        ]
    )


async def test_ttl_headers(compare: Compare, storage: str) -> None:
    await compare(
        [
            create("TN", subjects=["tn.*"], storage=storage),
            publish("tn.1", Nats_TTL="5"),
            create(
                "TT",
                subjects=["tt.*"],
                storage=storage,
                allow_msg_ttl=True,
                subject_delete_marker_ttl=5_000_000_000,
            ),
            publish("tt.1", Nats_TTL="1"),
            publish("tt.2", Nats_TTL="never"),
            publish("tt.3", Nats_TTL="x"),
            publish("tt.3", Nats_TTL="100ms"),
            publish("tt.3", Nats_TTL="1h"),
            ("STREAM.MSG.GET.TT", {"seq": 1}),
            ("STREAM.INFO.TT",),
            ("STREAM.DELETE.TN",),
            ("STREAM.DELETE.TT",),
        ]
    )


async def test_counters(compare: Compare, storage: str) -> None:
    await compare(
        [
            create("NC", subjects=["nc.*"], storage=storage),
            publish("nc.1", b"", Nats_Incr="+1"),
            publish("nc.1", b"", Nats_Incr="x"),
            create(
                "CT", subjects=["ct.*"], storage=storage, allow_msg_counter=True, allow_direct=True
            ),
            publish("ct.1", b""),
            publish("ct.1", b"", Nats_Incr="+5"),
            publish("ct.1", b"", Nats_Incr="-2"),
            publish("ct.1", b"", Nats_Incr="340282366920938463463374607431768211456"),
            publish("ct.1", b"x", Nats_Incr="+5"),
            publish("ct.1", b"", Nats_Incr="x"),
            publish("ct.1", b"x", Nats_Incr="x"),
            publish("ct.1", b"", Nats_Incr="1", Nats_Rollup="sub"),
            ("STREAM.MSG.GET.CT", {"seq": 2}),
            ("DIRECT.GET.CT.ct.1",),
            ("STREAM.DELETE.NC",),
            ("STREAM.DELETE.CT",),
        ]
    )


def batched(batch: str, sequence: int, commit: str = "", **more: str) -> tuple[Any, ...]:
    headers = {"Nats_Batch_Id": batch, "Nats_Batch_Sequence": str(sequence), **more}
    if commit:
        headers["Nats_Batch_Commit"] = commit
    return publish("at.1", b"x", **headers)


async def test_atomic_batches(compare: Compare, storage: str) -> None:
    await compare(
        [
            create("NA", subjects=["na.*"], storage=storage),
            publish("na.1", Nats_Batch_Id="a", Nats_Batch_Sequence="1"),
            create("AT", subjects=["at.*"], storage=storage, allow_atomic=True),
            batched("a", 1),
            batched("a", 2),
            ("STREAM.INFO.AT",),
            batched("a", 3, "1"),
            batched("b", 2),
            publish("at.1", Nats_Batch_Id="c"),
            batched("d" * 65, 1),
            batched("e", 1),
            batched("e", 3, "1"),
            batched("f", 1),
            batched("f", 2, "eob"),
            batched("g", 1, Nats_Expected_Last_Sequence="4"),
            batched("g", 2, "1"),
            batched("h", 1, Nats_Expected_Last_Sequence="1"),
            batched("h", 2, "1"),
            batched("i", 1, "1"),
            ("STREAM.INFO.AT",),
            ("STREAM.MSG.GET.AT", {"seq": 4}),
            ("STREAM.DELETE.NA",),
            ("STREAM.DELETE.AT",),
        ]
    )


async def test_headers_only_the_server_sets(compare: Compare, storage: str) -> None:
    await compare(
        [
            create("HS", subjects=["hs.*"], storage=storage),
            publish("hs.1", Nats_Stream_Source="x"),
            publish("hs.1", Nats_Schedule="@at 2020-01-01T00:00:00Z"),
            ("STREAM.DELETE.HS",),
        ]
    )


def scheduled(pattern: str, target: str = "sc.target", **more: str) -> tuple[Any, ...]:
    headers = {"Nats_Schedule": pattern, "Nats_Schedule_Target": target, **more}
    return publish("sc.one", b"x", **headers)


async def test_schedules(compare: Compare, storage: str) -> None:
    far = "@at 2099-01-01T00:00:00Z"
    await compare(
        [
            create("NSC", subjects=["nsc.*"], storage=storage),
            publish("nsc.1", Nats_Schedule=far, Nats_Schedule_Target="nsc.2"),
            create("SC", subjects=["sc.*"], storage=storage, allow_msg_schedules=True),
            scheduled(far),
            scheduled(far),
            scheduled("@at nonsense"),
            scheduled("@every 1h"),
            scheduled("@every 1ms"),
            scheduled("@daily"),
            scheduled("0 0 12 * * mon-fri"),
            scheduled("0 0 12 * *"),
            scheduled("61 0 12 * * *"),
            scheduled(far, "other"),
            scheduled(far, "sc.one"),
            scheduled(far, "sc.*"),
            scheduled(far, Nats_Schedule_TTL="5"),
            scheduled(far, Nats_Schedule_Rollup="all"),
            scheduled(far, Nats_Rollup="all"),
            scheduled("@daily", Nats_Schedule_Time_Zone="Europe/Berlin"),
            scheduled("@daily", Nats_Schedule_Time_Zone="Nowhere/None"),
            scheduled(far, Nats_Schedule_Time_Zone="Europe/Berlin"),
            scheduled(far, Nats_Schedule_Source="sc.source"),
            scheduled(far, Nats_Schedule_Source="sc.target"),
            publish("sc.two", Nats_Scheduler="sc.one"),
            publish("sc.two", Nats_Scheduler="sc.one", Nats_Schedule_Next="later"),
            ("STREAM.INFO.SC", {"subjects_filter": ">"}),
            publish("sc.two", Nats_Scheduler="sc.one", Nats_Schedule_Next="purge"),
            ("STREAM.INFO.SC", {"subjects_filter": ">"}),
            ("STREAM.DELETE.NSC",),
            ("STREAM.DELETE.SC",),
        ]
    )
