"""Requests about streams and their messages. See `api` for what a handler is."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import msgspec

from headwater.edge.jetstream.account.account_js import AccountJetStream
from headwater.edge.jetstream.api import long_work
from headwater.edge.jetstream.backup import backup
from headwater.edge.jetstream.config import stream_config
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.bodies import decode
from headwater.edge.jetstream.model.bounds import SEQUENCE_MAX
from headwater.edge.jetstream.model.models import (
    LIST_LIMIT,
    NAMES_LIMIT,
    SUBJECTS_LIMIT,
    AccountInfo,
    MsgDeleteRequest,
    MsgGetRequest,
    MsgGot,
    PagedStreamInfo,
    Purged,
    PurgeRequest,
    RestoreRequest,
    RestoreStarted,
    SnapshotRequest,
    SnapshotStarted,
    StoredMessage,
    StreamConfig,
    StreamCreated,
    StreamInfo,
    StreamInfoRequest,
    StreamList,
    StreamListRequest,
    StreamNames,
    StreamNamesRequest,
    StreamRequest,
    Success,
)
from headwater.edge.jetstream.model.names import has_path_separator
from headwater.edge.jetstream.model.requests import Context, is_json, require_empty
from headwater.edge.jetstream.model.times import format_time, parse_time
from headwater.edge.jetstream.stream.stream import Stream
from headwater.edge.jetstream.stream.stream_info import stream_info
from headwater.edge.storage.format.errors import Damaged
from headwater.edge.subjects.tokens import literal_subject
from headwater.edge.wire.json_objects import BAD_JSON

Page = tuple[int, dict[str, int]]
"""How many subjects match, and messages of some of them."""


def account_info(
    js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
) -> AccountInfo:
    """INFO"""
    return js.info()


def create(
    js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
) -> Awaitable[StreamCreated]:
    """STREAM.CREATE.<stream>"""
    wanted = wanted_stream(tokens, payload, ctx)
    if len(wanted.subjects) > long_work.MANY_SUBJECTS:
        ctx.holds = True
        return create_later(js, wanted)
    stream = js.create(wanted, wanted.pedantic)
    return done(js.node.durable(stream), created(stream_info(stream)))


async def create_later(js: AccountJetStream, wanted: StreamRequest) -> StreamCreated:
    """Create a stream of many subjects."""
    apart = await long_work.find_apart(wanted.subjects)
    stream = js.create(wanted, wanted.pedantic, apart)
    await asyncio.sleep(0)
    answer: StreamCreated = await done(js.node.durable(stream), created(stream_info(stream)))
    return answer


def created(info: StreamInfo, did_create: bool = True) -> StreamCreated:
    """The answer that a stream was made, or was there already. How its mirror or sources are says
    nothing yet: a stream that was made just now has missed nothing, and heard of nobody. Nor does
    it tell of the domain, as with nats-server."""
    stream_config.hide_links(info.config)
    info.domain = ""
    if did_create:
        for link in [*([info.mirror] if info.mirror is not None else []), *info.sources]:
            link.lag, link.active = 0, -1
    fields = {name: getattr(info, name) for name in StreamInfo.__struct_fields__}
    return StreamCreated(**fields, did_create=did_create)


def wanted_stream(tokens: list[str], payload: bytes, ctx: Context) -> StreamRequest:
    """What STREAM.CREATE asks for. Raises JetStreamError when it contradicts itself."""
    wanted = decode(payload, StreamRequest, ctx.strict)
    stream_config.set_level(wanted)
    if wanted.name != tokens[0]:
        raise errors.STREAM_MISMATCH.error()
    if has_path_separator(wanted.name):
        raise errors.STREAM_NAME_CONTAINS_PATH_SEPARATORS.error()
    if wanted.sealed:
        raise errors.invalid_config("stream configuration for create can not be sealed")
    if wanted.mirror_direct and wanted.mirror is None:
        raise errors.invalid_config("stream has no mirror but does have mirror direct")
    return wanted


def update(
    js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
) -> Awaitable[StreamInfo]:
    """STREAM.UPDATE.<stream>"""
    wanted = decode(payload, StreamRequest, ctx.strict)
    if len(wanted.subjects) > long_work.MANY_SUBJECTS:
        ctx.holds = True
        return update_later(js, tokens[0], wanted)
    stream, left = updated(js, tokens[0], wanted)
    if left:
        ctx.holds = True
        return updated_later(js, stream, left)
    return done(js.node.durable(stream), stream_info(stream, domain=js.node.domain))


def updated(
    js: AccountJetStream, name: str, wanted: StreamRequest, apart: Sequence[str] = ()
) -> tuple[Stream, int]:
    """The stream with its new configuration, and where `Stream.trim_some` goes on. Of subjects in
    `apart` it is known that they do not overlap."""
    scope = js.scope(wanted.pedantic, wanted.num_replicas, apart)
    stream_config.checked(plain(wanted), scope)
    if wanted.name != name:
        raise errors.STREAM_MISMATCH.error()
    stream = js.stream(name)
    stream_config.set_level(wanted)
    return stream, js.update(stream, wanted, scope)


async def update_later(js: AccountJetStream, name: str, wanted: StreamRequest) -> StreamInfo:
    """Update a stream of many subjects."""
    apart = await long_work.find_apart(wanted.subjects)
    stream, left = updated(js, name, wanted, apart)
    await asyncio.sleep(0)
    return await updated_later(js, stream, left)


async def updated_later(js: AccountJetStream, stream: Stream, left: int) -> StreamInfo:
    """Let a stream's new limits hold for all that is stored."""
    await long_work.trimmed(stream, left)
    info: StreamInfo = await done(
        js.node.durable(stream), stream_info(stream, domain=js.node.domain)
    )
    return info


def plain(wanted: StreamConfig) -> StreamConfig:
    """A copy to check, since checks fill in what they read."""
    return stream_config.copy_of(wanted)


def names(js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context) -> StreamNames:
    """STREAM.NAMES"""
    request = page_request(payload, StreamNamesRequest, ctx)
    found = [stream.name for stream in js.named(request.subject)]
    offset = min(max(request.offset, 0), len(found))
    page = found[offset : offset + NAMES_LIMIT]
    return StreamNames(total=len(found), offset=offset, streams=page or None)


def listing(js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context) -> StreamList:
    """STREAM.LIST"""
    request = page_request(payload, StreamListRequest, ctx)
    found = js.named(request.subject)
    offset = min(max(request.offset, 0), len(found))
    page = [
        stream_info(stream, domain=js.node.domain, listed=True)
        for stream in found[offset : offset + LIST_LIMIT]
    ]
    return StreamList(total=len(found), offset=offset, streams=page)


def page_request(
    payload: bytes, kind: type[StreamNamesRequest], ctx: Context
) -> StreamNamesRequest:
    return decode(payload, kind, ctx.strict) if is_json(payload) else kind()


def info(
    js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
) -> PagedStreamInfo | Awaitable[PagedStreamInfo]:
    """STREAM.INFO.<stream>"""
    request = StreamInfoRequest()
    if is_json(payload):
        request = decode(payload, StreamInfoRequest, ctx.strict)
    stream = js.stream(tokens[0])
    pattern = request.subjects_filter.encode()
    if pattern and long_work.is_large(stream, ctx):
        return paged_later(js, stream, request)
    page: Page = (0, {})
    if pattern:
        rows = sorted(stream.store.subjects_matching(pattern))
        shown = rows[max(request.offset, 0) :][:SUBJECTS_LIMIT]
        page = len(rows), {row[0].decode("utf-8", "replace"): row[1] for row in shown}
    return paged(js, stream, request, page)


async def paged_later(
    js: AccountJetStream, stream: Stream, request: StreamInfoRequest
) -> PagedStreamInfo:
    """A stream's info with a page of many subjects."""
    pattern = request.subjects_filter.encode()
    page = await long_work.subject_page(stream.store, pattern, max(request.offset, 0))
    return paged(js, js.stream(stream.name), request, page)


def paged(
    js: AccountJetStream, stream: Stream, request: StreamInfoRequest, page: Page
) -> PagedStreamInfo:
    """A stream's info with how many subjects match, and those of one page."""
    found = stream_info(stream, request.deleted_details, js.node.domain)
    fields = {name: getattr(found, name) for name in StreamInfo.__struct_fields__}
    answer = PagedStreamInfo(**fields)
    answer.cluster = js.node.cluster_info()
    total, subjects = page
    if total:
        offset = max(request.offset, 0)
        answer.total, answer.offset, answer.limit = total, offset, SUBJECTS_LIMIT
        answer.state.subjects = subjects
    return answer


def delete(
    js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
) -> Awaitable[Success]:
    """STREAM.DELETE.<stream>"""
    require_empty(payload)
    return done(js.delete(js.stream(tokens[0])), Success(success=True))


async def done(durable: Awaitable[None] | None, answer: Any) -> Any:
    """`answer`, once what was asked for is durable."""
    if durable is not None:
        await durable
    return answer


def purge(
    js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
) -> Awaitable[Purged]:
    """STREAM.PURGE.<stream>"""
    request = PurgeRequest()
    if is_json(payload):
        request = decode(payload, PurgeRequest, ctx.strict)
        if request.seq and request.keep:
            raise errors.BAD_REQUEST.error()
    stream = js.stream(tokens[0])
    if stream.sealed:
        raise errors.STREAM_SEALED.error()
    if stream.config.deny_purge:
        raise errors.STREAM_PURGE_FAILED.error(err="stream purge not permitted")
    if request.seq > SEQUENCE_MAX:
        if request.filter in ("", ">"):
            # The stream would go on there.
            raise errors.BAD_REQUEST.error()
        request.seq = SEQUENCE_MAX
    js.node.check_removable(stream)
    if stream.replicator is not None:
        ctx.holds = long_work.is_long_purge(stream, request)
        return purge_in_group(stream, request, stream.replicator.last_seq if ctx.holds else 0)
    if long_work.is_long_purge(stream, request):
        ctx.holds = True
        return purge_later(js, stream, request)
    purged = stream.purge(request.filter.encode(), request.seq, request.keep)
    return done(js.node.kept(stream), Purged(success=True, purged=purged))


async def purge_later(js: AccountJetStream, stream: Stream, request: PurgeRequest) -> Purged:
    """Purge a large stream."""
    purged = await long_work.purge(stream, request)
    answer: Purged = await done(js.node.kept(stream), Purged(success=True, purged=purged))
    return answer


async def purge_in_group(stream: Stream, request: PurgeRequest, last: int) -> Purged:
    """Purge a replicated stream, in slices when it is a long one up to sequence `last`: what goes
    is known when the group has committed it."""
    if last:
        count = await long_work.purge_in_group(stream, request, last)
        return Purged(success=True, purged=count)
    pattern = request.filter.encode()
    count = await stream.replicator.purge_count(pattern, request.seq, request.keep)
    return Purged(success=True, purged=count)


def not_there(stream: Any, sequence: int) -> errors.JetStreamError:
    """What is said of a message that cannot be deleted, since there is none."""
    if stream.config.storage == "file" and sequence < stream.store.first_seq:
        return errors.STREAM_MSG_DELETE_FAILED.error(err="no message found")
    if stream.config.storage == "file" and sequence > stream.store.last_seq:
        return errors.STREAM_MSG_DELETE_FAILED.error(err="stream store EOF")
    return errors.SEQUENCE_NOT_FOUND.error(seq=sequence)


def message_delete(
    js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
) -> Awaitable[Success]:
    """STREAM.MSG.DELETE.<stream>"""
    if is_empty(payload):
        raise errors.BAD_REQUEST.error()
    request = decode(payload, MsgDeleteRequest, ctx.strict)
    stream = js.stream(tokens[0])
    if stream.sealed:
        raise errors.STREAM_SEALED.error()
    if stream.config.deny_delete:
        raise errors.STREAM_MSG_DELETE_FAILED.error(err="message delete not permitted")
    js.node.check_removable(stream)
    if not stream.delete_message(request.seq, not request.no_erase):
        error = not_there(stream, request.seq)
        error.refused = False
        raise error
    durable = js.node.kept(stream) if request.no_erase else js.node.erased(stream)
    return done(durable, Success(success=True))


def is_empty(payload: bytes) -> bool:
    try:
        return not payload or msgspec.json.decode(payload) == {}
    except BAD_JSON:
        return False


def message_get(js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context) -> MsgGot:
    """STREAM.MSG.GET.<stream>"""
    if is_empty(payload):
        raise errors.BAD_REQUEST.error()
    request = decode(payload, MsgGetRequest, ctx.strict)
    if request.batch > 0 or request.max_bytes > 0 or contradicts(request):
        raise errors.BAD_REQUEST.error()
    stream = js.stream(tokens[0])
    message = read(stream, request)
    if message is None:
        raise errors.NO_MESSAGE_FOUND.error()
    return MsgGot(
        message=StoredMessage(
            subject=message.subject.decode("utf-8", "replace"),
            seq=message.sequence,
            hdrs=b"" if request.no_hdr else message.headers,
            data=message.payload,
            time=format_time(message.timestamp),
        )
    )


def contradicts(request: MsgGetRequest) -> bool:
    """Whether a MSG.GET names no message, or two."""
    timed = request.start_time is not None
    if not (request.seq or request.last_by_subj or request.next_by_subj or timed):
        return True
    return (
        bool(request.seq and request.last_by_subj)
        or bool(request.seq and timed)
        or bool(timed and request.last_by_subj)
        or bool(request.last_by_subj and request.next_by_subj)
    )


def read(stream: Stream, request: MsgGetRequest) -> Any:
    """The message that a MSG.GET asks for, None when there is none. Raises JetStreamError."""
    store = stream.store
    start = request.seq
    try:
        if request.start_time is not None:
            start = store.sequence_at_time(parse_time(request.start_time))
        if request.next_by_subj:
            return store.next_by_subject(request.next_by_subj.encode(), start)
        if start:
            return store.get(start)
        return store.last_by_subject(request.last_by_subj.encode())
    except Damaged as error:
        raise errors.STREAM_GENERAL_ERROR.error(err=error) from None
    except ValueError as error:
        raise errors.INVALID_JSON.error(err=error) from None


def snapshot(js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context) -> None:
    """STREAM.SNAPSHOT.<stream>: the answer comes first, then the chunks."""
    if is_empty(payload):
        raise errors.BAD_REQUEST.error()
    stream = js.stream(tokens[0])
    request = decode(payload, SnapshotRequest, ctx.strict)
    if not literal_subject(request.deliver_subject.encode()):
        raise errors.SNAPSHOT_DELIVER_SUBJECT_INVALID.error()
    sending = backup.BackupSender(stream, request, js.router.client(ctx))
    started = SnapshotStarted(config=stream.config, state=sending.state)
    js.router.respond(ctx, "stream_snapshot", started)
    js.router.spawn(sending.run())


def restore(
    js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
) -> RestoreStarted:
    """STREAM.RESTORE.<stream>: chunks go to the subject in the answer."""
    if is_empty(payload):
        raise errors.BAD_REQUEST.error()
    config = decode(payload, RestoreRequest, ctx.strict).config
    config.name = config.name or tokens[0]
    if config.name != tokens[0]:
        raise errors.STREAM_MISMATCH.error()
    if has_path_separator(config.name):
        raise errors.STREAM_NAME_CONTAINS_PATH_SEPARATORS.error()
    js.check_new(config, js.scope(False, config.num_replicas))
    if config.name in js.streams:
        raise errors.STREAM_NAME_EXIST_RESTORE_FAILED.error()
    stream_config.set_level(config)
    taking = backup.Restore(js, config, js.router.client(ctx))
    taking.start()
    return RestoreStarted(deliver_subject=taking.subject)


def not_clustered(js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context) -> None:
    """Requests to the leaders of a cluster, which a node alone is not."""
    needs_cluster(payload, ctx)


def needs_cluster(payload: bytes, ctx: Context) -> None:
    """What such a request is refused for, whatever it asks for."""
    raise errors.CLUSTER_REQUIRED.error()
