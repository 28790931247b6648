"""Real candidate processes over a driver of ours that keeps device memory in files; no GPU is needed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ptxbench.evaluate.child.memory import Buffer, DeviceMemory
from ptxbench.evaluate.child.parts import SOURCES, NativeParts, candidate_program
from ptxbench.evaluate.child.session import Session, SessionSpec
from ptxbench.schema.values import Unavailable
from ptxbench.settings import Settings
from ptxbench.toolchain.native import Link, native_binary
from ptxbench.toolchain.toolkit import find_toolkit, find_tvm_ffi

HERE = Path(__file__).parent / "fake_cuda"

StartSession = Callable[..., Session]


@pytest.fixture(scope="session")
def native_settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The real settings with a cache that is this test run's own."""
    return Settings.load({**os.environ, "PTXBENCH_CACHE": str(tmp_path_factory.mktemp("cache"))})


@pytest.fixture
def public_folder(tmp_path: Path) -> Path:
    """A folder that every user can look into, with all folders above it."""
    for folder in (tmp_path, *tmp_path.parents):
        status = folder.stat()
        if status.st_uid != os.getuid() or status.st_mode & stat.S_ISVTX:
            break
        folder.chmod(status.st_mode | 0o055)
    return tmp_path


@pytest.fixture(scope="session")
def build_candidate(native_settings: Settings) -> Callable[..., Path]:
    """Compiles one of the C files here to a candidate's shared object."""
    tvm_ffi, toolkit = find_tvm_ffi(), find_toolkit(native_settings)

    def build(source: str, *defines: str) -> Path:
        words = tuple(word for folder in (tvm_ffi.include, *toolkit.includes) for word in ("-isystem", str(folder)))
        link = Link(
            includes=(SOURCES,),
            folders=(tvm_ffi.library,),
            libraries=(":libtvm_ffi.so", "pthread", "dl"),
            flags=(*words, *(f"-D{define}" for define in defines)),
        )
        return native_binary("candidate.so", [HERE / source], native_settings, kind="shared", link=link)

    return build


@pytest.fixture(scope="session")
def candidates(build_candidate: Callable[..., Path]) -> Path:
    return build_candidate("candidates.c")


@pytest.fixture(scope="session")
def spies(build_candidate: Callable[..., Path]) -> Path:
    return build_candidate("spies.c")


@pytest.fixture(scope="session")
def parts(native_settings: Settings) -> NativeParts:
    words = tuple(word for folder in find_toolkit(native_settings).includes for word in ("-isystem", str(folder)))
    sources = [HERE / "fake_cuda.c", HERE / "fake_modules.c"]
    cuda = native_binary("libcuda.so.1", sources, native_settings, kind="shared", link=Link(flags=words))
    return NativeParts(
        candidate=candidate_program(native_settings),
        cuda=str(cuda),
        cudart=None,
        tvm_ffi=(find_tvm_ffi().library / "libtvm_ffi.so").resolve(),
        instrument=Unavailable(name="cupti", reason="no device here"),
    )


@pytest.fixture
def memory(parts: NativeParts) -> Iterator[DeviceMemory]:
    with DeviceMemory(0, parts.cuda) as made:
        yield made


@pytest.fixture
def buffers(memory: DeviceMemory) -> tuple[Buffer, Buffer]:
    """An input and an output of 64 x 32 float32."""
    return memory.allocate(64 * 32 * 4), memory.allocate(64 * 32 * 4)


@pytest.fixture
def start_session(parts: NativeParts, buffers: tuple[Buffer, Buffer], tmp_path: Path) -> Iterator[StartSession]:
    """Starts a session that is ended with the test: `start_session(library, symbol, **fields of the spec)`."""
    with ExitStack() as stack:

        def start(library: Path, symbol: str, *, load: bool = True, **changes: object) -> Session:
            folder = tmp_path / f"session-{symbol}"
            folder.mkdir(mode=0o700)
            fields = {"parts": parts, "buffers": buffers, "device": 0, "folder": folder, "measured": False, **changes}
            session = stack.enter_context(Session.start(SessionSpec(library=library, symbol=symbol, **fields), 20.0))  # type: ignore[arg-type]
            if load:
                session.load(10.0)
            return session

        yield start
