"""What a start needs of this machine, looked at for `headwater serve -t` without a change."""

import os
from pathlib import Path

from headwater.edge.conf.options import Options
from headwater.edge.jetstream.config.sealing_keys import lacking


def lacking_here(options: Options) -> list[str]:
    """Why a start with these options would end: keys for sealing in files and the environment,
    directories, and what the status of certificates is asked for with. Commands that print keys
    are not run, and no port, responder or resolver is asked. Empty when nothing was found."""
    found = lacking(options)
    resolver = options.operator.resolver
    if options.operator.enabled() and resolver.kind in ("full", "cache"):
        found += _unusable("the resolver's directory", resolver.directory)
    if options.jetstream.enabled and options.jetstream.store_dir:
        found += _unusable("jetstream's store_dir", options.jetstream.store_dir)
    if any((options.tls, options.websocket.tls, options.cluster.tls)):
        from headwater.edge.ocsp.staples import OcspStaples

        found += OcspStaples(options).lacking(options)
    return found


def _unusable(what: str, directory: str) -> list[str]:
    """Why a directory can be neither used nor made."""
    path = nearest = Path(directory).expanduser().absolute()
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    if not nearest.is_dir():
        return [f"{what} {path}: {nearest} is no directory: name another one"]
    if not os.access(nearest, os.W_OK | os.X_OK):
        return [f"{what} {path}: {nearest} cannot be written: name another one, or let the node's "
                "user write there"]
    return []
