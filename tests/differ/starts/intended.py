"""Starts of which the servers say different things by intention, each with its reason."""

import re

STARTS = {
    "cluster without routes": "the first node of a cluster may stand alone until others dial it; "
    "nats-server does not start with JetStream, a cluster and no route",
    "latency without a system account": "latencies are told in the account itself; nats-server "
    "refuses them, unless it comes to read the accounts first",
}
"""A name, and the reason."""

REFUSED = {
    "cluster without routes": "requires configured routes",
    "latency without a system account": "system account not setup",
}
"""What nats-server says where Headwater starts."""


def intended_start(reason: str) -> str:
    """The name of the difference, when it is by intention that Headwater starts where nats-server
    ends with this reason; otherwise empty."""
    return next((name for name, text in REFUSED.items() if text in reason), "")

RELOADS = {
    "limits of the store": "a reload changes how much the store may hold, or that it has a limit; "
    "nats-server refuses that",
    "links of a gateway": "a reload changes who may dial leaf links, and how they behave; "
    "nats-server refuses that",
    "another cluster": "who leads and where streams are is agreed by the nodes of one cluster: its "
    "name takes a restart; nats-server changes it",
    "a listener elsewhere": "nats-server says that it was reloaded, and listens where it did",
    "a name beside no_system_account": "a system account that is named is there, so that nothing "
    "changes; nats-server refuses that",
    "system account that is gone": "a system account that the accounts lack is refused, as at a "
    "start; nats-server goes on with the one that was there, until its next start is refused",
    "staples": "staples and what peers' authorities said take a restart; nats-server changes them",
}
"""Reloads that one server takes over and the other does not: a name, and the reason."""

_TAKEN_HERE = {
    "limits of the store": r"jetstream dynamic max memory and store",
    "a name beside no_system_account": r"not supported for NoSystemAccount",
    "links of a gateway": r"not supported for LeafNode: ",
}
"""What nats-server says where Headwater takes a reload over."""

_REFUSED_HERE = {
    "another cluster": r"not supported for cluster\.name",
    "a listener elsewhere": r"not supported for leafnodes\.port",
    "system account that is gone": r"system_account: there is no account",
    "staples": r"not supported for ocsp",
}
"""What Headwater says where nats-server takes a reload over."""


def intended_reload(ours: str, theirs: str) -> str:
    """The name of the difference, when it is by intention that one server refuses a reload and the
    other does not; otherwise empty. Both say why in their logs."""
    for said, table in ((theirs, _TAKEN_HERE), (ours, _REFUSED_HERE)):
        for name, text in table.items():
            if re.search(text, said):
                return name
    return ""


ANSWERS = {
    "JetStream that is gone": "whoever asks JetStream's API behind a reload that took JetStream "
    "away hears at once that nobody answers. nats-server has a subscription for it, so that its "
    "system account hears 503 10039 and everybody else nothing until their time is over",
    "JetStream beside other accounts": "as the start would be: $G has no JetStream where a reload "
    "brings accounts that have it; nats-server leaves it to $G until its next start",
}
"""What clients hear behind a reload: a name, and the reason."""

OFF = '"err_code": 10039}'
"""An account without JetStream, in an answer."""


def intended_answers(part: str, second: str, ours: list[str], theirs: list[str]) -> str:
    """The name of the difference, when it is by intention that a login hears `ours` behind a reload
    to the configuration `second`, and `theirs` from nats-server; otherwise empty."""
    if not part.startswith("login "):
        return ""
    if not re.search(r"(?m)^jetstream\b", second):
        others = [line for line in theirs if OFF not in line]
        return "JetStream that is gone" if others == ours != theirs else ""
    refused = [line for line in ours if OFF in line]
    others = [line for line in ours if OFF not in line]
    kept = [line for line in theirs if '"type": "io.nats.jetstream.api' not in line]
    of_none = '"account": "$G"' in "".join(others) and re.search(r"(?m)^accounts\b", second)
    return "JetStream beside other accounts" if of_none and refused and others == kept else ""


PAGES = {
    "/accountz": "accounts that a reload removed are listed until the node stops",
    "/accountz?acc=A": "nats-server forgets, or keeps, the import of JetStream's API",
    "/accountz?acc=B": "the same",
    "/accountz?acc=$G": "nats-server keeps mappings that a reload took away",
    "/varz": "the same as of /jsz",
    "/jsz?config=1&accounts=1": "as the start would be: $G has no JetStream beside other accounts; "
    "nats-server leaves it to $G that had it",
}
"""What pages say differently behind a reload: the page, and the reason."""


def intended_page(part: str) -> bool:
    """Whether a part is a page that is not compared behind a reload."""
    return part in PAGES
