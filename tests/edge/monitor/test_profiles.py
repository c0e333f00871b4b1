"""Profiles of the process."""

import gzip
import threading
import time
from typing import Any

import pytest

from headwater.edge.monitor import profiles
from headwater.edge.monitor.errors import MonitorError


class _Proxied:
    """Its objects say which module they are of; it says so of itself in no text."""

    __module__ = property(lambda self: "elsewhere")  # type: ignore[assignment]


def test_a_type_whose_module_is_no_text_is_in_the_heap() -> None:
    kept = [_Proxied() for _ in range(1000)]
    assert b"_Proxied" in gzip.decompress(profiles.packed(profiles.heap()))
    assert len(kept) == 1000


def refuse(*_: Any) -> Any:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("where", "name"), [(threading.Thread, "start"), (profiles, "used_by_thread")]
)
async def test_a_profile_that_the_system_refuses_refuses_no_other(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str
) -> None:
    made = profiles.CpuProfiles()
    with monkeypatch.context() as patch:
        patch.setattr(where, name, refuse)
        with pytest.raises(MonitorError, match="cannot be made: can't start new thread"):
            await made.begin(1, time.monotonic_ns)
    assert not made.busy
    assert gzip.decompress(await made.begin(1, time.monotonic_ns))
