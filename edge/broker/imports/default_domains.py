"""What `default_js_domain` maps: an account without JetStream here asks that of another domain."""

import msgspec

from headwater.edge.broker.imports.imports_plan import AccountShares, Plan
from headwater.edge.conf.options import MappingDestination, MappingOptions, Options
from headwater.security.auth_options import GLOBAL_ACCOUNT

_API = ("INFO", "STREAM.>", "CONSUMER.>", "DIRECT.>", "META.>", "SERVER.>", "ACCOUNT.>")
_STORES = ("$KV.>", "$OBJ.>")


def with_default_domains(plan: Plan, options: Options) -> Plan:
    """The plan with these mappings behind the accounts' own; a new plan where there are any.

    Accounts that have JetStream keep theirs. As in nats-server, `$G` without a configuration of its
    own counts as one that has none, and mappings of its own stand in the place of these.
    """
    found = dict(plan)
    for name, domain in options.default_js_domain.items():
        account = options.accounts.get(name)
        if not domain or (account is None and name != GLOBAL_ACCOUNT):
            continue
        if account is not None and account.jetstream is not None:
            continue
        shares = found.get(name, AccountShares())
        if name == GLOBAL_ACCOUNT and shares.mappings:
            continue
        mappings = [*shares.mappings, *_mappings(domain)]
        found[name] = msgspec.structs.replace(shares, mappings=mappings)
    return found


def of_domain(domain: str) -> list[tuple[str, str]]:
    """Subjects of JetStream and of its stores, each with its name in a domain."""
    prefix = f"$JS.{domain}.API."
    pairs = [(f"$JS.API.{end}", prefix + end) for end in _API]
    return pairs + [(subject, prefix + subject) for subject in _STORES]


def _mappings(domain: str) -> list[MappingOptions]:
    return [
        MappingOptions(source=source, destinations=[MappingDestination(subject=subject)])
        for source, subject in of_domain(domain)
    ]
