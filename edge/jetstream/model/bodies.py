"""Bodies of API requests: decoded strictly, and refused in the protocol's own words.

An unknown field, or a value of the wrong type, is refused with 10025; keys match without regard to
case; what `null` means is in `nulls`.
"""

import re
from typing import Any, TypeVar, cast

import msgspec
from msgspec.inspect import DictType, ListType, NoneType, StructType, Type, UnionType, type_info

from headwater.edge.jetstream.model import bounds, errors, odd_texts, repeated, sequences, syntax
from headwater.edge.jetstream.model.models import PullRequest, SubjectTransform
from headwater.edge.jetstream.model.nulls import without_nulls
from headwater.edge.jetstream.model.times import canonical_time
from headwater.edge.wire.json_objects import BAD_JSON
from headwater.edge.wire.plain_json import is_plain

T = TypeVar("T")

_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`")
_WRONG = re.compile(r"Expected `(.*?)`, got `(.*?)` - at `\$\.?(.*)`")
_ENUM = re.compile(r"Invalid enum value (.*?) - at `\$\.?(.*)`")
# What the reference decoder calls the bodies in its error texts.
_GO_NAMES = {
    "StreamRequest": "StreamConfigRequest",
    "ConsumerRequest": "CreateConsumerRequest",
    "PullRequest": "JSApiConsumerGetNextRequest",
    "MoveRequest": "JSApiMetaServerStreamMoveRequest",
    "PeerRequest": "JSApiStreamRemovePeerRequest",
    "ServerRequest": "JSApiMetaServerRemoveRequest",
    "StepDownRequest": "JSApiLeaderStepdownRequest",
    "PurgeRequest": "JSApiStreamPurgeRequest",
    "PauseRequest": "JSApiConsumerPauseRequest",
    "ResetRequest": "JSApiConsumerResetRequest",
    "RestoreRequest": "JSApiStreamRestoreRequest",
    "SnapshotRequest": "JSApiStreamSnapshotRequest",
    "UnpinRequest": "JSApiConsumerUnpinRequest",
}
_GO_OBJECTS = {
    "ConsumerLimits": "StreamConsumerLimits",
    "Republish": "RePublish",
    "SubjectTransform": "SubjectTransformConfig",
}
_GO_TYPES = {"int": "int64", "str": "string", "array": "[]string", "float": "float64"}
_GO_KINDS = {
    "str": "string",
    "int": "number",
    "float": "number",
    "list": "array",
}
_TIME_KEYS = frozenset({"opt_start_time", "pause_until", "start_time", "up_to_time"})
_PULL = msgspec.json.Decoder(PullRequest)
_PLAIN: dict[type[Any], msgspec.json.Decoder[Any]] = {}
SCANNED_MAX = 16 * 1024
"""Bytes of a body whose fault is told with its place; a longer one would hold up the loop."""


def decode(payload: bytes, kind: type[T], strict: bool = True, whole: bool = False) -> T:
    """Decode a request body into `kind`. Raises JetStreamError 10025.

    An empty body gives the defaults. With `strict` off unknown fields are dropped. `whole` is for
    requests that the reference decodes at once and not as a stream: other words for what is wrong.
    """
    if not payload:
        return kind()
    plain = _plain(payload, kind)
    if plain is not None:
        return plain
    try:
        raw = msgspec.json.decode(payload)
    except BAD_JSON as exc:
        if len(payload) <= SCANNED_MAX:
            mended = bounds.without_vast(odd_texts.mended(payload))
            if mended != payload and syntax.is_all_values(mended):
                return decode(mended, kind, strict, whole)
        if not whole and not payload.strip(syntax.SPACE):
            return kind()
        several = None if whole or len(payload) > SCANNED_MAX else sequences.objects(payload)
        if several is None:
            text = _syntax(payload, exc, kind, strict, whole)
            raise errors.INVALID_JSON.error(err=text) from None
        return _converted(_laid(several, payload, kind, strict), payload, kind, strict)
    if raw is None:
        return kind()
    if not isinstance(raw, dict):
        found = _GO_KINDS.get(type(raw).__name__, type(raw).__name__)
        text = f"json: cannot unmarshal {found} into Go value of type server.{_go_name(kind)}"
        raise errors.INVALID_JSON.error(err=text)
    if len(payload) <= SCANNED_MAX and repeated.is_suspect(raw, payload):
        several = repeated.versions(payload.decode())
        if several:
            raw = _laid(several, payload, kind, strict) if len(several) > 1 else several[0]
    return _converted(raw, payload, kind, strict)


def _plain(payload: bytes, kind: type[T]) -> T | None:
    """A body as `kind` in one pass, as most are; None where there is anything to look at twice: a
    fault, a number that may be too large, a time, `null`, or a name that may stand twice."""
    if len(payload) > SCANNED_MAX or not is_plain(payload):
        return None
    decoder = _PLAIN.get(kind)
    if decoder is None:
        decoder = _PLAIN[kind] = msgspec.json.Decoder(kind)
    try:
        return cast(T, decoder.decode(payload))
    except BAD_JSON:
        return None


def _laid(several: list[Any], payload: bytes, kind: type[Any], strict: bool) -> dict[str, Any]:
    """Objects laid over each other. Raises JetStreamError 10025 when one is no good request."""
    whole: dict[str, Any] = {}
    for one in several:
        _converted(one, payload, kind, strict)
        sequences.lay(_lowered(one), whole, kind)
    return whole


def _converted(raw: dict[str, Any], payload: bytes, kind: type[T], strict: bool) -> T:
    """A decoded body as a `kind`. Raises JetStreamError 10025."""
    if not strict and bounds.find_huge(raw, payload) is not None:
        raw = _known(_lowered(raw), type_info(kind))
    huge = bounds.find_huge(raw, payload)
    if huge is not None:
        raise errors.INVALID_JSON.error(err=_bound_text(*huge, kind))
    if b"null" in payload:
        raw = without_nulls(raw, kind)
    names = payload.lower()
    if b"_time" in names or b"pause_until" in names:
        raw = _without_null(raw)
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as exc:
        if "unknown field" in str(exc):
            return _decode_loosely(raw, kind, strict)
        raise errors.INVALID_JSON.error(err=_go_text(str(exc), kind, raw)) from None


def _decode_loosely(raw: dict[str, Any], kind: type[T], strict: bool) -> T:
    """Second try with lower-case keys and, unless `strict`, without the unknown ones."""
    raw = _lowered(raw)
    if not strict:
        raw = _known(raw, type_info(kind))
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as exc:
        unknown = _UNKNOWN.search(str(exc))
        text = _go_text(str(exc), kind, raw)
        if unknown is not None:
            text = f'json: unknown field "{unknown[1]}"'
        raise errors.INVALID_JSON.error(err=text) from None


def _known(value: Any, info: Type) -> Any:
    """`value` without the fields that its type does not have; one pass, however many they are."""
    if isinstance(info, UnionType):
        of_value = [one for one in info.types if not isinstance(one, NoneType)]
        return _known(value, of_value[0]) if len(of_value) == 1 else value
    if isinstance(info, StructType) and isinstance(value, dict):
        fields = {field.encode_name: field.type for field in info.fields}
        return {k: _known(v, fields[k]) for k, v in value.items() if k in fields}
    if isinstance(info, ListType) and isinstance(value, list):
        return [_known(one, info.item_type) for one in value]
    return value


def _without_null(value: Any) -> Any:
    """`value` with its times as answers write them. Raises JetStreamError 10025."""
    if isinstance(value, list):
        return [_without_null(v) for v in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for key, item in value.items():
        if key.lower() in _TIME_KEYS and isinstance(item, str):
            try:
                item = canonical_time(item)
            except ValueError as exc:
                raise errors.INVALID_JSON.error(err=exc) from None
        found[key] = item if key.lower() in repeated.FREE_KEYS else _without_null(item)
    return found


def _lowered(value: Any) -> Any:
    if isinstance(value, dict):
        fields = [(key.lower(), item) for key, item in value.items()]
        free = repeated.FREE_KEYS
        return {key: item if key in free else _lowered(item) for key, item in fields}
    if isinstance(value, list):
        return [_lowered(v) for v in value]
    return value


def decode_pull(payload: bytes) -> PullRequest:
    """The body of a pull request, not empty. Raises ValueError with the protocol's wording.

    Most bodies are as `PullRequest` says and cost one pass. Unknown fields are ignored.
    """
    try:
        return _PULL.decode(payload)
    except BAD_JSON:
        pass
    try:
        return decode(payload, PullRequest, strict=False, whole=True)
    except errors.JetStreamError as error:
        raise ValueError(error.description.removeprefix("invalid JSON: ")) from None


def _syntax(payload: bytes, exc: Exception, kind: type[Any], strict: bool, whole: bool) -> str:
    """Why `payload` is no JSON. Raises JetStreamError when its first value is refused before."""
    if isinstance(exc, RecursionError):
        return "exceeded max depth"
    early_end = "unexpected end of JSON input" if whole else "unexpected EOF"
    if len(payload) > SCANNED_MAX:
        return early_end if "truncated" in str(exc) else str(exc)
    end, fault = syntax.first_value(payload)
    if fault is None:
        why = "after top-level value" if whole else "looking for beginning of value"
        fault = syntax.trailing(payload, end, why)
        if fault is not None and not whole:
            decode(payload[:end], kind, strict)
    if fault is None:
        return str(exc)
    if not fault.reason:
        return early_end
    return fault.reason if whole else f"{fault.reason} at offset {fault.offset}"


def _go_name(kind: type[Any]) -> str:
    return _GO_NAMES.get(kind.__name__, f"JSApi{kind.__name__}")


def _bound_text(path: str, value: int, kind: type[Any]) -> str:
    """The wording of the protocol's reference decoder for a number out of bounds."""
    field = f"{_go_name(kind)}.{path}"
    wanted = bounds.kind_of(path)
    target = field if path[-1:].isdigit() else f"Go struct field {field}"
    return f"json: cannot unmarshal number {value} into {target} of type {wanted}"


def _go_text(text: str, kind: type[Any], raw: Any = None) -> str:
    """The wording of the protocol's reference decoder for a value of the wrong type."""
    beyond = bounds.refused(text, raw)
    if beyond is not None:
        return _bound_text(*beyond, kind)
    found = _ENUM.search(text)
    if found is not None:
        if "$.action" in text:
            return f'unknown consumer action: "{found[1].strip(chr(39))}"'
        return f'can not unmarshal "\\"{found[1].strip(chr(39))}\\""'
    found = _WRONG.search(text)
    if found is None:
        return text
    value = _GO_KINDS.get(found[2], found[2])
    path = re.sub(r"\[(\d+)\]", r".\1", found[3])
    if path.endswith("[...]"):
        path = _of_key(raw, path.removesuffix("[...]"))
    wanted = _go_type(kind, path) or _GO_TYPES.get(found[1].split(" ")[0], found[1])
    if path.rsplit(".", 1)[-1] in _TIME_KEYS:
        wanted = "time.Time"
    field = f"{_go_name(kind)}.{path}"
    target = field if path[-1:].isdigit() else f"Go struct field {field}"
    return f"json: cannot unmarshal {value} into {target} of type {wanted}"


def _of_key(raw: Any, path: str) -> str:
    """The path of the first value in the map of texts at `path` that is no text."""
    for step in path.split("."):
        raw = raw[step] if isinstance(raw, dict) else {}
    found = [key for key, value in raw.items() if not isinstance(value, str)]
    return ".".join([path, *found[:1]])


def _go_type(kind: type[Any], path: str) -> str:
    """What the reference decoder calls the object, the map of texts or the list of objects at a
    path of a body; empty for anything else."""
    found: Any = type_info(kind)
    for step in path.split("."):
        if isinstance(found, StructType):
            found = next(each.type for each in found.fields if each.encode_name == step)
        else:
            found = getattr(found, "item_type", None)
        if isinstance(found, UnionType):
            found = next((t for t in found.types if isinstance(t, StructType)), found)
    prefix = ""
    if isinstance(found, ListType):
        found = found.item_type
        prefix = "[]" if getattr(found, "cls", None) is SubjectTransform else "[]*"
    if isinstance(found, DictType):
        return "map[string]string"
    if not isinstance(found, StructType):
        return ""
    return f"{prefix}server.{_GO_OBJECTS.get(found.cls.__name__, found.cls.__name__)}"
