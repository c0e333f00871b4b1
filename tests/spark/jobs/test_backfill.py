"""Backfill: what an export wrote comes into a stream once, in order, whatever stops it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.spark.errors import (
    LostRangeError,
    OptionError,
    StreamRecreatedError,
    UnsupportedStreamError,
)
from headwater.spark.jobs import backfill
from headwater.spark.jobs.backfill import run_backfill
from headwater.spark.jobs.export import MANIFEST, run_export
from headwater.spark.write.ledger import STREAM as LEDGER
from tests.waiting import until

ROWS = 30
DELETED = 8


def messages(name: str) -> list[tuple[str, bytes, dict[str, str] | None]]:
    """Payloads of all kinds, and headers that told the stream of the origin what to do."""
    told = {"Nats-Rollup": "sub", "Nats-Expected-Stream": name, "Nats-Msg-Id": "same"}
    return [
        (f"{name}.{i}", b"" if i == 5 else b'a,"\n%d\xff' % i,
         {"k": f"v{i}"} | (told if i == 3 else {}) if i % 2 else None)
        for i in range(ROWS)
    ]  # fmt: skip


@pytest.fixture
def ledger(server: Any) -> Any:
    """What the ledger knows goes away with the test."""
    yield
    try:
        server.run(lambda _, js: js.delete_stream(LEDGER))
    except Exception as error:
        assert "not found" in str(error)


def stored(server: Any, name: str) -> list[tuple[str, bytes, dict[str, str]]]:
    async def work(connection: Any, js: Any) -> list[tuple]:
        last = (await js.stream_info(name)).state.last_seq
        found = [await js.get_msg(name, at) for at in range(1, last + 1)]
        return [(each.subject, each.data or b"", dict(each.headers or {})) for each in found]

    return server.run(work)


def expected(name: str, target: str) -> list[tuple[str, bytes, dict[str, str]]]:
    return [
        (f"old.{subject}", payload,
         {"Nats-Msg-Id": f"{name}:{i + 1}", "Nats-Expected-Stream": target}
         | ({"k": f"v{i}"} if i % 2 else {}))
        for i, (subject, payload, _) in enumerate(messages(name))
        if i + 1 != DELETED
    ]  # fmt: skip


@pytest.mark.usefixtures("one_server")
def test_a_backfill_goes_on_where_it_stopped(
    spark: Any, server: Any, fill: Callable, run: Callable, tmp_path: Path, ledger: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    fill("ORIG", messages("ORIG"), allow_rollup_hdrs=True, delete=(DELETED,))
    fill("HIST", [], subjects=["old.>"], duplicate_window=0.1)
    out = str(tmp_path / "out")
    run_export(server.options("ORIG", partitions="6"), out, spark=spark, piece=3)
    target, commit, calls = server.options("HIST"), backfill.commit_batch, []

    def stops(options: Any, written: Any, batch: int) -> None:
        calls.append(batch)
        if len(calls) == 2:
            raise InterruptedError
        commit(options, written, batch)

    monkeypatch.setattr(backfill, "commit_batch", stops)
    with pytest.raises(InterruptedError):
        run_backfill(target, out, "old.", spark=spark, step=10)
    server.run(lambda _, js: forgotten(js))
    half = len(stored(server, "HIST"))
    done = run_backfill(target, out, "old.", spark=spark, step=10)
    # Pieces of 15 sequences are steps of 10 and 5; the second was written and not entered.
    assert calls == [0, 1, 1, 2, 3] and half == 14 + 2
    assert (done.earlier, done.already, done.rows, done.planned) == (9, 5, 15, 29)
    found = [each for each in stored(server, "HIST") if each[0] != "old.probe"]
    assert found == expected("ORIG", "HIST")
    again = run_backfill(target, out, "old.", spark=spark, step=10)
    assert again.whole and (again.earlier, again.rows) == (29, 0)

    server.run(lambda _, js: js.delete_stream("HIST"))
    fill("HIST", [], subjects=["old.>"])
    with pytest.raises(StreamRecreatedError, match="delete the key backfill-"):
        run_backfill(target, out, "old.", spark=spark, step=10)


async def forgotten(js: Any) -> None:
    """Until the stream has forgotten ids: one that came after the others is taken again."""

    async def publish() -> bool:
        return (await js.publish("old.probe", b"", headers={"Nats-Msg-Id": "probe"})).duplicate

    assert not await publish()
    await until(lambda: taken(publish))


async def taken(publish: Callable) -> bool:
    return not await publish()


@pytest.mark.usefixtures("one_server")
def test_a_backfill_follows_an_export_that_follows(
    spark: Any, server: Any, fill: Callable, run: Callable, tmp_path: Path, ledger: None
) -> None:
    fill("GROWS", [])
    fill("LATER", [], subjects=["old.>"], duplicate_window=0.1)
    out = str(tmp_path / "out")
    export = ("export", "-s", server.url, "--stream", "GROWS", "--out", out, "--follow", "--once")
    words = ("backfill", "-s", server.url, "--stream", "LATER", "--from", out, "--prefix", "old.")

    def grow(first: int, count: int) -> None:
        async def work(connection: Any, js: Any) -> None:
            for n in range(first, first + count):
                await js.publish(f"GROWS.{n}", b"%d" % n)

        server.run(work)
        assert run(*export).exit_code == 0

    def followed() -> dict[str, Any]:
        done = run(*words, "--follow", "--once", "--plot", str(tmp_path / "followed.svg"))
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)["totals"]

    assert run(*words, "--follow", "--once").exit_code == 2
    grow(1, 0)
    assert (followed()["planned"], followed()["steps"]) == (0, 0)
    grow(1, 3)
    totals = followed()
    assert (totals["rows"], totals["earlier"], totals["planned"]) == (3, 0, 3)
    grow(4, 2)
    totals = followed()
    assert (totals["rows"], totals["earlier"], totals["planned"]) == (2, 3, 5)
    drawn = (tmp_path / "followed.svg").read_text()
    assert "2 of 5 messages written into LATER" in drawn
    written = {"stream": "GROWS", "first": 4, "last": 5, "rows": 2, "kind": "written"}
    assert totals["parts"] == [
        {"stream": "GROWS", "first": 1, "last": 3, "rows": 3, "kind": "earlier"}, written
    ]
    # A piece that is not complete is left to later rounds; without --follow it is an error.
    grow(6, 1)
    manifest = Path(out) / MANIFEST
    kept = manifest.read_text()
    cut = json.loads(kept)
    del cut["pieces"][2]["rows"]
    manifest.write_text(json.dumps(cut))
    assert (followed()["rows"], followed()["planned"]) == (0, 5)
    whole = run(*words)
    assert whole.exit_code == 2 and "--follow" in whole.stderr
    manifest.write_text(kept)
    # A whole backfill of the same export goes on where the other ended, in any folder.
    moved = Path(out).rename(tmp_path / "moved")
    server.run(lambda _, js: forgotten(js))
    picture = tmp_path / "x.svg"
    last = run(*words[:-3], str(moved), *words[-2:], "--json", "--plot", str(picture))
    assert last.exit_code == 0, last.output
    told = json.loads(last.stdout)
    assert (told["rows"], told["earlier"], told["planned"]) == (1, 5, 6)
    assert picture.read_bytes().startswith(b"<?xml")
    found = [each for each in stored(server, "LATER") if each[0] != "old.probe"]
    assert [subject for subject, _, _ in found] == [f"old.GROWS.{n}" for n in range(1, 7)]


@pytest.mark.parametrize("form", ["csv", "json"])
def test_every_format_comes_back(
    spark: Any, server: Any, fill: Callable, run: Callable, tmp_path: Path, ledger: None, form: str
) -> None:
    fill("FORM", messages("FORM"), allow_rollup_hdrs=True, delete=(DELETED,))
    fill("BACK", [], subjects=["old.>"])
    out = tmp_path / "out"
    run_export(server.options("FORM", partitions="2"), str(out), form, spark=spark)
    words = ("backfill", "-s", server.url, "--stream", "BACK", "--from", str(out))
    done = run(*words, "--prefix", "old.", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["rows"], told["planned"], told["steps"]) == (29, 29, 1)
    assert stored(server, "BACK") == expected("FORM", "BACK")
    text = run(*words, "--prefix", "old.")
    assert text.stdout.splitlines()[1].startswith(
        "planned 29, written 0, there already 0, by earlier runs 29"
    )


@pytest.mark.usefixtures("one_server")
def test_what_cannot_be_backfilled(
    spark: Any, server: Any, fill: Callable, run: Callable, tmp_path: Path, ledger: None
) -> None:
    fill("WHOLE", messages("WHOLE"), allow_rollup_hdrs=True)
    fill("ONTO", [], subjects=["old.>"])
    fill("KEEPS", [], max_msgs_per_subject=1)
    out = tmp_path / "out"
    run_export(server.options("WHOLE", partitions="2"), str(out), spark=spark)
    with pytest.raises(UnsupportedStreamError, match="forgets"):
        run_backfill(server.options("KEEPS"), str(out), spark=spark)
    words = ("backfill", "-s", server.url, "--stream", "ONTO")
    wrong = run(*words, "--from", str(out), "--prefix", "a b")
    assert wrong.exit_code == 2 and "--prefix" in wrong.stderr
    nothing = run(*words, "--from", str(tmp_path))
    assert nothing.exit_code == 2 and "no export" in nothing.stderr
    # The origin still takes those subjects.
    refused = run(*words, "--from", str(out))
    assert refused.exit_code == 1 and "expected stream does not match" in refused.stderr

    (victim, *_) = sorted(out.rglob("*.parquet"))
    kept = victim.read_bytes()
    victim.unlink()
    with pytest.raises(LostRangeError, match="of 30 rows that were exported"):
        run_backfill(server.options("ONTO"), str(out), "old.", spark=spark)
    victim.write_bytes(kept)
    manifest = json.loads((out / MANIFEST).read_text())
    del manifest["pieces"][0]["rows"]
    (out / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(OptionError, match="finish it with --resume"):
        run_backfill(server.options("ONTO"), str(out), "old.", spark=spark)
    assert stored(server, "ONTO") == []
