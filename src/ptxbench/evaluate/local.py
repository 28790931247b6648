"""This machine's evaluator behind the `Evaluator` protocol: waits in threads, judges nothing itself."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

from ptxbench.evaluate.gpu import GpuEvaluator
from ptxbench.evaluate.pipeline import EvaluationRequest, choose, evaluate
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.problem import Problem, Workload
from ptxbench.schema.verdict import StageName, State, Verdict

Result = TypeVar("Result")


@dataclass
class LocalEvaluator:
    """Judges candidates for one target on one device of this machine, as many at once as it can.

    Compiling takes a core, a GPU takes one candidate at a time, and the emulator a core for each.

    Attributes:
        request: What is done with every candidate.
        device: `cuda:N` or `emulator`.
        gpu: The judge, kept between candidates; None on the emulator.
    """

    request: EvaluationRequest
    device: str
    gpu: GpuEvaluator | None = None
    cores: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(len(os.sched_getaffinity(0))))
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def open(cls, request: EvaluationRequest) -> Self:
        """Find the device, and start its judge.

        Raises:
            DeviceError: It is absent, does not fit the target, or its judge does not come up.
        """
        choice = choose(request)
        fixed = replace(request, device=choice.name)
        if choice.gpu is None:
            return cls(fixed, choice.name)
        return cls(fixed, choice.name, GpuEvaluator.start(choice.gpu, request.settings))

    async def evaluate(self, problem: Problem, workload: Workload, candidate: Candidate) -> Verdict:
        """The verdict of one candidate on one workload; the device is held for what compiles alone.

        Raises:
            PtxbenchError: A tool, the device or the harness is at fault.
        """
        compiling = replace(self.request, until=StageName.BUILD)

        def judge(request: EvaluationRequest) -> Callable[[], Verdict]:
            return lambda: evaluate(candidate, problem, workload, request, self.gpu)

        async with self.cores:
            built = await in_thread(judge(compiling))
            if built.status.state in (State.FAILED, State.CHEATED):
                return built
            if self.gpu is None:
                return await in_thread(judge(self.request))
        async with self.turn:
            return await in_thread(judge(self.request))

    def close(self) -> None:
        """End the judge."""
        if self.gpu is not None:
            self.gpu.close()


async def in_thread(work: Callable[[], Result]) -> Result:
    """Do blocking work in a thread that nobody waits for when the program is interrupted."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def settle(result: Result | None, fault: BaseException | None) -> None:
        if done.cancelled():
            return
        if fault is not None:
            done.set_exception(fault)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, fault = None, None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001  (it is raised again where the result is awaited)
            fault = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, fault)

    threading.Thread(target=run, daemon=True, name="evaluation").start()
    return await done
