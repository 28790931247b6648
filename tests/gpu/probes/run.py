"""Asks a Hopper GPU what documents leave open: runs every probe and writes its answers; compares nothing.

    python -m tests.gpu.probes.run --out DIR [--only 'wgmma*'] [--compile-only]

Writes DIR/answers.json: per probe CUDA's name of the error (`hang` after a timeout), and the output. A
process runs probes until one ends in an error that stays, which is an answer; then the next process goes on.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from multiprocessing.connection import Connection, wait
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
from tests.gpu.probes.probe import Probe, kept, module  # noqa: E402
from tests.gpu.probes.products import products  # noqa: E402
from tests.gpu.probes.proxies import proxies  # noqa: E402
from tests.gpu.probes.scalars import scalars  # noqa: E402
from tests.gpu.probes.warpgroups import warpgroups  # noqa: E402

from ptxbench.settings import Settings  # noqa: E402
from ptxbench.toolchain.toolkit import find_toolkit  # noqa: E402

TOPICS = (proxies, products, warpgroups, atomics, scalars, copies, accesses)
CHUNK = 60
PATIENCE = 15.0
"""Seconds after which a probe hangs; a race of many runs takes about two."""


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
    """Run jobs on a context of this process and send what each answers, up to an error that stays."""
    driver = Driver()
    loaded = None
    for job in jobs:
        if job.code != loaded:
            driver.load(job.code.read_bytes())
            loaded = job.code
        try:
            out = driver.run(job.entry, job.probe)
        except DriverError as error:
            sender.send((str(error), b""))
            if not driver.usable():
                break
        else:
            sender.send(("", out))
    sender.close()
    os._exit(0)  # a context with an error cannot be torn down in order


class Queue:
    """Some jobs with the process that works on them; another one goes on behind an error."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.left = list(jobs)
        self.start()

    def start(self) -> None:
        """A new process for what is left."""
        context = multiprocessing.get_context("fork")
        self.receiver, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=work, args=(sender, self.left))
        self.process.start()
        sender.close()
        self.since, self.failed = time.time(), False

    def take(self, ready: bool) -> tuple[Job, tuple[str, bytes]] | None:
        """The next answer, if there is one: error and output."""
        if not ready and time.time() - self.since < PATIENCE:
            return None
        try:
            answer = self.receiver.recv() if ready else ("hang", b"")
        except EOFError:
            self.process.join()
            told, job = self.failed, self.left[0]
            self.left = self.left if told else self.left[1:]
            self.start()
            return None if told else (job, ("the process ended", b""))
        if answer[0] == "hang":
            self.process.kill()
        self.since, self.failed = time.time(), bool(answer[0])
        return self.left.pop(0), answer

    def end(self) -> None:
        """Give up what is left."""
        self.process.kill()
        self.process.join()


def ask(jobs: Sequence[Job], processes: int, deadline: float) -> Iterator[tuple[Job, tuple[str, bytes]]]:
    """What the jobs answer, several processes at a time; the device serves them in turn."""
    chunks = list(dict.fromkeys(job.code for job in jobs))
    shares = [[job for job in jobs if job.code in chunks[place::processes]] for place in range(processes)]
    queues = [Queue(share) for share in shares if share]
    while queues and time.time() < deadline:
        ready = wait([queue.receiver for queue in queues], timeout=0.5)
        for queue in queues:
            answer = queue.take(queue.receiver in ready)
            if answer is not None:
                yield answer
        for queue in [queue for queue in queues if not queue.left]:
            queue.end()
            queues.remove(queue)
    for queue in queues:
        queue.end()


def record(jobs: Sequence[Job], path: Path, processes: int, deadline: float) -> None:
    """Write the answers of all jobs, or of as many as there is time for, as a document."""
    answers: dict[str, Any] = {}
    try:
        for job, (error, out) in ask(jobs, processes, deadline):
            answers[job.probe.name] = {"error": error, "out": kept(job.probe, out) if not error else ""}
            if error or not job.probe.compared:
                print(f"{job.probe.name}: {error or int.from_bytes(out[:8], 'little')}", flush=True)
    finally:
        path.write_text(json.dumps(answers, indent=0) + "\n")
        print(f"{len(answers)} answers of {len(jobs)}", flush=True)


def main() -> int:
    """Compile, run, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=["*"], help="patterns of names")
    parser.add_argument("--seconds", type=float, default=180, help="no further probe is asked after so long")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--compile-only", action="store_true")
    arguments = parser.parse_args()
    started = time.time()
    every = [probe for topic in TOPICS for probe in topic()]
    probes = [probe for probe in every if any(fnmatchcase(probe.name, pattern) for pattern in arguments.only)]
    jobs = compile_all(probes, arguments.out / "code")
    print(f"{len(jobs)} probes compiled, {time.time() - started:.1f} s", flush=True)
    if not arguments.compile_only:
        record(jobs, arguments.out / "answers.json", arguments.processes, started + arguments.seconds)
        print(f"{time.time() - started:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
