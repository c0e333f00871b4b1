"""Profiles of the process."""

import gzip

from headwater.edge.monitor import profiles


class _Proxied:
    """Its objects say which module they are of; it says so of itself in no text."""

    __module__ = property(lambda self: "elsewhere")  # type: ignore[assignment]


def test_a_type_whose_module_is_no_text_is_in_the_heap() -> None:
    kept = [_Proxied() for _ in range(1000)]
    assert b"_Proxied" in gzip.decompress(profiles.packed(profiles.heap()))
    assert len(kept) == 1000
