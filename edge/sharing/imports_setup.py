"""A plan of what accounts share, compiled: mappings, service imports and stream imports."""

from headwater.edge.broker.account import Account
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


class Setup:
    """One plan, to be in force. Making it changes nothing yet; `start` does."""

    def __init__(self, node: NodeView, crossing: Crossing, plan: Plan) -> None:
        """Compile `plan`. Raises TransformError for subjects that do not fit together."""
        self._crossing = crossing
        self._node = node
        self._exports: dict[tuple[str, str], ServiceExport] = {}
        self._services: list[tuple[Account, ServiceImport]] = []
        self._entries: list[tuple[Account, list[StreamImport]]] = []
        self._streams: list[StreamImports] = []
        self._mappings: list[tuple[Account, Mappings]] = []
        self._measured = [
            (node.account(name), export.subject)
            for name, shares in plan.items()
            for export in shares.exports
            if export.kind == "service" and export.latency is not None
        ]
        for name, shares in plan.items():
            if not (shares.imports or shares.mappings):
                continue
            account = node.account(name)
            if shares.mappings:
                mappings = Mappings(node.kernel, shares.mappings, node.options.cluster.name)
                self._mappings.append((account, mappings))
            for entry in shares.imports:
                export = plan[entry.account].export_for(entry)
                if entry.kind == "service" and export is not None:
                    self._services.append((account, self._service(account, entry, export)))
            streams = [self._stream(e) for e in shares.imports if e.kind == "stream"]
            if streams:
                self._entries.append((account, streams))

    def start(self) -> None:
        """Bring it into force."""
        for account, mappings in self._mappings:
            account.mappings = mappings
        for account, service in self._services:
            account.insert(service)
        for account, entries in self._entries:
            self._streams.append(StreamImports(self._crossing, account, entries))
        if self._crossing.remote is not None:
            self._crossing.remote.watch(self._measured)

    def stop(self) -> None:
        """Take it out of force. Answers that are awaited still come."""
        for account, _ in self._mappings:
            account.mappings = None
        for account, service in self._services:
            account.remove(service)
        for streams in self._streams:
            streams.stop()
        self._streams.clear()

    def _service(
        self, account: Account, entry: ImportOptions, offered: ExportOptions
    ) -> ServiceImport:
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
            account,
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
