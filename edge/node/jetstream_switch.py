"""JetStream of a node begins with it, and begins and ends by reloads of its configuration.

As with nats-server: what is stored stays, clients stay connected, and those that come later are
told by INFO. In a cluster only a start begins or ends it, see `reload`.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from headwater.edge.conf.options import Options
from headwater.edge.node.account_terms import terms_of
from headwater.edge.observed.start_progress import StartProgress
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.view.service import JetStreamPart

log = logging.getLogger("headwater.node")


def check_grants(options: Options) -> None:
    """Raises StoreError when accounts are granted more than the node may store, as nats-server
    refuses that. In a cluster nobody knows how much there is; without a limit of the node, what
    its disk and its memory have left bounds all accounts."""
    if options.cluster.port:
        return
    settings = options.jetstream
    granted = [each.jetstream for each in options.accounts.values() if each.jetstream is not None]
    for kind, key, limit, wanted in (
        ("memory", "max_mem", settings.max_memory_store, [one.max_memory for one in granted]),
        ("storage", "max_file", settings.max_file_store, [one.max_store for one in granted]),
    ):
        total = sum(one for one in wanted if one > 0)
        if 0 <= limit < total:
            raise StoreError(
                f"insufficient {kind} resources available: accounts are granted {total} bytes and "
                f"jetstream.{key} is {limit}: raise it, or grant less"
            )


class JetStreamSwitch:
    """Begins and ends JetStream of one node; all methods are for the loop's thread."""

    def __init__(self, node: Any) -> None:
        """`node` is a `Node`."""
        self.node = node
        self.hooks: list[Callable[[], None]] = []
        """Called when JetStream has begun or ended after the node's start."""
        self._ending: asyncio.Task[None] | None = None
        """Closes the storage of what ended last; the next one begins behind that."""

    def begin(self) -> None:
        """Recover what is stored, and serve it. Raises StoreError or OSError, and then nothing
        has begun."""
        from headwater.edge.sharing.imports_info import RequestInfo

        node = self.node
        log.info("Starting JetStream")
        check_grants(node.options)
        jetstream = node.make_jetstream()
        jetstream.granted = lambda name: terms_of(name, node.options, node.authenticator).jetstream
        jetstream.describe = RequestInfo(node).client
        jetstream.server_name = node.server_name
        jetstream.progress = node.recovering
        node.progress = StartProgress(node.kernel.monotonic_ns)
        for service in node.services:
            node.run_early(service)
            if isinstance(service, JetStreamPart):
                service.join_jetstream(node, jetstream)
        jetstream.open()
        node.jetstream = jetstream
        node.facts.jetstream = True
        node.apply_terms()

    def follow(self) -> None:
        """Begin or end it as the options say now. A failure is logged: the next reload tries
        again, as nats-server's does."""
        wanted, has = self.node.options.jetstream.enabled, self.node.jetstream is not None
        if wanted == has:
            return
        log.info("Reloaded: JetStream")
        if has:
            self._end()
        elif self._ending is None:
            self._restart()

    def _restart(self) -> None:
        log.info("Restarting JetStream")
        # It stays when JetStream ends, as with nats-server.
        self.node.serve_system()
        try:
            self.begin()
        except (StoreError, OSError) as error:
            log.warning("Can't start JetStream: %s; mend that, and reload again", error)
            self.node.facts.jetstream = False
            return
        for action in self.hooks:
            action()

    def _end(self) -> None:
        log.info("Initiating JetStream Shutdown...")
        node = self.node
        jetstream, node.jetstream = node.jetstream, None
        node.facts.jetstream = False
        jetstream.leave()
        for action in self.hooks:
            action()
        self._ending = node.loop.create_task(self._close(jetstream))

    async def _close(self, jetstream: Any) -> None:
        """Close the storage; a reload may have asked for JetStream again meanwhile."""
        try:
            await jetstream.shutdown()
        finally:
            self._ending = None
        log.info("JetStream Shutdown")
        node = self.node
        if node.options.jetstream.enabled and node.jetstream is None and not node.ending:
            self._restart()
        node.kernel.kick()

    async def ended(self) -> None:
        """Wait for what ends; the node stops, and nothing begins any more."""
        if self._ending is not None:
            await self._ending
