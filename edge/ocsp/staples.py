"""Stapling for the listeners of a node: which certificates, and what is known of them.

As nats-server: `ocsp` is `auto` (certificates that demand it), `must` (the same, and the node stops
when one is revoked), `always` (all of them, and it stops), `never`. Client, WebSocket and route
listeners staple; leaf links have `ocsp_peer`. A listener without an answer that counts refuses
every handshake.
"""

import asyncio
import hashlib
import logging
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from headwater.edge.conf.options import Options, TLSOptions
from headwater.edge.conf.tls_section import certificate_pairs
from headwater.edge.ocsp.answer_files import AnswerFiles
from headwater.edge.ocsp.responder import ask
from headwater.edge.ports.ports import SystemClock
from headwater.security.errors import OCSPError
from headwater.security.ocsp import answers, stapling
from headwater.security.ocsp.answers import GOOD, Answer

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.node")

ASK_S = 10.0
"""Seconds that a responder may take; a start waits for it."""

NO_RESPONDER = "name one that answers with url in ocsp, or say ocsp: false"

AGAIN_S = 120.0
"""Pause after a failure, and the shortest one at all, as nats-server."""

DAY_S = 86400.0


def stop_process() -> None:
    """Stop as for SIGTERM: in order."""
    os.kill(os.getpid(), signal.SIGTERM)


def machine_now() -> float:
    """Seconds since the Unix epoch, where no node runs yet."""
    return SystemClock().wall_ns() / 1e9


class Subject:
    """One certificate of this node: who answers for it, and what is shown."""

    def __init__(self, tls: TLSOptions, urls: list[str], now: Callable[[], float]) -> None:
        """Raises OCSPError when it or its issuer cannot be read."""
        self.file, _ = certificate_pairs(tls)[0]
        chain = read_certificates(self.file)
        self.cert = chain[0]
        self.demanded = answers.must_staple(self.cert)
        self.key = hashlib.sha256(self.cert.public_bytes(Encoding.DER)).hexdigest()
        self.staple = stapling.Staple(now)
        self.urls = urls or answers.responders(self.cert)
        self.answer: Answer | None = None
        self.authorities = read_certificates(tls.ca_file) if tls.ca_file else []
        self._chain = chain

    def issuer(self) -> x509.Certificate:
        """Who has issued it. Raises OCSPError."""
        return answers.issuer_of(self._chain, self.authorities)

    def accept(self, raw: bytes, now: float) -> Answer:
        """Show an answer. Raises OCSPError when it does not count."""
        answer = answers.read_answer(raw, self.cert, self.issuer())
        if not answer.current(now, 0.0, DAY_S):
            raise OCSPError("the answer does not count at this time")
        self.answer = answer
        self.staple.show(raw, answer.until or answer.since + DAY_S)
        return answer

    async def ask(self) -> bytes:
        """What a responder says. Raises OCSPError."""
        request = answers.request_for(self.cert, self.issuer())
        try:
            return await ask(self.urls, request, ASK_S)
        except OCSPError as error:
            raise OCSPError(f"{error}: {NO_RESPONDER}") from error

    def accept_kept(self, files: AnswerFiles, now: float) -> Answer:
        """Show the answer that was kept. Raises OCSPError when none counts."""
        return self.accept(files.read(self.key), now)

    def pause(self, now: float) -> float:
        """Seconds until it is asked for again: half of what is left."""
        if self.answer is None:
            return AGAIN_S
        if not self.answer.until:
            return DAY_S
        return max(AGAIN_S, (self.answer.until - now) / 2)


class OcspStaples:
    """The service that keeps staples up to date. Subjects of one certificate are one."""

    name = "ocsp"

    def __init__(self, options: Options, stop: Callable[[], None] = stop_process) -> None:
        self.mode = options.ocsp_mode or "auto"
        self.explicit = bool(options.ocsp_mode)
        self.urls = options.ocsp_urls
        folder = options.jetstream.store_dir
        self._files = AnswerFiles(os.path.join(folder, "ocsp") if folder else "")
        self._stop = stop
        self._subjects: dict[str, Subject] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, node: "NodeView") -> None:
        """Have a status for every certificate that needs one, or refuse to start. Raises OCSPError
        (a SecurityError)."""
        self._node = node
        for context, subject in self._wanted():
            known = self._subjects.setdefault(subject.key, subject)
            if known is subject:
                self._begin(subject)
            stapling.attach(context, known.staple)
        for subject in self._subjects.values():
            log.info("OCSP Stapling enabled for the certificate at %r", subject.file)
            self._watch(subject)
        node.reload_hooks.append(self._reloaded)

    def lacking(self, options: Options) -> list[str]:
        """Why a start with these options would be refused, without a question to a responder."""
        found = []
        for block in _blocks(options):
            if self.mode == "never" or block is None or not certificate_pairs(block):
                continue
            file, _ = certificate_pairs(block)[0]
            try:
                subject = Subject(block, self.urls, machine_now)
                if (self.mode == "always" or subject.demanded) and self._able(subject):
                    self._check(subject)
            except OCSPError as error:
                found.append(_no_status(file, error))
        return found

    def _check(self, subject: Subject) -> None:
        """Raises OCSPError unless there is an issuer, and an answer or somebody to ask for one."""
        subject.issuer()
        if not subject.urls:
            try:
                subject.accept_kept(self._files, machine_now())
            except OCSPError as error:
                raise OCSPError(f"the certificate names no responder: {NO_RESPONDER}") from error

    async def stop(self) -> None:
        """Ask no more."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def ports(self) -> dict[str, list[str]]:
        """None of its own."""
        return {}

    def status(self) -> dict[str, Any]:
        """Nothing beyond what the log says."""
        return {}

    def _now(self) -> float:
        return self._node.kernel.wall_ns() / 1e9

    def _wanted(self) -> Iterator[tuple[Any, Subject]]:
        """Contexts of listeners, with the certificates whose status they are to show."""
        tls = self._node.tls
        contexts = (tls.clients, tls.websocket, tls.cluster)
        for context, block in zip(contexts, _blocks(self._node.options), strict=True):
            if context is None or block is None or not certificate_pairs(block):
                continue
            subject = Subject(block, self.urls, self._now)
            if self.mode == "never":
                if subject.demanded:
                    log.warning(
                        "%r demands stapling, but ocsp is disabled: clients may refuse it; enable "
                        "ocsp",
                        subject.file,
                    )
            elif (self.mode == "always" or subject.demanded) and self._able(subject):
                yield context, subject

    def _able(self, subject: Subject) -> bool:
        """Whether this interpreter can staple. Raises OCSPError when that is asked for in words."""
        reason = stapling.unavailable()
        if reason and self.explicit:
            raise OCSPError(f"ocsp: stapling is not possible here: {reason}; say ocsp: false")
        if reason:
            log.warning(
                "%r demands stapling, which is not possible here: %s; clients may refuse it",
                subject.file,
                reason,
            )
        return not reason

    def _begin(self, subject: Subject) -> None:
        """The status for a start: as it was kept, or as a responder says now."""
        try:
            try:
                answer = subject.accept_kept(self._files, self._now())
            except OCSPError:
                with ThreadPoolExecutor(1, "ocsp") as pool:
                    raw = pool.submit(asyncio.run, subject.ask()).result()
                answer = subject.accept(raw, self._now())
                self._files.write(subject.key, raw)
        except OCSPError as error:
            raise OCSPError(_no_status(subject.file, error)) from error
        if answer.status != GOOD and self._stops:
            raise OCSPError(
                f"found existing OCSP status for certificate at {subject.file!r}: {answer.status}"
            )

    @property
    def _stops(self) -> bool:
        return self.mode in ("always", "must")

    def _watch(self, subject: Subject) -> None:
        task = self._node.loop.create_task(self._run(subject))
        self._tasks[subject.key] = task

    async def _run(self, subject: Subject) -> None:
        """Ask again and again, until the status is bad."""
        while True:
            if subject.answer is not None:
                await asyncio.sleep(subject.pause(self._now()))
            try:
                raw = await subject.ask()
                answer = subject.accept(raw, self._now())
            except OCSPError as error:
                log.error("Bad OCSP status update for certificate %r: %s", subject.file, error)
                await asyncio.sleep(AGAIN_S)
                continue
            self._files.write(subject.key, raw)
            if answer.status == GOOD:
                log.info("Received OCSP status for certificate %r: good", subject.file)
                continue
            log.error("Received OCSP status for certificate %r: %s", subject.file, answer.status)
            if self._stops:
                self._stop()
            return

    def _reloaded(self) -> None:
        """Other certificates may be in force. One that is new shows nothing, and so serves nobody,
        until its status is there."""
        wanted: dict[str, Subject] = {}
        try:
            for context, subject in self._wanted():
                known = self._subjects.get(subject.key) or wanted.get(subject.key) or subject
                wanted[subject.key] = known
                stapling.attach(context, known.staple)
        except OCSPError as error:
            log.error(
                "OCSP after the reload: %s; its certificates may be refused: mend that, reload "
                "again",
                error,
            )
        for key in self._subjects.keys() - wanted.keys():
            self._tasks.pop(key).cancel()
        fresh = [each for key, each in wanted.items() if key not in self._subjects]
        self._subjects = wanted
        for subject in fresh:
            self._watch(subject)


def _blocks(options: Options) -> tuple[TLSOptions | None, ...]:
    """What the listeners that staple say of TLS: of clients, of WebSockets, of routes."""
    return options.tls, options.websocket.tls, options.cluster.tls


def _no_status(file: str, error: OCSPError) -> str:
    return f"bad OCSP status update for certificate at {file!r}: {error}"


def read_certificates(path: str) -> list[x509.Certificate]:
    """The certificates of a PEM file. Raises OCSPError."""
    try:
        with open(path, "rb") as file:
            found = x509.load_pem_x509_certificates(file.read())
    except (OSError, ValueError) as error:
        raise OCSPError(f"cannot read certificates of {path}: {error}") from error
    if not found:
        raise OCSPError(f"there is no certificate in {path}")
    return found
