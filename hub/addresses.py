"""Addresses under which other machines reach this one."""

import ipaddress

ANY = ("", "0.0.0.0", "::")


def reachable(host: str) -> list[str]:
    """Addresses to tell others for a listener on `host`: all of the machine's for the any address.

    Loopback and link-local addresses are left out unless there is no other.
    """
    if host not in ANY:
        return [host]
    import ifaddr

    found = []
    for adapter in ifaddr.get_adapters():
        for entry in adapter.ips:
            text = entry.ip if isinstance(entry.ip, str) else entry.ip[0]
            address = ipaddress.ip_address(text.partition("%")[0])
            if not (address.is_loopback or address.is_link_local):
                found.append(str(address))
    return found or ["127.0.0.1"]
