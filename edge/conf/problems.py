"""What is wrong with a configuration, gathered so that all of it can be said at once."""


class ConfigError(Exception):
    """A configuration cannot be used. `problems` are texts "file:line:column: message"."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Position:
    """Where something stands in a configuration: file, line and column (both from 1)."""

    __slots__ = ("column", "file", "line")

    def __init__(self, file: str, line: int, column: int) -> None:
        self.file = file
        self.line = line
        self.column = column

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def __repr__(self) -> str:
        return f"Position({self})"


class Problems:
    """Collects errors and warnings while a configuration is read."""

    __slots__ = ("errors", "warnings")

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []

    def error(self, position: Position | None, message: str) -> None:
        """Something that keeps the node from starting."""
        self.errors.append(f"{position}: {message}" if position else message)

    def warning(self, position: Position | None, message: str) -> None:
        """Something that is probably not meant but can be used."""
        self.warnings.append(f"{position}: {message}" if position else message)

    def raise_if_any(self) -> None:
        """Raises ConfigError when there was an error."""
        if self.errors:
            raise ConfigError(self.errors)
