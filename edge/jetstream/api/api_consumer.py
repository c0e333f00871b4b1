"""Requests about consumers. See `api` for what a handler is."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from headwater.edge.jetstream.api import long_work
from headwater.edge.jetstream.config import consumer_config
from headwater.edge.jetstream.config.pull_rules import header
from headwater.edge.jetstream.consumer import consumers
from headwater.edge.jetstream.consumer.consumer_info import consumer_info
from headwater.edge.jetstream.consumer.delivery import Delivery
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.bodies import decode
from headwater.edge.jetstream.model.models import (
    LIST_LIMIT,
    NAMES_LIMIT,
    ConsumerConfig,
    ConsumerInfo,
    ConsumerList,
    ConsumerNames,
    ConsumerRequest,
    ConsumerReset,
    ConsumersRequest,
    Paused,
    PauseRequest,
    ResetRequest,
    Success,
    Unpinned,
    UnpinRequest,
)
from headwater.edge.jetstream.model.name_hash import name_hash
from headwater.edge.jetstream.model.names import has_path_separator
from headwater.edge.jetstream.model.requests import check_level, is_json, require_empty
from headwater.edge.jetstream.model.times import ZERO_NS, ZERO_TIME, exact_time, format_time, held
from headwater.edge.jetstream.progress import consumer_setup
from headwater.edge.jetstream.progress.consumer_events import paused as paused_event
from headwater.edge.jetstream.progress.consumer_setup import unpin_client
from headwater.edge.kernel.later import Later
from headwater.edge.ports.draws import draw_text

IDENTITY = b"Nats-Stream-Identity"

Handler = Callable[[Any, list[str], bytes, Any], Any]


def identity(stream: Any) -> str:
    """Hash of a stream's creation time, by which mirrors notice that it is another one."""
    return name_hash(format_time(stream.created_ns))


def limits(js: Any, stream: Any, config: ConsumerConfig) -> consumer_config.Limits:
    """What node and account allow a consumer to be. Raises JetStreamError 10120."""
    replicas = config.num_replicas or stream.config.num_replicas
    chosen = js.tiers.chosen(replicas)
    node = js.node.limits
    return consumer_config.Limits(
        max_ack_pending=node.max_ack_pending,
        account_max_ack_pending=chosen.max_ack_pending,
        account_max_consumers=chosen.max_consumers,
        tier_replicas=max(1, replicas) if js.tiers.wire else 0,
        max_request_batch=node.max_request_batch,
        default_max_consumers=node.default_max_consumers,
        full=js.node.holdings.full(js.node.accounts.values()),
    )


def find(js: Any, tokens: list[str]) -> Delivery:
    """The consumer that a subject names. Raises JetStreamError 10059, 10014."""
    found: Delivery | None = js.stream(tokens[0]).consumers.get(tokens[1])
    if found is None:
        raise errors.CONSUMER_NOT_FOUND.error()
    return found


# --- create ----------------------------------------------------------------------------------


def create(js: Any, tokens: list[str], payload: bytes, ctx: Any) -> Any:
    """CONSUMER.CREATE.<stream>[.<consumer>[.<filter>]]"""
    request = decode(payload, ConsumerRequest, ctx.strict)
    config = request.config
    stream_name = tokens[0]
    name = tokens[1] if len(tokens) > 1 else config.name
    subject_filter = ".".join(tokens[2:])
    _check_request(request, stream_name, name)
    if len(tokens) > 1:
        if config.durable_name and name != config.durable_name:
            raise errors.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT.error()
        config.name = name
    elif config.durable_name:
        raise errors.CONSUMER_EPHEMERAL_WITH_DURABLE_NAME.error()
    if subject_filter and config.filter_subjects:
        raise errors.CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED.error()
    if subject_filter and config.filter_subject != subject_filter:
        raise errors.CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH.error()
    return _create(js, request, name, ctx)


def create_durable(js: Any, tokens: list[str], payload: bytes, ctx: Any) -> Any:
    """CONSUMER.DURABLE.CREATE.<stream>.<consumer>"""
    request = decode(payload, ConsumerRequest, ctx.strict)
    config = request.config
    _check_request(request, tokens[0], tokens[1])
    if not config.durable_name:
        raise errors.CONSUMER_DURABLE_NAME_NOT_SET.error()
    if config.durable_name != tokens[1]:
        raise errors.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT.error()
    config.name = tokens[1]
    return _create(js, request, tokens[1], ctx)


def _check_request(request: ConsumerRequest, stream_name: str, name: str) -> None:
    if request.stream_name != stream_name:
        raise errors.STREAM_MISMATCH.error()
    if has_path_separator(name):
        raise errors.CONSUMER_NAME_CONTAINS_PATH_SEPARATORS.error()


def _create(js: Any, request: ConsumerRequest, name: str, ctx: Any) -> Any:
    config = request.config
    if config.num_replicas > 1 and not js.node.clustered:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED.error()
    stream = js.stream(request.stream_name)
    patterns = consumer_setup.patterns(config)
    if patterns and long_work.is_large(stream, ctx):
        return _create_later(js, request, name, ctx, patterns)
    return _create_now(js, stream, request, name, ctx)


async def _create_later(
    js: Any, request: ConsumerRequest, name: str, ctx: Any, patterns: tuple[bytes, ...]
) -> Any:
    """Make a consumer once its filter knows the subjects of a large stream."""

    def create() -> Any:
        return _create_now(js, js.stream(request.stream_name), request, name, ctx)

    return await (await long_work.with_filter(js.stream(request.stream_name), patterns, create))


def _create_now(js: Any, stream: Any, request: ConsumerRequest, name: str, ctx: Any) -> Any:
    config = request.config
    if config.direct and config.sourcing and config.name:
        name = _upgrade(stream, config)
    known = ""
    if config.direct or config.sourcing:
        known = identity(stream)
        wanted = header(ctx.headers, IDENTITY)
        if wanted and wanted.decode("utf-8", "replace") != known:
            raise errors.CONSUMER_STREAM_IDENTITY_MISMATCH.error(msg=known)
    existing = stream.consumers.get(name)
    if existing is not None:
        _keep_fixed(config, existing.config)
    consumer_config.set_level(config)
    consumer, durable = consumers.create(
        stream, config, limits(js, stream, config), request.action, request.pedantic
    )
    if config.sourcing and config.durable_name:
        durable = Later(_all, durable, consumers.reset(consumer, 0)[1])
    if existing is None and consumer.paused_until:
        paused_event(consumer)
    # Told as it is before anything is delivered, and before that: clients, mirrors and ordered
    # consumers rely on it. Who pulls has asked for messages: nothing comes unasked.
    if existing is None and consumer.config.deliver_subject:
        consumer.unannounced = True
    info = consumer_info(consumer)
    if known:
        info.delivered.stream_seq = min(info.delivered.stream_seq, consumer.passed())
    return _announced(js, consumer, Later(_created, js, info, durable, known, ctx))


async def _all(*waits: Awaitable[None] | None) -> None:
    """Wait for everything that has to be durable."""
    for wait in waits:
        if wait is not None:
            await wait


def _upgrade(stream: Any, config: ConsumerConfig) -> str:
    """Make the consumer of a mirror or source fit the stream (ADR-60); returns its name.

    Where messages leave when they are acknowledged it becomes durable; elsewhere its stable name
    gets a random end, so that an old one that still runs does not stand in the way.
    """
    if stream.config.retention == "limits":
        end = draw_text(stream.kernel.chance, consumers.GENERATED_LENGTH)
        config.name = f"{config.name}-{end}"
        return config.name
    config.direct = False
    config.durable_name = config.name
    config.ack_policy = "flow_control"
    config.ack_wait = config.max_deliver = config.inactive_threshold = 0
    return config.name


def _keep_fixed(config: ConsumerConfig, old: ConsumerConfig) -> None:
    """Pauses have their own request, and a durable source goes on where it was."""
    config.pause_until = old.pause_until
    if config.sourcing and config.durable_name:
        config.deliver_policy = old.deliver_policy
        config.opt_start_seq = old.opt_start_seq
        config.opt_start_time = old.opt_start_time


async def _announced(js: Any, consumer: Delivery, answer: Awaitable[Any]) -> Any:
    """The answer about a consumer, which delivers once that has been sent."""
    try:
        return await answer
    finally:
        # The answer is sent in this step of the task; the turn that follows writes it.
        loop = js.account.kernel.loop
        if not loop.is_closed():
            loop.call_soon(loop.call_soon, consumer.announce)


async def _created(
    js: Any, info: ConsumerInfo, durable: Awaitable[None] | None, known: str, ctx: Any
) -> ConsumerInfo | None:
    if durable is not None:
        await durable
    if not known:
        return info
    _send_with_identity(js, ctx, "consumer_create", info, known)
    return None


def _send_with_identity(
    js: Any, ctx: Any, kind: str, answer: msgspec.Struct, known: str
) -> None:
    block = b"NATS/1.0\r\n%b: %b\r\n\r\n" % (IDENTITY, known.encode())
    js.router.respond(ctx, kind, answer, block)


# --- the others ------------------------------------------------------------------------------


def _page(payload: bytes, ctx: Any) -> int:
    if not is_json(payload):
        return 0
    return max(decode(payload, ConsumersRequest, ctx.strict).offset, 0)


def names(js: Any, tokens: list[str], payload: bytes, ctx: Any) -> ConsumerNames:
    """CONSUMER.NAMES.<stream>"""
    offset = _page(payload, ctx)
    found = js.stream(tokens[0]).consumers.in_order()
    offset = min(offset, len(found))
    page = found[offset : offset + NAMES_LIMIT]
    return ConsumerNames(total=len(found), offset=offset, consumers=page)


def listing(js: Any, tokens: list[str], payload: bytes, ctx: Any) -> ConsumerList:
    """CONSUMER.LIST.<stream>"""
    offset = _page(payload, ctx)
    there = js.stream(tokens[0]).consumers
    found = there.in_order()
    offset = min(offset, len(found))
    page = [consumer_info(there[one], listed=True) for one in found[offset : offset + LIST_LIMIT]]
    return ConsumerList(total=len(found), offset=offset, consumers=page)


def info(js: Any, tokens: list[str], payload: bytes, ctx: Any) -> ConsumerInfo:
    """CONSUMER.INFO.<stream>.<consumer>"""
    require_empty(payload)
    return consumer_info(find(js, tokens))


def delete(js: Any, tokens: list[str], payload: bytes, ctx: Any) -> Awaitable[Success]:
    """CONSUMER.DELETE.<stream>.<consumer>"""
    require_empty(payload)
    durable = consumers.delete_consumer(find(js, tokens))
    if durable is None:
        return _done(None, Success(success=True))
    key = tokens[0], tokens[1]
    # A future of its own: who asked may go before it is durable, and others wait for it as well.
    gone = js.leaving[key] = asyncio.ensure_future(durable, loop=js.account.kernel.loop)

    def left(_: Any) -> None:
        if js.leaving.get(key) is gone:
            del js.leaving[key]
        if not gone.cancelled():
            gone.exception()  # for whoever waits; nobody need

    gone.add_done_callback(left)
    return _left(gone)


async def _left(gone: asyncio.Future[None]) -> Success:
    await asyncio.shield(gone)
    return Success(success=True)


def _after_deletions(handler: Handler) -> Handler:
    """A handler that tells of no deletion before it is durable: after a crash the consumer would
    be back."""

    def serve(js: Any, tokens: list[str], payload: bytes, ctx: Any) -> Any:
        there = getattr(js.streams.get(tokens[0]), "consumers", ())
        going = [
            gone
            for (stream, name), gone in js.leaving.items()
            if stream == tokens[0] and name not in there and tokens[1:] in ([], [name])
        ]
        request = (js, tokens, payload, ctx)
        return later(going, *request) if going else handler(*request)

    async def later(going: list[Any], *request: Any) -> Any:
        for gone in going:
            await asyncio.shield(gone)
        answer = handler(*request)
        return await answer if isinstance(answer, Awaitable) else answer

    return serve


async def _done(durable: Awaitable[None] | None, answer: Any) -> Any:
    if durable is not None:
        await durable
    return answer


def pause(js: Any, tokens: list[str], payload: bytes, ctx: Any) -> Awaitable[Paused]:
    """CONSUMER.PAUSE.<stream>.<consumer>"""
    request = _pause_request(payload, ctx)
    until = exact_time(request.pause_until)
    consumer = find(js, tokens)
    zero = until == ZERO_NS
    durable = consumers.pause(consumer, None if zero else format_time(until))
    left = held(max(until - consumer.stream.kernel.clock(), 0))
    answer = Paused(
        paused=left > 0,
        pause_until=ZERO_TIME if zero else format_time(until),
        pause_remaining=left,
    )
    return _done(durable, answer)


def unpin(js: Any, tokens: list[str], payload: bytes, ctx: Any) -> Unpinned:
    """CONSUMER.UNPIN.<stream>.<consumer>"""
    if not payload:
        raise errors.INVALID_JSON.error(err="unexpected end of JSON input")
    request = decode(payload, UnpinRequest, False, whole=True)
    if not request.group:
        raise errors.INVALID_JSON.error(err="consumer group not specified")
    if not consumer_config.valid_group(request.group):
        raise errors.CONSUMER_INVALID_GROUP_NAME.error()
    consumer = find(js, tokens)
    if request.group not in consumer.config.priority_groups:
        raise errors.CONSUMER_INVALID_PRIORITY_GROUP.error()
    unpin_client(consumer, "admin")
    return Unpinned()


def reset(js: Any, tokens: list[str], payload: bytes, ctx: Any) -> Any:
    """CONSUMER.RESET.<stream>.<consumer>"""
    try:
        consumer = find(js, tokens)
    except errors.JetStreamError:
        # Each consumer listens by itself for this; where there is none, nobody answers.
        return None
    check_level(ctx.headers)
    request = decode(payload, ResetRequest, False, whole=True)
    first, durable = consumers.reset(consumer, request.seq)
    found = consumer_info(consumer)
    fields = {name: getattr(found, name) for name in ConsumerInfo.__struct_fields__}
    answer = ConsumerReset(**fields, reset_seq=first)
    known = identity(consumer.stream) if header(ctx.headers, IDENTITY) is not None else ""
    return _reset_done(js, durable, answer, known, ctx)


async def _reset_done(
    js: Any, durable: Awaitable[None] | None, answer: ConsumerReset, known: str, ctx: Any
) -> ConsumerReset | None:
    if durable is not None:
        await durable
    if not known:
        return answer
    _send_with_identity(js, ctx, "consumer_reset", answer, known)
    return None


HANDLERS: dict[str, Handler] = {
    "CREATE": create,
    "DURABLE.CREATE": create_durable,
    "NAMES": _after_deletions(names),
    "LIST": _after_deletions(listing),
    "INFO": _after_deletions(info),
    "DELETE": _after_deletions(delete),
    "PAUSE": _after_deletions(pause),
    "UNPIN": _after_deletions(unpin),
    "RESET": _after_deletions(reset),
}


def _check_create(payload: bytes, ctx: Any) -> None:
    decode(payload, ConsumerRequest, ctx.strict)


def _check_info(payload: bytes, ctx: Any) -> None:
    require_empty(payload)


def _pause_request(payload: bytes, ctx: Any) -> PauseRequest:
    return decode(payload, PauseRequest, ctx.strict) if is_json(payload) else PauseRequest()


CHECKS: dict[str, Callable[[bytes, Any], Any]] = {
    "CREATE": _check_create,
    "DURABLE.CREATE": _check_create,
    "INFO": _check_info,
    "PAUSE": _pause_request,
}
"""What is checked of a body before the API level of its request."""
