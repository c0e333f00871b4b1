"""Users whom a client's certificate names (`verify_and_map`).

A certificate is looked at in this order: its e-mail addresses, DNS names and URIs, to the letter;
its subject as a distinguished name, with relative names in their order or in any; its subject as
the text that Go's `pkix` makes, with and without domain components. Source: nats-server's
`checkClientTLSCertSubject`, RFC 4514.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

TYPES = {
    "commonName": "CN",
    "serialNumber": "SERIALNUMBER",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "postalCode": "POSTALCODE",
    "domainComponent": "DC",
}
"""Attributes that may stand in a user's name; a subject with any other one is compared as text."""

SHOWN = ("SERIALNUMBER", "CN", "POSTALCODE", "STREET", "ST", "L", "OU", "O", "C")
"""Attributes of the text, in its order; others are left out."""

LAST_ONLY = ("SERIALNUMBER", "CN")
"""Of these a text has the last one; several of another kind are one relative name."""

_ESCAPED = frozenset(b' "#+,;<=>\\')

RelativeName = frozenset[tuple[str, str]]
Certificate = Mapping[str, Any]
"""A certificate as `SSLObject.getpeercert()` gives it."""


def named_by(certificate: Certificate, names: Iterable[str]) -> str | None:
    """The first of `names` that the certificate gives its owner; None when it gives none."""
    known = list(names)
    texts = alternatives(certificate)
    subject = subject_of(certificate)
    found = next((text for text in texts if text in known), None)
    if found is None and subject is not None:
        found = _same_subject(subject, known)
    if found is None:
        found = next((text for text in subject_texts(certificate) if text in known), None)
    return found


def alternatives(certificate: Certificate) -> list[str]:
    """Alternative names in the order in which they are tried."""
    present = certificate.get("subjectAltName", ())
    return [
        value for wanted in ("email", "DNS", "URI") for kind, value in present if kind == wanted
    ]


def subject_of(certificate: Certificate) -> list[RelativeName] | None:
    """The subject's relative names, the last one first; None when one has another attribute than
    `TYPES` lists, or there are none."""
    groups = [group for group in certificate.get("subject", ()) if group]
    if not groups or any(key not in TYPES for group in groups for key, _ in group):
        return None
    return [frozenset((TYPES[key], value) for key, value in group) for group in reversed(groups)]


def subject_texts(certificate: Certificate) -> list[str]:
    """The subject as texts: with its domain components, if it has any, and without."""
    values: dict[str, list[str]] = {}
    for group in certificate.get("subject", ()):
        for key, value in group:
            values.setdefault(TYPES.get(key, ""), []).append(value)
    for kind in LAST_ONLY:
        values[kind] = values.get(kind, [])[-1:]
    parts = [
        "+".join(f"{kind}={_shown(value)}" for value in values[kind])
        for kind in SHOWN
        if values.get(kind)
    ]
    plain = ",".join(parts)
    components = [f"DC={value}" for value in values.get("DC", ())]
    texts = [",".join([plain, *components])] if components else []
    return [*texts, plain] if plain else texts


def parse_name(text: str) -> list[RelativeName] | None:
    """A distinguished name of RFC 4514; None when the text is none."""
    reader = _Reader()
    return reader.names if reader.read(text.encode()) else None


class _Reader:
    """Reads one distinguished name, byte by byte."""

    def __init__(self) -> None:
        self.names: list[RelativeName] = []
        self._group: list[tuple[str, str]] = []
        self._kind = ""
        self._word = bytearray()
        self._blanks = 0
        """Blanks at the end of the word that nothing escapes."""

    def read(self, text: bytes) -> bool:
        """Whether it is one."""
        at = 0
        while at < len(text):
            char = text[at : at + 1]
            if char == b"\\":
                taken = self._escape(text[at + 1 : at + 3])
                if not taken:
                    return False
                at += taken
            elif char == b"=":
                self._kind = self._take()
                if text[at + 1 : at + 2] == b"#":
                    return False
            elif char in b",+":
                if not self._end(char == b","):
                    return False
            elif char != b" " or self._word:
                self._blanks = self._blanks + 1 if char == b" " else 0
                self._word += char
            at += 1
        return self._end(True) if self._word else True

    def _escape(self, rest: bytes) -> int:
        """Take what is escaped; the number of its bytes, 0 when it makes no sense."""
        self._blanks = 0
        if rest and rest[0] in _ESCAPED:
            self._word += rest[:1]
            return 1
        try:
            self._word += bytes.fromhex(rest.decode())
        except ValueError:
            return 0
        return len(rest) if len(rest) == 2 else 0

    def _take(self) -> str:
        word = self._word[: len(self._word) - self._blanks]
        self._word, self._blanks = bytearray(), 0
        return word.decode(errors="replace")

    def _end(self, last: bool) -> bool:
        """End an attribute, and with the `last` one a relative name; False when it has no kind."""
        if not self._kind:
            return False
        self._group.append((self._kind.upper(), self._take()))
        self._kind = ""
        if last:
            self.names.append(frozenset(self._group))
            self._group = []
        return True


def _same_subject(subject: list[RelativeName], names: list[str]) -> str | None:
    """The first name that is the subject; one in another order only when none is in its order."""
    read = {name: parse_name(name) for name in names}
    same: list[Callable[[list[RelativeName]], bool]] = [
        lambda name: name == subject,
        lambda name: sorted(map(sorted, name)) == sorted(map(sorted, subject)),
    ]
    for fits in same:
        for name, found in read.items():
            if found is not None and fits(found):
                return name
    return None


def _shown(value: str) -> str:
    """A value as Go's `pkix` writes it."""
    out = []
    for at, char in enumerate(value):
        edge = (at == 0 and char in "# ") or (at == len(value) - 1 and char == " ")
        out.append(f"\\{char}" if edge or char in ',+"\\<>;' else char)
    return "".join(out)
