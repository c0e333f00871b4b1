"""The fields of messages that nobody has described: learnt from the first ones of a read."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headwater.spark.options import SourceOptions
from headwater.spark.read.block_fetch import BlockFetch
from headwater.spark.read.blocks import Wanted
from headwater.spark.read.consumer_fetch import ConsumerFetch
from headwater.spark.read.planning import SequenceRange
from headwater.spark.read.range_reader import Fetch
from headwater.spark.read.value_decoder import untyped
from headwater.spark.read.value_types import infer_types
from headwater.spark.wire.wire_reader import PAYLOAD_LIST, WireReader

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

#: Messages that are looked at.
SAMPLE_ROWS = 1000


def infer_fields(options: SourceOptions, ranges: Iterable[SequenceRange]) -> "dict[str, DataType]":
    """Field names and types of the first messages of the read. What is no message of the format
    is passed over. Raises OptionError when there is none, and ConnectError."""
    decode = untyped(options.value_format)
    return infer_types(_decoded(decode, _payloads(options, ranges)))


def _decoded(decode: Any, payloads: Iterable[bytes]) -> Iterable[Any]:
    for payload in payloads:
        try:
            yield decode(payload)
        except (ValueError, RecursionError):
            continue


def _payloads(options: SourceOptions, ranges: Iterable[SequenceRange]) -> Iterable[bytes]:
    left = SAMPLE_ROWS
    for work in ranges:
        fetch = _fetch(options, work)
        with fetch.connect() as connection:
            for columns in fetch.read(connection):
                taken = (columns.payloads or [])[:left]
                yield from taken
                left -= len(taken)
                if left <= 0:
                    return


def _fetch(options: SourceOptions, work: SequenceRange) -> Fetch:
    if work.blocks:
        return BlockFetch(options, work, Wanted(subject=False, payload=PAYLOAD_LIST))
    wire = WireReader(work.start, work.end, 1 << 16, False, PAYLOAD_LIST)
    return ConsumerFetch(options, work, wire)
