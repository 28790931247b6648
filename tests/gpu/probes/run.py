"""Asks a Hopper GPU what documents leave open: runs every probe and writes its answers; compares nothing.

    python -m tests.gpu.probes.run --out DIR [--only 'wgmma*'] [--compile-only]

Writes DIR/answers.json: per probe CUDA's name of the error (`hang` after a timeout), and the output bytes. Probes run
in a process of their own until one ends in an error, which is an answer; then the next process goes on.
"""

from __future__ import annotations

import argparse
import base64
import json
import multiprocessing
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "src"))
sys.modules["tests"] = package = ModuleType("tests")  # not the package of that name that an environment may have
package.__path__ = [str(ROOT / "tests")]

from tests.gpu.probes.accesses import accesses  # noqa: E402
from tests.gpu.probes.atomics import atomics  # noqa: E402
from tests.gpu.probes.copies import copies  # noqa: E402
from tests.gpu.probes.driver import Driver, DriverError  # noqa: E402
from tests.gpu.probes.probe import Probe, module  # noqa: E402
from tests.gpu.probes.products import products  # noqa: E402
from tests.gpu.probes.proxies import proxies  # noqa: E402
from tests.gpu.probes.scalars import scalars  # noqa: E402
from tests.gpu.probes.warpgroups import warpgroups  # noqa: E402

from ptxbench.settings import Settings  # noqa: E402
from ptxbench.toolchain.toolkit import find_toolkit  # noqa: E402

TOPICS = (accesses, atomics, copies, products, warpgroups, scalars, proxies)
CHUNK = 60
PATIENCE = 15.0
"""Seconds after which a probe hangs; a race of many runs takes about two."""
SHOWN = 64
"""Bytes that are kept of the output of a race."""


class Job(NamedTuple):
    """A probe as an entry of machine code."""

    probe: Probe
    entry: str
    code: Path


def compile_chunk(nvcc: Path, place: int, probes: Sequence[Probe], folder: Path) -> list[Job]:
    """Machine code of some probes.

    Raises:
        RuntimeError: They do not assemble.
    """
    text, code = folder / f"{place}.ptx", folder / f"{place}.cubin"
    text.write_text(module(probes))
    words = [str(nvcc), "-arch=sm_90a", "-cubin", "-o", str(code), str(text)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{text}: {done.stderr[:2000]}")
    return [Job(probe, f"k{index}", code) for index, probe in enumerate(probes)]


def compile_all(probes: Sequence[Probe], folder: Path) -> list[Job]:
    """All probes as jobs, in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    nvcc = find_toolkit(Settings.load()).nvcc
    chunks = [probes[place : place + CHUNK] for place in range(0, len(probes), CHUNK)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda place: compile_chunk(nvcc, place, chunks[place], folder), range(len(chunks)))
        return [job for jobs in made for job in jobs]


def work(sender: Connection, jobs: Sequence[Job]) -> None:
    """Run jobs on a context of this process and send what each answers, up to the first error."""
    driver = Driver()
    sender.send(driver.name())
    loaded = None
    for job in jobs:
        if job.code != loaded:
            driver.load(job.code.read_bytes())
            loaded = job.code
        try:
            out = driver.run(job.entry, job.probe)
        except DriverError as error:
            sender.send((str(error), b"", driver.usable()))
            if not driver.usable():
                break
        else:
            sender.send(("", out if job.probe.compared else out[:SHOWN], True))
    sender.close()
    os._exit(0)  # a context with an error cannot be torn down in order


def ask(jobs: Sequence[Job]) -> Iterator[tuple[str, bytes]]:
    """The answer of each job in turn: error and output."""
    context = multiprocessing.get_context("fork")
    left = list(jobs)
    while left:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(sender, left))
        process.start()
        sender.close()
        if not receiver.poll(60):
            raise RuntimeError("no context within a minute")
        device = receiver.recv()
        while left:
            try:
                error, out, usable = receiver.recv() if receiver.poll(PATIENCE) else ("hang", b"", False)
            except EOFError:
                error, out, usable = "the process ended", b"", False
            left.pop(0)
            yield error, out
            if not usable:
                break
        process.kill()
        process.join()
    print(f"on {device}", flush=True)


def record(jobs: Sequence[Job], path: Path, deadline: float) -> None:
    """Write the answers of all jobs, or of as many as there is time for, as a document."""
    answers: dict[str, Any] = {}
    try:
        for job, (error, out) in zip(jobs, ask(jobs), strict=True):
            shown = base64.b64encode(zlib.compress(out, 9)).decode()
            answers[job.probe.name] = {"error": error, "out": shown}
            if error or not job.probe.compared:
                print(f"{job.probe.name}: {error or int.from_bytes(out[:8], 'little')}", flush=True)
            if time.time() > deadline:
                break
    finally:
        path.write_text(json.dumps(answers, indent=0) + "\n")
        print(f"{len(answers)} answers of {len(jobs)}", flush=True)


def main() -> int:
    """Compile, run, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=["*"], help="patterns of names")
    parser.add_argument("--seconds", type=float, default=180, help="no further probe is asked after so long")
    parser.add_argument("--compile-only", action="store_true")
    arguments = parser.parse_args()
    started = time.time()
    every = [probe for topic in TOPICS for probe in topic()]
    probes = [probe for probe in every if any(fnmatchcase(probe.name, pattern) for pattern in arguments.only)]
    jobs = compile_all(probes, arguments.out / "code")
    print(f"{len(jobs)} probes compiled, {time.time() - started:.1f} s", flush=True)
    if not arguments.compile_only:
        record(jobs, arguments.out / "answers.json", started + arguments.seconds)
        print(f"{time.time() - started:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
