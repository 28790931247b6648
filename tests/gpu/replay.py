"""Holds replayed calls against live ones on a GPU: outputs, launches, times, and the verdicts on both.

    python tests/gpu/replay.py --out DIR [--only 'reference.*'] [--no-verdicts]

Reference and simple kernels run in two processes at once, one live and one replayed, on the same memory; their calls
alternate, so that a change of clocks meets both. Then every kernel of the groups reference, simple and attacks is
judged `live` and `auto`, attacks without the policy stage where tests/kernels/expected.toml marks them `again`.
Writes DIR/replay.json and prints a table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from ptxbench.emulator.host.device import HostDevice
from ptxbench.errors import PtxbenchError
from ptxbench.evaluate.child.arena import View, as_bytes
from ptxbench.evaluate.child.desk import Candidate as Running
from ptxbench.evaluate.child.desk import make_slots
from ptxbench.evaluate.child.faults import CandidateFault
from ptxbench.evaluate.child.gpu_desk import GpuDesk
from ptxbench.evaluate.child.instrument import Activity
from ptxbench.evaluate.child.preparing import draw_workload
from ptxbench.evaluate.child.protocol import CandidateFiles
from ptxbench.evaluate.child.session import CallResult
from ptxbench.evaluate.child.tensors import Tensors
from ptxbench.evaluate.devices import list_gpus
from ptxbench.evaluate.gpu import GpuEvaluator
from ptxbench.evaluate.hosting import choose_host
from ptxbench.evaluate.pipeline import EvaluationRequest, evaluate
from ptxbench.evaluate.recording import HostMode, Subject
from ptxbench.schema import Candidate, Problem, Target, Verdict, Workload
from ptxbench.schema.verdict import StageName
from ptxbench.settings import Settings
from ptxbench.suite import load_problem, pick_workload
from ptxbench.toolchain.build import build
from ptxbench.toolchain.elf import cubins
from ptxbench.toolchain.toolkit import find_toolkit

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "tests" / "kernels"
GEMM = "gemm_n7168_k5120"
GROUPS = ("reference", "simple", "attacks")
WARM_UPS, SAMPLES = 4, 36
SECONDS = 20.0
WITH_POLICY = {"runtime_compile", "static_cublas"}
"""Attacks that would take minutes, or do not compile, without it."""


@dataclass(frozen=True)
class Kernel:
    """One kernel of expected.toml."""

    group: str
    name: str
    task: str
    again: bool

    @property
    def label(self) -> str:
        return f"{self.group}.{self.name}"

    @property
    def candidate(self) -> Candidate:
        folder = ROOT / "reference" / self.name if self.group == "reference" else KERNELS / self.group
        path = folder / ("sm_90a.cu" if self.group == "reference" else f"{self.name}.cu")
        return Candidate.from_source(path.read_text(), name=self.label)

    @property
    def workload(self) -> tuple[Problem, Workload]:
        problem = load_problem(self.task)
        return problem, pick_workload(problem, None)


def kernels(only: list[str]) -> list[Kernel]:
    """Those of the groups that match a pattern."""
    expected: dict[str, dict[str, dict[str, Any]]] = tomllib.loads((KERNELS / "expected.toml").read_text())
    every = [
        Kernel(group, name, entry.get("task", GEMM), bool(entry.get("again")))
        for group in GROUPS
        for name, entry in expected[group].items()
    ]
    return [kernel for kernel in every if any(fnmatchcase(kernel.label, pattern) for pattern in only)]


# ---- pairs: live and replayed calls of one kernel, side by side ----


@dataclass
class Side:
    """One of the two processes and what its calls gave."""

    running: Running
    outputs: list[Tensors]
    launches: set[tuple[str, ...]]
    milliseconds: list[float]
    host_microseconds: list[float]

    @classmethod
    def of(cls, running: Running) -> Side:
        running.ready()
        running.load()
        return cls(running, [], set(), [], [])

    def take(self, result: CallResult, view: View, sample: bool) -> None:
        assert result.spans is not None, result.instrument_error
        kernels_run = [span.name for span in result.spans.kernels if span.kind is Activity.KERNEL]
        self.launches.add(tuple(kernels_run))
        if len(self.outputs) < 2:
            self.outputs.append(view.take_outputs())
        if sample:
            self.milliseconds.append(result.spans.duration_ns / 1e6)
            self.host_microseconds.append(result.host_ns / 1e3)


def same(one: Tensors, other: Tensors) -> bool:
    """Whether all outputs agree bit for bit."""
    return all(torch.equal(as_bytes(one[name]), as_bytes(other[name])) for name in one)


def pair(desk: GpuDesk, kernel: Kernel, settings: Settings, folder: Path) -> dict[str, Any]:
    """Calls of both kinds in turn."""
    problem, workload = kernel.workload
    library = build(kernel.candidate, Target.SM_90A, settings).library
    assert library is not None
    found = cubins(library, find_toolkit(settings))
    device = HostDevice(Target.SM_90A, desk.device.facts.limits.sm_count)
    started = time.monotonic()
    host = choose_host("auto", Subject(library, "run", found, problem, device), (workload,), settings, folder)
    recording = time.monotonic() - started
    if host.program is None:
        return {"host": host.name}
    names = tuple(name for cubin in found for name in cubin.kernels)
    live = CandidateFiles(library=library, symbol="run", kernels=names, cubin_hashes=tuple(c.sha256 for c in found))
    (draw,) = draw_workload(problem, workload, ("normal",), desk.device.generator(7))
    with desk.memory() as memory:
        (slot,) = make_slots(memory, problem, (workload,), 1)
        view = slot.view(problem, workload)
        pair_of = (live, live.model_copy(update={"program": host.program}))
        running = [desk.begin(files, memory, SECONDS) for files in pair_of]
        try:
            sides = [Side.of(each) for each in running]
            for number in range(WARM_UPS + SAMPLES):
                for side in sides if number % 2 else sides[::-1]:
                    view.load(draw.inputs)
                    desk.device.flush_l2()
                    desk.device.synchronize()
                    side.take(side.running.call_cold(view), view, number >= WARM_UPS)
        finally:
            for each in running:
                each.end()
    return report(sides[0], sides[1], live.cubin_hashes) | {"recording_seconds": recording}


def report(live: Side, replayed: Side, found: tuple[str, ...]) -> dict[str, Any]:
    """Both sides in numbers."""
    middles = [statistics.median(side.milliseconds) for side in (live, replayed)]
    return {
        "host": "replayed",
        "outputs_equal": same(live.outputs[0], replayed.outputs[0]),
        "live_repeats": same(*live.outputs),
        "launches": {
            "live": sorted(map(list, live.launches)),
            "replayed": sorted(map(list, replayed.launches)),
        },
        "milliseconds": {"live": live.milliseconds, "replayed": replayed.milliseconds},
        "median_ms": {"live": middles[0], "replayed": middles[1]},
        "ratio": middles[1] / middles[0],
        "host_us": {
            "live": statistics.median(live.host_microseconds),
            "replayed": statistics.median(replayed.host_microseconds),
        },
        "own_machine_code": set(replayed.running.loaded_cubins) <= set(found),
    }


def pairs(chosen: list[Kernel], settings: Settings, ordinal: int) -> Iterator[tuple[Kernel, dict[str, Any]]]:
    """All of them, in this process."""
    desk = GpuDesk(ordinal, settings)
    for kernel in chosen:
        with tempfile.TemporaryDirectory() as folder:
            try:
                yield kernel, pair(desk, kernel, settings, Path(folder))
            except (CandidateFault, PtxbenchError, AssertionError) as error:
                yield kernel, {"host": "failed", "error": f"{type(error).__name__}: {error}"}


# ---- verdicts ----


def judge(gpu: GpuEvaluator, kernel: Kernel, host: HostMode) -> dict[str, Any]:
    """The verdict on one kernel, in short."""
    problem, workload = kernel.workload
    skip = {StageName.SANITIZE, StageName.PROFILE}
    if kernel.again and kernel.name not in WITH_POLICY:
        skip.add(StageName.POLICY)
    request = EvaluationRequest(target=Target.SM_90A, skip=frozenset(skip), host=host, settings=gpu.settings)
    started = time.monotonic()
    try:
        verdict = evaluate(kernel.candidate, problem, workload, request, gpu)
    except PtxbenchError as error:
        return {"state": "error", "code": type(error).__name__, "message": str(error), "host": ""}
    return shortened(verdict) | {"seconds": time.monotonic() - started}


def shortened(verdict: Verdict) -> dict[str, Any]:
    """What the comparison needs; the first stage that is not passed stands for what stopped the kernel."""
    stages = verdict.stages
    ended = next((s.reason for s in (stages.policy, stages.build, stages.check, stages.time) if s.reason), None)
    timed = stages.time
    return {
        "state": verdict.status.state.value,
        "check": stages.check.outcome.value,
        "time": timed.outcome.value,
        "code": ended.code if ended else "",
        "message": ended.message if ended else "",
        "host": verdict.environment.host_code,
        "launches": list(timed.launches),
        "median_ms": timed.candidate.median if timed.candidate else None,
        "speedup": verdict.layers.speed.value,
    }


# ---- all ----


def line(kernel: Kernel, made: dict[str, Any]) -> str:
    """One row of the table."""
    together, verdicts = made.get("pair", {}), made.get("verdicts", {})
    live, auto = verdicts.get("live", {}), verdicts.get("auto", {})
    host = (auto.get("host") or together.get("host", ""))[:60]
    text = f"{kernel.label:34} {live.get('state', ''):>12} {live.get('code', ''):20} | {auto.get('state', ''):>12} "
    text += f"{auto.get('code', ''):20} | {host}"
    if "ratio" in together:
        count = {side: [len(names) for names in lists] for side, lists in together["launches"].items()}
        ms, us = together["median_ms"], together["host_us"]
        text += f"\n    equal {together['outputs_equal']} (live repeats {together['live_repeats']})  launches {count}"
        text += f"  ms {ms['live']:.4f} {ms['replayed']:.4f} ratio {together['ratio']:.4f}"
        text += f"  call us {us['live']:.0f} {us['replayed']:.0f}  recorded in {together['recording_seconds']:.2f} s"
    elif "error" in together:
        text += f"\n    {together['error'][:500]}"
    if live.get("speedup") and auto.get("speedup"):
        text += f"\n    speedup {live['speedup']:.4f} {auto['speedup']:.4f}"
    return text


def main() -> int:
    """Parse the arguments, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=["*"], help="patterns of GROUP.NAME")
    parser.add_argument("--no-verdicts", action="store_true", help="only the pairs")
    arguments = parser.parse_args()
    settings, chosen = Settings.load(), kernels(arguments.only)
    gpus = list_gpus(settings)
    if not gpus:
        print("error: no GPU on this machine\nremedy: run this where nvidia-smi lists a Hopper GPU", file=sys.stderr)
        return 2
    started = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda kernel: build(kernel.candidate, Target.SM_90A, settings), chosen))
    print(f"built in {time.monotonic() - started:.1f} s", flush=True)
    document: dict[str, dict[str, Any]] = {kernel.label: {} for kernel in chosen}
    honest = [kernel for kernel in chosen if kernel.group != "attacks"]
    for kernel, made in pairs(honest, settings, gpus[0].ordinal):
        document[kernel.label]["pair"] = made
        print(line(kernel, {"pair": made}), flush=True)
    print(f"pairs at {time.monotonic() - started:.1f} s", flush=True)
    if not arguments.no_verdicts:
        with GpuEvaluator.start(gpus[0], settings) as gpu:
            for kernel in chosen:
                modes: tuple[HostMode, ...] = ("live", "auto")
                document[kernel.label]["verdicts"] = {mode: judge(gpu, kernel, mode) for mode in modes}
                print(line(kernel, document[kernel.label]), flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "replay.json").write_text(json.dumps(document, indent=1) + "\n")
    print(f"done at {time.monotonic() - started:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
