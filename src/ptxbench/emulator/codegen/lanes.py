"""The compiled core: operations over lanes in C, built once per machine; decides nothing about instructions.

Without a C compiler or Python's headers there is none, and NumPy does the same work more slowly, to the same bits.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Mapping
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ptxbench.errors import PtxbenchError
from ptxbench.settings import Settings
from ptxbench.toolchain.native import Link, native_binary

_NATIVE = Path(__file__).parent / "native"
_NAME = "ptxbench_lanes"
_FLAGS = ("-O3", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-math-errno", "-fno-trapping-math")
MOST_OPERANDS = 4


class Operation(NamedTuple):
    """An operation of the core: its number, and the bytes of an element of each operand."""

    number: int
    takes: bytes


class Core(NamedTuple):
    """What the core offers.

    Attributes:
        operations: By name.
        segment: Makes a function of (lanes, arrays) from sizes, constants, steps and outputs, each as bytes.
        gather: Reads (bytes, low, high, origin, addresses, mask, width, count): a list of arrays over lanes, or None.
        scatter: Writes; as `gather` with the list of arrays, answers whether it did.
        distinct: The different numbers at places (a slice, or indices) of an int32 array, ascending.
        uniform: What all lanes of (mask or None, array, ...) hold, or None if they differ.
        widen: The bfloat16 numbers of 16-byte chunks of bytes, by number [rows, columns], as float32; or None.
        greatest: The greatest number at places of an int32 array, and which has it first; zeros if none is above 0.
    """

    operations: Mapping[str, Operation]
    segment: Callable[[bytes, bytes, bytes, bytes], Callable[..., Any]]
    gather: Callable[..., list[Any] | None]
    scatter: Callable[..., bool]
    distinct: Callable[[Any, Any], list[int]]
    greatest: Callable[[Any, Any], tuple[int, int]]
    uniform: Callable[..., tuple[int, ...] | None]
    widen: Callable[[Any, Any], Any]


@cache
def core() -> Core | None:
    """The core, compiled on first use; None where it cannot be."""
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        return None
    flags = [word for folder in (headers, np.get_include()) for word in ("-isystem", str(folder))]
    link = Link(flags=(*flags, *_FLAGS), libraries=("m",))
    try:
        built = native_binary(f"{_NAME}.so", sorted(_NATIVE.glob("*.c")), Settings.load(), kind="shared", link=link)
    except PtxbenchError:
        return None
    spec = spec_from_file_location(_NAME, built, loader=ExtensionFileLoader(_NAME, str(built)))
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    operations = {name: Operation(*each) for name, each in module.OPERATIONS.items()}
    return Core(operations, module.Segment, *(getattr(module, name) for name in Core._fields[2:]))
