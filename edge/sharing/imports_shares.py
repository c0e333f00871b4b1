"""What the accounts of a node share, kept in force through changes of the configuration."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.edge.broker.imports.imports_plan import Plan, plan_of_claims, plan_of_options
from headwater.edge.conf.shares.import_cycles import local_subject
from headwater.edge.subjects.placeholders import pattern_of
from headwater.edge.view.node_view import NodeView
from headwater.security.subjects import matches

if TYPE_CHECKING:
    from headwater.edge.broker.imports.responses import Crossing
    from headwater.edge.sharing.imports_setup import Setup


class Shares:
    """Mappings, imports and exports of all accounts of a node."""

    def __init__(self, node: NodeView) -> None:
        self._node = node
        self._plan: Plan = {}
        self._crossing: Crossing | None = None
        self._setup: Setup | None = None
        self.on_change: list[Callable[[], None]] = []
        """Called when other mappings and imports have come into force."""

    def refresh(self) -> None:
        """Bring the options and account tokens of the node into force.

        Raises TransformError for subjects that do not fit together; then nothing has changed.
        """
        node = self._node
        if node.options.operator.enabled():
            plan = plan_of_claims(node.authenticator, node.kernel.wall_ns() / 1e9)
        else:
            plan = plan_of_options(node.options)
        plan = {name: shares for name, shares in plan.items() if shares != type(shares)()}
        if plan != self._plan:
            self._apply(plan)

    def _apply(self, plan: Plan) -> None:
        # Compiled code that a node whose accounts share nothing need not load.
        from headwater.edge.broker.imports.responses import Crossing
        from headwater.edge.sharing.imports_info import RequestInfo
        from headwater.edge.sharing.imports_setup import Setup
        from headwater.edge.sharing.remote_latency import RemoteLatency

        if self._crossing is None:
            describe = RequestInfo(self._node)
            self._crossing = Crossing(self._node.kernel, describe)
            if not self._node.options.no_system_account:
                self._crossing.remote = RemoteLatency(self._node, describe)
        fresh = Setup(self._node, self._crossing, plan)
        if self._setup is not None:
            self._setup.stop()
        self._plan = plan
        self._setup = fresh
        fresh.start()
        for action in self.on_change:
            action()

    def imports_service(self, name: str, subject: str) -> bool:
        """Whether requests of an account on a literal subject go to another account."""
        shares = self._plan.get(name)
        tokens = subject.split(".")
        return shares is not None and any(
            entry.kind == "service"
            and matches(pattern_of(local_subject(entry)).split("."), tokens)
            for entry in shares.imports
        )

    def stop(self) -> None:
        """End: nothing crosses any more."""
        if self._setup is not None:
            self._setup.stop()
            self._setup = None
        if self._crossing is not None:
            self._crossing.stop()
        self._plan = {}
