"""Numbers in sentences of the pages are those of the code: who changes a constant finds out here
which sentence is not true any more."""

import re
from typing import Any

import pytest

from tests.house.page_layouts import ROOT, constant

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MS, SECOND = 1_000_000, 1_000_000_000
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
LOG = "edge/storage/log"
PACKING = "edge/storage/packing/packing.py"
RAFT = "hub/raft/model/options.py"
NODE = "edge/jetstream/node/node.py"
TICK = constant(RAFT, "Options.tick_ns")

# Page, sentence with `{}` for each number (a word where the page spells it), and for each number
# where the code has it and by what it is divided.
Source = tuple[str, str, float]
SAID: list[tuple[str, str, list[Source]]] = [
    ("STORAGE", "A STATE_PUT with a value of up to {} KiB",
     [(f"{LOG}/commit_log.py", "TWICE_MAX", KIB)]),
    ("STORAGE", "twice in a row when their body has up to {} KiB",
     [("edge/storage/segments/file_store.pxd", "BOTH_MAX", KIB)]),
    ("STORAGE", "in blocks of {} bytes", [(f"{LOG}/commit_thread.pxd", "BLOCK_BYTES", 1)]),
    ("STORAGE", "begins in another page of {} bytes", [(f"{LOG}/commit_log.py", "PAGE_BYTES", 1)]),
    ("STORAGE", "an array of marks of {} bytes", [(f"{LOG}/watermarks.py", "WATERMARK_BYTES", 1)]),
    ("STORAGE", "The file grows by {} marks at a time, up to {};",
     [(f"{LOG}/watermarks.py", "GROWTH", 1), (f"{LOG}/watermarks.py", "WATERMARKS_MAX", 1)]),
    ("STORAGE", "`ballast` holds the room of {word} slots",
     [(f"{LOG}/log_files.py", "BALLAST_SEGMENTS", 1)]),
    ("STORAGE", "{word} slots of {} KiB are kept besides. {word} of them serve",
     [(f"{LOG}/log_files.py", "SMALL_MAX", 1), (f"{LOG}/log_files.py", "SLOT_MIN", KIB),
      (f"{LOG}/log_files.py", "SMALL_KEPT", 1)]),
    ("STORAGE", "A slot has {} MiB, and {} MiB on a node of a cluster. It is halved until it is at "
     "most a {}th of the device and of the node's disk budget, or {} KiB.",
     [("edge/storage/directory/store_options.py", "DEFAULT_SEGMENT_BYTES", MIB),
      (NODE, "CLUSTER_SEGMENT_BYTES", MIB), (NODE, "DEVICE_SEGMENTS", 1),
      (NODE, "DEVICE_SEGMENT_MIN", KIB)]),
    ("STORAGE", "`commit_segment_bytes` sets it, from {} KiB to {} GiB",
     [("edge/storage/node/node_store.py", "SEGMENT_BYTES_MIN", KIB),
      ("edge/storage/node/node_store.py", "SEGMENT_BYTES_MAX", GIB)]),
    ("STORAGE", "it has the size of a log slot, {} MiB at most",
     [("edge/storage/directory/disk_budget.py", "STREAM_SEGMENT_MAX", MIB)]),
    ("STORAGE", "The commit log takes at most {} slots",
     [(f"{LOG}/commit_log.py", "LIVE_LIMIT", 1)]),
    ("STORAGE", "That takes {} KiB per second at most",
     [("edge/storage/recovery/state_copy.py", "RATE", KIB)]),
    ("STORAGE", "lost message whose size is known ({} at most)",
     [("edge/storage/segments/loss.py", "KEPT_MAX", 1)]),
    ("STORAGE", "a SKIP of one sequence per {} missing bytes",
     [(f"{LOG}/states.py", "RECORD_BYTES", 1)]),
    ("STORAGE", "from the first {} messages of a stream, or from {} KiB of them, if these are {}.",
     [(PACKING, "SAMPLES_MAX", 1),
      (PACKING, "SAMPLE_BYTES_MAX", KIB),
      (PACKING, "SAMPLES_MIN", 1)]),
    ("STORAGE", "every {word} bytes of them in a row stood in {} or more of the messages",
     [("edge/storage/packing/dictionary_pieces.py", "WINDOW", 1),
      ("edge/storage/packing/dictionary_pieces.py", "SHARED_MIN", 1)]),
    ("STORAGE", "sealed bytes tag of {} bytes",
     [(PACKING, "TAG_BYTES", 1)]),
    ("STORAGE", "claims more than {} days",
     [("edge/jetstream/stream/age_clock.py", "OFF_MAX_NS", 24 * 3600 * SECOND)]),
    ("STORAGE", "segments of the log have {} KiB. An empty store",
     [(NODE, "EDGE_SEGMENT_BYTES", KIB)]),
    ("STORAGE", "{} KiB are kept for directories", [("edge/ports/allocation.py", "MARGIN", KIB)]),
    ("STORAGE", "The least is {} slots of the log and 128 KiB",
     [("edge/storage/directory/disk_budget.py", "LEAST_SLOTS", 1)]),
    ("STORAGE", "at most {} while segments of many streams are being read",
     [("edge/storage/segments/segment_files.py", "OpenFiles.MAX", 1)]),
    ("STORAGE", "`headwater { scrub { rate: {}MB, pause: {}d } }`",
     [("edge/conf/options.py", "HeadwaterOptions.scrub_rate", MIB),
      ("edge/conf/options.py", "HeadwaterOptions.scrub_pause", 86400)]),
    ("DURABILITY", "`max_delay` of `fsync` streams that say nothing, at most {}s",
     [("edge/conf/options.py", "MAX_DELAY_LIMIT", 1)]),
    ("RAFT", "At most {} groups of a node begin an election in one tick",
     [("hub/raft/multi_raft.py", "STANDING_MAX", 1)]),
    ("RAFT", "When every member has everything for {} s, the group stops ticking",
     [(RAFT, "Options.hibernate_ticks", SECOND / TICK)]),
    ("RAFT", "the slowest one that they hear (`pace.py`, {} s at most)",
     [("hub/raft/pace.py", "SLOWEST", SECOND / TICK)]),
    ("RAFT", "log has gets the state in parts of {} KiB",
     [(RAFT, "Options.snapshot_part_bytes", KIB)]),
    ("RAFT", "at most {word} parts of a group are in memory",
     [(RAFT, "Options.snapshot_parts_max", 1)]),
    ("RAFT", "the state of at most {word} groups at a time; one that gets no part for {word} "
     "seconds",
     [("hub/stored/transfers.py", "ARRIVALS_MAX", 1),
      ("hub/stored/transfers.py", "IDLE_SECONDS", 1)]),
    ("RAFT", "a line in the log every {word} seconds",
     [("hub/stored/transfers.py", "TELL_SECONDS", 1)]),
    ("RAFT", "began less than {} % of an election timeout ago",
     [(RAFT, "Options.lease_share_percent", 1)]),
    ("RAFT", "A member keeps {} MiB of applied entries in memory for those that are a little "
     "behind",
     [("hub/streams/stream_group.py", "KEEP_BYTES", MIB)]),
    ("RAFT", "goes to files (see Old entries), and {} MiB stay where that cannot be",
     [("hub/streams/stream_group.py", "HOLD_BYTES", MIB)]),
    ("RAFT", "A file of {} MiB goes when every member has what is in it",
     [("hub/stored/spill.py", "FILE_BYTES", MIB)]),
    ("RAFT", "A group's files may have {} MiB",
     [("hub/streams/stream_group.py", "HOLD_BYTES", MIB)]),
    ("RAFT", "All groups of a node share {} GiB",
     [("hub/stored/group_store.py", "SPILL_BYTES", MIB << 10)]),
    ("RAFT", "{} MiB of the device stay free", [("hub/stored/spill.py", "FREE_BYTES", MIB)]),
    ("RAFT", "All groups of a node hold {} MiB of entries",
     [("hub/stored/group_store.py", "NODE_BYTES", MIB)]),
    ("RAFT", "its sync may wait {} ms", [(NODE, "APPLIED_SYNC_SECONDS", 0.001)]),
    ("RAFT", "at `1024 n` and `1024 n + {}`", [("hub/stored/hard_state_file.py", "COPY_BYTES", 1)]),
    ("CLUSTER", "founds a cluster of its own after {word} seconds",
     [("hub/meta/founding.py", "ALONE_SECONDS", 1)]),
    ("CLUSTER", "A request that finds no leader waits {word} seconds",
     [("hub/api/cluster.py", "ELECTION_SECONDS", 1)]),
    ("CLUSTER", "When all members have been there for {} s, a node that leads {word} streams more "
     "than another one gives one away, at most one in {word} seconds",
     [("hub/node/spreading.py", "CALM_SECONDS", 1), ("hub/node/spreading.py", "UNEVEN", 1),
      ("hub/node/spreading.py", "PAUSE_SECONDS", 1)]),
    ("CLUSTER", "routes that accounts share: {} unless it is said",
     [("hub/routes/routes.py", "POOL_DEFAULT", 1)]),
    ("CLUSTER", "{word} times at least; each pause twice as long as the one before, up to {} s",
     [("hub/routes/dialer.py", "IMPLICIT_TRIES", 1), ("hub/routes/dialer.py", "RETRY_MAX_S", 1)]),
    ("CLUSTER", "a sign of life (at most {} s apart)",
     [("hub/routes/routes.py", "PING_INTERVAL_MAX_S", 1)]),
    ("CLUSTER", "says nothing for {word} seconds, it is half open",
     [("hub/routes/routes.py", "DOUBT_S", 1)]),
    ("FEDERATION", "no more than {word} seconds' worth, or at most {} messages of at most {} KiB",
     [("federation/origins/health.py", "LIVE_S", 1),
      ("federation/origins/health.py", "LIVE_MESSAGES", 1),
      ("federation/origins/health.py", "LIVE_BYTES", KIB)]),
    ("FEDERATION", "measured {} s after a link comes up",
     [("federation/leaf/leaf_links.py", "LOOK_S", 1)]),
    ("FEDERATION", "nothing was heard for {} seconds (longer each time in a row), or when messages "
     "wait at the origin and none came for {}.",
     [("federation/origins/origin_follower.py", "SILENCE_S", 1),
      ("federation/origins/origin_follower.py", "STALLED_S", 1)]),
    ("FEDERATION", "answers to a question every {} to {} seconds",
     [("federation/origins/origin_follower.py", "CHECK_BEHIND_S", 1),
      ("federation/origins/origin_follower.py", "CHECK_S", 1)]),
    ("FEDERATION", "Where more than {word} addresses were found",
     [("federation/leaf/leaf_remote.py", "TRIED_ONE_BY_ONE", 1)]),
    ("FEDERATION", "side by side, {} at a time and {word} second for each",
     [("federation/dialling/hub_proofs.py", "SIDE_BY_SIDE", 1),
      ("federation/dialling/hub_proofs.py", "ASKED_S", 1)]),
    ("FEDERATION", "Who fails is asked again after {} seconds",
     [("federation/dialling/hub_proofs.py", "FAILED_S", 1)]),
    ("FEDERATION", "An edge remembers {} announcements",
     [("federation/dialling/discovery.py", "FOUND_MAX", 1)]),
    ("FEDERATION", "A peer may send {} KiB of content before a login, and {} MiB with one read "
     "later",
     [("federation/leaf/compression.py", "LOGIN_MAX", KIB),
      ("federation/leaf/compression.py", "READ_MAX", MIB)]),
]  # fmt: skip


def written(sentence: str, values: list[Any]) -> str:
    """The sentence as a page says it, but for capitals."""
    left = iter(values)

    def said(found: re.Match[str]) -> str:
        value = next(left)
        if value == int(value):
            value = int(value)
        if found[1]:
            return WORDS[value]
        return f"{value:,}" if value > 9999 else str(value)

    text = re.sub(r"\{(word)?\}", said, sentence).lower()
    assert next(left, None) is None
    return text


def plain(page: str) -> str:
    """A page with single spaces and small letters."""
    return " ".join((ROOT / f"docs/{page}.md").read_text().split()).lower()


@pytest.mark.parametrize(
    ("page", "sentence", "sources"), SAID, ids=[f"{each[0]}-{each[1][:40]}" for each in SAID]
)
def test_a_number_of_a_page_is_that_of_the_code(
    page: str, sentence: str, sources: list[Source]
) -> None:
    values = [constant(path, name) / unit for path, name, unit in sources]
    assert values
    assert written(sentence, values) in plain(page)


def test_another_number_is_no_sentence_of_the_page() -> None:
    page, sentence, sources = SAID[0]
    values = [2 * constant(path, name) / unit for path, name, unit in sources]
    assert written(sentence, values) not in plain(page)
