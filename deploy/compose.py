"""What plugs into a node, chosen by its options: the one place where the floors meet."""

import os

from headwater.edge.conf.options import Options
from headwater.edge.view.service import Service


def services_for(options: Options) -> list[Service]:
    """Services of a node with these options, in the order of starting."""
    from headwater.federation.service import leaf_services

    services = leaf_services(options)
    if any((options.tls, options.websocket.tls, options.cluster.tls)):
        from headwater.edge.ocsp.staples import OcspStaples

        # Before any listener accepts somebody.
        services.insert(0, OcspStaples(options))
    blocks = [options.tls, options.leaf.tls, options.websocket.tls]
    blocks += [remote.tls for remote in options.leaf.remotes]
    judged = any(tls is not None and tls.ocsp_peer is not None for tls in blocks)
    if judged or options.cluster.tls is not None:
        from headwater.edge.ocsp.peer_checks import PeerChecks

        services.insert(0, PeerChecks(options))
    if options.operator.enabled() and not options.without_system():
        from headwater.edge.system.system_claims import ClaimsService

        services.append(ClaimsService())
        if options.operator.resolver.kind in ("full", "cache", "url"):
            from headwater.edge.system.account_lookups import AccountLookups

            services.append(AccountLookups())
    if options.headwater.fleet_account:
        from headwater.hub.enrolment.service import EnrolmentService

        services.append(EnrolmentService())
    if options.websocket.port:
        from headwater.edge.websocket.websocket_listener import WebSocketService

        services.append(WebSocketService(options))
    if options.cluster.port:
        from headwater.hub.routes.service import RouteService

        routes = RouteService(options)
        services.append(routes)
        if options.jetstream.enabled:
            from headwater.hub.node.service import ClusterService

            services.append(ClusterService(routes))
    settings = os.environ.get("HEADWATER_GATEWAY", "")
    if settings and os.path.exists(settings):
        from headwater.deploy.gateway.report import GatewayReport

        services.append(GatewayReport(settings))
    if options.http_port or options.https_port:
        from headwater.edge.monitor.service import MonitorService

        services.append(MonitorService(options))
    if options.profile_port:
        from headwater.edge.monitor.profile_service import ProfileService

        services.append(ProfileService(options))
    return services
