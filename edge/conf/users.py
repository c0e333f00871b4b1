"""Checks that span blocks: users of `authorization` and of `accounts` together."""

from headwater.edge.conf.grammar import Value
from headwater.edge.conf.options import Options
from headwater.edge.conf.reader import ConfigReader


def check_users(reader: ConfigReader, document: Value, options: Options) -> None:
    """Report users that are defined twice, or beside a single user or token."""
    members = document.data if isinstance(document.data, dict) else {}
    lower = {key.lower(): value for key, value in members.items()}
    authorization = lower.get("authorization")
    if authorization is not None:
        _check_single(reader, authorization, options)
    block = authorization or lower.get("accounts") or document
    seen: set[str] = set()
    for user in options.all_users():
        kind, name = ("nkey", user.nkey) if user.nkey else ("user", user.user)
        if name in seen:
            reader.error(block, f'Duplicate {kind} "{name}" detected: remove one')
        seen.add(name)
    callout = options.auth.callout
    for name in callout.allowed_accounts if callout else ():
        if name not in options.accounts:
            reader.error(
                block,
                f'auth_callout allowed account "{name}" not found in configured accounts: '
                "add it to `accounts`",
            )


def _check_single(reader: ConfigReader, block: Value, options: Options) -> None:
    """Report a single user or token where users are listed (an empty list counts too)."""
    lists_users = isinstance(block.data, dict) and any(key.lower() == "users" for key in block.data)
    if not lists_users and not options.all_users():
        return
    if options.auth.user:
        reader.error(block, "Can not have a single user/pass and a users array: remove one of them")
    if options.auth.token:
        reader.error(block, "Can not have a token and a users array: remove one of them")
