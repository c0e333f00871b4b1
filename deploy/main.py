"""The `headwater` command.

`headwater serve` is dispatched before anything else is imported: a node has to be ready within
0.3 s of its launch, and the command line library alone would take a fifth of that.
"""

import sys


def main() -> None:
    """Entry point of the console script."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] == "serve":
        from headwater.deploy.serve import serve

        raise SystemExit(serve(arguments[1:]))
    from headwater.deploy.cli import cli

    cli(prog_name="headwater")


if __name__ == "__main__":
    main()
