"""Records what the CUDA runtime of a GPU tells the honest host code of tests/emulator/host/calls.cu, and its codes.

python emulator_host.py LIBRARY FUNCTION     # in a child: calls one function, prints a line of JSON
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src")]

from ptxbench.schema.candidate import Candidate  # noqa: E402
from ptxbench.schema.values import Target  # noqa: E402
from ptxbench.settings import Settings  # noqa: E402
from ptxbench.toolchain.build import build  # noqa: E402

CALLS = ROOT / "tests" / "emulator" / "host" / "calls.cu"
CODES = ROOT / "tests" / "emulator" / "agreement" / "codes.cu"
"""Each of its functions raises an error that lists what each call returned."""
LISTS = (
    *("code_launches", "code_clusters", "code_no_kernel", "code_memory", "code_bad_free", "code_bad_kind"),
    *("code_queries", "code_no_function"),
)
FUNCTIONS = (
    *("launches", "clusters", "shared_memory", "bad_shapes", "memory", "order", "queries", "tensor_maps"),
    *("driver_launch", "reads_back", "calls_back", "uses_threads"),
)
"""Each raises an error that quotes the condition that does not hold."""


def call(library: str, name: str) -> dict[str, str]:
    """Call one function with a tensor on the device."""
    import torch
    import tvm_ffi

    x = torch.zeros(4096).cuda()
    try:
        tvm_ffi.load_module(library)[name](x)
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 - whatever is raised is the answer
        return {"raised": f"{error}".splitlines()[-1]}
    return {"raised": ""}


def _library(source: Path) -> Path:
    built = build(Candidate.from_source(source.read_text()), Target.SM_90A, Settings.load())
    if built.library is None:
        raise SystemExit(f"error: {source.name} does not build: {built.stage.log[-2000:]}")
    return built.library


def record(device: str, on_gpu: bool) -> dict[str, Any]:
    """All functions, each in a process of its own."""
    sources = {**dict.fromkeys(FUNCTIONS, CALLS), **dict.fromkeys(LISTS, CODES)}
    libraries = {source: _library(source) for source in (CALLS, CODES)}

    def one(name: str) -> dict[str, str]:
        words = [sys.executable, __file__, str(libraries[sources[name]]), name]
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        except subprocess.TimeoutExpired:
            return {"raised": "hangs"}
        lines = done.stdout.splitlines()
        return json.loads(lines[-1]) if done.returncode == 0 and lines else {"raised": f"ended with {done.returncode}"}

    if not on_gpu:
        return {"device": device, "calls": {}}
    with ThreadPoolExecutor(4) as pool:
        made = dict(zip(sources, pool.map(one, sources), strict=True))
    for name, answer in made.items():
        print(f"  {name:20} {answer['raised'] or 'returned'}", flush=True)
    return {"device": device, "calls": made}


if __name__ == "__main__":
    print(json.dumps(call(sys.argv[1], sys.argv[2])))
