"""What a configuration says about logins, as `security` wants it."""

from headwater.edge.conf.options import Options
from headwater.security.identity import AuthConfig


def auth_config(options: Options) -> AuthConfig:
    """What `security` needs to decide on logins, out of a node's options."""
    return AuthConfig(
        auth=options.auth,
        account_users=[u for account in options.accounts.values() for u in account.users],
        no_auth_user=options.no_auth_user,
        operator=options.operator,
        system_account=options.system_account,
        default_sentinel=options.default_sentinel,
        proxies=options.proxies.trusted if options.proxies else [],
        maps_certificates=any(
            tls is not None and tls.verify_and_map
            for tls in (options.tls, options.leaf.tls, options.websocket.tls)
        ),
    )
