"""Questions to the API of an origin: one at a time, and how long its answer may take."""

import asyncio
from typing import Any

from headwater.edge.jetstream.model.models import StreamSource
from headwater.edge.kernel.kernel import CallbackSink
from headwater.edge.ports.draws import draw_text
from headwater.federation.origins.origin_errors import (
    Barred,
    KeptOut,
    LinkChanged,
    Nobody,
    OriginError,
)
from headwater.federation.origins.origin_request import TOKEN_LENGTH

ANSWER_BUSY_MAX_S = 600.0
"""Time for an answer at most, while a large message keeps it from coming over the link."""

DISTANCE_MAX_S = 2.5
"""What counts of an origin's distance at most: an answer can be late for other reasons."""


class OriginQuestions:
    """What one follower asks of its origin.

    `manager` knows the links of the node (`origins.Origins`); `stream` is the mirror or the stream
    that has the source. A question that is given up may end after the next one has begun.
    """

    def __init__(self, manager: Any, stream: Any, source: StreamSource) -> None:
        self.manager = manager
        self.account = stream.account
        self.kernel = stream.kernel
        self.api = source.external.api if source.external is not None else ""
        """Prefix of the origin's API; empty when it is in this domain."""
        self.via: Any = None
        """The connection by which the newest answer came; None when the node itself answered."""
        self.under_way: asyncio.Task[None] | None = None
        """The question what is to come, beside which the follower goes on."""
        self.distance_s = DISTANCE_MAX_S
        """How far the origin is, there and back: the soonest answer since a link came up."""
        self._answered: asyncio.Future[tuple[bytes, bytes]] | None = None

    def interrupt(self) -> None:
        """A link came up: whoever waits for an answer gets LinkChanged."""
        self.distance_s = DISTANCE_MAX_S
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(LinkChanged("a link came up"))

    def say(self, tail: str) -> None:
        """One request, `tail` behind the prefix of the origin's API, whose answer nobody takes."""
        subject = f"{self.api or '$JS.API'}.{tail}".replace("..", ".")
        reply = f"$JSC.R.{draw_text(self.kernel.chance, TOKEN_LENGTH)}".encode()
        self.account.send(subject.encode(), b"", reply, own=True)

    async def ask(
        self, subject: str, timeout: float, headers: bytes = b"", body: bytes = b""
    ) -> tuple[bytes, bytes]:
        """One request; returns (headers, payload). Raises OriginError after `timeout` seconds."""
        reply = f"$JSC.R.{draw_text(self.kernel.chance, TOKEN_LENGTH)}".encode()
        answered: asyncio.Future[tuple[bytes, bytes]] = self.kernel.loop.create_future()
        self._answered = answered
        asked = self.kernel.loop.time()

        def answer(_: bytes, __: bytes, block: bytes, payload: bytes, via: Any) -> None:
            if not answered.done():
                answered.set_result((block, payload))
                self.distance_s = min(self.distance_s, self.kernel.loop.time() - asked)
                self.via = via

        sink = CallbackSink(reply, answer)
        self.account.insert(sink)
        try:
            if not self.account.send(subject.encode(), body, reply, headers, own=True):
                raise self._nobody(subject)
            block, payload = await self._patiently(answered, timeout)
        except TimeoutError:
            self.manager.doubt(self.account)
            raise self._silent(subject, reply) from None
        finally:
            self.account.remove(sink)
            if self._answered is answered:
                self._answered = None
        if block.startswith(b"NATS/1.0 503"):
            raise self._nobody(subject)
        return block, payload

    async def _patiently(
        self, answered: "asyncio.Future[tuple[bytes, bytes]]", timeout: float
    ) -> tuple[bytes, bytes]:
        """Wait for an answer; time in which a large message comes in does not count. Raises
        TimeoutError."""
        arrived, waited = self.manager.arriving(self.account), 0.0
        end = self.kernel.loop.time() + ANSWER_BUSY_MAX_S
        while waited < timeout and self.kernel.loop.time() < end:
            await asyncio.wait((answered,), timeout=min(1.0, timeout - waited))
            if answered.done():
                return answered.result()
            now = self.manager.arriving(self.account)
            waited += 0.0 if now > arrived else 1.0
            arrived = now
        raise TimeoutError

    def _silent(self, subject: str, reply: bytes) -> OriginError:
        """Why a request was not answered in time."""
        barrier = self.manager.answers_kept_out(self.account, subject, reply) if self.api else ""
        if barrier:
            return KeptOut(f"answers to {subject!r} do not come in: {barrier}")
        return OriginError(f"no answer from the origin on {subject!r}")

    def _nobody(self, subject: str) -> Nobody:
        """Why there is nobody to answer a request."""
        barrier = self.manager.barrier(self.account, subject, self.api)
        if barrier:
            return Barred(f"nobody answers on {subject!r}: {barrier}")
        text = f"nobody answers on {subject!r}: the origin is not connected"
        why = self.manager.why_apart(self.account) if self.api else ""
        return Nobody(f"{text} ({why})" if why else text)
