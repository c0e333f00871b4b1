"""What the metadata of a stream or consumer chooses for links (docs/FEDERATION.md).

- `headwater.link_priority`: `high` or `normal`. Deliveries of the consumers of such a stream, or of
  such a consumer, go ahead of all others that wait for a link.
- `headwater.link_rate`: what a mirror, or each source of a stream, takes from its origin at most,
  in bytes a second, like `16KB`.
- `headwater.catch_up`: `all`, or `last_per_subject` for a mirror or sources that leave out what has
  a successor on its subject when they are behind.
"""

import re
from collections.abc import Mapping

from headwater.edge.jetstream.model.errors import invalid_config
from headwater.edge.jetstream.model.models import StreamConfig

PRIORITY_KEY = "headwater.link_priority"
PRIORITIES = ("high", "normal")
RATE_KEY = "headwater.link_rate"
RATE_LEAST = 1000
RATE = re.compile(r"(\d{1,12})\s*([KMG]?)i?B?(?:/s)?", re.IGNORECASE | re.ASCII)
SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30}
CATCH_UP_KEY = "headwater.catch_up"
CATCH_UPS = ("all", "last_per_subject")
AFTER_KEY = "headwater.after"
"""In a consumer with deliver policy `last_per_subject`: up to this sequence nothing is wanted."""

Metadata = Mapping[str, str]


def check(config: StreamConfig) -> None:
    """Refuse what makes no sense of a stream's metadata. Raises JetStreamError."""
    said = config.metadata
    origins = [*config.sources, *([config.mirror] if config.mirror is not None else [])]
    check_priority(said)
    for key in (RATE_KEY, CATCH_UP_KEY):
        if key in said and not origins:
            raise invalid_config(f"{key} requires a mirror or sources")
        if key in said and any(origin.consumer is not None for origin in origins):
            raise invalid_config(f"{key} cannot be set with a named consumer of the origin")
    if RATE_KEY in said and rate_of(said) < RATE_LEAST:
        raise invalid_config(f"{RATE_KEY} must be a size a second like 16KB, {RATE_LEAST} at least")
    if said.get(CATCH_UP_KEY, "all") not in CATCH_UPS:
        raise invalid_config(f"{CATCH_UP_KEY} must be all or last_per_subject")
    if keeps_last(said) and any(one.opt_start_seq or one.opt_start_time for one in origins):
        raise invalid_config(f"{CATCH_UP_KEY} last_per_subject cannot begin at a sequence or time")


def check_priority(said: Metadata) -> None:
    """Refuse a priority that is none. Raises JetStreamError."""
    if said.get(PRIORITY_KEY, "normal") not in PRIORITIES:
        raise invalid_config(f"{PRIORITY_KEY} must be high or normal")


def is_urgent(said: Metadata) -> bool:
    """Whether deliveries go ahead of others."""
    return said.get(PRIORITY_KEY) == "high"


def keeps_last(said: Metadata) -> bool:
    """Whether a stream that is behind takes the last message of each subject alone."""
    return said.get(CATCH_UP_KEY) == "last_per_subject"


def rate_of(said: Metadata) -> int:
    """Bytes a second that an origin may send at most; 0 without a bound."""
    found = RATE.fullmatch(said.get(RATE_KEY, "").strip())
    return int(found.group(1)) << SHIFTS[found.group(2).upper()] if found else 0


def after_of(said: Metadata) -> int:
    """The sequence behind which a consumer begins; 0 for the beginning."""
    text = said.get(AFTER_KEY, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
