"""Configurations of which the servers say different things by intention, each with its reason."""

import re

CONFIGURATIONS = {
    "port that is none": "a port that cannot be is refused; nats-server fails at its start",
    "name that is not read": "a field that nobody reads is refused. nats-server passes over it in "
    "a resolver and in what is said of latencies",
    "unit that is none": "a number has one of the units that the page names; nats-server takes "
    "some more letters behind it",
    "account that is none": "the name of an account is a token of subjects, without wildcards",
    "number that goes on": "a number ends before a bracket or a quote, and has to fit. nats-server "
    "takes what goes on there for a text",
    "number that is too large": "a number that does not fit is refused; nats-server goes on with "
    "what is left of it",
    "key in large letters": "letters of a key may be large; nats-server knows the folder of a "
    "resolver in small ones alone",
    "separator for a value": "accounts are a map; nats-server takes a lone semicolon for none",
    "key without a value": "a key has a value; nats-server lets one in a block that ends there",
    "quote at the end": "a quote that the file's end leaves open is refused; nats-server passes "
    "over one without a text",
    "comment at the end": "a comment may be the end of a file that is in braces as a whole; "
    "nats-server asks for a line behind it",
    "resolver without an address": "the word URL without an address resolves nothing; nats-server "
    "starts without a resolver",
    "latency of no service": "only services have latencies; nats-server passes over it where the "
    "export is nothing at all",
    "route that is no text": "a route is a text; nats-server takes a number for none",
    "time that is none": "a time that cannot be read is refused; nats-server passes over it in the "
    "block of a WebSocket's users",
    "remote without an address": "a remote without an address is for hubs that discovery finds, "
    "which have to prove themselves; nats-server dials nobody",
    "feature that is not there": "gateways, MQTT and others are refused with a reason, whatever is "
    "said below them",
    "block at the end": "a block of text that ends with the file has its text; nats-server adds "
    "the mark that closes it",
}
"""A name, and the reason."""

SAID = {
    "port that is none": r"port -?\d+ is out of range",
    "name that is not read": r'unknown field ".*"',
    "unit that is none": r"unknown size suffix",
    "account that is none": r"account name '.*' must be a subject",
    "number that goes on": r"but found '[\]\w]'",
    "number that is too large": r"the integer is out of range",
    "key without a value": r"key '.*' has no value",
    "separator for a value": r'"accounts" must be a map, not a string',
    "quote at the end": r"quoted text is not closed",
    "resolver without an address": r"a resolver is MEM, URL\(",
    "latency of no service": r"Detected latency directive on non-service",
    "route that is no text": r'"routes" must be a string, not an integer',
    "time that is none": r"error parsing timeout: invalid duration",
    "remote without an address": r"a hub that is found by discovery must prove itself",
    "feature that is not there": r"Headwater does not support",
}
"""What is said here where nats-server takes a configuration."""

WHERE = {
    "name that is not read": re.compile(r"(?i)resolver|latency"),
    "number that goes on": re.compile(r"\d['\]]"),
    "separator for a value": re.compile(r"(?i)accounts\W*;"),
    "quote at the end": re.compile(r"[\"']\s*\Z"),
    "time that is none": re.compile(r"(?i)\bws\b|websocket"),
    "remote without an address": re.compile(r"(?i)remotes"),
    "feature that is not there": re.compile(r"(?i)gateway|mqtt|verify_cert"),
}
"""What such a text has in it."""

def intended_configuration(text: str, ours: str, theirs: str) -> str:
    """The name of the difference when it is one by intention; otherwise empty. Every line that is
    said here has to be such a one."""
    taken = ours.startswith("sha256:")
    if "is valid" not in theirs:
        left_open = "Expected a block-level value to end" in theirs and "#" in text
        folder = "dir has no value" in theirs and re.search(r"\bDIR\b", text)
        if taken and folder:
            return "key in large letters"
        return "comment at the end" if taken and left_open else ""
    if taken and re.search(r"\d'\s*\Z", text):
        return "number that goes on"
    if taken:
        return "block at the end" if text.endswith("\n)") and "(" in text else ""
    names = {_name(text, line) for line in ours.splitlines()}
    return min(names) if "" not in names else ""


def _name(text: str, line: str) -> str:
    found = [name for name, said in SAID.items() if re.search(said, line)]
    return found[0] if found and (found[0] not in WHERE or WHERE[found[0]].search(text)) else ""
