"""A node: the kernel, accounts, sessions, JetStream and services of one process.

`Node(options).start()` makes a working single node; floors above add services before `start`.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from headwater.edge.broker.account import Account
from headwater.edge.broker.listeners.listener import Listener, ListenError, shown_hosts
from headwater.edge.broker.listeners.tls_context import ListenerContexts, listener_contexts
from headwater.edge.broker.logins.sessions import Sessions
from headwater.edge.conf.auth_config import auth_config
from headwater.edge.conf.options import OCSPPeerOptions, Options
from headwater.edge.facts.info import NodeFacts
from headwater.edge.facts.version import GIT_COMMIT, NATS_LEVEL, VERSION
from headwater.edge.kernel.kernel import Kernel
from headwater.edge.node.account_terms import NOTHING, AccountTerms, terms_of
from headwater.edge.node.jetstream_switch import JetStreamSwitch
from headwater.edge.node.lame_duck import lame_duck
from headwater.edge.node.launch_files import PidFileError, remove_files, write_files
from headwater.edge.node.parting import AloneKeeper, part_all
from headwater.edge.observed.observations import Observations
from headwater.edge.observed.start_progress import StartProgress
from headwater.edge.ports.ports import Clock, Random
from headwater.edge.sharing.imports_shares import Shares
from headwater.edge.system.system import SystemService
from headwater.edge.view.node_view import InboxKeeper
from headwater.edge.view.service import EarlyService, Service
from headwater.edge.view.system_info import ServerInfo
from headwater.security import nkeys
from headwater.security.auth_options import SYSTEM_ACCOUNT
from headwater.security.authenticator import Authenticator

log = logging.getLogger("headwater.node")


class Node:
    """One running node. All methods are for the event loop's thread."""

    def __init__(
        self,
        options: Options,
        loop: asyncio.AbstractEventLoop,
        time_source: Clock | None = None,
        chance: Random | None = None,
    ) -> None:
        """Time and chance come from `time_source` and `chance`; None is the machine's."""
        self.options = options
        self.loop = loop
        self.kernel = Kernel(loop, time_source, chance)
        self.server_id, key = _own_key(options, self.kernel.chance)
        self.curve = nkeys.KeyPair.create("X")
        self.server_name = options.server_name or self.server_id
        self.accounts: dict[str, Account] = {}
        self.authenticator = Authenticator(auth_config(options), self.kernel.wall_ns)
        self.system_account = options.system_account or SYSTEM_ACCOUNT
        self.jetstream: Any = None
        self.jetstream_switch = JetStreamSwitch(self)
        self.services: list[Service] = []
        self._running: list[Service] = []
        self.account_hooks: list[Callable[[Account], None]] = []
        """Called with every account that is made."""
        self.account_wanted: Callable[[str], None] = lambda name: None
        """Called with the name of an account that a peer has and this node does not know."""
        self.inbox_keeper: InboxKeeper = AloneKeeper()
        self.reload_hooks: list[Callable[[], None]] = []
        """Called when other options have come into force."""
        self.peer_checks: Any = None
        """Judges peers whose listener has `ocsp_peer`: `edge.ocsp.peer_checks`."""
        self.farewells: list[Callable[[], None]] = []
        """Called when lame duck mode begins."""
        self.departures: list[Callable[[], Awaitable[None]]] = []
        """Awaited when the node stops, while clients are still served, the last that came first;
        each sees to its bound."""
        self.reloader: Callable[[], None] | None = None
        """Reads the configuration again, and puts it into force or raises ConfigError; None where
        there is none to read."""
        self.recovery_progress: Callable[[int, int], None] = lambda done, total: None
        """Called while JetStream recovers, with segments done and segments in all."""
        self.progress = StartProgress(self.kernel.monotonic_ns)
        self.listeners: list[Listener] = []
        self.facts = self._facts()
        self.sessions = Sessions(self.kernel, options, self.facts, self.authenticator, self.account)
        self.callouts = _callouts(self, key)
        self.sessions.describe_node = ServerInfo(self).event
        self.started_ns = self.kernel.clock()
        self._begun_ns = self.kernel.monotonic_ns()
        self.observations = Observations(self.kernel)
        self.sessions.observers.append(self.observations.tally)
        self.has_system = not options.without_system()
        if self.has_system:
            self.services.append(SystemService())
        self.tls = ListenerContexts()
        self._stopped = asyncio.Event()
        self.shares = Shares(self)
        self._make_accounts()

    def uptime_ns(self) -> int:
        """How long it runs; setting the wall clock does not change it."""
        return self.kernel.monotonic_ns() - self._begun_ns

    # --- accounts ---

    def account(self, name: str) -> Account:
        """The account of that name; made when it is first asked for."""
        found = self.accounts.get(name)
        if found is None:
            found = Account(name, self.kernel)
            self.accounts[name] = found
            found.system = name == self.system_account
            self._apply_terms(found)
            for hook in self.account_hooks:
                hook(found)
        return found

    def known_account(self, name: str) -> Account | None:
        """The account of that name if this node is to have it; what a peer names is not made."""
        found = self.accounts.get(name)
        if found is None and self.authenticator.account_claims(name) is not None:
            found = self.account(name)
        if found is None:
            self.account_wanted(name)
        return found

    def account_changed(self, name: str) -> None:
        """The token of an account has changed, or is gone: act on it at once."""
        self.shares.refresh()
        account = self.accounts.get(name)
        if account is not None:
            registry = self.sessions.registry
            self._apply_terms(account)
            registry.judge(registry.of_account(account))
        self.kernel.kick()

    def _make_accounts(self) -> None:
        for name in self.options.account_names():
            self.account(name)
        self.account(self.system_account)
        self.apply_account_limits()

    def apply_terms(self) -> None:
        """Bring what accounts are granted into force."""
        for account in list(self.accounts.values()):
            self._apply_terms(account)

    def apply_account_limits(self) -> None:
        """Give accounts the terms, mappings and imports that are in force now."""
        self.shares.refresh()
        for name in self.options.account_names():
            self.account(name)
        self.apply_terms()

    def _apply_terms(self, account: Account) -> None:
        """Bring what an account is granted into force; sessions beyond that end."""
        terms = terms_of(account.name, self.options, self.authenticator)
        account.limits = terms.limits()
        registry = self.sessions.registry
        registry.expire_account(account, terms.expires)
        registry.apply_limits(account)
        for session in registry.of_account(account):
            session.apply_limits()
        self._serve_jetstream(account, terms)

    def _serve_jetstream(self, account: Account, terms: AccountTerms) -> None:
        """Give an account its JetStream API, or the answer that it has none. Its streams rest when
        its terms say so, and not when they are unknown or have expired."""
        granted = terms.jetstream
        if self.jetstream is None:
            return
        if account.system:
            self.jetstream.deny(account, system=True)
        elif granted is not None:
            self.jetstream.enable(account, granted)
        elif self.shares.imports_service(account.name, "$JS.API.INFO"):
            self.jetstream.withdraw(account)
        else:
            self.jetstream.deny(account)
        if granted is None and terms is not NOTHING and not account.system:
            self.jetstream.rest(account)

    # --- start ---

    def start(self) -> None:
        """Recover, listen, and say so. Raises ListenError or a StoreError with a clear text."""
        options = self.options
        log.info("Starting nats-server")
        log.info("  Version:  %s (headwater %s)", NATS_LEVEL, VERSION)
        log.info("  Git:      [%s]", GIT_COMMIT or "not set")
        log.info("  Name:     %s", self.server_name)
        log.info("  ID:       %s", self.server_id)
        if options.config_file:
            log.info(
                "Using configuration file: %s (%s)", options.config_file, options.config_digest
            )
        self.tls = listener_contexts(options)
        if options.jetstream.enabled:
            self.jetstream_switch.begin()
        for service in self.services:
            service.start(self)
            if service not in self._running:
                self._running.append(service)
        if options.listens:
            self._listen()
        write_files(options, self.ports())
        log.info("Server is ready")

    def make_jetstream(self) -> Any:
        """JetStream of this node, before it is opened."""
        from headwater.edge.jetstream.node.node import NodeJetStream

        return NodeJetStream(self.kernel, self.options, self.account)

    def serve_system(self) -> None:
        """Have something answer in the system account from now on, if nothing does."""
        if self.has_system:
            return
        self.has_system = True
        service = SystemService()
        self.services.append(service)
        self._running.append(service)
        service.start(self)
        self.shares.system_begins()

    def run_early(self, service: Service) -> None:
        """Have a service do what it has to do before recovery, unless it runs already; it is
        stopped with the node."""
        if service in self._running or not isinstance(service, EarlyService):
            return
        self._running.append(service)
        service.before_recovery(self)

    def recovering(self, done: int, total: int) -> None:
        """So many segments of all of them have been read."""
        self.progress.now = (done, total)
        self.recovery_progress(done, total)

    def _listen(self) -> None:
        host, port = self.options.host, self.options.port
        try:
            listener = Listener(self.loop, host, port, self._on_socket)
        except ListenError as error:
            raise ListenError(f'Error listening on port: {host}:{port}, "{error}"') from error
        self.listeners.append(listener)
        self.facts.host, self.facts.port = _shown_at(self.options, listener.port)
        listener.start()
        log.info("Listening for client connections on %s:%d", self.options.host, listener.port)

    def _on_socket(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        conn = self.sessions.accept(sock, address)
        tls = self.options.tls
        if tls is not None and tls.handshake_first:
            self._expect_handshake(conn, sock, tls.handshake_first_fallback)
        else:
            conn.attach(sock)
            self._greet(conn)
            self.kernel.turn()
            if tls is not None and not conn.closed:
                conn.use_filter(self._tls_filter(conn))
        if self.options.proxy_protocol and not conn.closed:
            from headwater.edge.broker.listeners.proxy_protocol import HeaderWatch

            HeaderWatch(conn, sock, self.options.auth_timeout(), self.sessions.relocate)

    def _greet(self, conn: Any) -> None:
        self.sessions.detail(conn)["greeted"] = True
        self.sessions.greet(conn)

    def _expect_handshake(self, conn: Any, sock: socket.socket, patience: float) -> None:
        """TLS before INFO; after `patience` seconds (0: never) without TLS, INFO comes first."""
        session = self._tls_filter(conn)
        conn.attach(sock, session)
        if self.sessions.full():
            conn.close("Maximum Connections Exceeded")
            return

        def give_up() -> None:
            if not conn.closed and not session.begun:
                conn.use_filter(None)
                self._greet(conn)
                self.kernel.turn()
                if not conn.closed:
                    conn.use_filter(session)

        if patience > 0:
            self.loop.call_later(patience, give_up)

    def use_tls(self, contexts: ListenerContexts) -> None:
        """Use other TLS contexts for connections that come from now on."""
        self.tls = contexts

    def judge_peer(
        self,
        conn: Any,
        session: Any,
        wanted: OCSPPeerOptions | None,
        then: Callable[[], None],
        kind: str = "",
    ) -> None:
        """A handshake is done: call `then` when the peer may go on, maybe later. It is ended when
        what its authority says of it forbids that. `kind` of connection is what events of the
        system account say; without one there is none."""
        if wanted is None:
            then()
        elif self.peer_checks is None:
            conn.close("TLS Handshake Failure")
        else:
            self.peer_checks.admit(conn, session, wanted, then, kind)

    def _tls_filter(self, conn: Any) -> Any:
        from headwater.edge.broker.listeners.tls_filter import TLSFilter
        from headwater.security.tls.contexts import cipher_suite

        def ready(session: Any) -> None:
            tls = self.options.tls
            wanted = tls.ocsp_peer if tls is not None else None
            self.judge_peer(conn, session, wanted, lambda: admitted(session), "Client")

        def admitted(session: Any) -> None:
            detail = self.sessions.detail(conn)
            detail["secure"] = True
            detail["certificate"] = session.tls.getpeercert()
            detail["tls_version"] = session.tls.version()
            detail["tls_cipher"] = cipher_suite(session.tls)
            if not detail.get("greeted"):
                detail["tls_first"] = True
                self._greet(conn)

        return TLSFilter(
            self.tls.clients, on_ready=ready, optional=self.options.allow_non_tls
        )

    def _facts(self) -> NodeFacts:
        options = self.options
        # A node that dials others, and has no cluster, is one by itself to them.
        alone = bool(options.leaf.remotes) and not options.cluster.port
        return NodeFacts(
            server_id=self.server_id,
            server_name=self.server_name,
            xkey=self.curve.public_key,
            host=options.host,
            port=options.port,
            max_payload=options.max_payload,
            headers=not options.no_header_support,
            jetstream=options.jetstream.enabled,
            domain=options.jetstream.domain,
            cluster=options.cluster.name or (self.server_name if alone else ""),
            auth_required=self.authenticator.auth_required() or options.names_system_alone(),
            tls_required=options.tls is not None and not options.allow_non_tls,
            tls_available=options.tls is not None and options.allow_non_tls,
            tls_verify=options.tls is not None
            and (options.tls.verify or options.tls.verify_and_map),
        )

    # --- files for launchers ---

    def ports(self) -> dict[str, list[str]]:
        """URLs of every listener, by the names of the ports file."""
        scheme = "tls" if self.options.tls is not None else "nats"
        found = {
            "nats": [
                f"{scheme}://{host}:{listener.port}"
                for listener in self.listeners
                for host in shown_hosts(self.options.host)
            ]
        }
        for service in self.services:
            found.update(service.ports())
        return found

    def port_of(self, name: str, otherwise: int) -> int:
        """The port of a listener by its name in `ports`; `otherwise` when it does not listen."""
        for service in self.services:
            for url in service.ports().get(name, ()):
                return urlsplit(url).port or otherwise
        return otherwise

    def replace_files(self, old: Options) -> None:
        """The files that other options name: in new places, and no longer in the old ones."""
        new = self.options
        if (old.pid_file, old.ports_file_dir) != (new.pid_file, new.ports_file_dir):
            remove_files(old)
            try:
                write_files(new, self.ports())
            except PidFileError as error:
                log.error("%s", error)

    # --- end ---

    @property
    def ending(self) -> bool:
        """Whether the node stops."""
        return self._stopped.is_set()

    async def stop(self) -> None:
        """End cleanly: sessions first, then services, then storage."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        log.info("Initiating Shutdown...")
        for listener in self.listeners:
            listener.close()
        for depart in reversed(self.departures):
            await depart()
        if self.options.cluster.port and self.sessions.conns:
            await part_all(self)
        self.sessions.halt()
        for service in reversed(self._running):
            await service.stop()
        await self.jetstream_switch.ended()
        if self.jetstream is not None:
            await self.jetstream.shutdown()
            self.kernel.turn()
        self.sessions.close_all()
        if self.callouts is not None:
            self.callouts.stop()
        self.shares.stop()
        self.kernel.turn()
        remove_files(self.options)
        log.info("Server Exiting..")

    async def lame_duck(self) -> None:
        """Send clients away gently, then stop."""
        await lame_duck(self)

    async def stopped(self) -> None:
        """Wait until the node has ended."""
        await self._stopped.wait()


def _shown_at(options: Options, port: int) -> tuple[str, int]:
    """Host and port that INFO names: those to advertise, or else those that are listened on."""
    wanted = options.client_advertise
    host, colon, number = wanted.rpartition(":")
    if colon and number.isdecimal() and (":" not in host or host.startswith("[")):
        return host.strip("[]"), int(number)
    return wanted.strip("[]") or options.host, port


def _own_key(options: Options, chance: Random) -> tuple[str, nkeys.KeyPair | None]:
    """A node's id and, where it will have to sign questions to a callout service, its key."""
    if options.auth.callout is None and not options.operator.enabled():
        # Code that makes keys takes a third of the time to start.
        return nkeys.encode("N", chance.randbytes(32)), None
    key = nkeys.KeyPair.create("N")
    return key.public_key, key


def _callouts(node: Node, key: nkeys.KeyPair | None) -> Any:
    if key is None:
        return None
    from headwater.edge.broker.logins.callouts import Callouts

    callouts = Callouts(node, key, node.curve, node.sessions.checks)
    node.sessions.checks.ask_service = callouts.ask
    return callouts
