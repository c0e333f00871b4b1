"""Reads the blocks of further client listeners: `websocket` and `mqtt`."""

from headwater.edge.conf.auth_section import simple_authorization
from headwater.edge.conf.grammar import Value
from headwater.edge.conf.options import MqttOptions, Options, WebSocketOptions
from headwater.edge.conf.reader import (
    ConfigReader,
    Field,
    Section,
    boolean,
    integer,
    keys,
    lenient_duration,
    listen,
    port,
    strings,
    text,
    text_map,
)
from headwater.edge.conf.tls_section import tls

MAX_MQTT_ACK_PENDING = 0xFFFF


def websocket(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    """Field of the `websocket` block."""
    reader.section(key, value, _WEBSOCKET_FIELDS, options.websocket)


def mqtt(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    """Field of the `mqtt` block."""
    reader.section(key, value, _MQTT_FIELDS, options.mqtt)


def _handshake_timeout(
    reader: ConfigReader, key: str, value: Value, target: WebSocketOptions
) -> None:
    data = value.data
    if isinstance(data, int) and not isinstance(data, bool):
        target.handshake_timeout = float(data)
        return
    found = reader.duration(key, value)
    if found is not None:
        target.handshake_timeout = found


def _consumer_replicas(reader: ConfigReader, key: str, value: Value, target: MqttOptions) -> None:
    reader.warning(value, "consumer replicas setting ignored")


_COMMON: dict[str, Field] = {
    "listen": listen(),
    "port": port("port"),
    **keys("host net", text("host")),
    "tls": tls("tls"),
    **keys("authorization authentication", simple_authorization),
    "no_auth_user": text("no_auth_user"),
}
_WEBSOCKET_FIELDS = Section(
    "websocket",
    {
        **_COMMON,
        "advertise": text("advertise"),
        "no_tls": boolean("no_tls"),
        "same_origin": boolean("same_origin"),
        **keys(
            "allowed_origins allowed_origin allow_origins allow_origin origins origin",
            strings("allowed_origins"),
        ),
        "handshake_timeout": _handshake_timeout,
        **keys("compress compression", boolean("compression")),
        "jwt_cookie": text("jwt_cookie"),
        "user_cookie": text("user_cookie"),
        "pass_cookie": text("pass_cookie"),
        "token_cookie": text("token_cookie"),
        "headers": text_map("headers"),
        "ping_interval": lenient_duration("ping_interval"),
    },
)
_MQTT_FIELDS = Section(
    "mqtt",
    {
        **_COMMON,
        **keys("ack_wait ackwait", lenient_duration("ack_wait")),
        **keys("js_api_timeout api_timeout", lenient_duration("api_timeout")),
        **keys(
            "max_ack_pending max_pending max_inflight",
            integer("max_ack_pending", 0, MAX_MQTT_ACK_PENDING),
        ),
        "js_domain": text("js_domain"),
        "stream_replicas": integer("stream_replicas"),
        "consumer_replicas": _consumer_replicas,
        "consumer_memory_storage": boolean("consumer_memory_storage"),
        **keys(
            "consumer_inactive_threshold consumer_auto_cleanup",
            lenient_duration("consumer_inactive_threshold"),
        ),
        "reject_qos2_publish": boolean("reject_qos2_publish"),
        "downgrade_qos2_subscribe": boolean("downgrade_qos2_subscribe"),
    },
)
