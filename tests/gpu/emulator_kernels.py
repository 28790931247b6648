"""Records what a GPU answers to the kernels of the repository and to the seeded bugs; one process per bug, watched.

python emulator_kernels.py CASES.pickle     # in a child: runs the cases with torch, a line of JSON for each
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
# Some packages install a module of that name, which would come before a folder without __init__.py.
sys.modules.setdefault("tests", types.ModuleType("tests")).__path__ = [str(ROOT / "tests")]

from tests.emulator.agreement import cases  # noqa: E402
from tests.emulator.agreement.cases import Case  # noqa: E402

from ptxbench.schema.candidate import Candidate  # noqa: E402
from ptxbench.schema.values import Target  # noqa: E402
from ptxbench.settings import Settings  # noqa: E402
from ptxbench.toolchain.build import build  # noqa: E402

HANG_SECONDS = 5.0
"""For a launch."""
MOST_SECONDS = 120.0
"""For a process that runs one case."""


def library(case: Case) -> Path:
    """The built case.

    Raises:
        SystemExit: It does not build.
    """
    built = build(Candidate.from_source(case.source), Target.SM_90A, Settings.load())
    if built.library is None:
        raise SystemExit(f"error: {case.name} does not build: {built.stage.log[-2000:]}")
    return built.library


def run_on_gpu(case: Case, path: Path) -> dict[str, Any]:
    """Call it twice on the device; outputs with digests, or the error."""
    import torch
    import tvm_ffi

    held = cases.arrays(case)
    names = list(cases.outputs(case, held))
    try:
        function = tvm_ffi.load_module(str(path))["run"]
        results = []
        for _ in range(2):
            tensors = [_tensor(torch, array) for array in held.values()]
            function(*tensors)
            if not _finished(torch):
                return {"error": "hangs"}
            given = dict(zip(held, tensors, strict=True))
            results.append({name: _array(torch, given[name], held[name]) for name in names})
    except Exception as error:  # noqa: BLE001 - whatever is raised is the answer
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    stable = all((results[0][name].tobytes() == results[1][name].tobytes()) for name in names)
    return {"stable": stable, "outputs": {name: cases.stored(results[0][name]) for name in names}}


def _finished(torch: Any) -> bool:
    """Whether the device comes to rest in time."""
    event = torch.cuda.Event()
    event.record()
    until = time.monotonic() + HANG_SECONDS
    while time.monotonic() < until:
        if event.query():
            return True
        time.sleep(0.01)
    return False


def _tensor(torch: Any, array: cases.Array) -> Any:
    if array.dtype.itemsize == 2:
        return torch.from_numpy(array.view("int16").copy()).view(torch.bfloat16).cuda()
    return torch.from_numpy(array.copy()).cuda()


def _array(torch: Any, tensor: Any, like: cases.Array) -> cases.Array:
    plain = tensor.view(torch.int16) if like.dtype.itemsize == 2 else tensor
    made: cases.Array = plain.cpu().numpy().view(like.dtype).reshape(like.shape)
    return made


def _watched(case: Case, path: Path) -> dict[str, Any]:
    """The answer of a child process, which watches its own launch."""
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        file.write(pickle.dumps((case, path)))
        file.flush()
        words = [sys.executable, __file__, file.name]
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            return {"error": "hangs, and its process does too"}
    lines = done.stdout.splitlines()
    if not lines:
        return {"error": f"the process ended with {done.returncode}: {done.stderr[-300:]}"}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def record(device: str, on_gpu: bool) -> dict[str, Any]:
    """All cases, and the seeded bugs."""
    honest = list(cases.cases())
    bugs = [cases.bug(switch) for switch in cases.BUGS]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = dict(zip([*honest, *bugs], pool.map(library, [*honest, *bugs]), strict=True))
        if not on_gpu:
            return {"device": device, "kernels": {case.name: {"error": "not run"} for case in built}}
        answers = list(pool.map(_watched, built, built.values()))
    made = {case.name: {"source": case.source_digest, **answer} for case, answer in zip(built, answers, strict=True)}
    for name, answer in made.items():
        shown = {key: value for key, value in answer.items() if key != "outputs"}
        print(
            f"  {name:50} {shown} {[entry['digest'][:12] for entry in answer.get('outputs', {}).values()]}", flush=True
        )
    return {"device": device, "kernels": made}


def main() -> None:
    """The child."""
    case, path = pickle.loads(Path(sys.argv[1]).read_bytes())
    print(json.dumps(run_on_gpu(case, path)), flush=True)
    # A kernel that hangs would keep an orderly end waiting.
    os._exit(0)


if __name__ == "__main__":
    main()
