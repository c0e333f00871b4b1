"""Addresses of Spark masters, looked at before a JVM is started for one."""

import re
import socket

from headwater.spark.errors import ConnectError, OptionError

_STANDALONE = re.compile(r"spark://([^/]+)")
_OTHERS = re.compile(r"local(\[[^\]]+\])?|local-cluster\[[^\]]+\]|yarn|k8s://.+")
_DEFAULT_PORT = 7077
_TIMEOUT = 5.0


def check_master(master: str) -> None:
    """Raises OptionError for what is no master, and ConnectError when nobody listens at a
    standalone one: Spark itself tries for a minute."""
    if master.startswith("sc://"):
        raise OptionError(
            f"{master} is Spark Connect, which knows nothing of executors and accounts: name the "
            'master itself, or use format("headwater") in a session of your own'
        )
    found = _STANDALONE.fullmatch(master)
    if found is None:
        if _OTHERS.fullmatch(master) is None:
            raise OptionError(
                f"{master!r} is no Spark master: use local[*], spark://host:7077, yarn or k8s://…"
            )
        return
    problems = []
    for address in found.group(1).split(","):
        host, _, port = address.partition(":")
        number = int(port) if port.isdigit() else _DEFAULT_PORT
        try:
            socket.create_connection((host, number), _TIMEOUT).close()
            return
        except (OSError, OverflowError) as error:
            problems.append(f"{address}: {error}")
    raise ConnectError(
        f"no connection to the Spark master at {'; '.join(problems)}: start it, or check --master"
    )
