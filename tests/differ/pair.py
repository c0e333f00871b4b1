"""Both servers with one configuration."""

from bench.servers import Recipe, Server, program
from tests.differ.started import Started

PLAIN = 'max_payload: 1000\nmax_control_line: 512\nping_interval: "10m"\n'
USERS = (
    PLAIN
    + """
max_subscriptions: 6
accounts {
  A {
    users: [
      {user: free, password: p}
      {user: bound, password: p, permissions: {
        publish: {allow: ["a.>", "b.>", "both.*", "_INBOX.>", "reply.*"],
          deny: ["a.b.c", "denied.>"]}
        subscribe: {allow: ["a.>", "*.b", "both.>", "_INBOX.>", "b.* q"],
          deny: ["denied", "a.b.c", "a.* w"]}
      }}
      {user: answers, password: p, permissions: {
        publish: {allow: ["b"]}, subscribe: ["a.>", "b.>"], allow_responses: {max: 2}
      }}
    ]
    exports: [{service: "b.c"}, {stream: "x.>"}]
    mappings: {"x.y.z.w": "a.mapped", "b.*": "b.$1.$1"}
  }
  B {
    users: [{user: other, password: p}]
    imports: [{service: {account: A, subject: "b.c"}, to: "a.b"},
      {stream: {account: A, subject: "x.>"}, prefix: "from"}]
  }
}
"""
)
JETSTREAM = 'server_name: NODE\njetstream { store_dir: "{dir}", max_mem: 1G, max_file: 1G }\n'
ACCOUNTS = 12
_EACH = [
    f"A{n} {{ jetstream: enabled, users: [{{user: u{n}, password: p}}] }}" for n in range(ACCOUNTS)
]
REQUESTS = "\n".join([JETSTREAM, "accounts {", *_EACH, "}", ""])
"""An account for each of those who go on at the same time."""

WORLDS = {"plain": PLAIN, "users": USERS}


class Pair(Started):
    """Headwater and nats-server; a context manager that starts and ends both."""

    def __init__(self, config: str) -> None:
        recipes = [
            Recipe("headwater", (program("headwater"), "serve"), config),
            Recipe("nats-server", (program("nats-server"),), config),
        ]
        super().__init__([Server(recipe) for recipe in recipes])

    @property
    def ports(self) -> tuple[int, int]:
        """Headwater's port, and nats-server's."""
        return self.servers[0].port, self.servers[1].port

