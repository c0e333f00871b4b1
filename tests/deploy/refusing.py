"""Run a program for which the system refuses some calls, as sandboxes do.

    python refusing.py CALL[,CALL...] PROGRAM [ARGUMENT...]

The calls fail with EPERM, in the program and in all that it starts (seccomp(2)).
"""

import ctypes
import os
import platform
import struct
import sys

NUMBERS = {
    "x86_64": {
        "flock": 73, "sysinfo": 99, "statfs": 137, "fstatfs": 138, "sched_getaffinity": 204,
        "fallocate": 285, "prlimit64": 302, "clone3": 435,
    },
    "aarch64": {
        "flock": 32, "statfs": 43, "fstatfs": 44, "fallocate": 47, "sched_getaffinity": 123,
        "sysinfo": 179, "prlimit64": 261, "clone3": 435,
    },
}  # fmt: skip
"""By machine, the numbers of the calls."""
EPERM = 1
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
"""Operations of a filter (`linux/bpf_common.h`): load a word, jump if equal, return."""
ALLOWED, FAILS = 0x7FFF0000, 0x50000
"""What a filter returns (`linux/seccomp.h`)."""
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2
"""Arguments of prctl(2)."""


def refuse(calls: list[str]) -> None:
    """Have them fail from now on."""
    numbers = [NUMBERS[platform.machine()][call] for call in calls]
    rows = [(LOAD, 0, 0, 0)]
    rows += [(EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    rows += [(RETURN, 0, 0, ALLOWED), (RETURN, 0, 0, FAILS | EPERM)]
    code = b"".join(struct.pack("=HBBI", *row) for row in rows)
    held = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(rows), ctypes.addressof(held))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for words in ((NO_NEW_PRIVILEGES, 1, 0), (SECCOMP, FILTER, program)):
        if prctl(words[0], words[1], words[2], 0, 0):
            raise OSError(ctypes.get_errno(), "no filter of calls can be set")


if __name__ == "__main__":
    refuse(sys.argv[1].split(","))
    os.execv(sys.argv[2], sys.argv[2:])
