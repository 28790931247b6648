"""A problem, its workloads and its contract as frozen values; reading them from data folders is `suite`'s work."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from ptxbench.schema.values import Frozen, Target


class DType(StrEnum):
    """Element types that problems use (names of FlashInfer-Trace)."""

    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return 4 if self is DType.FLOAT32 else 2


class TensorSpec(Frozen):
    """A contiguous row-major tensor argument; `shape` holds axis names."""

    name: str
    shape: tuple[str, ...]
    dtype: DType


class Axis(Frozen):
    """A dimension: constant with a value, or variable (value None, given by each workload)."""

    name: str
    value: int | None = None


class Role(StrEnum):
    """What a workload is for."""

    PAPER = "paper"
    """The published size; what speed is judged on."""
    NEIGHBOUR = "neighbour"
    """Other sizes, ragged ones too, never shown to a model: does the kernel generalise?"""
    SMALL = "small"
    """Small enough for the emulator and for NumPy oracles."""


class Workload(Frozen):
    """Concrete values of a problem's variable axes."""

    uuid: str
    axes: dict[str, int]
    role: Role


class Baseline(Frozen):
    """A library kernel that speedups are measured against."""

    name: Literal["cublas", "cudnn", "flashinfer"]
    published_version: str
    """The version the paper used; a verdict says whether the one here equals it."""


class Contract(Frozen):
    """How results are judged, both rules (E16, E17)."""

    published_atol: float = 1e-2
    published_rtol: float = 1e-2
    block_rows: int = 128
    """Rows of the flattened leading axes over which the RMS-relative error is taken."""
    library_factor: float = 2.0
    """An output block may have this multiple of the library's own RMS-relative error."""
    structured_factor: float = 4.0
    """The same for structured inputs."""
    structured_steps: float = 16.0
    """On structured inputs a block may always miss this many rounding steps: their heavy tails leave blocks that a few
    elements decide, where honest bf16 kernels were seen to miss 0.5 % and FP8 arithmetic 4.7 %."""


class Policy(Frozen):
    """What a candidate may not use, as data (E4)."""

    forbidden_libraries: tuple[str, ...]
    """Names (without `lib` and suffix; shell patterns) whose presence, by link, load or header, is refused."""
    forbidden_symbols: tuple[str, ...]
    """Prefixes of dynamic symbols that are refused."""
    allowed_needed: tuple[str, ...]
    """The shared objects (sonames without version) a candidate may be linked to."""


class WorkFamilies(Frozen):
    """Opcode families (names of `sass`) whose executed work counts for the work share (E9b)."""

    mma: tuple[str, ...]
    """Their floating-point operations are set against the required ones."""
    tma: tuple[str, ...]
    """The bytes they move are set against the compulsory ones."""


class Problem(Frozen):
    """One operator: axes, tensors, reference, tolerance, baselines, families per target."""

    name: str
    op: Literal["gemm", "attention_forward", "attention_backward"]
    causal: bool = False
    description: str
    axes: tuple[Axis, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    reference: str
    """Python source in FlashInfer-Trace form, with a top-level `run`. Shown to models; nothing here executes it."""
    input_maker: str = ""
    """The function of `reference` that makes inputs which depend on each other; empty where all are drawn."""
    flops: str
    """Required floating-point operations as an expression over the axis names, e.g. `2 * M * N * K`."""
    bytes: str
    """Compulsory bytes of device memory traffic: each input read once, each output written once."""
    contract: Contract
    policy: Policy
    baselines: tuple[Baseline, ...]
    families: dict[Target, tuple[str, ...]]
    """Opcode families (names of `sass`) of which one must be executed for the published tag."""
    work_families: dict[Target, WorkFamilies]
    workloads: tuple[Workload, ...]

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        """Tensors in the order of `run`'s parameters: inputs, then outputs."""
        return self.inputs + self.outputs

    def workload(self, uuid: str) -> Workload | None:
        """The workload of that uuid (or of that unique prefix of at least 8 characters)."""
        found = [w for w in self.workloads if w.uuid == uuid or (len(uuid) >= 8 and w.uuid.startswith(uuid))]
        return found[0] if len(found) == 1 else None

    def axis_values(self, workload: Workload) -> dict[str, int]:
        """Every axis with its concrete value."""
        return {axis.name: workload.axes[axis.name] if axis.value is None else axis.value for axis in self.axes}

    def shape(self, tensor: TensorSpec, workload: Workload) -> tuple[int, ...]:
        """Concrete shape of one argument."""
        values = self.axis_values(workload)
        return tuple(values[name] for name in tensor.shape)
