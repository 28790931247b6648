"""The kernels of the repository as cases: sources, problems, sizes and inputs that are the same on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.emulator.agreement.values import random_bytes
from tests.emulator.evidence.candidate import small_gemm, workload

from ptxbench.schema.problem import Problem, TensorSpec
from ptxbench.suite.catalogue import load_problem
from ptxbench.suite.oracles import DTYPES

ROOT = Path(__file__).resolve().parents[3]
KERNELS = ROOT / "tests" / "kernels"
BUGS = (
    *("EXPECT_TOO_MUCH", "PRODUCER_PARITY", "CONSUMER_PARITY", "EARLY_RELEASE", "WAIT_FIRST_PASS_ONLY"),
    *("NO_SYNC_AFTER_INIT", "TILE_ALIGNMENT", "NO_WGMMA_FENCE"),
)
SAMPLES = 4096
"""Elements of an output that are stored beside its digest."""
_SIZES = "constexpr int kN = 7168, kK = 5120;"
Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One kernel at one size.

    Attributes:
        name: FOLDER/KERNEL, for a seeded bug with its switch.
        source: With small sizes where it has them fixed.
        task: `gemm`, or the problem.
        n: Columns of C.
        k: The product's depth.
        axes: The workload's.
    """

    name: str
    source: str
    task: str
    axes: tuple[tuple[str, int], ...]
    n: int = 0
    k: int = 0

    @property
    def source_digest(self) -> str:
        """Tells whether an answer was recorded for this very source."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]

    @property
    def problem(self) -> Problem:
        """What it computes."""
        return small_gemm(self.n, self.k) if self.task == "gemm" else load_problem(self.task)


def _gemm(name: str, text: str, m: int, n: int, k: int) -> Case:
    small = text.replace(_SIZES, f"constexpr int kN = {n}, kK = {k};").replace("[7168, 5120]", "[N, K]")
    return Case(name, small, "gemm", (("M", m),), n, k)


def _attention(name: str, text: str, task: str, length: int) -> Case:
    return Case(name, text, task, (("H", 1), ("S", length)))


def cases() -> Iterator[Case]:
    """All honest kernels for Hopper, and those whose target instructions are decoration."""
    for path in sorted(ROOT.glob("reference/*/sm_90a.cu")):
        task, text = path.parent.name, path.read_text()
        name = f"reference/{task}"
        yield _gemm(name, text, 200, 256, 512) if task.startswith("gemm") else _attention(name, text, task, 200)
    yield _gemm("reference/demo", (ROOT / "reference" / "demo" / "gemm.cu").read_text(), 200, 264, 328)
    for path in sorted((KERNELS / "simple").glob("*.cu")):
        name, text = f"simple/{path.stem}", path.read_text()
        task = path.stem.rpartition("_")[0]
        yield _gemm(name, text, 72, 128, 128) if task == "gemm" else _attention(name, text, task, 100)
    for path in sorted((KERNELS / "decorative").glob("*.cu")):
        name, text = f"decorative/{path.stem}", path.read_text()
        yield (
            _gemm(name, text, 200, 256, 512)
            if "TensorView A" in text
            else _attention(name, text, "mha_with_lse_d128", 100)
        )
    yield bug("")


def bug(switch: str) -> Case:
    """The small GEMM with one mistake, or with none."""
    define = f"#define BUG_{switch}\n" if switch else ""
    name = f"bugs/gemm {switch}" if switch else "bugs/gemm"
    return _gemm(name, define + (KERNELS / "bugs" / "gemm.cu").read_text(), 256, 256, 512)


def arrays(case: Case) -> dict[str, Array]:
    """All arguments in order: inputs drawn from bytes, with no function of a library's, and outputs of zeros."""
    problem = case.problem
    sizes = workload(problem, **dict(case.axes))
    made = {spec.name: _drawn(spec, problem.shape(spec, sizes)) for spec in problem.inputs}
    made |= {spec.name: np.zeros(problem.shape(spec, sizes), DTYPES[spec.dtype]) for spec in problem.outputs}
    return {spec.name: made[spec.name] for spec in problem.arguments}


def _drawn(spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    """Sums of four bytes, of mean 0 and variance 1; LSE is near that of such scores, O is a mean of V's."""
    count = int(np.prod(shape))
    sums = np.frombuffer(random_bytes(f"kernels {spec.name}", 4 * count), np.uint8).reshape(count, 4).sum(1, np.int32)
    values = (sums - 510).astype(np.float32) / np.float32(148)
    if spec.name == "LSE":
        values = values * np.float32(0.125) + np.float32(5.5)
    if spec.name == "O":
        values = values * np.float32(0.125)
    made: Array = values.reshape(shape).astype(DTYPES[spec.dtype])
    return made


def outputs(case: Case, held: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs among the arrays."""
    return {spec.name: held[spec.name] for spec in case.problem.outputs}


def places(count: int) -> NDArray[np.int64]:
    """Which elements of an output are stored."""
    return np.arange(count) if count <= SAMPLES else np.arange(SAMPLES) * count // SAMPLES


def stored(array: Array) -> dict[str, str]:
    """An output's digest and its stored elements as hex."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return {"digest": hashlib.sha256(flat.tobytes()).hexdigest(), "elements": flat[places(flat.size)].tobytes().hex()}
