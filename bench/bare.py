"""`python -m bench.bare`: this server beside the same bytes with no broker between.

The load generator writes what a subscriber would get straight into a loopback connection, whose
other end counts it. That is what two processes on this machine can have at most, with these reads
and writes; the share of it that is left with a server between is what the server costs.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import click

from bench import build
from bench.patterns import PER_WRITE, SUBJECT, Figure, Load, core_publish, percentiles, rate, whole
from bench.report import number
from bench.servers import HOST, Server, headwater

SIZES = ((16, 4_000_000), (128, 2_500_000), (1024, 800_000))
ROUNDTRIPS = 20_000
CAP_S = 10.0


@contextlib.contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a loopback connection that sends at once what is written."""
    with socket.create_server((HOST, 0)) as door:
        near = socket.create_connection(door.getsockname())
        far, _ = door.accept()
    with near, far:
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield near, far


def one_way(load: Load, size: int) -> Figure:
    """As `core_publish` to one receiver."""
    generator = build.generator()
    frame = f"MSG {SUBJECT} 1 {size}\r\n".encode() + b"x" * size + b"\r\n"
    with connected() as (near, far):
        found: list[tuple[int, int]] = []

        def take() -> None:
            header = f"MSG {SUBJECT} 1 {size}\r\n".encode()
            found.append(generator.receive(far.fileno(), header, size))
            far.sendall(b"PONG\r\n")

        thread = threading.Thread(target=take)
        thread.start()
        sent, begin, _ = generator.publish(
            near.fileno(),
            frame * PER_WRITE,
            len(frame),
            PER_WRITE,
            whole(load.messages, PER_WRITE),
            f"MSG {SUBJECT}.end 2 0\r\n\r\n".encode(),
            load.cap_ns,
        )
        thread.join()
    return rate(sent, found[0][1] - begin)


def there_and_back(load: Load, size: int) -> Figure:
    """As `request_reply`: four writes and reads for one round trip become two."""
    request = f"MSG {SUBJECT} 1 {size}\r\n".encode() + b"x" * size + b"\r\n"
    with connected() as (near, far):
        samples, total = build.generator().roundtrips(
            near.fileno(), far.fileno(), request, request, load.messages, load.cap_ns
        )
    return percentiles(list(samples), total)


@click.command()
@click.option("--scale", default=1.0, show_default=True, help="Of the messages of a run.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 100))
def main(scale: float, rounds: int) -> None:
    """Print what is carried by a server and without one, in turn, and the server's share."""
    with Server(headwater()) as server:
        for size, messages in SIZES:
            load = Load(max(PER_WRITE, int(messages * scale)), CAP_S)

            def served(load: Load = load, size: int = size) -> float:
                return core_publish(server, load, size=size, receivers=1).rate

            def bare(load: Load = load, size: int = size) -> float:
                return one_way(load, size).rate

            with_server, without = _best(served, rounds), _best(bare, rounds)
            click.echo(
                f"1 -> 1, {size} B: {number(with_server)}/s, without a server "
                f"{number(without)}/s, share {with_server / without:.2f}"
            )
        load = Load(max(100, int(ROUNDTRIPS * scale)), CAP_S)
        both = [there_and_back(load, 128).latency["p50"] for _ in range(rounds)]
        click.echo(f"one connection there and back, 128 B: {min(both):.1f} us without a server")


def _best(run: Callable[[], float], rounds: int) -> float:
    return max(run() for _ in range(rounds))


if __name__ == "__main__":
    main()
