"""What is done with the keys of one operator: make, enrol, revoke, rotate."""

import time
from collections.abc import Sequence
from pathlib import Path

from headwater.deploy.keys.folder import KeyFolder, KeysError, checked_name, write_file
from headwater.security import creds, jwt
from headwater.security.claims import (
    NO_LIMIT,
    AccountBody,
    AccountClaims,
    AccountLimits,
    OperatorBody,
    OperatorClaims,
    SigningScope,
    SubjectPermission,
    UserBody,
    UserClaims,
)
from headwater.security.gateway_roles import (
    ENROL,
    GATEWAY,
    enrolment_scope,
    gateway_name,
    gateway_scope,
    key_of_role,
)
from headwater.security.nkeys import KeyPair, is_public_key

SYSTEM_ACCOUNT = "SYS"
SYSTEM_USER = "sys"
TOKEN_SUFFIX = ".enrol"


class Realm:
    """One operator with its accounts; every change is on disk when a method returns."""

    def __init__(self, folder: KeyFolder) -> None:
        self.folder = folder

    def make_operator(self, name: str) -> OperatorClaims:
        """An operator, its system account and a user of that. One that an interrupt left unfinished
        is finished. Raises KeysError if one is there."""
        if list(self.folder.folder.glob("stores/*/.nsc")):
            return self._finish_operator(name)
        operator, system = KeyPair.create("O"), KeyPair.create("A")
        self.folder.keep(operator)
        self.folder.keep(system)
        body = OperatorBody(system_account=system.public_key)
        claims = OperatorClaims(sub=operator.public_key, name=checked_name(name), nats=body)
        self.folder.write_operator(name, jwt.encode(claims, operator))
        return self._finish_operator(name)

    def _finish_operator(self, name: str) -> OperatorClaims:
        """Make what is missing of the operator that is there. Raises KeysError if nothing is."""
        claims, _ = self.folder.operator()
        lacks_account = not self.folder.has_account(SYSTEM_ACCOUNT)
        lacks_user = lacks_account or SYSTEM_USER not in self.folder.users(SYSTEM_ACCOUNT)
        if not lacks_user or claims.name != name:
            raise KeysError(f"{self.folder.folder} has an operator already; it is left as it is")
        if lacks_account:
            account = AccountBody(limits=AccountLimits.unlimited())
            system = claims.nats.system_account
            self._sign(AccountClaims(sub=system, name=SYSTEM_ACCOUNT, nats=account))
        self.make_user(SYSTEM_ACCOUNT, SYSTEM_USER)
        return claims

    def make_account(
        self, name: str, subjects: Sequence[str], mirrors: Sequence[str] = ()
    ) -> AccountClaims:
        """An account with JetStream, and with keys that sign for gateways. Raises KeysError."""
        if self.folder.has_account(checked_name(name)):
            raise KeysError(f"account {name} is there already; it is left as it is")
        pair, enrol, gateway = (KeyPair.create("A") for _ in range(3))
        for each in (pair, enrol, gateway):
            self.folder.keep(each)
        limits = AccountLimits.unlimited()
        for field in ("mem_storage", "disk_storage", "streams", "consumer"):
            setattr(limits, field, NO_LIMIT)
        scopes: list[str | SigningScope] = [
            enrolment_scope(enrol.public_key),
            gateway_scope(gateway.public_key, list(subjects), list(mirrors)),
        ]
        body = AccountBody(limits=limits, signing_keys=scopes)
        claims = AccountClaims(sub=pair.public_key, name=name, nats=body)
        self._sign(claims)
        return claims

    def make_user(
        self,
        account: str,
        name: str,
        publish: Sequence[str] = (),
        subscribe: Sequence[str] = (),
        expires_s: float = 0,
    ) -> Path:
        """A user, with its key made here; returns the path of its creds file. Raises KeysError."""
        claims, _ = self.folder.account(account)
        if name in self.folder.users(account):
            raise KeysError(f"user {name} is there already; revoke it, or take another name")
        pair = KeyPair.create("U")
        body = UserBody.unlimited()
        body.pub = SubjectPermission(allow=list(publish))
        body.sub = SubjectPermission(allow=list(subscribe))
        user = UserClaims(sub=pair.public_key, name=checked_name(name), nats=body)
        if expires_s:
            user.exp = int(time.time() + expires_s)
        token = jwt.encode(user, self.folder.pair(claims.sub))
        self.folder.keep(pair)
        path = self.folder.write_creds(account, name, token, pair.seed)
        # Last, since it says that the user is there: an interrupt leaves none without creds.
        self.folder.write_user(account, name, token)
        return path

    def enrolment_tokens(
        self, account: str, names: Sequence[str], ttl_s: float, output: Path
    ) -> list[Path]:
        """A file with a short-lived token for each gateway. Raises KeysError."""
        claims, _ = self.folder.account(account)
        key = key_of_role(claims, ENROL)
        signer = self.folder.pair(key)
        expires = int(time.time() + ttl_s)
        paths = []
        for name in [gateway_name(name) for name in names]:
            pair = KeyPair.create("U")
            body = UserBody(issuer_account=claims.sub)
            user = UserClaims(sub=pair.public_key, name=name, exp=expires, nats=body)
            path = output / f"{name}{TOKEN_SUFFIX}"
            write_file(path, creds.render(jwt.encode(user, signer), pair.seed))
            paths.append(path)
        return paths

    def revoke(self, account: str, keys: Sequence[str]) -> AccountClaims:
        """Nothing that these users' tokens promised until now counts any more. Raises KeysError."""
        claims, _ = self.folder.account(account)
        now = int(time.time())
        for key in keys:
            if key != "*" and not is_public_key(key, "U"):
                raise KeysError(f"{key!r} is no user's public key")
            claims.nats.revocations[key] = now
        self._sign(claims)
        return claims

    def rotate(self, account: str, role: str, drop: bool) -> AccountClaims:
        """Another signing key for a role. The ones before stay valid unless `drop`; what they
        signed is refused then. Raises KeysError."""
        claims, _ = self.folder.account(account)
        old = key_of_role(claims, role)
        pair = KeyPair.create("A")
        self.folder.keep(pair)
        scopes = claims.nats.signing_keys
        template = next(s for s in scopes if isinstance(s, SigningScope) and s.key == old)
        if drop:
            scopes[:] = [s for s in scopes if not (isinstance(s, SigningScope) and s.role == role)]
        scopes.append(SigningScope(key=pair.public_key, role=role, template=template.template))
        self._sign(claims)
        return claims

    def hub_config(self, account: str, resolver: Path) -> str:
        """Configuration that a hub node includes to trust this operator and to enrol gateways of
        `account`; it holds no secret but the name of the file with one."""
        operator, token = self.folder.operator()
        preload = "".join(
            f"  {claims.sub}: {text}\n"
            for claims, text in map(self.folder.account, self.folder.accounts())
        )
        claims, _ = self.folder.account(account)
        key = self.folder.key_path(key_of_role(claims, GATEWAY)).absolute()
        return (
            f"operator: {token}\nsystem_account: {operator.nats.system_account}\n"
            f'resolver {{ type: full, dir: "{resolver}" }}\nresolver_preload {{\n{preload}}}\n'
            f'headwater {{ fleet {{ account: {claims.sub}, signing_key: "{key}" }} }}\n'
        )

    def _sign(self, claims: AccountClaims) -> None:
        """Sign an account by the operator, and keep its token."""
        operator, _ = self.folder.operator()
        if not is_public_key(claims.sub, "A"):
            raise KeysError("an account has an account's key")
        self.folder.write_account(
            claims.name, jwt.encode(claims, self.folder.pair(operator.sub))
        )
