"""Messages between the evaluator and its judge process: one JSON object per line each way; no behaviour here.

The judge answers `Hello` once when it is ready, then one `Reply` per `Request`, in order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ptxbench.schema.problem import Problem, Workload
from ptxbench.schema.stages import CheckStage, Reason, TimeStage
from ptxbench.schema.values import Frozen, ToolVersion, Unavailable


class Hello(Frozen):
    """What the judge found on its machine."""

    device_name: str
    gpu_uuid: str
    driver: str
    compute_capability: tuple[int, int]
    sm_count: int
    max_sm_clock_mhz: int
    memory_bandwidth: float
    """Bytes per second by the device's own attributes."""
    tools: tuple[ToolVersion, ...]
    baselines: tuple[ToolVersion, ...]
    """Libraries that can serve as baselines: `cublas`, `cudnn`, `flashinfer`, with their versions."""
    missing: tuple[Unavailable, ...]
    """Baselines and instruments that are not there."""


class CandidateFiles(Frozen):
    """The built candidate, as the trusted side knows it."""

    library: Path
    symbol: str
    kernels: tuple[str, ...]
    """Mangled names of every kernel in its own machine code."""
    cubin_hashes: tuple[str, ...]
    """SHA-256 of every cubin in it."""
    program: Path | None = None
    """Its replay program: the process loads this and not the library. None: its host code runs."""


class Measure(Frozen):
    """Check a candidate and, if it is right, time it, in one fresh candidate process (E7, E10)."""

    kind: Literal["measure"] = "measure"
    problem: Problem
    workload: Workload
    neighbours: tuple[Workload, ...] = ()
    """Checked after the workload itself, for `generalises`."""
    seed: int
    """Secret; all draws of inputs follow from it."""
    candidate: CandidateFiles
    time: bool
    deadline: float
    """Seconds the candidate may take for one call before it counts as hung."""


class Measured(Frozen):
    """Both results; `time` is None when it was not asked for or the check did not pass."""

    check: CheckStage
    time: TimeStage | None
    protections: tuple[str, ...]
    missing_protections: tuple[Unavailable, ...]
    held: dict[str, float]
    """Seconds by phase during which the device was held: context, load, check, time, ..."""
    fatal: str = ""
    """Why the judge must be replaced after this answer (its device no longer answers); empty: it need not be."""


class Wrapped(Frozen):
    """Run the candidate once under a tool (ncu, compute-sanitizer) and check what it wrote."""

    kind: Literal["wrapped"] = "wrapped"
    problem: Problem
    workload: Workload
    seed: int
    candidate: CandidateFiles
    wrapper: tuple[str, ...]
    """Command line put before the candidate process's own."""
    staged: bool = False
    """Call with allocations of the exact sizes, so that a memory checker sees the first byte past an end."""
    keep_root: bool = False
    """Keep the rights that reading hardware counters takes."""
    deadline: float
    """Seconds for the whole run."""


class WrappedRun(Frozen):
    """What the tool left; its report is read by the evaluator."""

    returncode: int | None
    """None: killed at the deadline."""
    stdout: str
    stderr: str
    called: bool
    """The candidate's `run` was entered and returned without an error."""
    outputs_right: bool | None
    """The published rule on what this run wrote; None where nothing came back."""
    seconds: float
    reason: Reason | None = None
    """The candidate's own fault in this run, if it had one."""
    fatal: str = ""
    """See `Measured.fatal`."""


class Failure(Frozen):
    """The judge itself failed; the candidate is not at fault."""

    what: str
    remedy: str
    fatal: bool
    """The judge must be replaced (its own device context is broken)."""


class Request(Frozen):
    """One order to the judge."""

    body: Measure | Wrapped


class Reply(Frozen):
    """One answer."""

    body: Measured | WrappedRun | Failure
