"""Prints what sessions with a built GEMM candidate do on a real GPU; a tool for people, no test with a verdict.

    python tests/gpu/smoke_session.py CANDIDATE.so [--m 8192] [--n 7168] [--k 5120] [--symbol run] [--calls 20]

The candidate takes A [M,K], B [N,K], C [M,N] in bfloat16 with C = A B^T. Everything that fails is printed, and the
next part goes on.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from ptxbench.evaluate.child.instrument import Spans, check_spans
from ptxbench.evaluate.child.memory import GUARD, Buffer, DeviceMemory
from ptxbench.evaluate.child.parts import Instrument, NativeParts, build_parts
from ptxbench.evaluate.child.session import CallResult, CandidateFault, Session, SessionSpec
from ptxbench.evaluate.child.wire import Argument
from ptxbench.schema.problem import DType
from ptxbench.schema.values import ToolVersion, Unavailable
from ptxbench.settings import Settings
from ptxbench.toolchain.toolkit import find_ncu, find_sanitizer

try:
    import torch
except ImportError:
    torch = None


@dataclass(frozen=True)
class Work:
    """Buffers of one GEMM and what the result should be."""

    options: argparse.Namespace
    parts: NativeParts
    buffers: tuple[Buffer, Buffer, Buffer]
    folder: Path

    @property
    def arguments(self) -> tuple[Argument, ...]:
        m, n, k = self.options.m, self.options.n, self.options.k
        shapes = ((m, k), (n, k), (m, n))
        return tuple(Argument(i, GUARD, DType.BFLOAT16, shape) for i, shape in enumerate(shapes))

    def spec(self, name: str) -> SessionSpec:
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        library = Path(self.options.candidate).resolve()
        return SessionSpec(self.parts, library, self.options.symbol, 0, self.buffers, folder)

    def tensor(self, number: int):  # type: ignore[no-untyped-def]
        flat = torch.as_tensor(self.buffers[number].data(), device="cuda").view(torch.bfloat16)
        return flat.view(self.arguments[number].shape)

    def poison(self) -> None:
        if torch is not None:
            self.tensor(2).fill_(float("nan"))
            torch.cuda.synchronize()

    def difference(self) -> str:
        """How the output differs from torch's result, and whether the guards are whole."""
        if torch is None:
            return "no torch, not compared"
        a, b, c = (self.tensor(i) for i in range(3))
        want = a @ b.T
        wrong = ((c.float() - want.float()).abs() > (1e-2 * want.float().abs()).clamp(min=1e-2)).sum().item()
        guards = [torch.as_tensor(g, device="cuda") for buffer in self.buffers for g in buffer.guards()]
        whole = all(int(guard.max()) == int(guard.min()) == 0xA5 for guard in guards)
        return f"{wrong} wrong of {c.numel()}, nan {c.isnan().sum().item()}, guards whole {whole}"


def timed(what: str, action: Callable[[], object]) -> None:
    start = time.perf_counter()
    action()
    print(f"  {what}: {(time.perf_counter() - start) * 1e3:.2f} ms")


def plain(work: Work) -> None:
    """Session, calls, instrument, calibration."""
    started = time.perf_counter()
    session = Session.begin(work.spec("plain"), 20.0)
    print(f"  begin: {(time.perf_counter() - started) * 1e3:.2f} ms")
    with session:
        timed("ready", lambda: session.ready(30.0))
        for each in session.protections:
            print(f"    {'active ' if each.active else 'MISSING'} {each.name} {each.reason}")
        timed("load", lambda: session.load(20.0))
        work.poison()
        timed("first call", lambda: session.call(work.arguments, 20.0))
        print("  output:", work.difference())
        session.reset_l2()
        costs = [session.calibrate() for _ in range(work.options.calls)]
        print(f"  calibrate: wall {middle(costs, 'wall_ns'):.1f} us, host {middle(costs, 'host_ns'):.1f} us")
        results = [session.call(work.arguments, 20.0) for _ in range(work.options.calls)]
        report(results)
        print(f"  modules: {[(m.nbytes, m.sha256[:12]) for m in session.modules]}")
        timed("finish", session.finish)
        print(f"  ended: {session.close()}")


def middle(results: list[CallResult], field: str) -> float:
    return statistics.median(getattr(result, field) for result in results) / 1e3


def report(results: list[CallResult]) -> None:
    print(f"  call: wall {middle(results, 'wall_ns'):.1f} us, host {middle(results, 'host_ns'):.1f} us")
    spans = [result.spans for result in results if result.spans is not None]
    if not spans:
        print(f"  no spans: {results[0].instrument_error!r}")
        return
    durations = [each.duration_ns / 1e3 for each in spans]
    print(f"  spans: median {statistics.median(durations):.1f} us, {min(durations):.1f} to {max(durations):.1f}")
    print(f"  doubts: {sorted({str(check_spans(each)) for each in spans})}, records {spans[0].records}")
    print(f"  kernels: {sorted({(k.kind.name, k.name, k.stream) for each in spans for k in each.kernels})}")


def unmeasured(work: Work) -> None:
    """What the instrument itself costs."""
    with Session.start(replace(work.spec("unmeasured"), measured=False), 30.0) as session:
        session.load(20.0)
        results = [session.call(work.arguments, 20.0) for _ in range(work.options.calls + 5)]
        print(f"  call: wall {middle(results[5:], 'wall_ns'):.1f} us, host {middle(results[5:], 'host_ns'):.1f} us")


def abandoned(work: Work) -> None:
    """How long it takes to remove a process with a context."""
    session = Session.start(work.spec("abandoned"), 30.0)
    timed("close", session.close)
    print(f"  ended: {session.close()}")


def wrapped(work: Work, name: str, wrapper: tuple[str, ...], keep_root: bool) -> None:
    """One staged call under a tool."""
    spec = replace(work.spec(name), wrapper=wrapper, staged=True, keep_root=keep_root, measured=False)
    work.poison()
    started = time.perf_counter()
    session = Session.start(spec, 60.0)
    with session:
        print("  missing:", [each.name for each in session.protections if not each.active])
        session.load(60.0)
        session.call(work.arguments, 120.0)
        print("  output:", work.difference())
        ended = session.finish(120.0)
    print(f"  {time.perf_counter() - started:.2f} s, status {ended.returncode}")
    print("  stdout:", ended.stdout[-1500:])
    print("  stderr:", ended.stderr[-1500:])


def judge_instrument(work: Work) -> None:
    """The instrument in this process."""
    if torch is None or not isinstance(work.parts.instrument, Instrument):
        print(f"  not tried: {work.parts.instrument}")
        return
    spans = Spans.open(work.parts.instrument.library, work.parts.instrument.cupti)
    if isinstance(spans, Unavailable):
        print(f"  {spans}")
        return
    a, b, c = (work.tensor(i) for i in range(3))
    for _ in range(3):
        with spans.window() as window:
            torch.matmul(a, b.T, out=c)
            torch.cuda.synchronize()
        print(f"  CUPTI {spans.version}: {window.result.duration_ns / 1e3:.1f} us, doubt {check_spans(window.result)}")
    print(f"  {window.result.kernels}")


def part(title: str, action: Callable[[], None]) -> None:
    print(f"== {title}", flush=True)
    try:
        action()
    except CandidateFault as fault:
        print(f"  FAULT {fault.code} in {fault.phase.name}: {fault.message} {fault.ended}")
    except Exception:  # noqa: BLE001  (each part stands alone)
        traceback.print_exc(file=sys.stdout)
    sys.stdout.flush()


def fill(buffers: tuple[Buffer, Buffer, Buffer]) -> None:
    if torch is None:
        return
    torch.manual_seed(1)
    for number, buffer in enumerate(buffers):
        for guard in buffer.guards():
            torch.as_tensor(guard, device="cuda").fill_(0xA5)
        if number < 2:
            flat = torch.as_tensor(buffer.data(), device="cuda").view(torch.bfloat16)
            flat.copy_(torch.randn(flat.numel(), device="cuda", dtype=torch.bfloat16))
    torch.cuda.synchronize()


def tools(work: Work, settings: Settings) -> None:
    """Nsight Compute and compute-sanitizer, each with and without root's rights."""
    ncu, sanitizer = find_ncu(settings), find_sanitizer(settings)
    for keep_root in (True, False):
        rights = "root" if keep_root else "nobody"
        if isinstance(ncu, ToolVersion):
            metrics = ("--set", "none", "--metrics", "gpu__time_duration.sum,inst_executed", "--csv")
            command: tuple[str, ...] = (ncu.path, "--target-processes", "all", "--clock-control", "none", *metrics)
            part(f"ncu {rights}", lambda c=command, r=rights, k=keep_root: wrapped(work, f"ncu-{r}", c, k))  # type: ignore[misc]
        if isinstance(sanitizer, ToolVersion):
            command = (sanitizer.path, "--tool", "memcheck", "--target-processes", "all")
            part(f"memcheck {rights}", lambda c=command, r=rights, k=keep_root: wrapped(work, f"mem-{r}", c, k))  # type: ignore[misc]
    print("tools:", ncu, sanitizer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("candidate")
    for name, default in (("m", 8192), ("n", 7168), ("k", 5120), ("calls", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--symbol", default="run")
    options = parser.parse_args()
    settings = Settings.load()
    start = time.perf_counter()
    parts = build_parts(settings)
    print(f"parts in {time.perf_counter() - start:.2f} s: {parts}")
    m, n, k = options.m, options.n, options.k
    with tempfile.TemporaryDirectory() as folder, DeviceMemory(0) as memory:
        buffers = (memory.allocate(2 * m * k), memory.allocate(2 * n * k), memory.allocate(2 * m * n))
        fill(buffers)
        work = Work(options, parts, buffers, Path(folder))
        part("plain session", lambda: plain(work))
        part("without the instrument", lambda: unmeasured(work))
        part("abandoned session", lambda: abandoned(work))
        tools(work, settings)
        part("instrument of the judge", lambda: judge_instrument(work))


if __name__ == "__main__":
    main()
