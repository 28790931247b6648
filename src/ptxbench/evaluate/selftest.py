"""Holds the instruments against known answers (`selftest.cu`): counts, durations, a second user; judges no candidate.

An instrument that reads a known kernel wrongly is `missing`: nothing it says elsewhere on this machine can be believed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ptxbench.errors import DeviceError, PtxbenchError, ToolError
from ptxbench.evaluate.child.instrument import Spans, check_spans
from ptxbench.evaluate.child.memory import GUARD, Buffer, DeviceMemory
from ptxbench.evaluate.child.parts import Instrument, NativeParts, build_parts
from ptxbench.evaluate.child.session import CandidateFault, Session, SessionSpec
from ptxbench.evaluate.child.wire import Argument
from ptxbench.evaluate.diagnosis import Check, CheckState
from ptxbench.evaluate.profiler import ncu_command, read_report
from ptxbench.sass.families import family_of
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.problem import DType
from ptxbench.schema.values import Target, Unavailable
from ptxbench.settings import Settings
from ptxbench.toolchain.build import build
from ptxbench.toolchain.toolkit import find_ncu

SOURCE = Path(__file__).with_name("selftest.cu")
KNOWN_COUNT = 1600
"""Warp-level wgmma instructions of `known_count`: 4 CTAs x 4 warps x 100 rounds."""
KNOWN_MS = 1.0
TOLERANCE_MS = 0.05
"""`known_duration` ends at its first look at the clock after that time; to start and end takes microseconds."""
FLOATS = 4 * 128
SECONDS = 30.0
GROUP = "self-test"


@dataclass(frozen=True)
class _Bench:
    """The built test kernel, the native parts and one buffer for its output."""

    settings: Settings
    ordinal: int
    parts: NativeParts
    library: Path
    buffer: Buffer
    folder: Path

    @contextmanager
    def session(self, name: str, wrapper: tuple[str, ...] = ()) -> Iterator[Session]:
        """A loaded session, under a tool where one is given."""
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        spec = SessionSpec(
            parts=self.parts,
            library=self.library,
            symbol="run",
            device=self.ordinal,
            buffers=(self.buffer,),
            folder=folder,
            wrapper=wrapper,
            keep_root=bool(wrapper),
            measured=not wrapper,
        )
        with Session.start(spec, SECONDS) as session:
            session.load(SECONDS)
            yield session


def run_selftest(settings: Settings, device: str) -> tuple[Check, ...]:
    """Try every instrument on `device` (`cuda:N`, a Hopper GPU); what cannot be tried says why."""
    ordinal = int(device.removeprefix("cuda:"))
    try:
        with tempfile.TemporaryDirectory(prefix="ptxbench-selftest-") as name, DeviceMemory(ordinal) as memory:
            built = build(Candidate.from_source(SOURCE.read_text()), Target.SM_90A, settings)
            if built.library is None:
                raise ToolError("The self-test kernel does not compile.", "Report this with `ptxbench doctor --json`.")
            buffer = memory.allocate(4 * FLOATS)
            bench = _Bench(settings, ordinal, build_parts(settings), built.library, buffer, Path(name))
            tests = (_activity, _counters, _second_user)
            return tuple(_tried(test, bench) for test in tests)
    except PtxbenchError as error:
        return (_missing("instruments", error.what, error.remedy),)


def _tried(test: Callable[[_Bench], Check], bench: _Bench) -> Check:
    try:
        return test(bench)
    except (PtxbenchError, CandidateFault) as error:
        return _missing(test.__name__.strip("_").replace("_", " "), str(error), "Run it again on an idle GPU.")


def _missing(name: str, found: str, remedy: str) -> Check:
    return Check(name=name, group=GROUP, state=CheckState.MISSING, found=found, remedy=remedy)


def _ok(name: str, found: str) -> Check:
    return Check(name=name, group=GROUP, state=CheckState.OK, found=found)


def _argument() -> Argument:
    return Argument(0, GUARD, DType.FLOAT32, (FLOATS,))


def _activity(bench: _Bench) -> Check:
    """CUPTI: both kernels are seen, and the one of known duration lasts that long."""
    with bench.session("activity") as session:
        session.call([_argument()], SECONDS)
        result = session.call([_argument()], SECONDS)
    if result.spans is None:
        raise ToolError(f"CUPTI recorded nothing: {result.instrument_error or 'no instrument'}.")
    fault = check_spans(result.spans)
    if fault is not None:
        raise ToolError(f"CUPTI's records cannot be used: {fault}.")
    times = {kernel.name: (kernel.end_ns - kernel.start_ns) / 1e6 for kernel in result.spans.kernels}
    lasting = [value for name, value in times.items() if "known_duration" in name]
    if len(times) != 2 or len(lasting) != 1:
        raise ToolError(f"CUPTI saw the kernels {', '.join(times) or 'none'} where two ran.")
    if not KNOWN_MS <= lasting[0] <= KNOWN_MS + TOLERANCE_MS:
        raise ToolError(f"CUPTI reads {lasting[0]:.4f} ms for a kernel of {KNOWN_MS} ms.")
    wall = result.wall_ns / 1e6
    return _ok(
        "activity", f"CUPTI reads {lasting[0]:.4f} ms for a kernel of {KNOWN_MS} ms; the whole call {wall:.3f} ms"
    )


def _counters(bench: _Bench) -> Check:
    """ncu: the known number of wgmma instructions was executed, and its clock agrees."""
    found = find_ncu(bench.settings)
    if isinstance(found, Unavailable):
        return _missing("counters", found.reason, found.remedy)
    report, log = bench.folder / "report.ncu-rep", bench.folder / "ncu.log"
    with bench.session("counters", ncu_command(Path(found.path), report, log, Target.SM_90A)) as session:
        session.call([_argument()], SECONDS)
        session.finish(SECONDS)
    launches = read_report(Path(found.path), report, log, SECONDS)
    if isinstance(launches, Unavailable):
        return _missing("counters", launches.reason, launches.remedy)
    lines = [line for launch in launches for line in launch.lines if family_of(line.opcode, Target.SM_90A) == "GMMA"]
    counted = sum(line.warp_instructions or 0 for line in lines)
    lasting = [launch.counters.get("gpu__time_duration.sum") for launch in launches if "known_duration" in launch.name]
    if counted != KNOWN_COUNT or None in [line.warp_instructions for line in lines]:
        raise ToolError(f"ncu counts {counted} wgmma instructions where {KNOWN_COUNT} are executed.")
    if len(lasting) != 1 or lasting[0] is None or not KNOWN_MS <= 1e3 * lasting[0] <= KNOWN_MS + TOLERANCE_MS:
        raise ToolError(f"ncu reads {lasting} s for a kernel of {KNOWN_MS} ms.")
    return _ok("counters", f"ncu counts {counted} wgmma instructions and reads {1e3 * lasting[0]:.4f} ms")


def _second_user(bench: _Bench) -> Check:
    """A second user of CUPTI in one process must be noticed, for it would take the first one's records."""
    parts = bench.parts.instrument
    if not isinstance(parts, Instrument):
        return _missing("second user", parts.reason, parts.remedy)
    copy = bench.folder / "second.so"
    shutil.copy(parts.library, copy)
    first = Spans.open(parts.library, parts.cupti)
    if isinstance(first, Unavailable):
        raise DeviceError(f"CUPTI cannot be opened: {first.reason}", first.remedy)
    second = Spans.open(copy, parts.cupti)
    if not isinstance(second, Unavailable):
        raise ToolError("Two users of CUPTI in one process went unnoticed.", "Update CUPTI.")
    return _ok("second user", f"a second user of CUPTI is noticed: {second.reason}")
