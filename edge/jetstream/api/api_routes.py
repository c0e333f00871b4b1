"""The table of the JetStream API: which handler serves a request, and what its answer is called."""

from headwater.edge.jetstream.api import api_consumer, api_stream
from headwater.edge.jetstream.model.requests import Route

CONSUMER_TYPES = {
    "CREATE": "consumer_create",
    "DURABLE.CREATE": "consumer_create",
    "NAMES": "consumer_names",
    "LIST": "consumer_list",
    "INFO": "consumer_info",
    "DELETE": "consumer_delete",
    "PAUSE": "consumer_pause",
    "UNPIN": "consumer_unpin",
    "RESET": "consumer_reset",
}

OF_CLUSTERS = {
    "STREAM.LEADER.STEPDOWN": ("stream_leader_stepdown", 1),
    "STREAM.PEER.REMOVE": ("stream_remove_peer", 1),
    "STREAM.PEER.EVACUATE": ("stream_evacuate_peer", 1),
    "STREAM.CANCEL_MOVE": ("stream_cancel_move", 1),
    "CONSUMER.LEADER.STEPDOWN": ("consumer_leader_stepdown", 2),
}
"""What only nodes of a cluster serve: the type of an answer, and how many tokens follow."""


def routes() -> dict[str, Route]:
    """Every request that is served, by its name below `$JS.API.`."""
    found = {
        "INFO": Route(api_stream.account_info, "account_info", 0, 0),
        "STREAM.CREATE": Route(api_stream.create, "stream_create", 1, 1),
        "STREAM.UPDATE": Route(api_stream.update, "stream_update", 1, 1),
        "STREAM.NAMES": Route(api_stream.names, "stream_names", 0, 0),
        "STREAM.LIST": Route(api_stream.listing, "stream_list", 0, 0),
        "STREAM.INFO": Route(api_stream.info, "stream_info", 1, 1),
        "STREAM.DELETE": Route(api_stream.delete, "stream_delete", 1, 1),
        "STREAM.PURGE": Route(api_stream.purge, "stream_purge", 1, 1),
        "STREAM.MSG.GET": Route(api_stream.message_get, "stream_msg_get", 1, 1),
        "STREAM.MSG.DELETE": Route(api_stream.message_delete, "stream_msg_delete", 1, 1),
        "STREAM.SNAPSHOT": Route(api_stream.snapshot, "stream_snapshot", 1, 1),
        "STREAM.RESTORE": Route(api_stream.restore, "stream_restore", 1, 1),
    }
    needs = api_stream.needs_cluster
    for name, (kind, tokens) in OF_CLUSTERS.items():
        found[name] = Route(api_stream.not_clustered, kind, tokens, tokens, needs)
    for name, handler in api_consumer.HANDLERS.items():
        least, most = (1, 1) if name in ("NAMES", "LIST") else (2, 2)
        if name == "CREATE":
            least, most = 1, 1 << 20
        check = api_consumer.CHECKS.get(name)
        kind = CONSUMER_TYPES[name]
        found[f"CONSUMER.{name}"] = Route(handler, kind, least, most, check, name == "RESET")
    return found
