"""The `headwater` command.

`headwater serve` is dispatched before anything else is imported: a node has to be ready within
0.3 s of its launch, and the command line library alone would take a fifth of that. What is imported
here is in the interpreter already.
"""

import _signal  # type: ignore[import-not-found]
import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> None:
    """Entry point of the console script."""
    hold_standard_files()
    try:
        try:
            begin(sys.argv[1:])
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        # While modules were loaded: nothing was begun.
        print("\ninterrupted", file=sys.stderr)
        leave(128 + _signal.SIGINT)
    except BrokenPipeError:
        # Whoever read our output has read enough.
        os._exit(128 + _signal.SIGPIPE)
    except OSError as error:
        if not output_is_lost():
            raise
        print(f"headwater: standard output: {error.strerror}", file=sys.stderr)
        os._exit(1)


def begin(arguments: "list[str]") -> None:
    """Do what is asked for."""
    if arguments and arguments[0] == "serve":
        # Until the node listens to signals, an interrupt ends it as it ends any program.
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
        # What is asked of a node that runs waits until it does: it would end the process.
        asked = (_signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2)
        _signal.pthread_sigmask(_signal.SIG_BLOCK, asked)
        # What imports make stays: looking for garbage in it takes a tenth of a start.
        gc.disable()
        from headwater.deploy import start_image

        image = start_image.begin()
        from headwater.deploy.serve import serve

        status = serve(arguments[1:], image.ready)
        image.keep()
        leave(status)
    from headwater.deploy.cli import cli

    cli(prog_name="headwater")


def output_is_lost() -> bool:
    """Whether nothing can be written to standard output, as on a device that is full."""
    try:
        os.write(1, b"\n")
    except OSError:
        return True
    return False


def hold_standard_files() -> None:
    """Open what was closed of standard input, output and error. Else files and sockets of the node
    would have their numbers, to which libraries write when something goes wrong."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            try:
                os.open(os.devnull, os.O_RDWR)
            except OSError:
                # Nobody can write to a directory either.
                os.open("/", os.O_RDONLY)
            os.set_inheritable(number, True)


def leave(status: int) -> "NoReturn":
    """End the process at once, with everything written.

    Tearing the interpreter down takes some 25 ms in which the port is already closed, and in which
    clients of a cluster would reconnect to a node that is about to go.
    """
    import contextlib
    import logging

    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        # There is none where it was closed when the process began.
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
