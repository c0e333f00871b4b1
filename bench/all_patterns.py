"""Every pattern that `python -m bench` knows, in the order of its table."""

from bench.crowds import CROWDS
from bench.keys import KEYS
from bench.patterns import COMMON, Pattern

PATTERNS: tuple[Pattern, ...] = (*COMMON, *KEYS, *CROWDS)
