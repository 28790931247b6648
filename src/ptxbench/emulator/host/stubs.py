"""The stub runtime, the stub driver and the host program, compiled once per machine; what they are told is elsewhere.

Whatever the real libraries export and the stubs do not implement is generated: a function that says its name.
"""

from __future__ import annotations

import functools
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ptxbench.errors import ToolError
from ptxbench.settings import Settings
from ptxbench.toolchain.driver_stub import DRIVER
from ptxbench.toolchain.elf import read_shared_object
from ptxbench.toolchain.native import Link, native_binary
from ptxbench.toolchain.toolkit import CUDART, Toolkit, find_toolkit, find_tvm_ffi

_NATIVE = Path(__file__).parent / "native"
_RUNTIME = ("cudart_launch.c", "cudart_memory.c", "cudart_device.c")
_DEFINITION = re.compile(r"^\w[\w *]*?\b((?:__cuda|cuda|cu)[A-Z]\w*)\(", re.MULTILINE)
_DRIVER_NAME = re.compile(r"\bcu[A-Z]\w*(?=\s*\()|(?<=\s)cu[A-Z]\w*_v\d+\b")
_ERROR = re.compile(r"^\s*(cudaError\w+|cudaSuccess)\s*=\s*(\d+)", re.MULTILINE)
_PER_THREAD = ("_ptsz", "_ptds")
_TEXTS = ("cudaGetErrorName", "cudaGetErrorString")


@dataclass(frozen=True)
class Stubs:
    """The parts of a host process: its program, and the libraries that stand in for CUDA's."""

    program: Path
    runtime: Path
    driver: Path


@functools.cache
def stubs(settings: Settings) -> Stubs:
    """Compile them, or take them from the cache.

    Raises:
        ToolError: A compiler or the CUDA headers are missing.
    """
    toolkit = find_toolkit(settings)
    with tempfile.TemporaryDirectory(prefix="ptxbench-") as folder:
        rest = Path(folder) / "rest.c"
        exported = [name for name in read_shared_object(toolkit.library / CUDART).exported if name.isidentifier()]
        implemented = _implemented(_RUNTIME) | set(_TEXTS)
        rest.write_text(_rest(set(exported), implemented) + _error_names(toolkit))
        flags = [f"-Wl,-soname,{CUDART}", f"-Wl,--version-script={_NATIVE / 'cudart.map'}"]
        flags += [f"-Wl,--defsym={name}={name[:-5]}" for name in exported if _is_twin(name, implemented)]
        link = Link(includes=(toolkit.includes[0], _NATIVE), flags=tuple(flags))
        runtime = native_binary(CUDART, [*_sources(_RUNTIME), rest], settings, kind="shared", link=link)
        names = set(_DRIVER_NAME.findall(_header(toolkit, "cuda.h")))
        rest = Path(folder) / "driver_rest.c"
        rest.write_text(_rest(names, _implemented(("driver.c",))))
        link = Link(includes=(toolkit.includes[0], _NATIVE), flags=(f"-Wl,-soname,{DRIVER}",))
        driver = native_binary(DRIVER, [*_sources(("driver.c",)), rest], settings, kind="shared", link=link)
    link = Link(includes=(find_tvm_ffi().include,), libraries=("dl", "pthread"), flags=("-rdynamic", "-g0"))
    parts = _sources(("host.c", "bridge.c", "sandbox.c"))
    program = native_binary("ptxbench-host", parts, settings, kind="executable", link=link)
    return Stubs(program, runtime, driver)


def _sources(names: tuple[str, ...]) -> list[Path]:
    return [_NATIVE / name for name in names]


def _implemented(names: tuple[str, ...]) -> set[str]:
    return {name for path in _sources(names) for name in _DEFINITION.findall(path.read_text())}


def _is_twin(name: str, implemented: set[str]) -> bool:
    """Whether `name` is the form for per-thread default streams of a function that is implemented."""
    return name.endswith(_PER_THREAD) and name[:-5] in implemented


def _rest(names: set[str], implemented: set[str]) -> str:
    missing = sorted(name for name in names - implemented if not _is_twin(name, implemented))
    lines = [f'int {name}(void);\nint {name}(void) {{ return bridge_unsupported("{name}"); }}\n' for name in missing]
    return '#include "bridge.h"\n' + "".join(lines)


def _error_names(toolkit: Toolkit) -> str:
    found = _ERROR.findall(_header(toolkit, "driver_types.h"))
    cases = "".join(f'    case {number}: return "{name}";\n' for name, number in found)
    body = f'switch (code) {{\n{cases}    default: return "an unknown error";\n    }}\n'
    return "".join(f"const char *{name}(int code);\nconst char *{name}(int code) {{\n    {body}}}\n" for name in _TEXTS)


def _header(toolkit: Toolkit, name: str) -> str:
    path = toolkit.includes[0] / name
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise ToolError(f"{path} cannot be read: {error.strerror}.", "Install the CUDA headers again.") from error
