"""Keys and tokens as files, in the layout of `nsc`, so that either program reads the other's.

    stores/<operator>/.nsc                            what the store is
    stores/<operator>/<operator>.jwt
    stores/<operator>/accounts/<account>/<account>.jwt
    stores/<operator>/accounts/<account>/users/<user>.jwt
    keys/keys/<kind>/<two letters>/<public key>.nk    seeds
    keys/creds/<operator>/<account>/<user>.creds

`nsc --all-dirs FOLDER/...` takes the two halves as `--data-dir FOLDER/stores` and
`--keystore-dir FOLDER/keys`. Secrets are readable by their owner only.
"""

import json
import re
from pathlib import Path

from headwater.security import creds, jwt
from headwater.security.claims import AccountClaims, OperatorClaims, UserClaims
from headwater.security.errors import SecurityError
from headwater.security.nkeys import KeyPair
from headwater.security.whole_file import make_folder, write_whole

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""Names become parts of paths and of subjects."""


class KeysError(SecurityError):
    """Something is missing among the keys, or is there already; the text says what to do."""


def checked_name(name: str) -> str:
    """The name, if it can be one. Raises KeysError."""
    if not NAME.fullmatch(name):
        raise KeysError(
            f"{name!r} is no name: use letters, digits, - and _ (64 at most), beginning with a "
            "letter or digit"
        )
    return name


def write_file(path: Path, text: str) -> None:
    """Put a text in its place in one step, durable; folders are made as needed."""
    make_folder(path.parent)
    write_whole(path, text.encode())


class KeyFolder:
    """The files of one operator below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser()

    # --- names ---

    def operator_name(self) -> str:
        """The one operator of this folder. Raises KeysError."""
        stores = sorted(path.parent.name for path in self.folder.glob("stores/*/.nsc"))
        if not stores:
            raise KeysError(
                f"there is no operator in {self.folder}: make one with "
                "`headwater keys operator NAME`, or name its folder with --dir"
            )
        if len(stores) > 1:
            raise KeysError(f"{self.folder} has several operators; give each a folder of its own")
        return stores[0]

    def accounts(self) -> list[str]:
        """Names of accounts."""
        return sorted(path.name for path in (self._store() / "accounts").glob("*"))

    def users(self, account: str) -> list[str]:
        """Names of the users whose tokens were made here."""
        found = (self._store() / "accounts" / account / "users").glob("*.jwt")
        return sorted(path.stem for path in found)

    def _store(self) -> Path:
        return self.folder / "stores" / self.operator_name()

    # --- tokens ---

    def operator(self) -> tuple[OperatorClaims, str]:
        """Claims and token of the operator. Raises SecurityError."""
        token = self._read(self._store() / f"{self.operator_name()}.jwt", "operator")
        return jwt.decode_operator(token), token

    def account(self, name: str) -> tuple[AccountClaims, str]:
        """Claims and token of an account. Raises SecurityError."""
        token = self._read(self._account_path(name), f"account {name}")
        return jwt.decode_account(token), token

    def has_account(self, name: str) -> bool:
        """Whether there is an account of that name."""
        return self._account_path(name).exists()

    def user(self, account: str, name: str) -> UserClaims:
        """Claims of a user's token. Raises SecurityError."""
        path = self._account_path(account).parent / "users" / f"{checked_name(name)}.jwt"
        return jwt.decode_user(self._read(path, f"user {name}"))

    def write_operator(self, name: str, token: str) -> None:
        """Keep an operator's token, and say to nsc what this store is."""
        info = {"managed": False, "name": name, "kind": "operator", "version": "1"}
        store = self.folder / "stores" / checked_name(name)
        write_file(store / f"{name}.jwt", token)
        write_file(store / ".nsc", json.dumps(info))

    def write_account(self, name: str, token: str) -> None:
        """Keep an account's token."""
        write_file(self._account_path(name), token)

    def write_user(self, account: str, name: str, token: str) -> None:
        """Keep a user's token."""
        users = self._account_path(account).parent / "users"
        write_file(users / f"{checked_name(name)}.jwt", token)

    def write_creds(self, account: str, name: str, token: str, seed: str) -> Path:
        """Keep a user's creds file; returns where."""
        path = self.folder / "keys/creds" / self.operator_name() / account / f"{name}.creds"
        write_file(path, creds.render(token, seed))
        return path

    def _account_path(self, name: str) -> Path:
        return self._store() / "accounts" / checked_name(name) / f"{name}.jwt"

    def _read(self, path: Path, what: str) -> str:
        try:
            return jwt.token_in(path.read_text())
        except OSError as error:
            raise KeysError(f"no {what} here: {error.strerror}: {path}") from error

    # --- seeds ---

    def key_path(self, public: str) -> Path:
        """Where the seed of a public key is."""
        return self.folder / "keys/keys" / public[0] / public[1:3] / f"{public}.nk"

    def keep(self, pair: KeyPair) -> None:
        """Keep a seed."""
        write_file(self.key_path(pair.public_key), pair.seed)

    def pair(self, public: str) -> KeyPair:
        """The key pair of a public key. Raises SecurityError."""
        try:
            return KeyPair.from_seed(self.key_path(public).read_text())
        except OSError as error:
            raise KeysError(
                f"the seed of {public} is not here ({error.strerror}: {self.key_path(public)}); "
                "do this where the keys are kept"
            ) from error
