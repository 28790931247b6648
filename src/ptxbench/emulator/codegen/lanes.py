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

from ptxbench.errors import PtxbenchError, ToolError
from ptxbench.schema.values import ToolVersion, Unavailable
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
        latest: Of each int32 array of a list that has a number above 0 at places: its number in the list, the
            greatest, and which place has that first.
        mark: Puts into pairs of an int32 array and a number that number, at places given first.
        written: The different numbers at words, ascending: of each the greater one of an array's, and of another's
            that has one for four words.
    """

    operations: Mapping[str, Operation]
    segment: Callable[[bytes, bytes, bytes, bytes], Callable[..., Any]]
    gather: Callable[..., list[Any] | None]
    scatter: Callable[..., bool]
    distinct: Callable[[Any, Any], list[int]]
    latest: Callable[[list[Any], Any], list[tuple[int, int, int]]]
    mark: Callable[..., None]
    written: Callable[[Any, Any, Any], list[int]]
    uniform: Callable[..., tuple[int, ...] | None]
    widen: Callable[[Any, Any], Any]


def find_core(settings: Settings) -> ToolVersion | Unavailable:
    """The core as a tool of this machine, compiled if it was not yet; why there is none."""
    try:
        return ToolVersion(name="compiled core", version="", path=str(_built(settings)))
    except PtxbenchError as error:
        why = f"{error.what} The emulator computes with NumPy, which takes about twice as long."
        return Unavailable(name="compiled core", reason=why, remedy=error.remedy)


def _built(settings: Settings) -> Path:
    """The library.

    Raises:
        ToolError: Python's headers or the C compiler are missing, or it does not compile here.
        RecordError: The cache cannot be written.
    """
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        raise ToolError(f"Python's headers are not in {headers}.", "Install the development files of this Python.")
    flags = [word for folder in (headers, np.get_include()) for word in ("-isystem", str(folder))]
    link = Link(flags=(*flags, *_FLAGS), libraries=("m",))
    return native_binary(f"{_NAME}.so", sorted(_NATIVE.glob("*.c")), settings, kind="shared", link=link)


@cache
def core() -> Core | None:
    """The core, compiled on first use; None where it cannot be."""
    try:
        built = _built(Settings.load())
    except PtxbenchError:
        return None
    spec = spec_from_file_location(_NAME, built, loader=ExtensionFileLoader(_NAME, str(built)))
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    operations = {name: Operation(*each) for name, each in module.OPERATIONS.items()}
    return Core(operations, module.Segment, *(getattr(module, name) for name in Core._fields[2:]))
