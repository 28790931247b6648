"""Keeps NumPy's matrix products in one thread while a kernel is emulated; computes nothing.

The products are small: OpenBLAS's own threads would spend longer waiting for each other than multiplying, several
times so on a busy machine.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SETTERS = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads")
"""OpenBLAS in NumPy's wheels has a prefix, that of a distribution has none; `get` has the same forms."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Products inside run in the calling thread; with another library than OpenBLAS nothing changes."""
    found = _functions()
    if found is None:
        yield
        return
    get, set_ = found
    before = int(get())
    set_(1)
    try:
        yield
    finally:
        set_(before)


@functools.cache
def _functions() -> tuple[ctypes._NamedFuncPointer, ctypes._NamedFuncPointer] | None:
    """OpenBLAS's functions (get, set) in the library that this process has loaded."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    for path in sorted({line.split(maxsplit=5)[5] for line in lines if "openblas" in line}):
        library = ctypes.CDLL(path)
        for name in _SETTERS:
            if hasattr(library, name):
                return getattr(library, name.replace("set", "get")), getattr(library, name)
    return None
