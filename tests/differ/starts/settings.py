"""Configurations that are whole, made up from a seed: what each says, and who may try to log in."""

import random
from dataclasses import dataclass, field
from typing import Any

Login = dict[str, Any]

GLOBAL: dict[str, list[Any]] = {
    "max_payload": [100, 1024, "1KB", "8MB", "1k"],
    "max_control_line": [64, 512, 4096],
    "max_connections": [-1, 0, 4, 1000],
    "max_subscriptions": [-1, 0, 3],
    "max_pending": ["1MB", 1048576],
    "max_sub_tokens": [3, 16],
    "max_closed_clients": [2, 10],
    "max_traced_msg_len": [10],
    "ping_interval": ["20s", '"1m"', 30],
    "ping_max": [1, 3],
    "write_deadline": ['"2s"', '"1m"'],
    "no_header_support": [True, False],
    "client_advertise": ['"x:1"', '"example.org"', '"[::1]:99"'],
    "server_tags": ['["a", "site:b"]', '"one"', '[" UPPER "]'],
    "server_metadata": ["{k: v, K: w}"],
    "connect_error_reports": [3],
    "reconnect_error_reports": [2],
    "lame_duck_duration": ['"40s"', '"30s"'],
    "lame_duck_grace_period": ['"3s"'],
    "disable_sublist_cache": [True],
    "no_fast_producer_stall": [True],
    "http_base_path": ["/base", '"base"'],
    "no_system_account": [True],
    "debug": [False],
    "logtime": [True, False],
    "logtime_utc": [True],
    "mappings": ['{"m.*": "a.$1"}', '{"a.*": [{destination: "b.$1", weight: "100%"}]}'],
    "default_js_domain": ["{A: d}", '{A: ""}', "{B: d}", '{"$G": d}'],
    "port": [-1],
    "allow_non_tls": [True],
    "proxy_protocol": [False],
    "strict": [True],
    "prof_block_rate": [0],
}
JETSTREAM: dict[str, list[Any]] = {
    "domain": ["hub", '"d-1"'],
    "max_mem": ["1M", "64MB", 0, -1],
    "max_file": ["1M", "1GB", 0, -1],
    "strict": [True, False],
    "unique_tag": ['"site:"'],
    "sync_interval": ["always", '"1m"'],
    "enabled": [True, False],
    "max_buffered_msgs": [100],
    "max_outstanding_catchup": ["32M"],
    "request_queue_limit": [100],
    "limits": [
        "{max_ack_pending: 5}",
        "{max_request_batch: 7, duplicate_window: \"1m\"}",
        "{max_ha_assets: 3}",
        "{batch: {max_inflight_per_stream: 2, max_msgs: 4, timeout: \"3s\"}}",
        "{default_max_consumers: 1}",
    ],
}
GRANTED: list[str] = [
    "enabled", "disabled", "true", "false",
    "{max_mem: 1M, max_file: 2M}",
    "{max_mem: -1, max_file: 0}",
    "{max_streams: 1, max_consumers: 1}",
    "{max_ack_pending: 4, max_bytes_required: true}",
    "{memory_max_stream_bytes: 512K, disk_max_stream_bytes: 1M}",
    "{enabled: true, max_streams: 2}",
    "{enabled: false}",
]  # fmt: skip
LIMITS: dict[str, list[Any]] = {
    "max_connections": [1, 5, -1],
    "max_subs": [2, -1],
    "max_payload": [50, -1],
    "max_leafnodes": [1],
}
PERMISSIONS: list[str] = [
    '{publish: "a.>", subscribe: "_I.>"}',
    '{publish: {allow: [">"], deny: ["$JS.>"]}, subscribe: ["_I.>", "a.>"]}',
    '{publish: ["$JS.API.>", "$SYS.REQ.USER.INFO"], subscribe: {allow: "_I.>"}}',
    '{subscribe: {deny: ">"}}',
    "{publish: {deny: [a]}, allow_responses: true}",
    "{allow_responses: {max: 2, expires: \"1m\"}}",
]
EXPORTS: list[str] = [
    '{service: "a.req"}', '{stream: "a.str.>"}', '{service: "a.only", accounts: [B]}',
    '{service: "a.many", response_type: stream}', '{service: "a.l", latency: "a.lat"}',
    '{stream: "a.tok.*", account_token_position: 3}', '{service: "$JS.API.>"}',
    '{service: "a.t", response_threshold: "1s", allow_trace: true}',
]  # fmt: skip
IMPORTS: list[str] = [
    '{service: {account: A, subject: "a.req"}}', '{service: {account: A, subject: "a.req"}, to: r}',
    '{stream: {account: A, subject: "a.str.>"}, prefix: p}',
    '{stream: {account: A, subject: "a.str.x"}, to: "y.x"}',
    '{service: {account: A, subject: "a.only"}}', '{service: {account: A, subject: "$JS.API.>"}}',
    '{service: {account: A, subject: "a.nobody"}}',
]  # fmt: skip
DOORS: list[str] = [
    'leafnodes { listen: "127.0.0.1:-1" }',
    'leafnodes { listen: "127.0.0.1:-1", authorization { user: l, password: p } }',
    'leafnodes { port: -1, host: "127.0.0.1", no_advertise: true, compression: s2_fast }',
    'websocket { listen: "127.0.0.1:-1", no_tls: true }',
    'websocket { port: -1, host: "127.0.0.1", no_tls: true, same_origin: true, compression: true }',
    'cluster { name: C, listen: "127.0.0.1:-1" }',
    'cluster { name: C, listen: "127.0.0.1:-1", authorization { user: r, password: p } }',
]
ODD: list[Any] = [
    '""', "null", "-5", "0", "1.5", "true", "[]", "{}", '"x y"', "99999999999", '"10"', "abc",
]  # fmt: skip


@dataclass
class Settings:
    """The lines of a configuration, and the logins that are tried."""

    lines: list[str]
    logins: list[Login] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The configuration."""
        return "\n".join(self.lines) + "\n"


def said(value: Any) -> str:
    """A value as a configuration has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Maker:
    """Makes one configuration."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"settings {seed}")
        self.odd = self.chance.random() < 0.25
        self.lines: list[str] = []
        self.logins: list[Login] = [
            {}, {"user": "nobody", "pass": "p"}, {"user": "u", "pass": "wrong"},
            {"auth_token": "t"}, {"auth_token": "wrong"}, {"user": "u", "pass": "p"},
        ]  # fmt: skip

    def value(self, choices: list[Any]) -> str:
        """One of the values, or, rarely, an odd one."""
        if self.odd and self.chance.random() < 0.1:
            return said(self.chance.choice(ODD))
        return said(self.chance.choice(choices))

    def some(self, table: dict[str, list[Any]], most: int) -> list[str]:
        """A few settings of a table."""
        keys = self.chance.sample(list(table), self.chance.randrange(most + 1))
        return [f"{key}: {self.value(table[key])}" for key in keys]

    def user(self, name: str) -> str:
        """A user with this name, whose password is p."""
        self.logins.append({"user": name, "pass": "p"})
        more = ""
        if self.chance.random() < 0.3:
            more += f", permissions: {self.value(PERMISSIONS)}"
        if self.chance.random() < 0.1:
            kinds = self.value(['["STANDARD"]', '["WEBSOCKET"]', '["standard", "leafnode"]'])
            more += f", allowed_connection_types: {kinds}"
        return f"{{user: {name}, password: p{more}}}"

    def authorization(self) -> str:
        """A block of users without accounts, or of one login."""
        kind = self.chance.randrange(4)
        timeout = ", timeout: 3" if self.chance.random() < 0.2 else ""
        if kind == 0:
            return f"authorization {{ user: u, password: p{timeout} }}"
        if kind == 1:
            return f"authorization {{ token: t{timeout} }}"
        more = (
            f", default_permissions: {self.value(PERMISSIONS)}"
            if self.chance.random() < 0.3
            else ""
        )
        users = ", ".join(self.user(name) for name in ("u", "v")[: kind - 1])
        return f"authorization {{ users: [{users}]{more}{timeout} }}"

    def account(self, name: str) -> str:
        """An account with one or two users."""
        chance = self.chance
        parts = [f"users: [{self.user(name.lower())}, {self.user(name.lower() + '2')}]"]
        if chance.random() < 0.6:
            parts.append(f"jetstream: {self.value(GRANTED)}")
        if chance.random() < 0.3:
            parts.append(f"limits {{ {', '.join(self.some(LIMITS, 2))} }}")
        if chance.random() < 0.2:
            parts.append(f"default_permissions: {self.value(PERMISSIONS)}")
        if chance.random() < 0.2:
            parts.append('mappings: {"n.*": "a.$1"}')
        if chance.random() < 0.1:
            parts.append('msg_trace: {dest: "tr", sampling: "10%"}')
        return f"  {name} {{ {', '.join([*parts, *self.shares(name)])} }}"

    def shares(self, name: str) -> list[str]:
        """What A exports, and what others import of it."""
        chance = self.chance
        if name == "A" and chance.random() < 0.6:
            found = chance.sample(EXPORTS, chance.randrange(1, 5))
            return [f"exports: [{', '.join(found)}]"]
        if name == "B" and chance.random() < 0.5:
            found = chance.sample(IMPORTS, chance.randrange(1, 3))
            return [f"imports: [{', '.join(found)}]"]
        return []

    def jetstream(self) -> str:
        """JetStream by a word or a block."""
        if self.chance.random() < 0.2:
            word = self.value(["true", "enabled", "false", "disabled"])
            return f'jetstream: {word}\nstore_dir: "{{dir}}"'
        return f'jetstream {{ {", ".join(["store_dir: DIR", *self.some(JETSTREAM, 4)])} }}'.replace(
            "DIR", '"{dir}"'
        )

    def make(self) -> Settings:
        """The whole."""
        chance = self.chance
        lines = ["server_name: N", *self.some(GLOBAL, 6)]
        if chance.random() < 0.7:
            lines.append(self.jetstream())
        roll = chance.random()
        if roll < 0.3:
            lines.append(self.authorization())
        elif roll < 0.85:
            names = ["A", "B", "S"][: chance.choice([1, 2, 3, 3])]
            lines.append("accounts {\n" + "\n".join(self.account(name) for name in names) + "\n}")
            if "S" in names and chance.random() < 0.8:
                lines.append("system_account: S")
        if chance.random() < 0.25:
            lines.append(f"no_auth_user: {chance.choice(['a', 'a2', 'u', 'nobody', 's'])}")
        for _ in range(chance.choice([0, 0, 1, 2])):
            lines.append(chance.choice(DOORS))
        return Settings(lines, self.logins)


def settings(seed: int) -> Settings:
    """The configuration of this seed."""
    return Maker(seed).make()
