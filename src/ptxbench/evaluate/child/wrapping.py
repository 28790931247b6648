"""One run of a candidate under a tool, with a check of what it wrote; the tool's report is read elsewhere."""

from __future__ import annotations

import time

from ptxbench.evaluate.child.arena import View
from ptxbench.evaluate.child.checking import Prepared, fault_reason, right
from ptxbench.evaluate.child.desk import Candidate, Desk, Tool, make_slots
from ptxbench.evaluate.child.faults import CandidateFault
from ptxbench.evaluate.child.measuring import probe
from ptxbench.evaluate.child.preparing import Baselines, draw_workload, prepare
from ptxbench.evaluate.child.process import Ended
from ptxbench.evaluate.child.protocol import Wrapped, WrappedRun
from ptxbench.evaluate.child.tensors import Tensors
from ptxbench.schema.stages import Reason


def run_wrapped(desk: Desk, request: Wrapped) -> WrappedRun:
    """Run the candidate once under a tool.

    Raises:
        PtxbenchError: The machine or the tool is at fault.
    """
    started = time.monotonic()
    tool = Tool(request.wrapper, request.staged, request.keep_root)
    problem, workload = request.problem, request.workload
    (draw,) = draw_workload(problem, workload, ("normal",), desk.device.generator(request.seed))
    (prepared,) = prepare(Baselines.find(problem).usable_on(draw), [draw])
    with desk.memory() as memory:
        (slot,) = make_slots(memory, problem, (workload,), 1)
        view = slot.view(problem, workload)
        view.load(draw.inputs)
        desk.device.synchronize()
        until = started + request.deadline
        candidate = desk.begin(request.candidate, memory, request.deadline, tool)
        try:
            candidate.ready()
            reason, ended = _enter(candidate, view, until)
        finally:
            candidate.end()
        written = None if reason else view.take_outputs()
    return WrappedRun(
        returncode=ended.returncode,
        stdout=ended.stdout,
        stderr=ended.stderr,
        called=reason is None,
        outputs_right=None if written is None else _all_right(prepared, written),
        seconds=time.monotonic() - started,
        reason=reason,
        fatal=probe(desk) if reason else "",
    )


def _enter(candidate: Candidate, view: View, until: float) -> tuple[Reason | None, Ended]:
    """Load, call, and let the tool finish; also after a fault that leaves the process alive."""
    reason = None
    try:
        candidate.load()
        candidate.call(view)
    except CandidateFault as fault:
        if fault.ended is not None:
            return fault_reason(fault), fault.ended
        reason = fault_reason(fault)
    try:
        return reason, candidate.finish(max(1.0, until - time.monotonic()))
    except CandidateFault as fault:
        return reason or fault_reason(fault), fault.ended or candidate.end()


def _all_right(prepared: Prepared, got: Tensors) -> bool:
    return all(right(held, name, got[name]) for name, held in prepared.expected.items())
