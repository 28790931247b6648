"""Our own small C programs and libraries, compiled once per machine into the cache; no candidate is compiled here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ptxbench.errors import ToolError
from ptxbench.schema.values import content_hash
from ptxbench.settings import Settings
from ptxbench.toolchain.cache import Cache
from ptxbench.toolchain.call import run_tool
from ptxbench.toolchain.toolkit import host_compiler

_FLAGS = ("-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror")


@dataclass(frozen=True)
class Link:
    """What a helper is compiled and linked with besides the C library.

    Attributes:
        includes: Folders of headers.
        folders: Folders of libraries.
        libraries: Names as the linker takes them: `dl`, or `:libcudart.so.13` for an exact file.
        flags: Further flags, e.g. `-Wl,-soname,libcuda.so.1`.
    """

    includes: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()
    libraries: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """As arguments of gcc, to stand after the sources."""
        includes = [f"-I{folder}" for folder in self.includes]
        folders = [f"-L{folder}" for folder in self.folders]
        return [*includes, *folders, *self.flags, *(f"-l{name}" for name in self.libraries)]


ALONE = Link()
"""With nothing but the C library."""


def native_binary(
    name: str,
    sources: Sequence[Path],
    settings: Settings,
    *,
    kind: Literal["executable", "shared"],
    link: Link = ALONE,
) -> Path:
    """Compile C11 `sources` to `name`, or take it from the cache; headers beside the sources belong to its identity.

    Raises:
        ToolError: gcc is missing, or the sources do not compile here; the message ends with the compiler's output.
        RecordError: The cache cannot be written.
    """
    gcc = host_compiler(settings, "gcc")
    flags = [*_FLAGS, *(("-shared", "-fPIC") if kind == "shared" else ())]
    arguments = [*(str(source) for source in sources), *link.words()]
    headers = sorted({header for source in sources for header in source.parent.glob("*.h")})
    content = [part for path in (*sources, *headers) for part in (path.name.encode(), path.read_bytes())]
    key = content_hash(["ptxbench.native.v1", name, gcc.version, *flags, *link.words(), *content])
    cache = Cache(settings.cache / "native")
    found = cache.find(key)
    if found is None:
        with cache.locked(key):
            found = cache.find(key)
            if found is None:
                with cache.workspace() as folder:
                    _compile([gcc.name, *flags, "-o", str(folder / name), *arguments], settings)
                    found = cache.publish(key, folder)
    return found / name


def _compile(command: list[str], settings: Settings) -> None:
    call = run_tool(command, timeout=settings.build_timeout, env={"PATH": settings.path})
    if not call.succeeded:
        what = "was killed at the timeout" if call.timed_out else f"ended with status {call.returncode}"
        raise ToolError(f"Compiling {command[-1]} {what}: {call.stderr[-2000:]}", "Report this with the text above.")
