"""Mutants on a GPU: each in a process of its own with a time limit, alone or under compute-sanitizer; judges no labels.

python benchmarks/mutants/gpu.py FOLDER    # in a child: launches what lies in FOLDER and writes its outputs there
"""

from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
import sys
import tempfile
import time
import types
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
# Some packages install a module of that name, which would come before a folder without __init__.py.
sys.modules.setdefault("tests", types.ModuleType("tests")).__path__ = [str(ROOT / "tests")]

import numpy as np  # noqa: E402
from benchmarks.mutants.emulated import right  # noqa: E402
from benchmarks.mutants.kernels import MapOf, Piece, PointerTo, Problem, parsed  # noqa: E402
from benchmarks.mutants.results import Answer  # noqa: E402
from tests.gpu.cuda_driver import CudaError, Driver  # noqa: E402

from ptxbench.evaluate.child.protocol import WrappedRun  # noqa: E402
from ptxbench.evaluate.sanitizer import TOOLS, sanitizer_command, sanitizer_run  # noqa: E402
from ptxbench.schema.stages import Outcome  # noqa: E402
from ptxbench.schema.values import Target, Unavailable  # noqa: E402
from ptxbench.settings import Settings  # noqa: E402
from ptxbench.toolchain.toolkit import find_sanitizer, find_toolkit  # noqa: E402

TIMES = 20
"""Launches of one mutant: what happens rarely gets a chance to."""
HANG_SECONDS, SANITIZER_SECONDS = 20.0, 60.0
DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class Launcher(Driver):
    """A driver that launches the kernels of this benchmark; their cluster's shape is in their code."""

    def outputs(self, image: bytes, kernel: str, problem: Problem) -> list[bytes]:
        """What the arrays hold after one launch.

        Raises:
            CudaError: A call failed.
        """
        function = self.function(self.load(image), kernel)
        self._call("cuFuncSetAttribute", function, DYNAMIC_SHARED, ctypes.c_int(problem.shared))
        addresses = [self.allocate(array.nbytes) for array in problem.arrays]
        for address, array in zip(addresses, problem.arrays, strict=True):
            self.write(address, array.tobytes())

        def piece(each: Piece) -> bytes:
            if isinstance(each, MapOf):
                return self.tensor_map(replace(each.shape, address=addresses[each.array]))
            return addresses[each.array].to_bytes(8, "little") if isinstance(each, PointerTo) else each

        parameters = [b"".join(map(piece, pieces)) for pieces in problem.parameters]
        self.launch(function, problem.grid, problem.block, problem.shared, parameters)
        return [self.read(address, array.nbytes) for address, array in zip(addresses, problem.arrays, strict=True)]


class Gpu:
    """The instrument: one GPU, and compute-sanitizer if asked for.

    Raises:
        SystemExit: There is no driver, or the sanitizer is asked for and not there.
    """

    def __init__(self, device: str, target: Target, *, sanitizer: bool) -> None:
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise SystemExit(f"error: no CUDA driver ({error}); leave --device out for the emulator") from error
        self._settings = Settings.load()
        self._index = device.removeprefix("cuda:")
        self._target = target
        self._sanitizer: Path | None = None
        if sanitizer:
            found = find_sanitizer(self._settings)
            if isinstance(found, Unavailable):
                raise SystemExit(f"error: {found.reason} {found.remedy}")
            self._sanitizer = Path(found.path)

    def ask(self, text: str, problem: Problem) -> dict[str, Answer]:
        """The columns `gpu` and, with it, `sanitizer`."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "kernel.ptx").write_text(text)
            words = [str(find_toolkit(self._settings).ptxas), f"-arch={self._target.value}", "-o"]
            words += [str(folder / "kernel.cubin"), str(folder / "kernel.ptx")]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
            if done.returncode:
                return {"gpu": Answer("error", (f"ptxas refuses it: {done.stderr.strip()[:120]}",))}
            (kernel,) = [each.name for each in parsed(text).functions.values() if each.entry]
            (folder / "case.pickle").write_bytes(pickle.dumps((kernel, problem, TIMES)))
            made = {"gpu": self._alone(folder)}
            if self._sanitizer is not None:
                (folder / "case.pickle").write_bytes(pickle.dumps((kernel, problem, 1)))
                made["sanitizer"] = self._under_sanitizer(folder, self._sanitizer)
            return made

    def _child(self, folder: Path, before: tuple[str, ...], seconds: float) -> tuple[int | None, float]:
        """The child's exit status, None if it did not end in time, and how long it took."""
        start = time.monotonic()
        words = [*before, sys.executable, __file__, str(folder)]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": self._index}
        with subprocess.Popen(
            words,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        ) as child:
            try:
                status: int | None = child.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, 9)
                status = None
        return status, round(time.monotonic() - start, 2)

    def _alone(self, folder: Path) -> Answer:
        status, seconds = self._child(folder, (), HANG_SECONDS)
        if status is None:
            return Answer("error", ("hangs",), seconds)
        answer = folder / "answer.pickle"
        if not answer.exists():
            return Answer("unknown", (f"the process ended with {status}",), seconds)
        error, wrong = pickle.loads(answer.read_bytes())  # noqa: S301 - our own child wrote it
        if error:
            return Answer("error", (error,), seconds)
        return Answer("error" if wrong else "no", (f"wrong numbers in {wrong} of {TIMES}",) if wrong else (), seconds)

    def _under_sanitizer(self, folder: Path, tool: Path) -> Answer:
        told: list[str] = []
        total, unknown = 0.0, False
        for check in TOOLS:
            report, log = folder / f"{check}.xml", folder / f"{check}.log"
            (folder / "answer.pickle").unlink(missing_ok=True)
            before = sanitizer_command(tool, check, report, log)
            status, seconds = self._child(folder, before, SANITIZER_SECONDS)
            total += seconds
            if status is None:
                told.append(f"{check}: hangs")
                break  # so it does under the others
            called = (folder / "answer.pickle").exists()
            left = WrappedRun(
                returncode=status, stdout="", stderr="", called=called, outputs_right=None, seconds=seconds
            )
            run = sanitizer_run(check, left, report)
            if run.outcome is Outcome.FAILED:
                told.append(f"{check}: {run.findings[0].message}"[:120])
            unknown |= run.outcome is Outcome.UNAVAILABLE
        return Answer("error" if told else "unknown" if unknown else "no", tuple(told), round(total, 2))


def main() -> None:
    """The child: launch, compare, and leave the answer in the folder."""
    folder = Path(sys.argv[1])
    kernel, problem, times = pickle.loads((folder / "case.pickle").read_bytes())  # noqa: S301 - our own parent wrote it
    image = (folder / "kernel.cubin").read_bytes()
    error, wrong = "", 0
    try:
        driver = Launcher()
        for _ in range(times):
            held = zip(driver.outputs(image, kernel, problem), problem.arrays, strict=True)
            left = [np.frombuffer(data, old.dtype).reshape(old.shape) for data, old in held]
            wrong += not right(problem, left)
    except CudaError as failure:
        error = str(failure)
    (folder / "answer.pickle").write_bytes(pickle.dumps((error, wrong)))


if __name__ == "__main__":
    main()
