"""Auth callout at work: questions to the service that decides on logins, and its answers.

Whoever cannot be decided on, because nobody answers in time or too many wait, is refused.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from headwater.edge.broker.account import Account
from headwater.edge.broker.logins.password_checks import PasswordChecks
from headwater.edge.conf.options import Options
from headwater.edge.facts.info import NodeFacts
from headwater.edge.facts.version import NATS_LEVEL
from headwater.edge.kernel.kernel import CallbackSink, Kernel
from headwater.security.auth_options import CALLOUT_SUBJECT
from headwater.security.authenticator import Authenticator
from headwater.security.callout import Callout
from headwater.security.errors import (
    AccountNeeded,
    AuthError,
    CalloutRequired,
    CalloutTarget,
    SecurityError,
)
from headwater.security.identity import AuthRequest, Identity, claimed_user
from headwater.security.nkeys import KeyPair
from headwater.security.tls.contexts import cipher_suite, verified_chain

WAITING_MAX = 1024
"""Logins that may wait for an answer; more are refused at once."""

ANSWER_BYTES_MAX = 256 * 1024
"""Longest answer that is looked at: a token with very many permissions stays below."""

Outcome = Identity | SecurityError


class CalloutHost(Protocol):
    """What is needed of the node."""

    kernel: Kernel
    options: Options
    facts: NodeFacts
    authenticator: Authenticator

    def known_account(self, name: str) -> Account | None:
        """The account of that name, if there is one."""


class _Question:
    """A login that waits for its answer."""

    __slots__ = ("account", "callout", "conn", "done", "request", "sink", "timer")

    def __init__(
        self, conn: Any, request: AuthRequest, callout: Callout, done: Callable[[Outcome], None]
    ) -> None:
        self.conn = conn
        self.request = request
        self.callout = callout
        self.done = done
        self.account: Any = None
        self.sink: CallbackSink | None = None
        self.timer: asyncio.TimerHandle | None = None


class Callouts:
    """The questions of one node."""

    def __init__(
        self, node: CalloutHost, server: KeyPair, curve: KeyPair, checks: PasswordChecks
    ) -> None:
        """`server` and `curve` are the node's own keys, by whose public halves it is known;
        `checks` are the decisions that ask here."""
        self._node = node
        self._checks = checks
        self._server = server
        self._curve = curve
        self._waiting: set[_Question] = set()

    def ask(
        self,
        conn: Any,
        request: AuthRequest,
        needed: CalloutRequired,
        done: Callable[[Outcome], None],
    ) -> None:
        """Let the service decide; `done` is called with the identity or an AuthError.

        A connection that has not logged in is halted meanwhile. `done` is not called when it has
        ended by then.
        """
        account = self._node.known_account(needed.target.account)
        if account is None or len(self._waiting) >= WAITING_MAX:
            done(AuthError("the callout service cannot be asked"))
            return
        callout = Callout(needed.target, self._server, self._curve)
        question = _Question(conn, request, callout, done)
        question.account = account
        inbox = f"$SYS._INBOX.{callout.user}".encode()
        question.sink = CallbackSink(
            inbox, lambda subject, reply, headers, body, sender: self._answered(question, body)
        )
        patience = self._node.options.auth_timeout()
        payload, headers = callout.request(
            request,
            self._describe_node(),
            self._describe(conn, request, needed.target),
            _tls(conn),
            int(request.now + patience),
        )
        if not conn.ready:
            conn.halt()
        account.insert(question.sink)
        self._waiting.add(question)
        question.timer = self._node.kernel.loop.call_later(
            patience, self._answer, question, AuthError("the callout service has not answered")
        )
        if not account.send(CALLOUT_SUBJECT.encode(), payload, inbox, headers, own=True):
            self._node.kernel.loop.call_soon(
                self._answer, question, AuthError("no callout service listens")
            )

    def _answered(self, question: _Question, payload: bytes) -> None:
        if len(payload) > ANSWER_BYTES_MAX:
            self._answer(question, AuthError("the callout's answer is too long"))
            return
        node = self._node
        try:
            identity = question.callout.identity(
                payload,
                question.request,
                node.authenticator,
                lambda name: node.known_account(name) is not None,
            )
        except AccountNeeded as needed:
            self._seek(question, payload, needed.account)
        except SecurityError as error:
            self._answer(question, error)
        else:
            self._answer(question, identity)

    def _seek(self, question: _Question, payload: bytes, account: str) -> None:
        """Look at an answer again when the token of its user's account was looked for."""
        seek = self._checks.seek_account
        assert question.request.sought is not None and seek is not None
        question.request.sought.add(account)
        if not seek(account, lambda: self._again(question, payload)):
            self._answer(question, AuthError("too many logins wait for an account's token"))

    def _again(self, question: _Question, payload: bytes) -> None:
        if question in self._waiting:
            self._answered(question, payload)

    def _answer(self, question: _Question, outcome: Outcome) -> None:
        if question not in self._waiting:
            return
        self._forget(question)
        if not question.conn.closed:
            question.done(outcome)
            question.conn.proceed()
            self._node.kernel.kick()

    def _forget(self, question: _Question) -> None:
        self._waiting.discard(question)
        if question.timer is not None:
            question.timer.cancel()
        question.account.remove(question.sink)

    def _describe_node(self) -> dict[str, Any]:
        node = self._node
        fields = {
            "name": node.facts.server_name,
            "host": node.facts.host,
            "id": node.facts.server_id,
            "version": NATS_LEVEL,
        }
        optional = {"cluster": node.facts.cluster, "tags": node.options.server_tags}
        return {**fields, **{name: value for name, value in optional.items() if value}}

    def _describe(
        self, conn: Any, request: AuthRequest, target: CalloutTarget
    ) -> dict[str, Any]:
        named = request.text("nkey") or request.text("user") or target.user
        websocket = request.connection_type == "WEBSOCKET"
        fields = {
            "host": request.host,
            "id": conn.cid,
            "user": named or claimed_user(request.connect),
            "name": request.text("name"),
            "name_tag": target.name,
            "kind": "Leafnode" if request.is_leaf else "Client",
            "type": "" if request.is_leaf else "websocket" if websocket else "nats",
        }
        return {name: value for name, value in fields.items() if value}

    def stop(self) -> None:
        """Ask no more; logins that wait get no answer."""
        for question in list(self._waiting):
            self._forget(question)


def _tls(conn: Any) -> dict[str, Any] | None:
    """What is known of a connection's TLS; None without."""
    session = getattr(conn.filter, "tls", None)
    session = getattr(session, "tls", session)
    if session is None:
        return None
    fields: dict[str, Any] = {
        "version": str(session.version() or "").removeprefix("TLSv"),
        "cipher": cipher_suite(session),
    }
    chain = verified_chain(session) if session.getpeercert(binary_form=True) else []
    if chain:
        import ssl

        fields["verified_chains"] = [[ssl.DER_cert_to_PEM_cert(each) for each in chain]]
    return fields
