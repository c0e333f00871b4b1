"""Code as syntax trees: many rules look at the same files, and each is parsed once."""

import ast
from functools import cache


@cache
def nodes(text: str) -> tuple[ast.AST, ...]:
    """Every node of a module's text, the module itself first. Raises `SyntaxError`."""
    return tuple(ast.walk(ast.parse(text)))


def module(text: str) -> ast.Module:
    """The module of this text. Raises `SyntaxError`."""
    first = nodes(text)[0]
    assert isinstance(first, ast.Module)
    return first
