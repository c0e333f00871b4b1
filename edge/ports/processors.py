"""Processors of the machine, as far as the system says."""

import os


def cores() -> int:
    """Processors of the machine."""
    return os.cpu_count() or 1


def processors() -> int:
    """Processors that this process may use; all of them where the system does not say."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return cores()
