"""Reads the `jetstream` block."""

from typing import Any

from headwater.edge.conf.grammar import Value
from headwater.edge.conf.options import JetStreamOptions, Options, TpmOptions
from headwater.edge.conf.reader import (
    ConfigReader,
    Field,
    Section,
    boolean,
    duration,
    integer,
    keys,
    storage_size,
    text,
)

MIN_CONCURRENT_IO = 4
MAX_CONCURRENT_IO = 8192

_SWITCH = {"enabled": True, "enable": True, "disabled": False, "disable": False}
_CIPHERS = {"chacha": "chacha", "chachapoly": "chacha", "aes": "aes"}


def jetstream(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    """Field of `jetstream`: a boolean, "enabled" or "disabled", or a map."""
    target = options.jetstream
    enabled = read_switch(reader, key, value)
    if enabled is not None:
        target.enabled = enabled
    elif isinstance(value.data, dict):
        target.enabled = True
        if target.store_dir and any(name.lower() in _STORE_KEYS for name in value.data):
            reader.error(value, "Duplicate 'store_dir' configuration: remove one")
        reader.members(value.data, _FIELDS, target)


def store_dir(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    """Field of a top-level `store_dir`."""
    found = reader.string(key, value)
    if found is None:
        return
    if options.jetstream.store_dir:
        reader.error(value, "Duplicate 'store_dir' configuration: remove one")
    options.jetstream.store_dir = found


def read_switch(reader: ConfigReader, key: str, value: Value) -> bool | None:
    """On or off when `value` says so in one word; None when it is a map, or after an error."""
    data = value.data
    if isinstance(data, bool):
        return data
    if isinstance(data, str):
        if data.lower() not in _SWITCH:
            reader.error(value, f"\"{key}\" must be 'enabled' or 'disabled', not {data!r}")
        return _SWITCH.get(data.lower())
    if not isinstance(data, dict):
        reader.wrong_type(key, value, "a map, a boolean, 'enabled' or 'disabled'")
    return None


def _sync(reader: ConfigReader, key: str, value: Value, target: JetStreamOptions) -> None:
    target.sync_is_set = True
    if isinstance(value.data, str) and value.data.lower() == "always":
        target.sync_always = True
        return
    found = reader.lenient_duration(key, value)
    target.sync_interval = target.sync_interval if found is None else found


def _cipher(reader: ConfigReader, key: str, value: Value, target: JetStreamOptions) -> None:
    found = reader.string(key, value)
    if found is None:
        return
    if found.lower() not in _CIPHERS:
        reader.error(value, f'unknown cipher type "{found}": use chacha or aes')
        return
    target.cipher = _CIPHERS[found.lower()]


def _unique_tag(reader: ConfigReader, key: str, value: Value, target: JetStreamOptions) -> None:
    found = reader.string(key, value)
    target.unique_tag = found.strip().lower() if found else ""


def _limits(reader: ConfigReader, key: str, value: Value, target: JetStreamOptions) -> None:
    reader.section(key, value, _LIMIT_FIELDS, target.limits)


def _batch(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
    reader.section(key, value, _BATCH_FIELDS, target.batch)


def _tpm(reader: ConfigReader, key: str, value: Value, target: JetStreamOptions) -> None:
    target.tpm = TpmOptions()
    reader.section(key, value, _TPM_FIELDS, target.tpm)


def _tpm_cipher(reader: ConfigReader, key: str, value: Value, target: TpmOptions) -> None:
    found = reader.string(key, value)
    if found is not None and found.lower() not in _CIPHERS:
        reader.error(value, f'unknown cipher type "{found}": use chacha or aes')


def size_at_least_zero(attribute: str) -> Field:
    """Field of a size that is not negative."""

    def field(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
        found = reader.storage_size(key, value)
        if found is not None and found < 0:
            reader.error(value, f'"{key}" must be an absolute size, not {found}')
        elif found is not None:
            setattr(target, attribute, found)

    return field


_STORE_KEYS = ("store", "store_dir", "storedir")

_BATCH_FIELDS = Section(
    "jetstream.limits.batch",
    {
        "max_inflight_per_stream": integer("max_inflight_per_stream"),
        "max_inflight_total": integer("max_inflight_total"),
        "max_msgs": integer("max_messages"),
        "timeout": duration("timeout"),
    },
)
_LIMIT_FIELDS = Section(
    "jetstream.limits",
    {
        "max_ack_pending": integer("max_ack_pending"),
        "max_ha_assets": integer("max_ha_assets"),
        "max_request_batch": integer("max_request_batch"),
        "default_max_consumers": integer("default_max_consumers"),
        "duplicate_window": duration("duplicate_window"),
        "batch": _batch,
    },
)
_TPM_FIELDS = Section(
    "jetstream.tpm",
    {
        "keys_file": text("keys_file"),
        "encryption_password": text("encryption_password"),
        "srk_password": text("srk_password"),
        "pcr": integer("pcr"),
        "cipher": _tpm_cipher,
    },
)
_FIELDS = Section(
    "jetstream",
    {
        "strict": boolean("strict"),
        **keys(" ".join(_STORE_KEYS), text("store_dir")),
        **keys("sync sync_interval", _sync),
        **keys("max_memory_store max_mem_store max_mem", storage_size("max_memory_store")),
        **keys("max_file_store max_file", storage_size("max_file_store")),
        "domain": text("domain"),
        **keys("enable enabled", boolean("enabled")),
        **keys("key ek encryption_key", text("key")),
        **keys("prev_key prev_ek prev_encryption_key", text("previous_key")),
        "cipher": _cipher,
        "extension_hint": text("extension_hint"),
        "limits": _limits,
        "tpm": _tpm,
        "unique_tag": _unique_tag,
        "max_outstanding_catchup": storage_size("max_outstanding_catchup"),
        "max_buffered_size": storage_size("max_buffered_size"),
        "max_buffered_msgs": integer("max_buffered_messages"),
        "request_queue_limit": integer("request_queue_limit"),
        "info_queue_limit": integer("info_queue_limit"),
        "meta_compact": integer("meta_compact", low=0),
        "meta_compact_size": size_at_least_zero("meta_compact_size"),
        "meta_compact_sync": boolean("meta_compact_sync"),
        "max_concurrent_io": integer("max_concurrent_io", MIN_CONCURRENT_IO, MAX_CONCURRENT_IO),
    },
)
