"""Records on a Hopper GPU what the emulator is compared with; the tests compare without a GPU.

    PYTHONPATH=src python tests/gpu/record_emulator.py --out tests/data/emulator [--only programs kernels host tables]

Writes OUT/programs.json.gz (the generated programs), OUT/kernels.json.gz (the kernels of the repository) and
OUT/host.json.gz (what host code is told); and, for people, not for the repository, OUT/raw.zip (answers by digest) and
OUT/tables/ (approximations on all mantissas). `--backend emulator` tries the flow without a GPU.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
# Some packages install a module of that name, which would come before a folder without __init__.py.
sys.modules.setdefault("tests", types.ModuleType("tests")).__path__ = [str(ROOT / "tests")]

from tests.emulator.agreement import answers, catalogue  # noqa: E402
from tests.gpu import emulator_host, emulator_kernels, emulator_programs, emulator_tables  # noqa: E402

from ptxbench.settings import Settings  # noqa: E402
from ptxbench.toolchain.toolkit import find_toolkit  # noqa: E402


def _device(backend: str) -> str:
    if backend != "gpu":
        return backend
    from tests.gpu.cuda_driver import Driver

    return Driver().name()


def _programs(arguments: argparse.Namespace, device: str) -> None:
    ptxas = find_toolkit(Settings.load()).ptxas
    with tempfile.TemporaryDirectory() as folder:
        programs = catalogue.programs()[:: arguments.every]
        document = emulator_programs.record(ptxas, Path(folder), arguments.backend, device, programs)
    emulator_programs.store(document, arguments.out)
    print(emulator_programs.summary(document), flush=True)


def _kernels(arguments: argparse.Namespace, device: str) -> None:
    made = emulator_kernels.record(device, arguments.backend == "gpu")
    answers.write(arguments.out / "kernels.json.gz", made)


def _host(arguments: argparse.Namespace, device: str) -> None:
    made = emulator_host.record(device, arguments.backend == "gpu")
    answers.write(arguments.out / "host.json.gz", made)


def _tables(arguments: argparse.Namespace, device: str) -> None:
    if arguments.backend == "gpu":
        emulator_tables.record(arguments.out / "tables")


PARTS = {"programs": _programs, "kernels": _kernels, "host": _host, "tables": _tables}


def main() -> int:
    """Parse the arguments and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--backend", choices=("gpu", "emulator"), default="gpu")
    parser.add_argument("--every", type=int, default=1, help="only each so many-th program, to try the flow")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    device = _device(arguments.backend)
    print(f"device: {device}", flush=True)
    failed = 0
    for what in arguments.only:
        started = time.time()
        try:
            PARTS[what](arguments, device)
        except Exception:  # noqa: BLE001 - one part must not cost the others: time on a device is dear
            traceback.print_exc()
            failed = 1
        print(f"{what}: {time.time() - started:.1f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
