"""Reads `tls` blocks, wherever they stand."""

import re
from typing import Any

from headwater.edge.conf.grammar import Value
from headwater.edge.conf.options import CertificatePair, OCSPPeerOptions, TLSOptions
from headwater.edge.conf.quantities import parse_duration
from headwater.edge.conf.reader import (
    ConfigReader,
    Field,
    Section,
    boolean,
    ignored,
    integer,
    keys,
    seconds,
    text,
)

HANDSHAKE_FIRST_FALLBACK = 0.05
"""Seconds that `handshake_first: auto` waits for a ClientHello."""

_OCSP_SECONDS_MAX = 86400.0 * 365
"""Beyond that, and below 0, the default holds."""

_PIN = re.compile("[0-9a-f]{64}")

_PAIR_FIELDS = Section("tls.certs", {"cert_file": text("cert_file"), "key_file": text("key_file")})


def tls(attribute: str, *, link: bool = False, solicited: bool = False) -> Field:
    """Field of a `tls` block. `link` is for routes and gateways, `solicited` for leaf remotes."""

    def field(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
        options = read_tls(reader, key, value, link=link, solicited=solicited)
        if options is not None:
            setattr(target, attribute, options)

    return field


def read_tls(
    reader: ConfigReader, key: str, value: Value, *, link: bool, solicited: bool = False
) -> TLSOptions | None:
    """A checked `tls` block, or None after errors."""
    before = len(reader.problems.errors)
    options = TLSOptions()
    if not reader.section(key, value, _FIELDS, options):
        return None
    if options.check_known_urls and not link:
        reader.error(
            value,
            "verify_cert_and_check_known_urls is only for routes and gateways: "
            "remove it",
        )
    if options.verify_and_map or options.check_known_urls:
        options.verify = True
    if options.server_name and not solicited:
        reader.error(value, "server_name is only for leafnode remotes: remove it")
    if options.cert_file and options.certificates:
        reader.error(value, "cannot combine 'cert_file' option with 'certs' option: remove one")
    elif bool(options.cert_file) != bool(options.key_file):
        missing = "cert_file" if options.key_file else "key_file"
        reader.error(value, f"missing '{missing}' in TLS configuration: add it")
    _check_suites(reader, value, options)
    if len(reader.problems.errors) == before:
        _check_files(reader, value, options, solicited)
    return options if len(reader.problems.errors) == before else None


def certificate_pairs(options: TLSOptions) -> list[tuple[str, str]]:
    """(chain, key) paths of a block, whichever way they are written."""
    if options.cert_file:
        return [(options.cert_file, options.key_file)]
    return [(pair.cert_file, pair.key_file) for pair in options.certificates]


def _check_suites(reader: ConfigReader, value: Value, options: TLSOptions) -> None:
    if not options.cipher_suites or options.allow_insecure_cipher_suites:
        return
    from headwater.security.tls.contexts import INSECURE_CIPHER_SUITES

    insecure = [name for name in options.cipher_suites if name in INSECURE_CIPHER_SUITES]
    if insecure:
        reader.error(
            value,
            "insecure cipher suites configured without 'allow_insecure_cipher_suites' option set: "
            + ", ".join(insecure),
        )


def _check_files(reader: ConfigReader, value: Value, options: TLSOptions, solicited: bool) -> None:
    """Load certificates and keys once, so that a bad file is found with the rest."""
    from headwater.security.errors import TLSConfigError
    from headwater.security.tls.contexts import client_context, server_context

    pairs = certificate_pairs(options)
    try:
        if solicited:
            client_context(pairs, ca_file=options.ca_file, min_version=options.min_version)
        else:
            server_context(pairs, ca_file=options.ca_file, min_version=options.min_version)
    except TLSConfigError as error:
        reader.error(value, str(error))


def _names(attribute: str, kind: str) -> Field:
    """Field of a non-empty array of cipher suites or curves that are known."""

    def field(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
        items = reader.array(key, value)
        if items is None:
            return
        if not items:
            reader.error(value, f"'{key}' cannot be empty: remove it, or name some")
        from headwater.security.tls.contexts import CIPHER_SUITES, CURVES

        known = CIPHER_SUITES if kind == "cipher" else CURVES
        names = []
        for item in items:
            name = reader.string(key, item)
            if name is not None and name not in known:
                reader.error(item, f"unrecognized {kind} {name}: use one of {', '.join(known)}")
            elif name is not None:
                names.append(name)
        setattr(target, attribute, names)

    return field


def _pinned(reader: ConfigReader, key: str, value: Value, target: TLSOptions) -> None:
    target.pinned_certs = pins(reader, key, value)


def pins(reader: ConfigReader, key: str, value: Value) -> list[str]:
    """SHA-256 sums of public key infos, as lower-case hex."""
    found = []
    for item in reader.array(key, value) or []:
        pin = reader.string(key, item)
        if pin is not None and not _PIN.fullmatch(pin.lower()):
            reader.error(
                item,
                f"{pin} is not the hex SHA-256 of a public key info: "
                "it must be 64 digits",
            )
        elif pin is not None:
            found.append(pin.lower())
    return found


def _handshake_first(reader: ConfigReader, key: str, value: Value, target: TLSOptions) -> None:
    data = value.data
    if isinstance(data, bool):
        target.handshake_first = data
        return
    word = reader.string(key, value)
    if word is None:
        return
    lower = word.lower()
    if lower in ("true", "on", "false", "off"):
        target.handshake_first = lower in ("true", "on")
    elif lower in ("auto", "auto_fallback"):
        target.handshake_first = True
        target.handshake_first_fallback = HANDSHAKE_FIRST_FALLBACK
    else:
        try:
            target.handshake_first_fallback = parse_duration(word)
            target.handshake_first = True
        except ValueError:
            reader.error(value, f'"{key}": {word!r} is neither a boolean, "auto" nor a duration')


def _certificates(reader: ConfigReader, key: str, value: Value, target: TLSOptions) -> None:
    for item in reader.array(key, value) or []:
        pair = CertificatePair()
        if not reader.section(key, item, _PAIR_FIELDS, pair):
            continue
        if not pair.cert_file or not pair.key_file:
            reader.error(
                item,
                "both 'cert_file' and 'key_file' options are required: "
                "add the other",
            )
        target.certificates = [*target.certificates, pair]


def _ocsp_peer(reader: ConfigReader, key: str, value: Value, target: TLSOptions) -> None:
    found = OCSPPeerOptions()
    if isinstance(value.data, bool):
        found.verify = value.data
    elif not reader.section(key, value, _OCSP_PEER_FIELDS, found):
        return
    for name in ("ca_timeout", "allowed_clockskew", "ttl_without_next"):
        if not 0 <= getattr(found, name) <= _OCSP_SECONDS_MAX:
            setattr(found, name, getattr(OCSPPeerOptions(), name))
    target.ocsp_peer = found if found.verify else None


def _min_version(reader: ConfigReader, key: str, value: Value, target: TLSOptions) -> None:
    version = reader.string(key, value)
    if version is None:
        return
    if version not in ("1.2", "1.3"):
        reader.error(value, f"unsupported TLS version {version!r}, use 1.2 or 1.3")
        return
    target.min_version = version


_OCSP_PEER_FIELDS = Section(
    "tls.ocsp_peer",
    {
        "verify": boolean("verify"),
        "ca_timeout": seconds("ca_timeout"),
        "allowed_clockskew": seconds("allowed_clockskew"),
        "warn_only": boolean("warn_only"),
        "unknown_is_good": boolean("unknown_is_good"),
        "allow_when_ca_unreachable": boolean("allow_when_ca_unreachable"),
        "cache_ttl_when_next_update_unset": seconds("ttl_without_next"),
    },
)
_FIELDS = Section(
    "tls",
    {
        "cert_file": text("cert_file"),
        "key_file": text("key_file"),
        "ca_file": text("ca_file"),
        "insecure": boolean("insecure"),
        "server_name": text("server_name"),
        "verify": boolean("verify"),
        "verify_and_map": boolean("verify_and_map"),
        "verify_cert_and_check_known_urls": boolean("check_known_urls"),
        "allow_insecure_cipher_suites": boolean("allow_insecure_cipher_suites"),
        "cipher_suites": _names("cipher_suites", "cipher"),
        "curve_preferences": _names("curve_preferences", "curve preference"),
        "timeout": seconds("timeout"),
        "connection_rate_limit": integer("connection_rate_limit"),
        "pinned_certs": _pinned,
        **keys("handshake_first first immediate", _handshake_first),
        **keys("certs certificates", _certificates),
        "min_version": _min_version,
        **keys(
            "cert_store cert_match_by cert_match ca_certs_match cert_match_skip_invalid",
            ignored,
        ),
        "ocsp_peer": _ocsp_peer,
    },
)
