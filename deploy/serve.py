"""`headwater serve`: one node as a process.

Reads flags and configuration, composes the node with what the floors above `edge` plug in, turns
signals into actions, and ends with a status that service managers understand.
"""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable

from headwater.deploy.compose import services_for
from headwater.deploy.notify import Notifier
from headwater.deploy.recovery_watch import RecoveryWatch
from headwater.deploy.watchdog import keep_alive, period_s
from headwater.edge.conf.flags import USAGE, FlagError, Invocation, parse_args
from headwater.edge.conf.options import Options
from headwater.edge.conf.problems import ConfigError
from headwater.edge.facts.version import NATS_LEVEL
from headwater.edge.kernel.kernel import Kernel
from headwater.edge.logging import logs
from headwater.edge.node.node import Node
from headwater.edge.ports.machine_clock import count_microseconds
from headwater.edge.ports.processors import processors
from headwater.edge.storage.log.aligned_memory import keep_memory_small

log = logging.getLogger("headwater.node")

CORE_DUMPS = "HEADWATER_CORE_DUMPS"
GARBAGE = (5_000, 20, 20)
"""New objects until the youngest are looked at, and how often until the older ones are."""


SETTLED_S = 0.5
"""After a node is ready: its first clients are not kept waiting by what can wait."""


class StartError(Exception):
    """Something that keeps a node from starting; the text says what to do."""


def serve(arguments: list[str], ready: Callable[[], None] = lambda: None) -> int:
    """Run until told to stop; returns the exit status. `ready` is called once the node serves."""
    try:
        invocation = parse_args(arguments)
    except (FlagError, ConfigError) as error:
        print(f"nats-server: {error}", file=sys.stderr)
        return 1
    if invocation.action == "serve":
        return run(invocation, arguments, ready)
    if invocation.action == "signal":
        from headwater.deploy.signals import send_signal

        return send_signal(invocation)
    if invocation.action == "version":
        print(f"nats-server: v{NATS_LEVEL}")
    elif invocation.action == "test":
        return check(invocation)
    elif invocation.action == "help_tls":
        from headwater.edge.conf.tls_help import TLS_HELP

        print(TLS_HELP)
    else:
        print(USAGE)
    return 0


def check(invocation: Invocation) -> int:
    """`-t`: say what a start with this configuration would say, and change nothing."""
    from headwater.deploy.start_checks import lacking_here

    options = invocation.options
    problems = lacking_here(options)
    for line in problems or invocation.warnings:
        print(f"nats-server: {line}", file=sys.stderr)
    if problems:
        return 1
    print(
        f"nats-server: configuration file {options.config_file} is valid "
        f"({options.config_digest})",
        file=sys.stderr,
    )
    return 0


def run(invocation: Invocation, arguments: list[str], ready: Callable[[], None]) -> int:
    """Run a node with these options in this process."""
    import uvloop

    options = invocation.options
    try:
        configure_logging(options)
    except (OSError, ValueError) as error:
        print(f"nats-server: cannot open the log: {error}", file=sys.stderr)
        return 1
    forbid_core_dumps()
    for warning in invocation.warnings:
        log.warning("%s", warning)
    if options.headwater.profile == "edge":
        keep_memory_small()
        count_microseconds()
    return uvloop.run(_main(options, arguments, ready))


def look_before_sleep(kernel: Kernel, loop: asyncio.AbstractEventLoop) -> None:
    """Answer who asks and waits without sleeping in between, where there is another processor.

    A gateway saves its power instead. See `edge/kernel/busy_poll.py`.
    """
    backend = getattr(loop, "_get_backend_id", None)
    if backend is not None and processors() > 1:
        kernel.busy_poll.watch(backend())


def forbid_core_dumps() -> None:
    """Leave no image of this process's memory, which holds keys and passwords, when it crashes.

    A limit of one byte keeps Linux from writing a file and from starting a helper that
    `core_pattern` names; zero would not stop the helper. CORE_DUMPS in the environment lets both.
    """
    if os.environ.get(CORE_DUMPS):
        return
    try:
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        soft = 1 if hard == resource.RLIM_INFINITY else min(1, hard)
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    except (OSError, ValueError) as error:
        log.warning("core dumps cannot be forbidden, so a crash may write keys to disk: %s", error)


def configure_logging(options: Options) -> None:
    """Set up log output as the options say."""
    logs.configure(logs.settings_of(options))


async def _main(options: Options, arguments: list[str], ready: Callable[[], None]) -> int:
    loop = asyncio.get_running_loop()
    node = None
    notifier = Notifier()
    watch = RecoveryWatch(notifier)
    try:
        node = Node(options, loop)
        if options.headwater.profile != "edge":
            look_before_sleep(node.kernel, loop)
        node.recovery_progress = watch
        node.services.extend(services_for(options))
        node.reloader = lambda: _reload(node, arguments)
        tasks = _listen_to_signals(node, arguments)
        # A request that makes many objects holds the loop half as long when what is there for good
        # is not looked at again, and the rest less often, whenever garbage is collected.
        gc.set_threshold(*GARBAGE)
        gc.freeze()
        gc.enable()
        node.start()
        gc.freeze()
    except _start_errors() as error:
        for line in str(error).splitlines():
            log.critical("%s", line)
        if node is not None:
            await node.stop()
        return 1
    finally:
        watch.close()
    notifier.send(READY=1, STATUS="serving")
    loop.call_later(SETTLED_S, ready)
    if period := period_s():
        keeping_alive = asyncio.create_task(keep_alive(notifier, node, period))
        await node.stopped()
        keeping_alive.cancel()
    else:
        await node.stopped()
    notifier.send(STOPPING=1, STATUS="stopping")
    await asyncio.gather(*tasks)
    return 0


def _listen_to_signals(node: Node, arguments: list[str]) -> set[asyncio.Task[None]]:
    """Act on signals from now on; returns the set of actions under way."""
    tasks: set[asyncio.Task[None]] = set()

    def later(action: str, number: signal.Signals) -> None:
        log.info('Trapped "%s" signal', _TRAPPED[number])
        task = node.loop.create_task(_act(node, action, arguments))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    for number, action in _SIGNALS.items():
        node.loop.add_signal_handler(number, later, action, number)
    # See `main`: one that came during the start counts from now on.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    return tasks


_SIGNALS = {
    signal.SIGINT: "stop",
    signal.SIGTERM: "stop",
    signal.SIGUSR1: "reopen",
    signal.SIGUSR2: "ldm",
    signal.SIGHUP: "reload",
}


_TRAPPED = {
    signal.SIGINT: "interrupt",
    signal.SIGTERM: "terminated",
    signal.SIGUSR1: "user defined signal 1",
    signal.SIGUSR2: "user defined signal 2",
    signal.SIGHUP: "hangup",
}
"""Signals as nats-server names them in its log."""


async def _act(node: Node, action: str, arguments: list[str]) -> None:
    if action == "stop":
        await node.stop()
    elif action == "ldm":
        await node.lame_duck()
    elif action == "reopen":
        _reopen(node.options)
    elif action == "reload":
        with contextlib.suppress(ConfigError):
            _reload(node, arguments)


def _reload(node: Node, arguments: list[str]) -> None:
    """Raises ConfigError when that cannot be: the log has said so, and nothing has changed."""
    from headwater.edge.node.reload import reload_node

    try:
        reload_node(node, parse_args(arguments).options)
    except ConfigError as error:
        for problem in error.problems:
            log.error("Failed to reload server configuration: %s", problem)
        raise


def _reopen(options: Options) -> None:
    """Go on in a log file of the same name, which may have been moved away."""
    try:
        configure_logging(options)
    except (OSError, ValueError) as error:
        log.error("The log could not be opened again: %s; it goes on as it was", error)
        return
    if options.log_file:
        log.info("File log re-opened")


def _start_errors() -> tuple[type[Exception], ...]:
    from headwater.edge.broker.listeners.listener import ListenError
    from headwater.edge.node.launch_files import PidFileError
    from headwater.edge.storage.format.errors import StoreError
    from headwater.security.errors import SecurityError

    return (ListenError, StoreError, SecurityError, StartError, PidFileError)
