"""`python -m bench.spark`: speed of the Spark source in one run with its controls.

Rates are rows per second of processor time of the JVM and the Python workers together; the least
of the rounds counts. Servers are not in it.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from bench import machine
from bench.servers import HOST, Recipe, Server, anchor, end_on_sigterm, free_port, headwater
from bench.spark.filling import fill, json_payloads, raw_payloads
from bench.spark.prepared import PreparedSource
from bench.spark.rows import CORES, ROWS, Amounts, Bench, Figure, write_record

SIZES = {
    "tiny": Amounts(4000, 100, 1, 3, 1),
    "small": Amounts(400_000, 100, 2, 20),
    "normal": Amounts(),
}


@click.command()
@click.option("--size", type=click.Choice(list(SIZES)), default="normal", show_default=True)
@click.option("--only", multiple=True, type=click.Choice(list(ROWS)), help="These rows alone.")
@click.option("--json", "record", metavar="FILE", help="Write the figures there.")
@click.option("--check", is_flag=True, help="Exit code 1 when a floor is missed.")
def main(size: str, only: tuple[str, ...], record: str | None, check: bool) -> None:
    """Measure the Spark source."""
    end_on_sigterm()
    print(machine.look().line(), flush=True)
    figures: list[Figure] = []
    with prepared_bench(SIZES[size]) as bench:
        for name in only or ROWS:
            for figure in ROWS[name](bench):
                figures.append(figure)
                print(figure.line(), flush=True)
    if record is not None:
        write_record(record, figures)
    sys.exit(1 if check and not all(one.met for one in figures) else 0)


@contextmanager
def prepared_bench(amounts: Amounts) -> Iterator[Bench]:
    """Both servers with their streams, and a session."""
    from headwater.spark.session import build_session, spark_log

    page = free_port()
    made = headwater()
    config = f'jetstream {{ store_dir: "{{dir}}" }}\nhttp: "{HOST}:{page}"\n'
    with Server(Recipe(made.name, made.command, config)) as ours, Server(anchor()) as theirs:
        payloads = raw_payloads(amounts.size)
        for server in (ours, theirs):
            fill(server, "RAW", payloads, amounts.messages)
        fill(ours, "JSON", json_payloads(), amounts.messages)
        with spark_log() as log:
            spark = build_session("headwater bench", f"local[{CORES}]", log=log)
            spark.dataSource.register(PreparedSource)
            try:
                yield Bench(spark, ours, theirs, page, amounts)
            finally:
                spark.stop()


if __name__ == "__main__":
    main()
