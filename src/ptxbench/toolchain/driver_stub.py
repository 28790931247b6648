"""A library with the driver's name and symbols, to link candidates against without a driver; it is never run.

A candidate that calls the driver (cuTensorMapEncodeTiled, say) must name libcuda.so.1 among the libraries it needs. The
CUDA wheels hold no such library, so one is made from the names that the toolkit's cuda.h declares.
"""

from __future__ import annotations

import functools
import re
import tempfile
from pathlib import Path

from ptxbench.errors import ToolError
from ptxbench.settings import Settings
from ptxbench.toolchain.native import Link, native_binary
from ptxbench.toolchain.toolkit import Toolkit

DRIVER = "libcuda.so.1"

_NAME = re.compile(r"\bcu[A-Z]\w*(?=\s*\()|(?<=\s)cu[A-Z]\w*_v\d+\b")


@functools.cache
def driver_stub(toolkit: Toolkit, settings: Settings) -> Path:
    """Folder of a libcuda.so.1 that defines every function name in cuda.h, each as a function that traps.

    Raises:
        ToolError: cuda.h cannot be read, or gcc is missing.
    """
    header = toolkit.includes[0] / "cuda.h"
    try:
        text = header.read_text(errors="replace")
    except OSError as error:
        raise ToolError(f"{header} cannot be read: {error.strerror}.", "Install the CUDA headers again.") from error
    names = sorted(set(_NAME.findall(text)))
    with tempfile.TemporaryDirectory(prefix="ptxbench-") as folder:
        source = Path(folder) / "libcuda.c"
        source.write_text("".join(f"void {name}(void);\nvoid {name}(void) {{ __builtin_trap(); }}\n" for name in names))
        link = Link(flags=(f"-Wl,-soname,{DRIVER}",))
        return native_binary(DRIVER, [source], settings, kind="shared", link=link).parent
