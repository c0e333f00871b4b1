"""The hub's enrolment service: exchanges an operator's token for credentials, once.

It listens on `$HEADWATER.ENROL.<name>` in the gateways' account. That a token is used up is a
message of its own in a KV bucket, which the stream takes only once for a token: so it holds
whichever node of a hub answers, and after any crash.
"""

import asyncio
import logging
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.edge.broker.account import Account
from headwater.edge.kernel.kernel import CallbackSink
from headwater.edge.logging.protocol_log import peer_label
from headwater.edge.wire.json_objects import BAD_JSON
from headwater.hub.enrolment.issue import Enrolment, grant, judge
from headwater.security.claims import AccountClaims
from headwater.security.errors import JWTError, SecurityError
from headwater.security.gateway_roles import (
    ENROL_SUBJECT,
    ENROLLED_BUCKET,
    GATEWAY,
    REPORT_BUCKET,
    REPORT_SUBJECT,
    is_gateway_name,
    key_of_role,
)
from headwater.security.nkeys import KeyPair

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.fleet")

ANSWER_S = 5.0
"""Time for JetStream's answer to one question."""
WAITING_MAX = 256
"""Requests that are worked on at a time; more are told to come again."""
BUCKETS_RETRY_S = 2.0
REPORT_BYTES_MAX = 16 * 1024
REPORT_PACE_S = 1.0
"""Reports of one gateway that come sooner after another are dropped."""
GATEWAYS_MAX = 100_000
QUEUE = b"headwater-fleet"
"""Of all nodes of a hub, one keeps a report. Requests to be enrolled reach all of them: who asks
over a leaf link would have to name the queue, and two same answers do no harm."""
WRONG_LAST_SEQUENCE = 10071


class EnrolmentService:
    """Answers requests to be enrolled in one account."""

    name = "enrolment"

    def __init__(self) -> None:
        self._sinks: list[CallbackSink] = []
        self._reported: dict[bytes, float] = {}
        """When a report of each gateway was taken."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._buckets = asyncio.Event()
        self.granted = 0
        self.refused = 0

    def start(self, node: "NodeView") -> None:
        """Listen. Raises SecurityError when the signing key cannot be read."""
        options = node.options.headwater
        self._node = node
        self._account: Account = node.account(options.fleet_account)
        try:
            self._signer = KeyPair.from_seed(Path(options.fleet_signing_key).read_text())
        except OSError as error:
            raise SecurityError(
                f"headwater.fleet.signing_key {options.fleet_signing_key}: {error.strerror}"
            ) from error
        self._sinks = [
            CallbackSink(f"{ENROL_SUBJECT}.*".encode(), self._asked),
            CallbackSink(f"{REPORT_SUBJECT}.*".encode(), self._report, QUEUE),
        ]
        for sink in self._sinks:
            self._account.insert(sink)
        self._work(self._make_buckets())

    async def stop(self) -> None:
        """Answer no longer."""
        for sink in self._sinks:
            self._account.remove(sink)
        self._sinks.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def ports(self) -> dict[str, list[str]]:
        """None of its own."""
        return {}

    def status(self) -> dict[str, Any]:
        """Counts since the start."""
        return {"granted": self.granted, "refused": self.refused}

    def _work(self, job: Any) -> None:
        task = self._node.loop.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _claims(self) -> AccountClaims:
        claims: AccountClaims | None = self._node.authenticator.account_claims(self._account.name)
        if claims is None:
            raise JWTError("the hub does not know the account")
        return claims

    # --- reports ---

    def _report(self, subject: bytes, _: bytes, __: bytes, payload: bytes, ___: Any) -> None:
        """Keep a gateway's newest report. Its permissions let it use its own subject only. Others
        of the account may use any, so what can be no gateway's name is dropped."""
        name, now = subject.rpartition(b".")[2], self._node.loop.time()
        if len(payload) > REPORT_BYTES_MAX or not is_gateway_name(name):
            return
        if now - self._reported.get(name, -1e9) < REPORT_PACE_S:
            return
        if len(self._reported) >= GATEWAYS_MAX:
            self._reported.clear()
        self._reported[name] = now
        self._account.send(b"$KV.%s.%s" % (REPORT_BUCKET.encode(), name), payload, own=True)

    # --- requests ---

    def _asked(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: Any
    ) -> None:
        if not reply:
            return
        # A peer may be gone when its answer is ready.
        peer = peer_label(sender) if sender is not None else "this node"
        if len(self._tasks) >= WAITING_MAX:
            self._refuse(peer, subject, reply, "too many gateways ask at once; ask again")
            return
        self._work(self._answer(peer, subject, reply, payload))

    async def _answer(self, peer: str, subject: bytes, reply: bytes, payload: bytes) -> None:
        name = subject.decode("utf-8", "replace").rpartition(".")[2]
        try:
            claims = self._claims()
            enrolment = judge(payload, name, claims, time.time())
            await self._use_up(enrolment)
            if key_of_role(claims, GATEWAY) != self._signer.public_key:
                log.warning(
                    "headwater.fleet.signing_key is not the newest one of account %s; what it "
                    "signs may be "
                    "refused: put the newest in its place",
                    claims.sub,
                )
            token = grant(enrolment, claims, self._signer)
        except (SecurityError, TimeoutError) as error:
            why = str(error) or "the hub's JetStream does not answer"
            self._refuse(peer, subject, reply, why)
            return
        self.granted += 1
        log.info("enrolled gateway %s with key %s", name, enrolment.key)
        self._account.send(reply, msgspec.json.encode({"jwt": token}))

    def _refuse(self, peer: str, subject: bytes, reply: bytes, why: str) -> None:
        self.refused += 1
        log.warning(
            "%s - refused to enrol %s: %s; nothing is issued",
            peer,
            subject.decode("utf-8", "replace"),
            why,
        )
        self._account.send(reply, msgspec.json.encode({"error": why}))

    async def _use_up(self, enrolment: Enrolment) -> None:
        """Write down that the token is used. Raises JWTError when another key has used it."""
        async with asyncio.timeout(ANSWER_S):
            await self._buckets.wait()
        subject = f"$KV.{ENROLLED_BUCKET}.{enrolment.name}.{enrolment.token_id}"
        headers = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 0\r\n\r\n"
        answer = await self._ask(subject, msgspec.json.encode(enrolment), headers)
        error = answer.get("error")
        if error is None:
            return
        if error.get("err_code") != WRONG_LAST_SEQUENCE:
            raise JWTError(f"the hub cannot record the enrolment: {error.get('description')}")
        stream = f"$JS.API.DIRECT.GET.KV_{ENROLLED_BUCKET}.{subject}"
        recorded = await self._ask(stream, b"")
        if recorded.get("key") != enrolment.key:
            raise JWTError("the enrolment token was used by another key: revoke that gateway")

    # --- JetStream ---

    async def _make_buckets(self) -> None:
        """Make both buckets, or leave them as they are."""
        for bucket, more in (
            (REPORT_BUCKET, {"max_msg_size": REPORT_BYTES_MAX, "discard": "new"}),
            (ENROLLED_BUCKET, {"allow_direct": True, "discard": "new"}),
        ):
            config = {
                "name": f"KV_{bucket}", "subjects": [f"$KV.{bucket}.>"], "storage": "file",
                "max_msgs_per_subject": 1, "allow_rollup_hdrs": True, "deny_delete": True, **more,
            }  # fmt: skip
            api = f"$JS.API.STREAM.CREATE.KV_{bucket}"
            while True:
                try:
                    made = await self._ask(api, msgspec.json.encode(config))
                except (TimeoutError, JWTError) as error:
                    log.warning("KV bucket %s cannot be made: %s; tried again", bucket, error)
                    await asyncio.sleep(BUCKETS_RETRY_S)
                    continue
                if "error" in made:
                    log.error(
                        "KV bucket %s cannot be made: %s; nothing is recorded there: mend that, "
                        "and start "
                        "the node again",
                        bucket,
                        made["error"].get("description"),
                    )
                break
        self._buckets.set()

    async def _ask(self, subject: str, payload: bytes, headers: bytes = b"") -> dict[str, Any]:
        """One request in the account. Raises TimeoutError, and JWTError without JetStream."""
        inbox = f"_INBOX.{secrets.token_hex(11)}".encode()
        answered: asyncio.Future[bytes] = self._node.loop.create_future()

        def answer(_: bytes, __: bytes, ___: bytes, body: bytes, ____: Any) -> None:
            if not answered.done():
                answered.set_result(body)

        sink = CallbackSink(inbox, answer)
        self._account.insert(sink)
        try:
            if not self._account.send(subject.encode(), payload, inbox, headers, own=True):
                raise JWTError("JetStream is off in the gateways' account at this hub")
            async with asyncio.timeout(ANSWER_S):
                body = await answered
        finally:
            self._account.remove(sink)
        try:
            found = msgspec.json.decode(body)
        except BAD_JSON as error:
            raise JWTError("the hub's JetStream answers what is not JSON") from error
        return found if isinstance(found, dict) else {}
