"""What proves who we are: read on the driver from a file, a variable or an option.

Secrets travel to executors inside the pickled partition only. They are never in the text of a
plan, an error or a log: every text form of `Credentials` is a mask.
"""

import base64
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headwater.spark.errors import OptionError

_FILES = ("credentialsFile", "nkeySeedFile", "tokenFile", "passwordFile")


@dataclass(frozen=True, repr=False)
class Credentials:
    """User and password, a token, or an NKey seed with or without a user JWT.

    `origin` has the options with the absolute paths of the files that this was read from, if any.
    """

    user: str = ""
    password: str = ""
    token: str = ""
    jwt: str = ""
    seed: str = ""
    origin: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        kind = "none"
        if self.jwt:
            kind = "creds"
        elif self.seed:
            kind = "nkey"
        elif self.token:
            kind = "token"
        elif self.user:
            kind = "user"
        return f"Credentials({kind}, ***)"

    def read_again(self) -> "Credentials":
        """What the files of `origin` have now; the same where there is none that can be read."""
        if not self.origin:
            return self
        try:
            return read_credentials(dict(self.origin))
        except OptionError:
            return self

    def expired(self) -> str:
        """When the user JWT expired, as 2026-11-27T18:00:00Z; empty unless it did."""
        try:
            body = self.jwt.split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
            ended = float(claims.get("exp") or "inf")
        except (IndexError, ValueError, TypeError, AttributeError):
            return ""
        if ended > time.time():
            return ""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ended))

    def connect_fields(self, nonce: str) -> dict[str, str]:
        """The fields that CONNECT needs; `nonce` is the server's, from INFO."""
        fields: dict[str, str] = {}
        if self.user:
            fields["user"] = self.user
            fields["pass"] = self.password
        if self.token:
            fields["auth_token"] = self.token
        if self.seed:
            from headwater.security.nkeys import KeyPair

            pair = KeyPair.from_seed(self.seed)
            signature = pair.sign(nonce.encode())
            fields["sig"] = base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
            if self.jwt:
                fields["jwt"] = self.jwt
            else:
                fields["nkey"] = pair.public_key
        return fields


_newer: dict[Credentials, Credentials] = {}
"""What proved to be newer than credentials that a query began with, in this process."""


def newest(credentials: Credentials) -> Credentials:
    """What to use in place of `credentials`, which a query began with."""
    return _newer.get(credentials, credentials)


def replaced(credentials: Credentials, newer: Credentials) -> None:
    """From now on `newest` knows `newer` ones, in this process."""
    if newer != credentials:
        _newer[credentials] = newer


def read_credentials(options: Mapping[str, str]) -> Credentials:
    """Read what the options name. Raises OptionError when it cannot be read or is ambiguous."""
    files = {
        name: str(Path(options[name]).expanduser().absolute())
        for name in _FILES
        if options.get(name)
    }
    found = _read(options)
    if files:
        origin = files | ({"user": found.user} if found.user else {})
        found = replace(found, origin=tuple(origin.items()))
    return found


def _read(options: Mapping[str, str]) -> Credentials:
    creds = _text(options, "credentials", direct=False)
    seed = _text(options, "nkeySeed", direct=False)
    token = _text(options, "token")
    password = _text(options, "password")
    user = options.get("user", "")
    if sum(bool(kind) for kind in (creds, seed, token, user)) > 1:
        raise OptionError("give one of: credentials, nkeySeed, token, user with password")
    if password and not user:
        raise OptionError("a password needs option 'user'")
    if creds:
        jwt, seed = _parsed(creds, "credentials")
        if not jwt or not seed:
            raise OptionError("option 'credentials' needs a user JWT and its seed in one text")
        return Credentials(jwt=jwt, seed=seed)
    if seed:
        seed = _parsed(seed, "nkeySeed")[1]
    return Credentials(user=user, password=password, token=token, seed=seed)


def _text(options: Mapping[str, str], name: str, direct: bool = True) -> str:
    """The value of option `name`, or of the file or variable that nameFile or nameEnv names."""
    value = options.get(name, "") if direct else ""
    path = options.get(f"{name}File", "")
    variable = options.get(f"{name}Env", "")
    if sum(bool(part) for part in (value, path, variable)) > 1:
        raise OptionError(f"give only one of the options {name}, {name}File and {name}Env")
    if path:
        try:
            return Path(path).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            raise OptionError(f"option '{name}File': cannot read {path}: {reason}") from error
    if variable:
        if not os.environ.get(variable):
            raise OptionError(f"option '{name}Env': the variable {variable} is not set")
        return os.environ[variable].strip()
    return value


def _parsed(text: str, option: str) -> tuple[str, str]:
    """Token and seed in the text of a creds or seed file; neither is in an error."""
    from headwater.security import creds
    from headwater.security.errors import CredsError

    try:
        return creds.parse(text)
    except CredsError as error:
        raise OptionError(f"the text of option '{option}' is no usable secret: {error}") from error
