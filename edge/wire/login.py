"""Who a client is, and how it makes sure of the server: what goes into CONNECT and into TLS."""

import base64
import ssl
from dataclasses import dataclass

from headwater.security import creds as creds_files
from headwater.security.nkeys import KeyPair
from headwater.security.tls.contexts import client_context


@dataclass(frozen=True, repr=False)
class Login:
    """Beside what a URL says. Its text is a mask: secrets go to the server only."""

    user: str = ""
    password: str = ""
    token: str = ""
    seed: str = ""
    """An NKey's seed: the login itself, or the proof of `jwt`."""
    jwt: str = ""
    creds: str = ""
    """Path of a file with a user's JWT and seed, or with a bare seed."""
    tls: bool = False
    """Speak TLS even where neither the URL nor the server asks for it."""
    tls_first: bool = False
    """The server expects TLS before INFO."""
    tls_ca: str = ""
    """File with the CA certificates to trust; the system's without it."""
    tls_cert: str = ""
    tls_key: str = ""
    """Files of a client certificate and its key."""
    tls_context: ssl.SSLContext | None = None
    """In the place of the files."""

    def __repr__(self) -> str:
        given = ("creds", "jwt", "seed", "token", "user")
        return f"Login({next((kind for kind in given if getattr(self, kind)), 'nobody')}, ***)"

    def connect_fields(self, nonce: str) -> dict[str, str]:
        """The fields of CONNECT that prove who this is; `nonce` is the server's. Raises
        SecurityError."""
        token, seed = creds_files.read(self.creds) if self.creds else (self.jwt, self.seed)
        fields: dict[str, str] = {}
        if self.user:
            fields.update({"user": self.user, "pass": self.password})
        if self.token:
            fields["auth_token"] = self.token
        if seed:
            pair = KeyPair.from_seed(seed)
            signature = pair.sign(nonce.encode())
            fields["sig"] = base64.urlsafe_b64encode(signature).decode().rstrip("=")
            if not token:
                fields["nkey"] = pair.public_key
        if token:
            fields["jwt"] = token
        return fields

    def context(self) -> ssl.SSLContext:
        """What TLS is spoken with. Raises TLSConfigError."""
        if self.tls_context is not None:
            return self.tls_context
        certificates = [(self.tls_cert, self.tls_key)] if self.tls_cert else []
        return client_context(certificates, ca_file=self.tls_ca)
