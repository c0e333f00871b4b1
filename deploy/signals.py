"""`--signal`: one process of the command tells another, which serves, what to do."""

import os
import signal
import sys
from pathlib import Path

from headwater.edge.conf.flags import Invocation

PID_MAX = 2**22
"""The greatest process id of Linux on 64 bits."""


def send_signal(invocation: Invocation) -> int:
    """`--signal`: tell a running node what to do."""
    assert invocation.signal is not None
    numbers = {
        "stop": signal.SIGKILL,
        "quit": signal.SIGINT,
        "term": signal.SIGTERM,
        "reopen": signal.SIGUSR1,
        "reload": signal.SIGHUP,
        "ldm": signal.SIGUSR2,
    }
    target = invocation.signal.target
    try:
        os.kill(_process_id(target), numbers[invocation.signal.name])
    except ProcessLookupError:
        return _not_told(f"no nats-server processes running: {target} names one that has ended")
    except ValueError as error:
        return _not_told(str(error))
    except OSError as error:
        return _not_told(f"{target}: {error.strerror}: use the user that runs the node")
    return 0


def _not_told(text: str) -> int:
    """Say on standard error why a signal was not sent; the status to end with."""
    print(f"nats-server: {text}", file=sys.stderr)
    return 1


def _only_process() -> int:
    """The process id of the one node that runs on this machine. Raises ValueError when none runs,
    or several do."""
    found = sorted(serving(Path("/proc")) - {os.getpid(), os.getppid()})
    if not found:
        raise ValueError("no nats-server processes running: start one, or name its process id")
    if len(found) > 1:
        listed = "\n".join(str(number) for number in found)
        raise ValueError(
            f"multiple nats-server processes running:\n{listed}\nuse --signal <signal>=<pid>"
        )
    return found[0]


def serving(processes: Path) -> set[int]:
    """Process ids of the nodes that run, whoever runs them; `processes` is where Linux has a folder
    for each. A command `headwater serve` without `--signal` is one."""
    found = set()
    for folder in processes.glob("[1-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            # It has ended meanwhile, or is another user's.
            continue
        names = [word.rpartition(b"/")[2] for word in words[:3]]
        named = (b"headwater", b"serve") in zip(names, names[1:], strict=False)
        signals = any(word.lstrip(b"-").split(b"=")[0] in (b"sl", b"signal") for word in words)
        if named and not signals:
            found.add(int(folder.name))
    return found


def _process_id(target: str) -> int:
    """A process id, or the one in a pid file. Raises ValueError when there is none, OSError for a
    file that cannot be read."""
    if not target:
        return _only_process()
    text = target
    if not target.isdecimal() and Path(target).is_file():
        text = Path(target).read_text(errors="replace").strip()
    # 0 and below would name whole groups of processes.
    if not (text.isdecimal() and 0 < int(text) <= PID_MAX):
        raise ValueError(f"invalid pid: {target}: name a process id, or a file that holds one")
    return int(text)
