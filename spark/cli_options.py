"""Options that commands of `headwater spark` share."""

from collections.abc import Callable
from typing import Any

import click

from headwater.spark.options import DEFAULT_SERVER

#: Command-line options that are passed on to the source, with the source's name for them.
SOURCE = {
    "server": "servers",
    "stream": "stream",
    "domain": "domain",
    "subject": "subjects",
    "starting": "starting",
    "ending": "ending",
    "starting_timestamp": "startingTimestamp",
    "ending_timestamp": "endingTimestamp",
    "partitions": "partitions",
    "allow_expired": "allowExpired",
    "allow_loss": "failOnDataLoss",
    "retry_timeout": "retryTimeout",
    "user": "user",
    "password_file": "passwordFile",
    "password_env": "passwordEnv",
    "token_file": "tokenFile",
    "token_env": "tokenEnv",
    "creds": "credentialsFile",
    "nkey": "nkeySeedFile",
    "tls_ca": "tlsCaFile",
    "tls_cert": "tlsCertFile",
    "tls_key": "tlsKeyFile",
}

#: Options of Kafka's own commands and sources, with what commands here have for them.
KAFKAS = {
    "--bootstrap-server": "--server",
    "--bootstrap-servers": "--server",
    "--topic": "--stream",
    "--subscribe": "--stream",
    "--include": "--stream, with names and commas",
    "--from-beginning": "nothing, as a job begins at the earliest message",
    "--offset": "--starting",
    "--starting-offsets": "--starting",
    "--ending-offsets": "--ending",
    "--max-messages": "--ending, the last sequence",
    "--partition": "nothing, as a stream has no partitions",
    "--group": "--checkpoint, a folder, for jobs with --follow",
    "--consumer.config": "--creds, --nkey, --user and --tls-ca",
    "--consumer-property": "--creds, --nkey, --user and --tls-ca",
    "--command-config": "--creds, --nkey, --user and --tls-ca",
}

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class JobCommand(click.Command):
    """A command that knows what options of Kafka's are here."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raises UsageError for a mistake."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            here = KAFKAS.get(error.option_name)
            if here is None:
                raise
            raise click.UsageError(
                f"No such option '{error.option_name}': what it is for Kafka is {here} here", ctx
            ) from error


class Jobs(click.Group):
    """The group of all jobs."""

    command_class = JobCommand


def all_of(options: list[Decorator]) -> Decorator:
    """One decorator for several options, which `--help` shows in this order."""

    def apply(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


def source_options(required: bool) -> Decorator:
    """The options that say where the data is and who we are."""
    return all_of(
        [
            click.option("-s", "--server", metavar="URL[,URL]", help=f"Default {DEFAULT_SERVER}."),
            click.option("--stream", required=required, help="Stream, or several with commas."),
            *_access(""),
        ]
    )


def _access(prefix: str) -> list[Decorator]:
    """Domain, credentials and TLS of one side."""
    user = "User name; the password comes from a file or variable."
    return [
        click.option(f"--{prefix}domain", help="JetStream domain."),
        click.option(f"--{prefix}user", help=user),
        click.option(f"--{prefix}password-file", metavar="FILE"),
        click.option(f"--{prefix}password-env", metavar="NAME"),
        click.option(f"--{prefix}token-file", metavar="FILE"),
        click.option(f"--{prefix}token-env", metavar="NAME"),
        click.option(f"--{prefix}creds", metavar="FILE", help="Credentials file."),
        click.option(f"--{prefix}nkey", metavar="FILE", help="NKey seed file."),
        click.option(f"--{prefix}tls-ca", metavar="FILE"),
        click.option(f"--{prefix}tls-cert", metavar="FILE"),
        click.option(f"--{prefix}tls-key", metavar="FILE"),
    ]


def mirror_options() -> Decorator:
    """The same for a second stream. What is not given is the first one's, all in all."""
    return all_of(
        [
            click.option("--mirror-server", metavar="URL[,URL]", help="Default: the origin's."),
            click.option("--mirror-stream", help="Default: the origin's name."),
            *_access("mirror-"),
        ]
    )


#: Which messages are read, with how many tasks.
SLICE: list[Decorator] = [
    click.option("--subject", metavar="FILTER[,FILTER]", help="Read these subjects only."),
    click.option("--starting", help="earliest, or a sequence; with --follow also latest."),
    click.option("--partitions", type=click.IntRange(1, 10_000), help="Tasks per stream."),
    click.option("--retry-timeout", metavar="SECONDS", help="Patience with a server that is away."),
]
RANGE: list[Decorator] = [
    *SLICE,
    click.option("--ending", help="latest, or a sequence."),
    click.option(
        "--starting-timestamp", metavar="TIME",
        help="In place of --starting: read messages stored at or after it (RFC 3339).",
    ),
    click.option(
        "--ending-timestamp", metavar="TIME",
        help="In place of --ending: read messages stored before it (RFC 3339).",
    ),
    click.option(
        "--allow-expired/--no-allow-expired",
        default=None,
        help="Go on when limits of the stream remove messages before they are read. "
        "The default is to go on, but not with an explicit --starting.",
    ),
    click.option("--allow-loss", flag_value="false", help="Read what is left after a purge."),
]


def _keep_settings(context: click.Context, _: click.Parameter, given: tuple[str, ...]) -> None:
    """Settings of Spark, for the session that the command starts. Raises BadParameter."""
    pairs = [text.partition("=") for text in given]
    if not all(name.startswith("spark.") and sign for name, sign, _ in pairs):
        raise click.BadParameter("a setting is like spark.executor.memory=2g")
    context.meta[SETTINGS] = {name: value for name, _, value in pairs}


#: Where a command's context keeps the settings of `--conf`.
SETTINGS = "headwater.spark.settings"
CONF = click.option(
    "--conf", multiple=True, metavar="NAME=VALUE", expose_value=False, callback=_keep_settings,
    help="A setting of Spark, as spark.executor.memory=2g; may be repeated.",
)
RUNNING: list[Decorator] = [
    click.option("--master", default="local[*]", show_default=True, help="Spark master."),
    CONF,
    click.option("--verbose", is_flag=True, help="Show what Spark prints."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
]
#: Whose a message is, and when it was.
EVENTS: list[Decorator] = [
    click.option(
        "--by", default="subject", show_default=True, metavar="KEY",
        help="What a key is: subject, token:N of the subject (from 1), or json:FIELD.",
    ),
    click.option(
        "--message-time", is_flag=True,
        help="Times are the JSON fields t_us or ts, not when the stream took the message in.",
    ),
]
#: Where a job that finds something puts all of it.
FINDINGS: list[Decorator] = [
    click.option("--out", metavar="DIR", help="Write all findings there, as Parquet."),
    click.option("--overwrite", is_flag=True, help="Replace what is in the folder."),
]
#: A job that goes on.
FOLLOWING: list[Decorator] = [
    click.option("--follow", is_flag=True, help="Go on as messages come, until interrupted."),
    click.option("--once", is_flag=True, help="With --follow: end with what is there now."),
]
CHECKPOINT: list[Decorator] = [
    *FOLLOWING,
    click.option(
        "--checkpoint", metavar="DIR",
        help="With --follow: where the state is kept, so that a later run goes on.",
    ),
]
PAUSE: list[Decorator] = [
    click.option(
        "--pause", default="10s", show_default=True, metavar="SPAN",
        help="With --follow: between two rounds.",
    ),
]
#: Where a job draws what it found.
PLOT: list[Decorator] = [
    click.option("--plot", metavar="FILE", help="Draw the result: .png, .svg or .pdf."),
]
