"""What an account is granted: limits, JetStream and an end, by its token or by the configuration.

One record for both, so that what enforces a limit need not know where it was written.
"""

import msgspec

from headwater.edge.conf.options import AccountJetStreamOptions, AccountOptions, Options
from headwater.security.auth_options import GLOBAL_ACCOUNT
from headwater.security.authenticator import Authenticator
from headwater.security.claims import AccountClaims, JetStreamTier
from headwater.security.identity import UNLIMITED


class AccountTerms(msgspec.Struct, kw_only=True):
    """Terms of one account; -1 is unlimited, 0 is nothing at all."""

    max_connections: int = UNLIMITED
    max_leafnodes: int = UNLIMITED
    max_subscriptions: int = UNLIMITED
    max_payload: int = UNLIMITED
    jetstream: AccountJetStreamOptions | None = None
    """None: the account has no JetStream."""
    expires: int = 0
    """Unix seconds; 0 is never."""

    def limits(self) -> dict[str, int]:
        """What `Account.limits` holds."""
        return {
            "max_connections": self.max_connections,
            "max_leafnodes": self.max_leafnodes,
            "max_subscriptions": self.max_subscriptions,
            "max_payload": self.max_payload,
        }


NOTHING = AccountTerms(
    max_connections=0, max_leafnodes=0, max_subscriptions=0, max_payload=0
)
"""Of an account that has no valid token where tokens are what counts."""


def terms_of(name: str, options: Options, authenticator: Authenticator) -> AccountTerms:
    """The terms of an account as they are in force now."""
    if authenticator.operator_mode:
        claims = authenticator.account_claims(name)
        return NOTHING if claims is None else _of_claims(claims)
    configured = options.accounts.get(name)
    if configured is not None:
        return _of_options(configured)
    alone = name != GLOBAL_ACCOUNT or not options.accounts
    return AccountTerms(jetstream=AccountJetStreamOptions() if alone else None)


def _of_options(account: AccountOptions) -> AccountTerms:
    return AccountTerms(
        max_connections=account.max_connections,
        max_leafnodes=account.max_leafnodes,
        max_subscriptions=account.max_subscriptions,
        max_payload=account.max_payload,
        jetstream=account.jetstream,
    )


def _of_claims(claims: AccountClaims) -> AccountTerms:
    limits = claims.nats.limits
    return AccountTerms(
        max_connections=limits.conn,
        max_leafnodes=limits.leaf,
        max_subscriptions=limits.subs,
        max_payload=limits.payload,
        jetstream=_jetstream(claims),
        expires=claims.exp,
    )


def _jetstream(claims: AccountClaims) -> AccountJetStreamOptions | None:
    """JetStream by storage for all replicas, by storage for each tier of them, or none."""
    limits = claims.nats.limits
    if limits.mem_storage or limits.disk_storage:
        return _tier(limits)
    if not any(tier.mem_storage or tier.disk_storage for tier in limits.tiered_limits.values()):
        return None
    return AccountJetStreamOptions(
        tiers={name: _tier(tier) for name, tier in limits.tiered_limits.items()}
    )


def _tier(tier: JetStreamTier) -> AccountJetStreamOptions:
    return AccountJetStreamOptions(
        max_memory=tier.mem_storage,
        max_store=tier.disk_storage,
        max_streams=tier.streams,
        max_consumers=tier.consumer,
        max_bytes_required=tier.max_bytes_required,
        memory_max_stream_bytes=_or_unlimited(tier.mem_max_stream_bytes),
        store_max_stream_bytes=_or_unlimited(tier.disk_max_stream_bytes),
        max_ack_pending=_or_unlimited(tier.max_ack_pending),
    )


def _or_unlimited(limit: int) -> int:
    """A limit that is none when it is 0."""
    return limit if limit > 0 else UNLIMITED
