"""The end of a command that somebody interrupts: a line that says so, and status 130."""

import click

STATUS = 130
"""Of a command that an interrupt ended, as shells have it."""


class Interrupted(click.ClickException):
    """Says what goes on all the same, where something does."""

    exit_code = STATUS

    def __init__(self, goes_on: str = "") -> None:
        super().__init__(f"interrupted: {goes_on}" if goes_on else "interrupted")

    def show(self, file: object = None) -> None:
        """Print it; no error of ours, so without that word."""
        click.echo(f"\n{self.message}", err=True)
