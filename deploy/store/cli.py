"""`headwater store`: look after the data of a node.

Most commands work on the directory of a stopped node (`-sd`); verify, backup and restore also work
through a running server (`--server`). Exit status: 0 when all is well, 1 when something is
damaged, lost or refused.
"""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from headwater.deploy.store.show import Show

Decorator = Callable[[Any], Any]


def store_options(server: bool) -> Decorator:
    """Options that say which store."""
    options = [
        click.option("-sd", "--store-dir", default="", help="Directory of a stopped node's data."),
        click.option("-c", "--config", default="", help="The node's configuration file."),
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
    ]
    if server:
        options += [
            click.option("--server", default="", help="URL of a running server instead."),
            *logins(),
        ]
    return stacked(options)


def logins() -> list[Decorator]:
    """Options that say who connects to a server."""
    return [
        click.option("--creds", default="", help="Credentials file for the server."),
        click.option("--user", default="", help="User for the server."),
        click.option("--password", default="", envvar="NATS_PASSWORD", help="Their password."),
        click.option("--tlsca", default="", help="CA file for the server."),
    ]


def stacked(options: list[Decorator]) -> Decorator:
    def apply(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


@click.group()
def store() -> None:
    """Verify, back up, restore and repair stored data."""


@store.command()
@store_options(server=True)
@click.option("--file", "backup_file", default="", help="Verify a backup instead.")
@click.option("--deep", is_flag=True, help="Also open sealed and compressed messages.")
def verify(
    store_dir: str, config: str, as_json: bool, server: str, creds: str, user: str,
    password: str, tlsca: str, backup_file: str, deep: bool,
) -> None:  # fmt: skip
    """Check every stored byte; nothing is changed."""
    from headwater.deploy.store import local, remote

    with Show(as_json) as show:
        if backup_file:
            rows = local.check_backup(Path(backup_file), set(), show.progress)
            show.finish(True, {"ok": True, "streams": rows}, "Backup", ("messages",))
        if server:
            with show.client(server, creds, user, password, tlsca) as client:
                rows = [
                    remote.read_through(client, info, show.labelled(info["config"]["name"]))
                    for info in list(remote.streams(client))
                ]
            ok = not any(row["lost"] or row["damaged"] for row in rows)
            show.finish(ok, {"ok": ok, "streams": rows}, "Streams")
        report = local.run_verify(local.node_options(store_dir, config), show.progress, deep)
        for problem in report.problems:
            show.warn(str(problem))
        for row in report.streams:
            for problem in row.damaged:
                show.warn(f"{problem.stream}: {problem}")
        show.finish(report.ok, {"ok": report.ok, **asdict(report)}, "Streams")


@store.command()
@store_options(server=True)
@click.option("--stream", "names", multiple=True, help="A stream; all when none is named.")
@click.option("-o", "--output", required=True, help="The file to write; it must not be there.")
def backup(
    store_dir: str, config: str, as_json: bool, server: str, creds: str, user: str,
    password: str, tlsca: str, names: tuple[str, ...], output: str,
) -> None:  # fmt: skip
    """Write streams, with their consumers, to one file."""
    from headwater.deploy.store import local, remote
    from headwater.edge.jetstream.backup.backup_file import BackupWriter

    with Show(as_json) as show:
        if server:
            with (
                show.client(server, creds, user, password, tlsca) as client,
                BackupWriter(Path(output)) as writer,
            ):
                wanted = names or [info["config"]["name"] for info in remote.streams(client)]
                rows = [remote.save(client, writer, one, show.labelled(one)) for one in wanted]
                writer.finish()
        else:
            options = local.node_options(store_dir, config)
            rows = local.run_backup(options, Path(output), set(names), show.progress)
        for row in rows:
            if row["lost"]:
                show.warn(f"{row['stream']}: {row['lost']} messages are lost; all others are kept")
        ok = not any(row["lost"] for row in rows)
        result = {"ok": ok, "file": output, "streams": rows}
        show.finish(ok, result, output, ("messages", "lost"))


@store.command()
@click.argument("source")
@store_options(server=True)
@click.option("--stream", "names", multiple=True, help="A stream; all when none is named.")
@click.option("--as", "name", default="", help="Another name for it; it listens to that alone.")
@click.option("--account", default="", help="The account to restore to (stopped node).")
@click.option("--replicas", type=click.IntRange(1, 5), help="So many (a stopped node: always 1).")
def restore(
    source: str, store_dir: str, config: str, as_json: bool, server: str, creds: str, user: str,
    password: str, tlsca: str, names: tuple[str, ...], name: str, account: str,
    replicas: int | None,
) -> None:  # fmt: skip
    """Put streams of a backup back; one that is there already is never overwritten."""
    from headwater.deploy.store import local, remote
    from headwater.edge.jetstream.backup.backup_file import BackupReader

    path, wanted = Path(source), set(names)
    with Show(as_json) as show:
        listed = local.check_backup(path, wanted)
        if name and len(listed) != 1:
            raise click.UsageError("--as goes with one stream: name it with --stream")
        if server:
            reader = BackupReader(path)
            rows = []
            with show.client(server, creds, user, password, tlsca) as client:
                for found in reader.streams():
                    if wanted and found.name not in wanted:
                        for _ in found.chunks():
                            pass
                        continue
                    target = local.renamed(found.config, name)
                    if replicas is not None:
                        target = {**target, "num_replicas": replicas}
                    told = show.of(found.name, reader)
                    count = remote.put(client, found, target, told)
                    rows.append({"account": "", "stream": target["name"], "messages": count})
        else:
            options = local.node_options(store_dir, config)
            rows = local.run_restore(options, path, wanted, name, account, show.progress)
        show.finish(True, {"ok": True, "streams": rows}, "Restored", ("messages",))


@store.command()
@store_options(server=False)
@click.option("--from", "url", default="", help="Server that has the lost messages.")
@click.option("--origin", default="", help="The stream's name there, when it is another.")
@stacked(logins())
def repair(
    store_dir: str, config: str, as_json: bool, url: str, origin: str, creds: str, user: str,
    password: str, tlsca: str,
) -> None:  # fmt: skip
    """Write again what can be made again; tell what is lost, or fetch it from another server."""
    from headwater.deploy.store import local
    from headwater.edge.wire.login import Login

    with Show(as_json) as show:
        login = Login(creds=creds, user=user, password=password, tls_ca=tlsca)
        options = local.node_options(store_dir, config)
        report = local.run_repair(options, show.progress, url, login, origin)
        for problem in report.problems:
            show.warn(str(problem))
        for kept in report.kept:
            show.warn(f"a damaged segment was copied to quarantine/{kept}")
        for refilled in report.streams:
            if refilled.refused:
                show.warn(
                    f"{refilled.stream}: {len(refilled.refused)} messages from {url} do not fit: "
                    "is that the same stream?"
                )
        fields = asdict(report)
        shown = {"ok": report.ok, **fields}
        show.finish(report.ok, shown, "Streams that lost messages", ("put_back", "lost"))


SEALS = ("state", "key", "cipher", "data_keys")


@store.command("keys")
@store_options(server=False)
def sealing_keys(store_dir: str, config: str, as_json: bool) -> None:
    """Show which key each stream is sealed with: the names of keys, never keys."""
    from headwater.deploy.store import local

    with Show(as_json) as show:
        options = local.node_options(store_dir, config)
        rows = [asdict(row) for row in local.run_seals(options)]
        result = {"ok": True, "newest": local.newest_key(options), "streams": rows}
        show.finish(True, result, "Sealing", SEALS)


@store.command("new-key")
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def new_key(path: str, as_json: bool) -> None:
    """Write a new sealing key to a file that only this user can read; it must not be there."""
    from headwater.security.sealing import write_new_key

    with Show(as_json) as show:
        made = write_new_key(path)
        show.finish(True, {"ok": True, "file": path, "key": made.name})


@store.command()
@click.argument("stream")
@store_options(server=False)
@click.option("--account", default="", help="The stream's account, when several have one.")
def rotate(stream: str, store_dir: str, config: str, as_json: bool, account: str) -> None:
    """Give a stream a new data key; the node's next start packs all of it again."""
    from headwater.deploy.store import local

    with Show(as_json) as show:
        options = local.node_options(store_dir, config)
        row = asdict(local.run_rotate(options, account, stream))
        show.finish(True, {"ok": True, "streams": [row]}, "Sealing", SEALS)


@store.group()
def quarantine() -> None:
    """What could not be used is kept: list it, put it back, or remove it for good."""


@quarantine.command("list")
@store_options(server=False)
def quarantine_list(store_dir: str, config: str, as_json: bool) -> None:
    """Show everything in quarantine."""
    with Show(as_json) as show, show.quarantine(store_dir, config) as kept:
        rows = [asdict(item) for item in kept.items()]
        show.finish(
            True, {"ok": True, "streams": rows}, "Quarantine", ("bytes", "name", "kind", "reason")
        )


@quarantine.command("restore")
@click.argument("name")
@store_options(server=False)
def quarantine_restore(name: str, store_dir: str, config: str, as_json: bool) -> None:
    """Put a stream back, with what the log that was kept holds of it."""
    from headwater.deploy.store import local

    with Show(as_json) as show:
        row = local.run_quarantine_restore(local.node_options(store_dir, config), name)
        shown = {"ok": not row["lost"], "restored": name, **row, "streams": [row]}
        show.finish(not row["lost"], shown, "Restored", ("messages", "lost"))


@quarantine.command("purge")
@click.argument("name")
@store_options(server=False)
def quarantine_purge(name: str, store_dir: str, config: str, as_json: bool) -> None:
    """Remove one thing, by its whole name, for good."""
    with Show(as_json) as show, show.quarantine(store_dir, config) as kept:
        show.finish(True, {"ok": True, "purged": name, "bytes": kept.purge(name)})
