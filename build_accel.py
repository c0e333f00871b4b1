"""The one list of modules that Cython compiles, and the tree it compiles them in.

The folders of the checkout are mapped to `headwater.*` by `package-dir`; Cython finds `.pxd`
files by import name, so the build makes a tree of links that looks like the import names.
"""

from pathlib import Path

PACKAGES = ("security", "edge", "federation", "hub", "spark", "deploy")

COMPILED = (
    "edge/subjects/tokens.py",
    "edge/subjects/text_hash.py",
    "edge/subjects/trie.py",
    "edge/wire/numbers.py",
    "edge/wire/header_block.py",
    "edge/broker/core.py",
    "edge/broker/match_cache.py",
    "edge/broker/account.py",
    "edge/broker/conn.py",
    "edge/broker/client.py",
    "edge/broker/interest_counts.py",
    "edge/broker/link.py",
    "edge/storage/subject_table.py",
    "edge/storage/index.py",
    "edge/storage/filter.py",
    "edge/storage/store.py",
    "edge/storage/memory.py",
    "edge/storage/crc.py",
    "edge/storage/record.py",
    "edge/storage/dictionary_pieces.py",
    "edge/storage/packing.py",
    "edge/storage/file_calls.py",
    "edge/storage/batch_writer.py",
    "edge/storage/batch_runs.py",
    "edge/storage/second_copies.py",
    "edge/storage/commit_thread.py",
    "edge/storage/log_restart.py",
    "edge/storage/log_segment.py",
    "edge/storage/log_waiters.py",
    "edge/storage/logged_store.py",
    "edge/storage/tidemarks.py",
    "edge/storage/commit_log.py",
    "edge/storage/stream_segment.py",
    "edge/storage/stage.py",
    "edge/storage/file_store.py",
    "edge/storage/dead_space.py",
    "edge/storage/index_rows.py",
    "edge/storage/index_load.py",
    "edge/storage/replay.py",
    "edge/storage/torn_tail.py",
    "edge/storage/retire.py",
    "edge/storage/dead_runs.py",
    "edge/storage/compact.py",
    "edge/storage/erase_log.py",
    "edge/storage/erase_rows.py",
    "edge/storage/log_share.py",
    "edge/storage/scrub_check.py",
    "spark/wire_reader.py",
    "edge/subjects/transform.py",
    "edge/broker/mappings.py",
    "edge/broker/imports.py",
    "edge/jetstream/usage.py",
    "edge/jetstream/headers.py",
    "edge/jetstream/dedupe.py",
    "edge/jetstream/puback.py",
    "edge/jetstream/republish.py",
    "edge/jetstream/stream.py",
    "edge/jetstream/expiry.py",
    "edge/jetstream/fast_batch.py",
    "edge/jetstream/ingest.py",
    "edge/jetstream/api_sinks.py",
    "edge/jetstream/pending.py",
    "edge/jetstream/pull.py",
    "edge/jetstream/flow.py",
    "edge/jetstream/delta.py",
    "edge/jetstream/delivery.py",
    "edge/jetstream/saver.py",
    "edge/jetstream/demand.py",
    "edge/jetstream/consumer.py",
    "edge/jetstream/acks.py",
    "edge/jetstream/interest.py",
    "federation/rules.py",
    "federation/leaf_conn.py",
    "federation/interest.py",
    "federation/inflow.py",
    "hub/route_conn.py",
    "hub/route_interest.py",
)


def link_tree(root: Path) -> Path:
    """Make `build/tree/headwater/<package>` links below `root`; returns `build/tree`."""
    tree = root / "build" / "tree"
    (tree / "headwater").mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        link = tree / "headwater" / package
        if not link.is_symlink():
            link.symlink_to(root / package)
    return tree


def module_name(path: str) -> str:
    """Import name of a listed source: `edge/wire/numbers.py` -> `headwater.edge.wire.numbers`."""
    return "headwater." + path.removesuffix(".py").replace("/", ".")
