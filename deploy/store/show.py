"""What the store commands print: progress on stderr, one result on stdout, and a status."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from headwater.deploy.console import Bars
from headwater.edge.facts.reasons import reason

COLUMNS = ("messages", "bytes", "lost", "lost_sequences", "damaged")


def stopped(number: int, frame: object) -> None:
    """A signal ends the command as an error does: nothing half written stays."""
    raise SystemExit(128 + number)


class Show:
    """One command. Errors of the store, of files and of servers end it with a sentence and
    status 1."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self._bars = Bars()
        self._warned = 0

    def __enter__(self) -> "Show":
        from headwater.deploy.store.local import quiet

        quiet()
        self._before = signal.signal(signal.SIGTERM, stopped)
        self._bars.__enter__()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._bars.__exit__(kind, error, trace)
        signal.signal(signal.SIGTERM, self._before)
        if isinstance(error, known_errors()):
            if self.as_json:
                print(json.dumps({"ok": False, "error": reason(error)}))
            else:
                print(f"headwater store: {reason(error)}", file=sys.stderr)
            raise SystemExit(1) from error

    def progress(self, what: str, done: int, total: int) -> None:
        """How far the work is."""
        self._bars.update(what, done, max(total, 1))

    def labelled(self, what: str) -> Callable[[int, int], None]:
        """Progress of one thing."""
        return lambda done, total: self.progress(what, done, total)

    def of(self, what: str, reader: Any) -> Callable[[], None]:
        """Progress by what was read of a backup."""
        return lambda: self.progress(what, reader.read, reader.size)

    def warn(self, text: str) -> None:
        """One line about something that is wrong; `--json` has it in the result."""
        if not self.as_json:
            self._bars.say(text)

    @contextmanager
    def client(self, url: str, creds: str, user: str, password: str, tlsca: str) -> Iterator[Any]:
        """A connection to a server."""
        from headwater.deploy.store.remote import connect
        from headwater.edge.wire.login import Login

        login = Login(creds=creds, user=user, password=password, tls_ca=tlsca)
        with connect(url, login) as client:
            yield client

    @contextmanager
    def quarantine(self, store_dir: str, config: str) -> Iterator[Any]:
        """The quarantine of a stopped store, which is locked meanwhile."""
        from headwater.deploy.store.local import directory_of, node_options
        from headwater.edge.storage.directory.quarantine import Quarantine
        from headwater.edge.storage.directory.store_lock import StoreLock

        with StoreLock(directory_of(node_options(store_dir, config))) as lock:
            yield Quarantine(lock.root)

    def finish(
        self,
        ok: bool,
        result: dict[str, Any],
        title: str = "",
        columns: tuple[str, ...] = COLUMNS,
    ) -> None:
        """Print the result and end with status 0 or 1."""
        if self.as_json:
            print(json.dumps(result))
        elif title:
            self._table(title, result["streams"], columns)
            print("all is well" if ok else "damaged: see above")
        else:
            print(", ".join(f"{name} {value}" for name, value in result.items() if name != "ok"))
        click.get_current_context().exit(0 if ok else 1)

    def _table(self, title: str, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
        from rich.console import Console
        from rich.table import Table

        table = Table(title=title)
        for name in ("account", "stream"):
            table.add_column(name, overflow="fold")
        for name in columns:
            number = name in ("messages", "bytes", "lost", "put_back")
            table.add_column(name, justify="right" if number else "left", overflow="fold")
        for row in rows:
            values = [row[name] for name in columns]
            cells = [len(value) if isinstance(value, list) else value for value in values]
            table.add_row(row["account"], row["stream"], *[str(cell) for cell in cells])
        Console(width=None if sys.stdout.isatty() else 160).print(table)


def known_errors() -> tuple[type[BaseException], ...]:
    """What ends a command with a sentence."""
    from headwater.deploy.store.local import RestoreError
    from headwater.edge.conf.flags import FlagError
    from headwater.edge.conf.problems import ConfigError
    from headwater.edge.jetstream.backup.backup_file import BackupError
    from headwater.edge.storage.format.errors import StoreError
    from headwater.edge.wire.message import WireError
    from headwater.security.errors import SecurityError

    return (
        StoreError, BackupError, WireError, RestoreError, SecurityError, ConfigError, FlagError,
        OSError,
    )  # fmt: skip
