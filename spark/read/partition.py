"""One task's work: a range of sequences, read into Arrow batches on an executor."""

import gc
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from headwater.spark.credentials import Credentials, newest, replaced
from headwater.spark.options import SourceOptions
from headwater.spark.read.account import Missing, RangeReport, report_missing
from headwater.spark.read.block_fetch import BlockFetch
from headwater.spark.read.consumer_fetch import ConsumerFetch
from headwater.spark.read.latest_values import LatestValues
from headwater.spark.read.layout import BatchMaker, Layout, wanted_columns
from headwater.spark.read.planning import TARGET_BYTES, TARGET_ROWS, TASKS_PER_CORE, SequenceRange
from headwater.spark.read.range_reader import Fetch, RangeReader
from headwater.spark.wire.wire_reader import WireReader

if TYPE_CHECKING:
    import pyarrow as pa

#: Reads of one worker process after which its long-lived objects are surely made.
_FREEZE_READS = 4
_reads = 0
#: The end of a range that goes on to wherever its stream ends.
OPEN_END = 1 << 53
#: Tasks of small ranges where the number of cores is not known: more than a cluster of some size
#: has, and little overhead on one.
DEFAULT_MOST = 64
#: Tasks of small ranges for each core: more would only add their own cost.
SMALL_PER_CORE = 4
#: What a range costs beside its rows, in rows: a few questions to the server.
RANGE_ROWS = 5000

_log = logging.getLogger(__name__)


class RangePartition(InputPartition):
    """One task's work: a range, or several small ones.

    `credentials` are what the driver has in place of those that the query began with.
    """

    def __init__(self, *works: SequenceRange) -> None:
        super().__init__(works)
        self.works = works
        self.credentials: Credentials | None = None

    def __repr__(self) -> str:
        return f"RangePartition({', '.join(map(str, self.works))})"


def packed(works: Sequence[SequenceRange], options: SourceOptions) -> list[InputPartition]:
    """Partitions of ranges, in their order: one for each, as long as these are not more than the
    options, the cores and the rows ask for; above that, ranges share partitions of about equal
    size."""
    # A range has a cost of its own, however few rows it has.
    sizes = [work.planned + RANGE_ROWS for work in works]
    most = options.max_partitions or _useful(works, options)
    if len(works) <= most:
        return _with_credentials([RangePartition(work) for work in works], options)
    share = sum(sizes) / most
    groups: list[list[SequenceRange]] = [[] for _ in range(most)]
    before = 0
    for work, size in zip(works, sizes, strict=True):
        groups[min(most - 1, int((before + size / 2) / share))].append(work)
        before += size
    made = [RangePartition(*group) for group in groups if group]
    return _with_credentials(made, options)


def _with_credentials(
    partitions: list[RangePartition], options: SourceOptions
) -> list[InputPartition]:
    """Partitions that carry what was read again from a file, which executors may not have."""
    newer = newest(options.endpoint.credentials)
    if newer != options.endpoint.credentials:
        for partition in partitions:
            partition.credentials = newer
    return list(partitions)


def _useful(works: Sequence[SequenceRange], options: SourceOptions) -> int:
    """How many partitions there is use for: more where ranges are large together, and not more
    than the cores can share. Who says the number of `partitions` of a stream means it."""
    rows = sum(work.planned for work in works)
    size = sum(work.planned * work.mean_bytes for work in works)
    large = int(max(rows / TARGET_ROWS, size / TARGET_BYTES)) + 1
    if options.cores is None or options.partitions is not None:
        return max(DEFAULT_MOST, large)
    return min(max(SMALL_PER_CORE * options.cores, large), TASKS_PER_CORE * options.cores)


def read_partition(
    options: SourceOptions, layout: Layout, partition: InputPartition
) -> "Iterator[pa.RecordBatch]":
    """The rows of one partition, range by range."""
    works = partition.works if isinstance(partition, RangePartition) else partition.value
    newer = getattr(partition, "credentials", None)
    if newer is not None:
        replaced(options.endpoint.credentials, newer)
    for work in works:
        yield from _read_range(options, layout, work)


def _read_range(
    options: SourceOptions, layout: Layout, work: SequenceRange
) -> "Iterator[pa.RecordBatch]":
    """The rows of one range, and then the report of what became of the planned ones."""
    if work.end < work.start:
        _account(options, work, 0, Missing(0, 0), 0)
        return
    _freeze_garbage()
    if options.bucket and not options.changes:
        yield from read_table(options, layout, work)
        return
    maker = BatchMaker(layout, work.stream, options.fail_fast)
    reader = RangeReader(options, work, _fetch(options, layout, work))
    for columns in reader.batches():
        yield maker.batch(columns)
    _report(options, work, reader, maker.corrupt)


def read_table(
    options: SourceOptions, layout: Layout, work: SequenceRange
) -> "Iterator[pa.RecordBatch]":
    """The latest value of each key, at the moment at which the read has caught up.

    A key that changes under way is read again at its new place, so the read has no end but that
    of the stream. What is replaced meanwhile is not lost.
    """
    table = LatestValues(layout)
    work = replace(work, end=OPEN_END)
    options = replace(options, fail_on_data_loss=False)
    maker = BatchMaker(table.layout, work.stream, options.fail_fast)
    for columns in RangeReader(options, work, _fetch(options, table.layout, work)).batches():
        table.add(maker.batch(columns))
    yield from table.batches()


def _fetch(options: SourceOptions, layout: Layout, work: SequenceRange) -> Fetch:
    wanted = wanted_columns(layout)
    if work.blocks:
        return BlockFetch(options, work, wanted)
    wire = WireReader(
        work.start,
        work.end,
        options.batch_bytes,
        wanted.subject,
        wanted.payload,
        wanted.headers,
    )
    return ConsumerFetch(options, work, wire, _headers_only(layout))


def _report(options: SourceOptions, work: SequenceRange, reader: RangeReader, corrupt: int) -> None:
    """Tell the driver's account and the executor's log what became of the planned rows."""
    missing = reader.missing or Missing(0, 0)
    if missing.expired or missing.lost:
        _log.warning(
            "stream %s, sequences %d to %d: %d of %d planned rows expired, %d were lost; the "
            "result is without them: keep messages longer than a query takes",
            *(work.stream, work.start, work.end, missing.expired, work.planned, missing.lost),
        )
    _account(options, work, reader.delivered, missing, corrupt)


def _account(
    options: SourceOptions, work: SequenceRange, delivered: int, missing: Missing, corrupt: int
) -> None:
    """Tell the driver's account what became of a range, and of what was gone before it."""
    if options.account is None:
        return
    expired, lost = work.before
    planned = work.planned + expired + lost
    report = RangeReport(
        planned, delivered, missing.expired + expired, missing.lost + lost, corrupt
    )
    report_missing(options.account, work, report)


def _headers_only(layout: Layout) -> bool:
    """Leave payloads on the server. It then adds a Nats-Msg-Size header, which must not show."""
    return not layout.needs_payload and "headers" not in layout.meta.values()


def _freeze_garbage() -> None:
    """Keep the collector off what the worker has imported.

    Spark's worker daemon collects garbage after every task: 20 to 25 ms over the imports.
    """
    global _reads
    if _reads < _FREEZE_READS:
        _reads += 1
        gc.collect()
        gc.freeze()
