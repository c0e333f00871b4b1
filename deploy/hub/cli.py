"""`headwater hub`: how a cluster is.

Exit status: 0 when all is well, 1 when something is missing: a node, a leader, a replica, or what a
replica is to have.
"""

import json
import time
import urllib.error
import urllib.request
from typing import Any

import click

from headwater.deploy.hub.catching_up import wait_until_well
from headwater.deploy.hub.drain_command import drain
from headwater.deploy.hub.fleet_command import fleet
from headwater.edge.facts.reasons import reason

TIMEOUT_S = 3.0
ANSWER_BYTES_MAX = 64 << 20
PAUSE_S = 0.5
"""That a replica has to get what was committed, before it counts as behind."""


@click.group()
def hub() -> None:
    """Look at a cluster of nodes."""


hub.add_command(fleet)
hub.add_command(drain)


@hub.command()
@click.option(
    "--monitor",
    "urls",
    multiple=True,
    default=("http://127.0.0.1:8222",),
    show_default=True,
    help="Monitoring URL of any node; the others are found by it. May be given several times.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Wait so long at most until all is well, and show how far each replica is.",
)
def status(urls: tuple[str, ...], as_json: bool, wait: float | None) -> None:
    """Members, leaders, lag and health of a cluster."""
    if wait is None:
        found = gather(list(urls))
    else:
        found = wait_until_well(lambda: gather(list(urls)), wait)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        show(found)
    raise SystemExit(0 if found["healthy"] else 1)


def gather(urls: list[str]) -> dict[str, Any]:
    """What all nodes say together: each knows best of the streams that it leads. When a replica is
    not current, they are asked twice. Raises ClickException when nobody answers."""
    first = views(urls)
    found = merged(first)
    if all(row["current"] for row in found["streams"]):
        return found
    time.sleep(PAUSE_S)
    return merged(views(urls), first)


def views(urls: list[str]) -> list[dict[str, Any]]:
    """What each node says. Raises ClickException when nobody answers."""
    answers: dict[str, dict[str, Any]] = {}
    wanted, failures = list(urls), []
    while wanted:
        url = wanted.pop(0).rstrip("/")
        if url in answers or url in failures:
            continue
        try:
            answers[url] = fetch(url)
        except (OSError, ValueError) as error:
            failures.append(url)
            click.echo(f"{url}: {reason(error)}", err=True)
            continue
        wanted += [node["monitor"] for node in answers[url]["nodes"] if node["monitor"]]
    if not answers:
        raise click.ClickException("no node answers; name one with a monitoring port by --monitor")
    return list(answers.values())


def fetch(url: str) -> dict[str, Any]:
    """One node's view. Raises OSError, ValueError."""
    if not url.startswith(("http://", "https://")):
        raise ValueError("a monitoring URL begins with http:// or https://")
    try:
        with urllib.request.urlopen(f"{url}/clusterz", timeout=TIMEOUT_S) as answer:
            found: dict[str, Any] = json.loads(answer.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        raise OSError(error.read().decode("utf-8", "replace").strip()) from error
    return found


def seen_by_leaders(views: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """All streams that the meta leader knows, each as its own leader sees it."""
    best = best_of(views)
    streams = {(row["account"], row["name"]): row for row in best["streams"]}
    for view in views:
        for row in view["streams"]:
            if row["led_here"] and (row["account"], row["name"]) in streams:
                streams[row["account"], row["name"]] = row
    return streams


def best_of(views: list[dict[str, Any]]) -> dict[str, Any]:
    """The meta leader's view; any when it is not there."""
    return next((v for v in views if v["server"] == v["meta_leader"]), views[0])


def merged(
    views: list[dict[str, Any]], before: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """The views of several nodes as one: that of the meta leader, and each stream as its own leader
    sees it. With `before`, replicas are told of that lack what was committed then."""
    best, streams = best_of(views), seen_by_leaders(views)
    earlier = seen_by_leaders(before) if before is not None else {}
    problems = [f"{view['server']}: {text}" for view in views for text in view["problems"]]
    problems += [f"{node['name']} is offline" for node in best["nodes"] if not node["online"]]
    problems += [text for row in streams.values() if (text := missing(row))]
    late = [text for key, row in streams.items() for text in behind(row, earlier.get(key))]
    # A node that has a replica may have told that its stream has no leader.
    problems += [text for text in late if not any(each.endswith(text) for each in problems)]
    return {
        "cluster": best["cluster"],
        "meta_leader": best["meta_leader"],
        "healthy": bool(best["meta_leader"]) and not problems,
        "problems": problems,
        "nodes": best["nodes"],
        "streams": [stream(row) for row in streams.values()],
    }


def missing(row: dict[str, Any]) -> str:
    """What is told of a stream that has fewer replicas than it is to have; "" when it has all."""
    have, wanted = len(row["replicas"]) + 1, row.get("wanted", 0)
    if not row["leader"] or have >= wanted:
        return ""
    name = f"{row['account']} > {row['name']}"
    return f"stream '{name}' has {have} of {wanted} replicas: add a node, or lower `num_replicas`"


def behind(row: dict[str, Any], earlier: dict[str, Any] | None) -> list[str]:
    """What is told of a stream's replicas that lack what was committed at an earlier look."""
    name = f"{row['account']} > {row['name']}"
    if not row["leader"]:
        return [f"stream '{name}' has no leader"]
    due = earlier.get("committed") if earlier is not None else None
    if due is None or "last" not in row or earlier is None or earlier["leader"] != row["leader"]:
        return []
    return [
        f"stream '{name}' is behind on {each['name']}: {each.get('lag', 0)} entries are to come"
        for each in row["replicas"]
        if not each["current"]
        and not each.get("offline", False)
        and ("arrived_percent" in each or row["last"] - each.get("lag", 0) < due)
    ]


def stream(row: dict[str, Any]) -> dict[str, Any]:
    """A stream with what its replicas lack, in entries of its group's log."""
    shown = {name: value for name, value in row.items() if name != "led_here"}
    replicas = row["replicas"]
    shown["current"] = bool(row["leader"]) and all(each["current"] for each in replicas)
    shown["lag"] = max((each.get("lag", 0) for each in replicas), default=0)
    return shown


def how_far(replica: dict[str, Any]) -> str:
    """What a replica lacks, in words."""
    if replica["current"]:
        return ""
    if "arrived_percent" in replica:
        left = replica["seconds_left"]
        return f" (gets everything: {replica['arrived_percent']:.0f} %, about {left:.0f} s left)"
    return " (behind)"


def show(found: dict[str, Any]) -> None:
    """One screen for people."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    leader = found["meta_leader"] or "none"
    console.print(f"cluster {found['cluster']}, led by {leader}", highlight=False)
    nodes = Table("node", "", "peer", "streams", "free", title="nodes", title_justify="left")
    for node in found["nodes"]:
        state = "offline" if not node["online"] else "leaving" if node["leaving"] else "online"
        free = f"{node['store_free'] / (1 << 30):.1f} GiB"
        nodes.add_row(node["name"], state, node["peer"], str(node["streams"]), free)
    console.print(nodes)
    table = Table("stream", "leader", "replicas", "messages", "lag", title="streams",
                  title_justify="left")
    for row in found["streams"]:
        others = ", ".join(each["name"] + how_far(each) for each in row["replicas"])
        table.add_row(
            f"{row['account']} > {row['name']}",
            row["leader"] or "none",
            others,
            str(row.get("messages", "")),
            str(row["lag"]),
        )
    console.print(table)
    for text in found["problems"]:
        console.print(f"! {text}", highlight=False)
