"""What an account shares, compiled: mappings, service imports and stream imports."""

from headwater.edge.broker.imports.imports_plan import Plan
from headwater.edge.broker.imports.responses import Crossing, ServiceExport
from headwater.edge.broker.imports.service_import import ServiceImport
from headwater.edge.broker.imports.service_latency import ServiceLatency
from headwater.edge.broker.imports.stream_imports import StreamImport, StreamImports
from headwater.edge.broker.mappings import Mappings
from headwater.edge.conf.options import ExportOptions, ImportOptions
from headwater.edge.conf.shares.import_subjects import service_subjects, stream_subjects
from headwater.edge.view.node_view import NodeView

THRESHOLD_S = 120.0
"""How long a service's answers may take where its export does not say."""


class AccountSetup:
    """What one account of a plan shares, to be in force. Making it changes nothing yet; `start`
    does."""

    def __init__(self, node: NodeView, crossing: Crossing, name: str, plan: Plan) -> None:
        """Compile it. Raises TransformError for subjects that do not fit together."""
        self._crossing = crossing
        self._node = node
        self._shares = shares = plan[name]
        self._account = node.account(name)
        self._exporters = {e.account: plan[e.account].exports for e in shares.imports}
        """What others offer as it was when this was made: subjects of services stem from it."""
        self._exports: dict[tuple[str, str], ServiceExport] = {}
        self._services: list[ServiceImport] = []
        self._streams: StreamImports | None = None
        self._mappings: Mappings | None = None
        self.measured = [
            (self._account, export.subject)
            for export in shares.exports
            if export.kind == "service" and export.latency is not None
        ]
        """Services of the account whose latency is told."""
        if shares.mappings:
            self._mappings = Mappings(node.kernel, shares.mappings, node.options.cluster.name)
        for entry in shares.imports:
            export = plan[entry.account].export_for(entry)
            if entry.kind == "service" and export is not None:
                self._services.append(self._service(entry, export))
        self._entries = [self._stream(e) for e in shares.imports if e.kind == "stream"]

    def fits(self, name: str, plan: Plan) -> bool:
        """Whether the account shares the same in another plan."""
        shares = plan[name]
        return (shares is self._shares or shares == self._shares) and all(
            other in plan and (plan[other].exports is known or plan[other].exports == known)
            for other, known in self._exporters.items()
        )

    def start(self) -> None:
        """Bring it into force."""
        if self._mappings is not None:
            self._account.mappings = self._mappings
        for service in self._services:
            self._account.insert(service)
        if self._entries:
            self._streams = StreamImports(self._crossing, self._account, self._entries)

    def stop(self) -> None:
        """Take it out of force. Answers that are awaited still come."""
        if self._mappings is not None:
            self._account.mappings = None
        for service in self._services:
            self._account.remove(service)
        if self._streams is not None:
            self._streams.stop()
            self._streams = None

    def _service(self, entry: ImportOptions, offered: ExportOptions) -> ServiceImport:
        local, fixed, rewrite = service_subjects(entry)
        key = (entry.account, offered.subject)
        export = self._exports.get(key)
        if export is None:
            threshold_ns = round((offered.threshold or THRESHOLD_S) * 1e9)
            latency = None
            if offered.latency is not None:
                exporter = self._node.account(entry.account)
                asked = offered.latency
                latency = ServiceLatency(exporter, asked.subject, asked.sampling)
            export = self._exports[key] = ServiceExport(
                offered.response_type, threshold_ns, latency, offered.allow_trace
            )
        return ServiceImport(
            self._crossing,
            local.encode(),
            self._account,
            self._node.account(entry.account),
            export,
            fixed,
            rewrite,
            entry.share,
        )

    def _stream(self, entry: ImportOptions) -> StreamImport:
        local, forward, back = stream_subjects(entry)
        exporter = self._node.account(entry.account)
        return StreamImport(
            exporter,
            entry.subject.encode(),
            local.encode(),
            forward,
            back,
            entry.allow_trace,
        )
