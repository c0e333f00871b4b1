"""The one list of modules that Cython compiles, and the tree it compiles them in.

The folders of the checkout are mapped to `headwater.*` by `package-dir`; Cython finds `.pxd`
files by import name, so the build makes a tree of links that looks like the import names.
"""

from pathlib import Path

PACKAGES = ("security", "edge", "federation", "hub", "spark", "deploy")

COMPILED = (
    "edge/subjects/tokens.py",
    "edge/subjects/text_hash.py",
    "edge/subjects/pattern_set.py",
    "edge/subjects/trie.py",
    "edge/wire/numbers.py",
    "edge/wire/time_text.py",
    "edge/wire/plain_json.py",
    "edge/wire/arguments.py",
    "edge/wire/pieces.py",
    "edge/wire/s2_blocks.py",
    "edge/wire/header_block.py",
    "edge/ports/machine_clock.py",
    "edge/kernel/send_crew.py",
    "edge/kernel/busy_poll.py",
    "edge/kernel/kernel.py",
    "edge/broker/rights/rules.py",
    "edge/broker/authorize.py",
    "edge/broker/match_cache.py",
    "edge/broker/account.py",
    "edge/broker/output.py",
    "edge/broker/conn.py",
    "edge/broker/keeping_sink.py",
    "edge/broker/msg_trace.py",
    "edge/broker/client.py",
    "edge/broker/interest_counts.py",
    "edge/broker/senders.py",
    "edge/broker/socket_share.py",
    "edge/broker/lanes.py",
    "edge/broker/halts.py",
    "edge/broker/link.py",
    "edge/storage/index/subject_table.py",
    "edge/storage/index/bit_planes.py",
    "edge/storage/index/page_spans.py",
    "edge/storage/index/page_spill.py",
    "edge/storage/index/packed_page.py",
    "edge/storage/index/page_packing.py",
    "edge/storage/index/index.py",
    "edge/storage/index/filter.py",
    "edge/storage/index/store.py",
    "edge/storage/index/memory.py",
    "edge/storage/index/message_rows.py",
    "edge/storage/format/listed_subjects.py",
    "edge/storage/format/crc.py",
    "edge/storage/format/record.py",
    "edge/storage/packing/dictionary_pieces.py",
    "edge/storage/packing/packing.py",
    "edge/storage/device/file_calls.py",
    "edge/storage/log/fresh_removals.py",
    "edge/storage/log/batch_writer.py",
    "edge/storage/log/batch_runs.py",
    "edge/storage/log/second_copies.py",
    "edge/storage/log/block_fit.py",
    "edge/storage/log/commit_thread.py",
    "edge/storage/log/log_restart.py",
    "edge/storage/log/aligned_memory.py",
    "edge/storage/log/adopted_records.py",
    "edge/storage/log/log_segment.py",
    "edge/storage/log/log_waiters.py",
    "edge/storage/log/lone_commit.py",
    "edge/storage/log/logged_store.py",
    "edge/storage/log/watermarks.py",
    "edge/storage/log/commit_progress.py",
    "edge/storage/log/commit_log.py",
    "edge/storage/segments/stream_segment.py",
    "edge/storage/segments/segment_builder.py",
    "edge/storage/segments/segment_window.py",
    "edge/storage/segments/file_store.py",
    "edge/storage/segments/segment_copy.py",
    "edge/storage/segments/dead_space.py",
    "edge/storage/segments/index_rows.py",
    "edge/storage/segments/index_load.py",
    "edge/storage/recovery/restore.py",
    "edge/storage/recovery/unbundling.py",
    "edge/storage/recovery/replay.py",
    "edge/storage/recovery/segment_scan.py",
    "edge/storage/recovery/torn_tail.py",
    "edge/storage/upkeep/checkpoint.py",
    "edge/storage/segments/dead_runs.py",
    "edge/storage/upkeep/compact.py",
    "edge/storage/erase/erase_log.py",
    "edge/storage/erase/erase_rows.py",
    "edge/storage/segments/log_share.py",
    "edge/storage/upkeep/scrub_check.py",
    "spark/wire/arrow_columns.py",
    "spark/wire/header_maps.py",
    "spark/wire/wire_reader.py",
    "spark/wire/json_times.py",
    "spark/wire/json_columns.py",
    "edge/subjects/transform.py",
    "edge/subjects/subject_tree.py",
    "edge/broker/mappings.py",
    "edge/broker/imports/responses.py",
    "edge/broker/imports/latency_watch.py",
    "edge/broker/imports/service_import.py",
    "edge/broker/imports/stream_imports.py",
    "edge/jetstream/replication/operations.py",
    "edge/jetstream/replication/read_gate.py",
    "edge/jetstream/replication/replicator.py",
    "edge/jetstream/stream/usage.py",
    "edge/jetstream/model/headers.py",
    "edge/jetstream/model/plain_frames.py",
    "edge/jetstream/stream/dedupe.py",
    "edge/jetstream/stream/puback.py",
    "edge/jetstream/stream/answers.py",
    "edge/jetstream/stream/identity.py",
    "edge/jetstream/stream/republish.py",
    "edge/jetstream/stream/stream_consumers.py",
    "edge/jetstream/stream/stream.py",
    "edge/jetstream/stream/expiry.py",
    "edge/jetstream/publish/batch.py",
    "edge/jetstream/publish/fast_batch.py",
    "edge/jetstream/publish/ingest.py",
    "edge/jetstream/publish/replay.py",
    "edge/jetstream/api/api_sinks.py",
    "edge/jetstream/read/direct_body.py",
    "edge/jetstream/read/direct_batch.py",
    "edge/jetstream/read/last_sink.py",
    "edge/jetstream/read/block_transfer.py",
    "edge/jetstream/stream/stream_observer.py",
    "edge/jetstream/progress/pending.py",
    "edge/jetstream/consumer/pull.py",
    "edge/jetstream/consumer/flow.py",
    "edge/jetstream/progress/delta.py",
    "edge/jetstream/consumer/delivery.py",
    "edge/jetstream/progress/saver.py",
    "edge/jetstream/consumer/demand.py",
    "edge/jetstream/progress/consumer.py",
    "edge/jetstream/consumer/acks.py",
    "edge/jetstream/consumer/interest.py",
    "federation/leaf/leaf_conn.py",
    "federation/leaf/interest.py",
    "federation/origins/origin_sink.py",
    "hub/routes/route_conn.py",
    "hub/routes/holding_sink.py",
    "hub/routes/unsent.py",
    "hub/routes/route_interest.py",
)


def link_tree(root: Path) -> Path:
    """Make `build/tree/headwater/<package>` links below `root`; returns `build/tree`."""
    tree = root / "build" / "tree"
    (tree / "headwater").mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        link = tree / "headwater" / package
        if not (link.is_symlink() and link.readlink() == root / package):
            link.unlink(missing_ok=True)
            link.symlink_to(root / package)
    return tree


def module_name(path: str) -> str:
    """Import name of a listed source: `edge/wire/numbers.py` -> `headwater.edge.wire.numbers`."""
    return "headwater." + path.removesuffix(".py").replace("/", ".")


def remove_strays(root: Path) -> None:
    """Remove what was compiled of sources that are not listed, or are gone: Python would load that
    in place of the source beside it."""
    listed = {path.removesuffix(".py") for path in COMPILED}
    for package in PACKAGES:
        for built in (root / package).rglob("*.so"):
            source = built.relative_to(root).with_name(built.name.partition(".")[0])
            if str(source) not in listed:
                built.unlink()
