"""One route as /routez shows it."""

from typing import Any

from headwater.edge.facts.moments import duration, rfc3339, uptime
from headwater.hub.routes.route_conn import RouteConn
from headwater.hub.routes.session import RouteSession, SubjectLists


def describe(
    conn: RouteConn, started_ns: int, opened_ns: int, now_ns: int, lists: bool
) -> dict[str, Any]:
    """The fields of nats-server's /routez. `started_ns` is when the route began, since 1970; at
    `opened_ns` the monotonic clock began to count, which now says `now_ns`: setting the wall clock
    does not change how long it is up or idle. `lists` is whether subscriptions are listed."""
    session: RouteSession = conn.session
    idle_ns = min(now_ns - opened_ns, conn.idle_ns)
    shown: dict[str, Any] = {
        "rid": conn.cid,
        "remote_id": session.peer.server_id,
        "remote_name": session.peer.server_name,
        "did_solicit": session.solicited,
        "is_configured": session.solicited and not session.implicit,
        "ip": session.address[0],
        "port": session.address[1],
        "start": rfc3339(started_ns),
        "last_activity": rfc3339(conn.kernel.wall_ns() - idle_ns),
        "rtt": duration(conn.rtt_ns),
        "uptime": uptime((now_ns - opened_ns) / 1e9),
        "idle": uptime(idle_ns / 1e9),
    }
    for name, rules in (("import", session.peer.imports), ("export", session.peer.export)):
        if rules is not None:
            shown[name] = _lists(rules)
    shown.update(
        {
            "pending_size": conn.pending,
            "in_msgs": conn.in_msgs,
            "out_msgs": conn.out_msgs,
            "in_bytes": conn.in_bytes,
            "out_bytes": conn.out_bytes,
            "subscriptions": len(conn.subs),
        }
    )
    if lists:
        shown["subscriptions_list"] = [
            subject.decode("utf-8", "replace") for _, subject, _, _ in conn.subs
        ]
    if session.account:
        shown["account"] = session.account
    shown["compression"] = session.shown_compression()
    return shown


def _lists(rules: SubjectLists) -> dict[str, list[str]]:
    both = {"allow": rules.allow, "deny": rules.deny}
    return {name: subjects for name, subjects in both.items() if subjects is not None}
