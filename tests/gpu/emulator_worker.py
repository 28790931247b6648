"""A process that runs programs on the GPU and answers line by line; its parent watches the clock.

    python emulator_worker.py FOLDER gpu|emulator

FOLDER/N.pickle is program N, the file that FOLDER/N.in names its machine code. Each line of input is a number, each
line of output its answer as JSON: the parts in hex, or `error`. After an error the context is lost, so the process
ends.
"""

from __future__ import annotations

import json
import pickle
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
# Some packages install a module of that name, which would come before a folder without __init__.py.
sys.modules.setdefault("tests", types.ModuleType("tests")).__path__ = [str(ROOT / "tests")]

from tests.emulator.agreement import emulated  # noqa: E402
from tests.emulator.agreement.program import BLOCK, POISON, MapOf, Program  # noqa: E402
from tests.gpu.cuda_driver import CudaError, Driver  # noqa: E402


class Backend(Protocol):
    """What runs a program."""

    def run(self, program: Program, image: Path) -> list[bytes]:
        """The parts' answers.

        Raises:
            CudaError: The launch failed.
        """


class Gpu:
    """The device."""

    def __init__(self) -> None:
        self._driver = Driver()
        self._images: dict[Path, object] = {}

    def run(self, program: Program, image: Path) -> list[bytes]:
        """Load, launch, read."""
        driver = self._driver
        if image not in self._images:
            self._images[image] = driver.load(image.read_bytes())
        function = driver.function(self._images[image], program.kernel)  # type: ignore[arg-type]
        out, given = driver.allocate(program.out_bytes), driver.allocate(len(program.given))
        driver.fill(out, POISON, program.out_bytes)
        driver.write(given, program.given)
        parameters = [out.to_bytes(8, "little"), given.to_bytes(8, "little"), self._block(program, out, given)]
        driver.launch(function, (program.grid, 1, 1), (program.threads, 1, 1), 0, parameters)
        return [driver.read(out + start, size) for start, size in program.places]

    def _block(self, program: Program, out: int, given: int) -> bytes:
        if not isinstance(program.block, MapOf):
            return program.block.ljust(BLOCK, b"\0")
        base = out if program.block.buffer == "out" else given
        return self._driver.tensor_map(replace(program.block.shape, address=base + program.block.shape.address))


class Emulator:
    """Stands in for a device, to try the flow without one."""

    def run(self, program: Program, image: Path) -> list[bytes]:
        """The emulator's answers."""
        made = emulated.run(program)
        if made.error or made.unsupported:
            raise CudaError(made.error or made.unsupported)
        return list(made.parts)


def main() -> None:
    """Answer until the input ends, or the device fails."""
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    backend: Backend = Gpu() if kind == "gpu" else Emulator()
    print("ready", flush=True)
    for line in sys.stdin:
        number = line.strip()
        program: Program = pickle.loads((folder / f"{number}.pickle").read_bytes())
        image = folder / (folder / f"{number}.in").read_text()
        try:
            first = backend.run(program, image)
            again = backend.run(program, image) if kind == "gpu" else first
        except CudaError as error:
            print(json.dumps({"error": str(error)}), flush=True)
            return
        same = [one == two for one, two in zip(first, again, strict=True)]
        print(json.dumps({"parts": [part.hex() for part in first], "stable": same}), flush=True)


if __name__ == "__main__":
    main()
