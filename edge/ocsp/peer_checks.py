"""Peers are judged by what the authorities of their certificates say, while they wait.

As nats-server's `ocsp_peer`: of a peer's verified chain, each certificate that names a responder
must be good. One that names none, and the root, are not asked about. Nothing is read of a peer
before the verdict, and without one it goes.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from headwater.edge.broker.listeners.tls_filter import TLSFilter
from headwater.edge.conf.options import OCSPPeerOptions, Options
from headwater.edge.ocsp.answer_files import AnswerFiles
from headwater.edge.ocsp.responder import ask
from headwater.security.errors import OCSPError
from headwater.security.ocsp.answers import (
    GOOD,
    REVOKED,
    UNKNOWN,
    Answer,
    read_answer,
    request_for,
    responders,
)

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.node")

CACHE_MAX = 10_000
"""Answers in memory; the one that was not used for longest goes."""

AT_ONCE = 64
"""Responders that are asked at one time; further peers wait."""

REFUSED = "TLS Handshake Failure"

# Reasons of events, as nats-server has them.
NOT_FETCHED = "Failed OCSP response fetch"
NOT_READ = "Failed OCSP response parse"
NOT_CURRENT = "OCSP response not in effectivity window"
BAD_STATUS = "Invalid OCSP response status: {}"


class Fault(msgspec.Struct):
    """Why a certificate does not count: for the log, and for events of the system account."""

    text: str
    reason: str


class PeerChecks:
    """The service that judges peers for the listeners and remotes of a node."""

    name = "ocsp_peer"

    def __init__(self, options: Options) -> None:
        cache = options.ocsp_cache
        self._files = AnswerFiles(cache.local_store if cache.kind == "local" else "")
        self._room = CACHE_MAX if cache.kind != "none" else 0
        self._preserve = cache.preserve_revoked
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        self._asked: dict[str, asyncio.Task[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = asyncio.Semaphore(AT_ONCE)

    def start(self, node: "NodeView") -> None:
        """Be asked from now on."""
        self._node = node
        node.peer_checks = self

    async def stop(self) -> None:
        """Whoever waits is not admitted any more."""
        pending = [*self._tasks, *self._asked.values()]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    def ports(self) -> dict[str, list[str]]:
        """None of its own."""
        return {}

    def status(self) -> dict[str, Any]:
        """Nothing beyond what the log says."""
        return {}

    def admit(
        self,
        conn: Any,
        session: TLSFilter,
        options: OCSPPeerOptions,
        then: Callable[[], None],
        kind: str = "",
    ) -> None:
        """Call `then` when the peer of a handshake that is done may go on; end it otherwise.

        `conn` has `halt`, `proceed`, `close`, `closed`, `peer` and `cid`, as a connection has.
        `kind` is the connection's in events of the system account; without one there are none.
        """
        conn.halt()
        who = "client" if session.tls.server_side else "server"
        work = self._judge(conn, session.chain(), options, then, (kind, who))
        task = self._node.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _judge(
        self,
        conn: Any,
        chain: list[bytes],
        options: OCSPPeerOptions,
        then: Callable[[], None],
        named: tuple[str, str],
    ) -> None:
        kind, who = named
        try:
            reason = await self.verdict(chain, options, bool(kind))
        except Exception as error:
            log.exception(
                "cid:%d - the peer could not be judged; it is refused; report this fault", conn.cid
            )
            reason = str(error) or "it could not be judged"
        if reason and kind and chain:
            for observer in self._node.sessions.observers:
                observer.peer_refused(kind, chain[0], f"{who} not OCSP valid")
        if conn.closed:
            return
        if reason:
            log.error(
                "%s - cid:%d - OCSP refuses the peer: %s; its connection is closed",
                conn.peer,
                conn.cid,
                reason,
            )
            conn.close(REFUSED)
        else:
            then()
            conn.proceed()
        self._node.kernel.kick()

    async def verdict(
        self, chain: list[bytes], options: OCSPPeerOptions, report: bool = False
    ) -> str:
        """Why a peer with a verified chain (DER, its own certificate first) is refused; empty when
        it is admitted. `report` has observers of sessions hear what speaks against it."""
        if not chain:
            return "its certificate has no verified chain"
        certs = [x509.load_der_x509_certificate(each) for each in chain]
        for der, cert, issuer in zip(chain, certs, certs[1:], strict=False):
            if not responders(cert):
                continue
            fault = await self._fault(cert, issuer, options)
            if fault is None:
                continue
            text = f"{cert.subject.rfc4514_string()}: {fault.text}"
            if options.warn_only:
                log.warning("%s; the peer is admitted anyway, as warn_only says", text)
                continue
            for observer in self._node.sessions.observers if report else ():
                observer.peer_invalid(chain[0], der, fault.reason)
            return text
        return ""

    async def _fault(
        self, cert: x509.Certificate, issuer: x509.Certificate, options: OCSPPeerOptions
    ) -> Fault | None:
        """What is wrong with one certificate; None when its issuer says that it is good."""
        key = hashlib.sha256(cert.public_bytes(Encoding.DER)).hexdigest()
        kept = self._kept(key, cert, issuer)
        if kept is None or not self._counts(kept, options):
            revoked = kept is not None and kept.status == REVOKED
            if kept is not None and not (revoked and self._preserve):
                self._forget(key)
            try:
                raw = await self._ask(key, cert, issuer, options.ca_timeout)
            except OCSPError as error:
                if options.allow_when_ca_unreachable and not revoked:
                    log.warning(
                        "no responder answers for %s: %s; the peer is admitted anyway, as "
                        "allow_when_ca_unreachable says",
                        cert.subject.rfc4514_string(),
                        error,
                    )
                    return None
                return Fault(f"no responder answers: {error}", NOT_FETCHED)
            try:
                kept = read_answer(raw, cert, issuer)
            except OCSPError as error:
                return Fault(str(error), NOT_READ)
            if not self._counts(kept, options):
                return Fault("the answer does not count at this time", NOT_CURRENT)
            self._keep(key, kept)
        if kept.status == GOOD or (kept.status == UNKNOWN and options.unknown_is_good):
            return None
        return Fault(f"its issuer says {kept.status}", BAD_STATUS.format(kept.status))

    def _counts(self, answer: Answer, options: OCSPPeerOptions) -> bool:
        now = self._node.kernel.wall_ns() / 1e9
        return answer.current(now, options.allowed_clockskew, options.ttl_without_next)

    async def _ask(
        self, key: str, cert: x509.Certificate, issuer: x509.Certificate, timeout: float
    ) -> bytes:
        """Ask once for all who wait for the same certificate. Raises OCSPError."""
        task = self._asked.get(key)
        if task is None:
            work = self._fetch(responders(cert), request_for(cert, issuer), timeout)
            task = self._asked[key] = self._node.loop.create_task(work)
            task.add_done_callback(lambda _: self._asked.pop(key, None))
        return await asyncio.shield(task)

    async def _fetch(self, urls: list[str], request: bytes, timeout: float) -> bytes:
        async with self._running:
            return await ask(urls, request, timeout)

    # --- what is known ---

    def _kept(self, key: str, cert: x509.Certificate, issuer: x509.Certificate) -> Answer | None:
        found = self._answers.get(key)
        if found is None and self._room:
            try:
                found = read_answer(self._files.read(key), cert, issuer)
            except OCSPError:
                return None
            self._remember(key, found)
        elif found is not None:
            self._answers.move_to_end(key)
        return found

    def _keep(self, key: str, answer: Answer) -> None:
        if self._room:
            self._remember(key, answer)
            self._files.write(key, answer.raw)

    def _remember(self, key: str, answer: Answer) -> None:
        self._answers[key] = answer
        self._answers.move_to_end(key)
        if len(self._answers) > self._room:
            self._answers.popitem(last=False)

    def _forget(self, key: str) -> None:
        self._answers.pop(key, None)
        self._files.remove(key)
