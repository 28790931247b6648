"""Clusters in several processes: who takes which, and how what they did comes back; runs no instruction itself.

Only for kernels whose clusters leave each other alone. Global memory is shared by all processes; everything else each
has for itself and tells when it ends. Clusters are taken in their order: those before a failed one have all been taken.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import struct
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from ptxbench.emulator.ptx.ir import Instruction

_TASK = struct.Struct("<I")
_MOST_TASKS = 8192
"""They all fit into a pipe."""
_MOST = 16
"""Processes; each holds what it changes of the first one's memory."""
_WORTH = 0.5
"""Seconds of work below which starting processes costs more than it saves."""
_PR_SET_PDEATHSIG = 1
_COUPLING = frozenset(("multimem", "clusterlaunchcontrol", "griddepcontrol"))
_OWN = ("shared", "local", "param")

Here = TypeVar("Here")
Apart = TypeVar("Apart")


def processes(work: float) -> int:
    """How many processes should share work of so many seconds.

    One, where there is little to do, and where this process has several threads: a copy of it might wait for ever.
    """
    if work < _WORTH or len(list(Path("/proc/self/task").glob("*"))) != 1:
        return 1
    return min(len(os.sched_getaffinity(0)), _MOST)


def couples(ins: Instruction) -> bool:
    """Whether an instruction may make clusters depend on each other: atomics, and loads that see others' stores."""
    own = any(word.startswith(_OWN) for word in ins.modifiers)
    if ins.opcode in ("atom", "red"):
        return not own
    if ins.opcode == "ld":
        return not own and bool({"volatile", "relaxed", "acquire", "mmio"} & set(ins.modifiers))
    return ins.opcode in _COUPLING or (ins.opcode == "cp" and ins.modifiers[0] == "reduce")


@dataclass
class _Helper:
    """A process that we started, and the end of its pipe."""

    pid: int
    answer: int

    def read(self) -> object:
        """What it did.

        Raises:
            RuntimeError: It failed, or was ended.
        """
        with os.fdopen(self.answer, "rb") as pipe:
            said = pipe.read()
        os.waitpid(self.pid, 0)
        self.pid = 0
        failure, done = pickle.loads(said) if said else ("it was ended", None)  # noqa: S301  (our own process)
        if failure:
            raise RuntimeError(f"a process that ran clusters failed: {failure}")
        return done

    def end(self) -> None:
        """Nothing of it is left."""
        if self.pid:
            os.close(self.answer)
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def share(
    clusters: range, count: int, here: Callable[[Iterator[int]], Here], apart: Callable[[Iterator[int]], Apart]
) -> tuple[Here, list[Apart]]:
    """Have `count` processes take the clusters in their order; one that does not take all it could ends the others.

    Args:
        clusters: Their numbers.
        count: Of processes, this one among them.
        here: Runs the clusters with the numbers that it takes, in this process.
        apart: The same in another one; its answer is pickled.

    Raises:
        RuntimeError: Another process failed.
    """
    tasks = _tasks(clusters)
    helpers: list[_Helper] = []
    try:
        while len(helpers) < count - 1:
            helpers.append(_start(lambda: _working(apart, tasks, clusters)))
        mine = _working(here, tasks, clusters)
        return mine, [cast(Apart, helper.read()) for helper in helpers]
    finally:
        os.close(tasks)
        for helper in helpers:
            helper.end()


def _working(work: Callable[[Iterator[int]], Here], tasks: int, clusters: range) -> Here:
    with closing(_taken(tasks, clusters)) as taken:
        return work(taken)


def _tasks(clusters: range) -> int:
    """A pipe with the number of each task."""
    end, into = os.pipe()
    count = min(len(clusters), _MOST_TASKS)
    os.write(into, b"".join(_TASK.pack(number) for number in range(count)))
    os.close(into)
    return end


def _taken(tasks: int, clusters: range) -> Generator[int, None, None]:
    """The clusters that this process takes; when it stops early, nothing is left for others."""
    size = -(-len(clusters) // _MOST_TASKS)
    try:
        while word := os.read(tasks, _TASK.size):
            first = _TASK.unpack(word)[0] * size
            yield from clusters[first : first + size]
    finally:
        while os.read(tasks, 1 << 16):
            pass


def _start(work: Callable[[], object]) -> _Helper:
    end, into = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(into)
        return _Helper(pid, end)
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        answer = ("", work()) if os.getppid() == parent else ("its caller has gone", None)
    except BaseException:  # noqa: BLE001  (a copy of the process must end here, whatever happens)
        answer = (traceback.format_exc(limit=-3), None)
    try:
        with os.fdopen(into, "wb") as pipe:
            pickle.dump(answer, pipe)
    finally:
        os._exit(0)
