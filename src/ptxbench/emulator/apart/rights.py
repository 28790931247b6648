"""Gives up this process's rights to files, for good (landlock(7)); the compiler's wall is `toolchain.confine`."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

# The same numbers on x86-64 and AArch64.
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_NO_NEW_PRIVILEGES = 38
_EXECUTE, _READ_FILE, _READ_FOLDER = 1 << 0, 1 << 2, 1 << 3
_BITS = {1: 13, 2: 14, 3: 15, 4: 15}
"""Rights on files that each version of the interface knows; from version 5 on there are 16."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """Version of the kernel's interface for giving up rights; 0 where it has none."""
    return max(int(ctypes.CDLL(None, use_errno=True).syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION)), 0)


def read_only(places: Iterable[Path]) -> bool:
    """From now on this process can read below `places`, and reach no other file; whether the kernel can do that.

    It opens no TCP connection either, where the kernel has that (version 4 of the interface).
    """
    libc, known = ctypes.CDLL(None, use_errno=True), version()
    if known < 1:
        return False
    wanted = _Ruleset((1 << _BITS.get(known, 16)) - 1, 3 if known >= 4 else 0)
    rules = libc.syscall(_CREATE, ctypes.byref(wanted), ctypes.c_size_t(16 if known >= 4 else 8), 0)
    if rules < 0:
        return False
    for place in {place.resolve() for place in places if place.is_dir()}:
        folder = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        rule = _Beneath(_EXECUTE | _READ_FILE | _READ_FOLDER, folder)
        libc.syscall(_ADD, rules, _PATH_BENEATH, ctypes.byref(rule), 0)
        os.close(folder)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    done = libc.syscall(_RESTRICT, rules, 0) == 0
    os.close(rules)
    return bool(done)
