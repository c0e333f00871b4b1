"""What is asked of an origin, and how the answers are read. Sans-IO.

A mirror or source asks for a hidden push consumer on its origin (JetStream API, ADR-59 and
ADR-60), the newest way first: a server that does not know a field or a level refuses, and the same
is asked in the next older form. A named consumer of the origin is reset instead of created.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from headwater.edge.jetstream.config.link_choices import (
    AFTER_KEY,
    PRIORITY_KEY,
    is_urgent,
    rate_of,
)
from headwater.edge.jetstream.model.bounds import SEQUENCE_MAX, decimal
from headwater.edge.jetstream.model.models import StreamSource
from headwater.edge.jetstream.model.name_hash import name_hash
from headwater.edge.ports.draws import draw_text
from headwater.edge.ports.ports import Random
from headwater.edge.wire.json_objects import object_in

SECOND = 1_000_000_000
NO_CHOICES: Mapping[str, str] = MappingProxyType({})

HEARTBEAT_S = 1.0
"""How often an idle consumer must show that it lives."""

INACTIVE_S = 10.0
"""After this long without a receiver the origin forgets the consumer. Twice the time of an answer
is added, as it hears of the receiver that late."""

ACK_WAIT_S = 22 * 3600
"""Never reached: deliveries are not acknowledged one by one."""

UNSUPPORTED = (10185, 10025)
"""Error codes of an origin that does not know a level or a field of the request."""

IDENTITY_MISMATCH = 10225
CONSUMER_NOT_FOUND = 10014
STREAM_NOT_FOUND = 10059

TOKEN_LENGTH = 8
"""Random letters and digits in names and subjects that must not collide."""


def source_parts(source: StreamSource) -> tuple[str, str, str]:
    """(origin, filter, destination) that tell one source of a stream from the others."""
    name = source.name
    if source.external is not None:
        name += f":{name_hash(source.external.api)}"
    if source.consumer is not None:
        name += f":C={name_hash(source.consumer.name)}"
    if not source.subject_transforms:
        return name, source.filter_subject or ">", ">"
    return (
        name,
        "\f".join(item.src or ">" for item in source.subject_transforms),
        "\f".join(item.dest or ">" for item in source.subject_transforms),
    )


def count_in(value: object) -> int:
    """A number of an origin's answer; 0 for what is none."""
    return value if isinstance(value, int) and 0 < value <= SEQUENCE_MAX else 0


def parse_source_header(value: str) -> tuple[str, int, str]:
    """(source name as of `source_parts` joined by blanks, sequence, identity) of a header.

    The name is empty for the oldest form, which says only the stream; the sequence is 0 for a text
    that makes no sense.
    """
    fields = value.split(" ")
    sequence = decimal(fields[1].encode(), SEQUENCE_MAX) if len(fields) >= 4 else None
    if sequence is None:
        return "", 0, ""
    identity = fields[5] if len(fields) >= 6 else ""
    return " ".join((fields[0], fields[2], fields[3])), sequence, identity


class StartPoint(msgspec.Struct, kw_only=True):
    """Where the origin is to begin."""

    sequence: int = 0
    """First sequence wanted; 0 for the beginning, or for `time`."""
    time: str = ""
    """RFC 3339."""


class Answer(msgspec.Struct, kw_only=True):
    """What the origin said to a request for a consumer."""

    name: str = ""
    deliver_subject: str = ""
    delivered: int = 0
    """Stream sequence before the first delivery."""
    pending: int = 0
    ack_policy: str = ""
    code: int = 0
    """Error code; 0 when the consumer is there."""
    error: dict[str, Any] | None = None
    identity: str = ""


class OriginRequest:
    """The request for one consumer, in the form that is to be tried next."""

    def __init__(
        self,
        source: StreamSource,
        chance: Random,
        *,
        mirror: bool,
        stream: str,
        account: str,
        domain: str,
        start: StartPoint,
        identity: str = "",
        twins: bool = False,
        choices: Mapping[str, str] = NO_CHOICES,
    ) -> None:
        """`twins` says that the stream has several sources with this origin, `choices` is the
        metadata of the stream (`link_choices`)."""
        self.source = source
        self._chance = chance
        self.mirror = mirror
        self.identity = identity
        self.start = start
        label = f"{stream} {account}" + (f" {domain}" if domain else "")
        if twins:
            label += " " + " ".join(source_parts(source))
        self._base = f"JS_{'MIRROR' if mirror else 'SRC'}_{name_hash(label)}"
        kind = "mirror" if mirror else "src"
        self._metadata = {f"_nats.{kind}.stream": stream, f"_nats.{kind}.acc": account}
        if domain:
            self._metadata[f"_nats.{kind}.domain"] = domain
        if is_urgent(choices):
            self._metadata[PRIORITY_KEY] = choices[PRIORITY_KEY]
        self._rate = rate_of(choices)
        self.only_last = False
        self.round_s = 0.0
        """That the origin's last answer took."""
        """Whether the last message of each subject is wanted alone, of what is there now."""
        self.window = 0
        """How many messages may be on their way unconfirmed; 0: as many as the origin likes."""
        self._level = 4 if mirror else 5
        self._name = self._base

    @property
    def durable(self) -> bool:
        """Whether a consumer that exists is reset instead of a new one made."""
        return self.source.consumer is not None

    def prefixed(self, tail: str) -> str:
        """An API subject of the origin: `tail` behind its prefix."""
        external = self.source.external
        prefix = external.api if external is not None and external.api else "$JS.API"
        return f"{prefix}.{tail}".replace("..", ".")

    def subject(self) -> str:
        """Where the request goes."""
        named = self.source.consumer
        if named is not None:
            return self.prefixed(f"CONSUMER.RESET.{self.source.name}.{named.name}")
        only = self._single_filter()
        if only:
            return self.prefixed(f"CONSUMER.CREATE.{self.source.name}.{self._name}.{only}")
        return self.prefixed(f"CONSUMER.CREATE.{self.source.name}")

    def info_subject(self) -> str:
        """Where the origin tells of itself."""
        return self.prefixed(f"STREAM.INFO.{self.source.name}")

    def message_subject(self) -> str:
        """Where the origin gives single messages."""
        return self.prefixed(f"STREAM.MSG.GET.{self.source.name}")

    def consumer_info_subject(self, consumer: str) -> str:
        """Where the origin tells of a consumer."""
        return self.prefixed(f"CONSUMER.INFO.{self.source.name}.{consumer}")

    def headers(self) -> bytes:
        """The request's header block."""
        if not self._level:
            return b""
        lines = [f"Nats-Required-Api-Level: {self._level}"]
        if self._level >= 5:
            lines.append(f"Nats-Stream-Identity: {self.identity}")
        return ("NATS/1.0\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode()

    def body(self) -> bytes:
        """The request's body."""
        if self.durable:
            return b""
        config: dict[str, Any] = {
            "name": self._name,
            "deliver_subject": self._deliver_subject(),
            "ack_policy": "none",
            "ack_wait": ACK_WAIT_S * SECOND,
            "max_deliver": 1,
            "idle_heartbeat": int(HEARTBEAT_S * SECOND),
            "flow_control": True,
            "direct": True,
            "inactive_threshold": int((INACTIVE_S + 2 * self.round_s) * SECOND),
            "replay_policy": "instant",
            "num_replicas": 0,
            "metadata": self._metadata,
            **self._start_fields(),
            **self._filter_fields(),
        }
        if self.only_last:
            config["metadata"] = {**self._metadata, AFTER_KEY: f"{max(self.start.sequence, 1) - 1}"}
        if self.window:
            del config["ack_wait"], config["max_deliver"]
            config |= {"ack_policy": "flow_control", "max_ack_pending": self.window}
        if self._rate:
            config["rate_limit_bps"] = 8 * self._rate
        if self._level:
            config["sourcing"] = True
        return msgspec.json.encode(
            {"stream_name": self.source.name, "config": config, "action": ""}
        )

    def downgrade(self, code: int) -> bool:
        """After a refusal with `code`: whether there is an older form to try. It is set then."""
        if code not in UNSUPPORTED or not self._level:
            bounded = self.window > 0 and code not in (IDENTITY_MISMATCH, STREAM_NOT_FOUND)
            self.window = 0
            return bounded
        self._level = 4 if self._level == 5 else 0
        if not self._level:
            self.window = 0
            self._name = f"{self._base}_{draw_text(self._chance, TOKEN_LENGTH)}"
        return True

    def read(self, headers: bytes, payload: bytes) -> Answer:
        """The origin's answer. One that cannot be read counts as an error."""
        fields = object_in(payload)
        if fields is None:
            return _refused(10025, "the origin's answer is not JSON")
        error = fields.get("error")
        if isinstance(error, dict):
            code = count_in(error.get("err_code")) or count_in(error.get("code")) or 1
            return Answer(code=code, error=error, identity=_identity(headers))
        config = fields.get("config")
        delivered = fields.get("delivered")
        if not isinstance(config, dict) or not isinstance(delivered, dict):
            return _refused(1, "the origin's answer describes no consumer")
        named = self.source.consumer
        return Answer(
            name=str(fields.get("name") or ""),
            deliver_subject=named.deliver_subject
            if named is not None
            else str(config.get("deliver_subject") or ""),
            delivered=count_in(delivered.get("stream_seq")),
            pending=count_in(fields.get("num_pending")),
            ack_policy=str(config.get("ack_policy") or ""),
            identity=_identity(headers),
        )

    def deliveries(self) -> str:
        """Where the origin is to deliver: a subject, or its beginning with one token missing."""
        if self.source.consumer is not None:
            return self.source.consumer.deliver_subject
        letter = "M" if self.mirror else "S"
        external = self.source.external
        prefix = external.deliver if external is not None and external.deliver else "$JS"
        return f"{prefix}.{letter}.".replace("..", ".")

    def _deliver_subject(self) -> str:
        return self.deliveries() + draw_text(self._chance, TOKEN_LENGTH)

    def _start_fields(self) -> dict[str, Any]:
        if self.only_last:
            return {"deliver_policy": "last_per_subject"}
        if self.start.time:
            return {"deliver_policy": "by_start_time", "opt_start_time": self.start.time}
        if self.start.sequence > 0:
            return {
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": self.start.sequence,
            }
        return {"deliver_policy": "all"}

    def _filters(self) -> list[str]:
        if self.source.filter_subject:
            return [self.source.filter_subject]
        return [item.src or ">" for item in self.source.subject_transforms]

    def _single_filter(self) -> str:
        filters = self._filters()
        return filters[0] if len(filters) == 1 else ""

    def _filter_fields(self) -> dict[str, Any]:
        filters = self._filters()
        if len(filters) == 1:
            return {"filter_subject": filters[0]}
        if self.only_last and not filters:
            return {"filter_subject": ">"}
        return {"filter_subjects": filters} if filters else {}


def _refused(code: int, text: str) -> Answer:
    return Answer(code=code, error={"code": 500, "err_code": code, "description": text})


def _identity(headers: bytes) -> str:
    for line in headers.split(b"\r\n"):
        key, _, value = line.partition(b":")
        if key.lower() == b"nats-stream-identity":
            return value.strip().decode("ascii", "replace")
    return ""


def heartbeat_fields(block: bytes) -> dict[bytes, bytes]:
    """Headers of a status message, keys in lower case."""
    found: dict[bytes, bytes] = {}
    for line in block.split(b"\r\n")[1:]:
        key, colon, value = line.partition(b":")
        if colon:
            found[key.strip().lower()] = value.strip()
    return found
