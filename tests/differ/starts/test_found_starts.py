"""What generated starts have found, as fixed configurations on both servers."""

import pytest

from tests.differ.starts.compared import started, told, unlike_parts
from tests.differ.starts.settings import Settings

OPEN = [{}, {"user": "u", "pass": "p"}, {"auth_token": "t"}]
A, B = {"user": "a", "pass": "p"}, {"user": "b", "pass": "p"}
JETSTREAM = 'jetstream { store_dir: "{dir}" }'
TWO = (
    "accounts { A { users: [{user: a, password: p}]%s }, B { users: [{user: b, password: p}]%s } }"
)

FOUND = {
    "who says a name where none is asked for is called so": ([], OPEN),
    "without a system account": (["no_system_account: true"], OPEN),
    "a system account for JetStream": (["no_system_account: true", JETSTREAM], OPEN),
    "a system account that is named": (
        ["no_system_account: true", TWO % ("", ""), "system_account: B"], [A, B],
    ),
    "tags in small letters, each once": (['server_tags: [" UPPER ", "a", "A"]'], OPEN),
    "connections for nobody": (["max_connections: 0"], OPEN),
    "fewer connections than none": (["max_connections: -1"], OPEN),
    "the latency that a service tells": (
        [TWO % (', exports: [{service: "s", latency: "l"}, {service: "t", '
                'latency: {sampling: headers, subject: "l"}}]', "")], [A],
    ),
    "accounts with JetStream on a server without": ([TWO % (", jetstream: true", "")], [A, B]),
    "a domain for an account without JetStream": (
        ["default_js_domain: {A: d}", JETSTREAM,
         TWO % (", jetstream: disabled", ", jetstream: true")], [A, B],
    ),
    "a domain for all that is not in an account": (
        ['default_js_domain: {"$G": d}', JETSTREAM], OPEN,
    ),
    "a domain for all that is not in an account, which has mappings": (
        ['default_js_domain: {"$G": d}', 'mappings: {"m.*": "a.$1"}'], OPEN,
    ),
    "two domains for all that is not in an account": (
        ['default_js_domain: {"$G": d}', 'jetstream { store_dir: "{dir}", domain: hub }'], OPEN,
    ),
    "a domain for an account with mappings": (
        ["default_js_domain: {A: d}", JETSTREAM,
         TWO % (', mappings: {"m.*": "a.$1"}', ", jetstream: true")], [A, B],
    ),
    "mappings of the own domain": (
        ['jetstream { store_dir: "{dir}", domain: hub }', TWO % (", jetstream: true", ""),
         "system_account: B"], [A, B],
    ),
    "mappings of all that is not in an account": (['mappings: {"a.*": "b.$1"}'], OPEN),
    "JetStream that others of the cluster may have": (
        ['cluster { name: C, listen: "127.0.0.1:-1" }'], OPEN,
    ),
    "limits of JetStream": (
        ['jetstream { store_dir: "{dir}", limits: {duplicate_window: "1m", max_ack_pending: 3} }'],
        OPEN,
    ),
    "a domain of a server without JetStream": (
        ['jetstream { store_dir: "{dir}", enabled: false, domain: d }'], OPEN,
    ),
    "one that dials others": (
        ['leafnodes { remotes: [{urls: ["nats://u:p@127.0.0.1:9", "tls://localhost"]}] }'], OPEN,
    ),
    "one that dials others for an account": (
        [JETSTREAM, 'leafnodes { remotes: [{url: "wss://[::1]:9/x", account: A}] }',
         TWO % (", jetstream: true", "")], [A, B],
    ),
    "a cluster that is only named": (
        ["cluster { name: C }", 'leafnodes { remotes: [{url: "nats://127.0.0.1:9"}] }'], OPEN,
    ),
    "a domain of an account that has JetStream elsewhere": (
        ['jetstream { store_dir: "{dir}", enabled: false, domain: d }',
         TWO % (", jetstream: true", "")], [A, B],
    ),
    "an account that is granted more than there is": (
        ['jetstream { store_dir: "{dir}", max_mem: 0 }', TWO % (", jetstream: {max_mem: 1M}", "")],
        [A],
    ),
    "accounts that are granted more than there is": (
        ['jetstream { store_dir: "{dir}", max_file: 1M }',
         TWO % (", jetstream: {max_file: 600K}", ", jetstream: {max_file: 600K}")], [A],
    ),
    "accounts that are granted all there is": (
        ['jetstream { store_dir: "{dir}", max_file: 1M, max_mem: 1M }',
         TWO % (", jetstream: {max_file: 1M, max_mem: 0}", ", jetstream: true")], [A, B],
    ),
    "one consumer where nothing else is said": (
        ['jetstream { store_dir: "{dir}", limits: {default_max_consumers: 1} }'], [{}],
    ),
    "an account's own number of consumers": (
        ['jetstream { store_dir: "{dir}", limits: {default_max_consumers: 1} }',
         TWO % (", jetstream: {max_consumers: 2}", ", jetstream: true")], [A, B],
    ),
}  # fmt: skip


REFUSED = {
    "an account that is granted more than there is",
    "accounts that are granted more than there is",
}
"""What neither server starts with."""


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    lines, logins = FOUND[name]
    wanted = Settings(["server_name: N", *lines], logins)
    ours, theirs = started(wanted)
    assert theirs["started"] == (name not in REFUSED), theirs
    unlike = unlike_parts(ours, theirs)
    assert not unlike, told(wanted, unlike, 0)
