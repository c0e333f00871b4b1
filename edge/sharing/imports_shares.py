"""What the accounts of a node share, kept in force through changes of the configuration."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.edge.broker.imports.imports_plan import Plan, plan_of_options
from headwater.edge.conf.shares.import_cycles import local_subject
from headwater.edge.kernel.wall_window import WallWindow
from headwater.edge.subjects.placeholders import pattern_of
from headwater.edge.view.node_view import NodeView
from headwater.security.subjects import matches

if TYPE_CHECKING:
    from headwater.edge.broker.imports.claims_plan import ClaimsPlan
    from headwater.edge.broker.imports.responses import Crossing
    from headwater.edge.sharing.account_setup import AccountSetup


class Shares:
    """Mappings, imports and exports of all accounts of a node."""

    def __init__(self, node: NodeView) -> None:
        self._node = node
        self._plan: Plan = {}
        self._crossing: Crossing | None = None
        self._setups: dict[str, AccountSetup] = {}
        self._claims_plan: ClaimsPlan | None = None
        self._window = WallWindow(node.kernel, self._turn)
        """In which the activations of imports say what is in force."""
        self.on_change: list[Callable[[], None]] = []
        """Called when other mappings and imports have come into force."""

    def refresh(self) -> None:
        """Bring the options and account tokens of the node into force.

        Raises TransformError for subjects that do not fit together; then nothing has changed.
        """
        node = self._node
        if node.options.operator.enabled():
            plan = self._plan_of_claims()
        else:
            self._window.stop()
            plan = plan_of_options(node.options)
            if node.options.default_js_domain:
                from headwater.edge.broker.imports.default_domains import with_default_domains

                plan = with_default_domains(plan, node.options)
        plan = {name: shares for name, shares in plan.items() if shares.any()}
        if plan != self._plan:
            self._apply(plan)

    def _plan_of_claims(self) -> Plan:
        # What a node without account tokens need not load.
        from headwater.edge.broker.imports.claims_plan import ClaimsPlan

        if self._claims_plan is None:
            self._claims_plan = ClaimsPlan()
        node = self._node
        plan = self._claims_plan.plan(node.authenticator, self._window.now_s())
        self._window.watch(*self._claims_plan.window())
        return plan

    def _turn(self) -> None:
        """An activation has ended, or begins, or does no more as the clock was set."""
        self._node.apply_account_limits()
        self._node.kernel.kick()

    def _apply(self, plan: Plan) -> None:
        """Set up anew what differs, account by account."""
        # Compiled code that a node whose accounts share nothing need not load.
        from headwater.edge.broker.imports.responses import Crossing
        from headwater.edge.sharing.account_setup import AccountSetup
        from headwater.edge.sharing.imports_info import RequestInfo

        if self._crossing is None:
            self._crossing = Crossing(self._node.kernel, RequestInfo(self._node))
            if self._node.has_system:
                self._measure_together(self._crossing)
        before, standing, fresh = self._setups, {}, {}
        for name in plan:
            setup = before.get(name)
            if setup is not None and setup.fits(name, plan):
                standing[name] = setup
            else:
                fresh[name] = AccountSetup(self._node, self._crossing, name, plan)
        for name, setup in before.items():
            if name not in standing:
                setup.stop()
        self._plan = plan
        self._setups = {name: fresh.get(name) or standing[name] for name in plan}
        for setup in fresh.values():
            setup.start()
        self._watch(before)
        for action in self.on_change:
            action()

    def _watch(self, before: "dict[str, AccountSetup]") -> None:
        """Measure the services that are to be measured now, if they are others than before."""
        assert self._crossing is not None
        measured = [service for setup in self._setups.values() for service in setup.measured]
        known = [service for setup in before.values() for service in setup.measured]
        if self._crossing.remote is not None and measured != known:
            self._crossing.remote.watch(measured)

    def _measure_together(self, crossing: "Crossing") -> None:
        """Other servers tell their halves of latencies, in the system account."""
        from headwater.edge.sharing.imports_info import RequestInfo
        from headwater.edge.sharing.remote_latency import RemoteLatency

        crossing.remote = RemoteLatency(self._node, RequestInfo(self._node))

    def system_begins(self) -> None:
        """Something answers in the system account from now on."""
        if self._crossing is not None:
            self._measure_together(self._crossing)
            self._watch({})

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
        self._window.stop()
        for setup in self._setups.values():
            setup.stop()
        self._setups = {}
        if self._crossing is not None:
            self._crossing.stop()
        self._plan = {}
