"""Clusters for tests."""

from tests.hub.conftest import lab

__all__ = ["lab"]
