"""The typed result of each stage of an evaluation; how stages are run is `evaluate`'s work.

Every stage carries its outcome, the reason when it is not a pass, its time span and its instrument.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from ptxbench.schema.values import Frozen, Layer, ToolVersion


class Outcome(StrEnum):
    """How a stage ended."""

    PASSED = "passed"
    FAILED = "failed"
    """The candidate is at fault."""
    CHEATED = "cheated"
    """The candidate broke a rule."""
    INCONCLUSIVE = "inconclusive"
    """It ran, but the evidence does not decide."""
    UNAVAILABLE = "unavailable"
    """An instrument is missing here; the reason says which and how to get it."""
    NOT_RUN = "not_run"
    """An earlier stage ended the evaluation, or it was not asked for."""


class Reason(Frozen):
    """Why a stage did not pass."""

    code: str
    """Stable identifier, e.g. `compile_error`, `wrong_numbers`, `hang`."""
    message: str
    """One sentence for people."""
    hint: str = ""
    """What to do next."""


class Stage(Frozen):
    """What every stage result has."""

    outcome: Outcome
    reason: Reason | None = None
    started: float = 0.0
    """Unix time in seconds."""
    seconds: float = 0.0
    instrument: ToolVersion | None = None


# ---- policy (E4) ----


class PolicyFinding(Frozen):
    """One broken rule with its evidence."""

    rule: str
    """Stable identifier: `forbidden_include`, `forbidden_needed`, `run_time_loading`, `foreign_cubin`, ..."""
    place: Literal["source", "binary"]
    evidence: str
    """The include line, symbol, library or section found."""
    line: int | None = None


class PolicyStage(Stage):
    """Does the candidate have a `run`, and does it keep to what it may use?"""

    findings: tuple[PolicyFinding, ...] = ()


# ---- build (E5) ----


class Diagnostic(Frozen):
    """One compiler message."""

    severity: Literal["error", "warning", "note"]
    message: str
    file: str = ""
    line: int | None = None


class KernelResources(Frozen):
    """What ptxas reports for one kernel."""

    name: str
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    static_shared_bytes: int
    barriers: int


class BuildStage(Stage):
    """Compilation to a shared object for one target."""

    key: str = ""
    """Content hash of everything that decides the output."""
    from_cache: bool = False
    headers: Literal["slim", "full", ""] = ""
    """`slim`: our own small TVM-FFI headers; `full`: the real ones (fallback)."""
    command: tuple[str, ...] = ()
    kernels: tuple[KernelResources, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    log: str = ""
    """Compiler output, at most 64 KiB: head and tail."""


# ---- inspect (E6) ----


class KernelFamilies(Frozen):
    """Static counts of one kernel's machine code."""

    name: str
    instructions: int
    families: dict[str, int]


class InspectStage(Stage):
    """Static opcode families in the candidate's machine code."""

    kernels: tuple[KernelFamilies, ...] = ()
    families: dict[str, int] = Field(default_factory=dict)
    """Sums over kernels."""


# ---- check (E7, E16-E19) ----


class WorstElement(Frozen):
    """The element that misses its bound by most."""

    index: tuple[int, ...]
    got: float
    expected: float


class BlockError(Frozen):
    """The block of rows with the largest share of its allowed RMS-relative error (E17)."""

    block: int
    """Index over blocks of `Contract.block_rows` rows of the flattened leading axes."""
    rms_relative_error: float
    bound: float


class OutputCheck(Frozen):
    """One output of one draw, judged by both rules."""

    name: str
    published: bool
    contract: bool | None
    """None where the library's own error is not known, so that no bound can be set."""
    failing: int
    """Elements that fail the published rule."""
    total: int
    max_abs: float
    max_rel: float
    worst: WorstElement | None = None
    block: BlockError | None = None
    pattern: str = ""
    """Where failures lie: `NaN`, `tiles of 128x128 at ...`, `rows 768-1023`, `everywhere`, `scattered`."""


class DrawCheck(Frozen):
    """One draw of secret inputs."""

    workload: str
    recipe: Literal["normal", "spiky"]
    outputs: tuple[OutputCheck, ...]
    inputs_unchanged: bool = True
    guards_intact: bool = True


class CheckStage(Stage):
    """Are the numbers right?"""

    draws: tuple[DrawCheck, ...] = ()
    published: Layer = Layer.unavailable("not checked")
    """Against `published_reference`: no element misses max(1e-2, 1e-2*|y|) (E16)."""
    published_reference: str = ""
    """`cublas 13.1.0`, or `oracle` where the library is missing."""
    contract: Layer = Layer.unavailable("not checked")
    generalises: Layer = Layer.unavailable("not checked")
    """Whether the neighbour workloads pass too (E18)."""


# ---- sanitize (E8) ----


class SourceLine(Frozen):
    """The source of a line of PTX that a finding's words name."""

    ptx_line: int
    file: str
    line: int
    """The user's line, as in `SanitizerFinding.line`."""
    inlined: tuple[str, ...] = ()


class SanitizerFinding(Frozen):
    """One report of a sanitizer tool."""

    kind: str
    message: str
    kernel: str = ""
    file: str = ""
    line: int | None = None
    inlined: tuple[str, ...] = ()
    """What is inlined at that line and holds the instruction, outermost first: `tma_load at helpers.cuh:33`."""
    severity: Literal["error", "warning", "lint"] = "error"
    """Only errors fail a run; the emulator alone reports others."""
    ptx_line: int | None = None
    """Line of the PTX text, where the tool reads PTX."""
    named: tuple[SourceLine, ...] = ()
    """Where the lines of PTX come from that `message` and `state` name."""
    warps: tuple[str, ...] = ()
    """Warps involved, with their CTA."""
    state: tuple[str, ...] = ()
    """Barriers and waits at that moment."""
    hint: str = ""
    """What would mend it."""

    @property
    def place(self) -> str:
        """`gemm.cu:120 (inlined in tma_load at helpers.cuh:33)`; empty where no line is known."""
        inside = f" (inlined in {', '.join(self.inlined)})" if self.inlined else ""
        return f"{self.file}:{self.line}{inside}" if self.line is not None else ""


class ScheduleCoverage(Frozen):
    """How much of one launch's grid the emulator ran in one schedule."""

    kernel: str
    schedule: str
    """`late`, `eager` or `seed N`."""
    clusters: int
    of: int


class SanitizerRun(Frozen):
    """One tool's run."""

    tool: Literal["memcheck", "racecheck", "synccheck", "initcheck", "emulator"]
    outcome: Outcome
    errors: int = 0
    findings: tuple[SanitizerFinding, ...] = ()
    seconds: float = 0.0
    schedules: tuple[ScheduleCoverage, ...] = ()
    """What the emulator ran; empty for the tools of compute-sanitizer."""


class SanitizeStage(Stage):
    """Memory and synchronisation errors."""

    runs: tuple[SanitizerRun, ...] = ()


# ---- profile (E9) ----


class ExecutedFamily(Frozen):
    """Executed counts of one opcode family in one kernel."""

    family: str
    warp_instructions: int
    thread_instructions_true: int
    """Thread instructions whose predicate was true (ncu `thread_inst_executed_true`)."""


class KernelProfile(Frozen):
    """What the profiler counted for one launch."""

    name: str
    own: bool
    """The kernel comes from the candidate's cubin."""
    families: tuple[ExecutedFamily, ...] = ()
    target_mma_flops: float | None = None
    """Floating-point operations done by the target family (HGMMA, UTC*MMA), 2 per multiply-add; None: not countable."""
    counter_mma_flops: float | None = None
    """A second reading of `target_mma_flops`, by the hardware's counter; None where there is none."""
    other_mma_flops: float | None = None
    """The same as `target_mma_flops` for the portable tensor-core path (HMMA)."""
    tma_bytes: float | None = None
    """Bytes that TMA loads brought to shared memory; None: not counted."""
    dram_bytes: float | None = None
    """Bytes read from and written to device memory; None: not counted."""
    gpu_time_ms: float | None = None


class WorkShare(Frozen):
    """How much of the required work the target's instructions did (E9b, E9c)."""

    target_mma: float
    """Target-family floating-point operations / required ones."""
    tma: float | None
    """Bytes moved by TMA loads / compulsory bytes; None: not counted."""
    other_mma: float
    """Non-target tensor-core operations / required ones."""
    excessive: bool
    """All tensor-core operations together exceed 2.5 times the required ones."""


class FamilyNecessity(Frozen):
    """Whether the outputs need what the instructions of one family compute or move (E9d)."""

    family: str
    necessity: Layer
    """`no`: decorative, the outputs stay right when it is spoilt."""


class ProfileStage(Stage):
    """Did the target's instructions execute, and did they do the work?"""

    kernels: tuple[KernelProfile, ...] = ()
    executed: Layer = Layer.unavailable("not profiled")
    """The published tag: some family line ran with its predicate true."""
    work: WorkShare | None = None
    needs: tuple[FamilyNecessity, ...] = ()
    """The families that ran, each spoilt apart from the others; empty without the emulator."""
    necessity: Layer = Layer.unavailable("the necessity witness needs the emulator")
    """`no` as soon as one of them is decoration; the reason names it."""


# ---- time (E10, E20-E23) ----


class Samples(Frozen):
    """Every timed sample, in the order taken."""

    milliseconds: tuple[float, ...]
    median: float
    mean_clock_mhz: float | None = None


class BaselineTime(Frozen):
    """The library's time, taken alternately with the candidate's."""

    name: str
    version: str
    published_version: str
    call: str = ""
    """How the library was entered, e.g. `torch.matmul`."""
    samples: Samples
    speedup: float
    """Baseline median / candidate median."""
    interval: tuple[float, float]
    """Bootstrap 95 % interval of the ratio of medians."""

    @property
    def equals_published(self) -> bool:
        """Whether this is the version the paper used."""
        return self.version == self.published_version


class Witness(Frozen):
    """A second clock's reading of the same work (E22)."""

    name: Literal["judge_wall_clock", "ncu_gpu_time"]
    milliseconds: float
    allowance_ms: float
    """How far above the instrument it may read: 3 % plus the measured launch cost."""
    agrees: bool


class GpuState(Frozen):
    """Read before and after the samples."""

    sm_clock_mhz: int
    power_w: float
    temperature_c: int
    throttle_reasons: tuple[str, ...] = ()


class TimeStage(Stage):
    """How fast is it against the library?"""

    candidate: Samples | None = None
    baselines: tuple[BaselineTime, ...] = ()
    missing_baselines: tuple[Reason, ...] = ()
    witnesses: tuple[Witness, ...] = ()
    floor_ms: float | None = None
    """No kernel can be faster: max(FLOPs / peak, compulsory bytes / bandwidth)."""
    tflops: float | None = None
    roofline_share: float | None = None
    """floor_ms / median."""
    outputs_checked: int = 0
    """Timed outputs that the judge copied out and checked."""
    foreign_kernels: tuple[str, ...] = ()
    """Kernels that ran but are not in the candidate's cubin (E23)."""
    launches: tuple[str, ...] = ()
    """Mangled names of the kernels that each timed call launched, in alphabetical order."""
    states: tuple[GpuState, ...] = ()
    held: dict[str, float] = Field(default_factory=dict)
    """Seconds of GPU hold by phase (E27)."""
