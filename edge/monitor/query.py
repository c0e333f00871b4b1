"""Reading HTTP query parameters; errors carry the texts that NATS tools know."""

from collections.abc import Mapping

from headwater.edge.monitor.errors import MonitorError

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_UINT64 = 1 << 64


class Query:
    """The parameters of one request."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        """A parameter as it came, or empty."""
        return self._values.get(name, "")

    def flag(self, name: str) -> bool:
        """A boolean; absent is False. Raises MonitorError."""
        value = self.text(name)
        if value in _TRUE:
            return True
        if not value or value in _FALSE:
            return False
        raise MonitorError(
            f"Error decoding boolean for '{name}': "
            f'strconv.ParseBool: parsing "{value}": invalid syntax'
        )

    def number(self, name: str) -> int:
        """An integer; absent is 0. Raises MonitorError."""
        value = self.text(name)
        if not value:
            return 0
        digits = value[1:] if value[0] in "+-" else value
        if not (digits.isascii() and digits.isdigit()):
            raise MonitorError(
                f"Error decoding int for '{name}': "
                f'strconv.Atoi: parsing "{value}": invalid syntax'
            )
        return int(value)

    def identifier(self, name: str) -> int:
        """An unsigned 64-bit integer; absent is 0. Raises MonitorError."""
        value = self.text(name)
        if not value:
            return 0
        if not (value.isascii() and value.isdigit()) or int(value) >= _UINT64:
            raise MonitorError(
                f"Error decoding uint64 for '{name}': "
                f'strconv.ParseUint: parsing "{value}": invalid syntax'
            )
        return int(value)

    def subscriptions(self) -> tuple[bool, bool]:
        """`subs`: whether names and whether details are asked for. Raises MonitorError."""
        if self.text("subs").lower() == "detail":
            return False, True
        return self.flag("subs"), False
