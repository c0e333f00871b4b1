"""What a program hands over as the configuration of its node, made into options."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.edge.conf.load import load_file, load_text
from headwater.edge.conf.options import Options

Configuration = str | os.PathLike[str] | Mapping[str, Any] | Options
"""The path of a configuration file, its text, its settings by name, or finished options."""

_OF_A_TEXT = frozenset("\n{:=")


def options_of(config: Configuration, *, listen: bool) -> Options:
    """Options of a configuration; without `listen` none of them opens a port.

    Raises ConfigError with all problems, and FileNotFoundError for a path with no file.
    """
    options = _read(config)
    if not listen:
        options.listens = False
        options.http_port = options.https_port = 0
        options.leaf.port = options.websocket.port = options.cluster.port = 0
        options.headwater.discovery = False
    return options


def _read(config: Configuration) -> Options:
    if isinstance(config, Options):
        return config
    if isinstance(config, Mapping):
        return load_text(_text_of(config)).options
    if isinstance(config, os.PathLike) or Path(config).is_file():
        return load_file(config).options
    if not _OF_A_TEXT.intersection(config):
        raise FileNotFoundError(f"there is no configuration file {config!r}")
    return load_text(config).options


def _text_of(settings: Mapping[str, Any]) -> str:
    """The settings in the grammar of configuration files, of which JSON values are part."""
    return "\n".join(
        f"{json.dumps(name)}: {json.dumps(_plain(value), ensure_ascii=False)}"
        for name, value in settings.items()
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value
