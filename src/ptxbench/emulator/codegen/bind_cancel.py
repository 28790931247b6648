"""clusterlaunchcontrol, bound to the machine: a running cluster asks for the work of one that has not started.

The request is asynchronous; its answer of 16 bytes is opaque to kernels, so its form here is our own. PTX ISA, section
clusterlaunchcontrol.try_cancel and query_cancel (sm_100).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxbench.emulator.codegen.op import Op, items, typed
from ptxbench.emulator.codegen.program import Program
from ptxbench.emulator.codegen.values import address_sources
from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine.access import peer_of
from ptxbench.emulator.machine.phases import find
from ptxbench.emulator.machine.spaces import OFFSET_MASK, RANK_SHIFT, Lanes
from ptxbench.emulator.machine.unit import Mask, Unit
from ptxbench.emulator.machine.work import Span, Work
from ptxbench.emulator.ptx.ir import Instruction

_BYTES = 16
_GRANTED, _REFUSED = 1, 2
_LOW = np.uint64(0xFFFF_FFFF)
_HALF = np.uint64(32)


def bind(ins: Instruction, program: Program) -> Op | None:
    """`try_cancel` or one of the queries."""
    if ins.modifiers[0] == "try_cancel":
        return _request(ins)
    if "is_canceled" in ins.modifiers:
        return Op(typed(ins.operands[1:], "b128"), typed(ins.operands[:1], "pred"), run=_granted, machine=True)
    word = next(word for word in ins.modifiers if word.startswith("get_first_ctaid"))
    axes = ["xyz".index(word[-1])] if "::" in word else [0, 1, 2, 0]
    targets = items(ins.operands[0])

    def read(answer: Lanes) -> list[Lanes] | Lanes:
        parts = [answer[:, 0] & _LOW, answer[:, 0] >> _HALF, answer[:, 1] & _LOW]
        made = [parts[axis].astype(np.uint32) for axis in axes]
        return made if len(made) > 1 else made[0]

    return Op(typed(ins.operands[1:], "b128"), typed(targets, "b32"), run=read)


def _granted(unit: Unit, mask: Mask | None, answer: Lanes) -> Lanes:
    state = answer[:, 1] >> _HALF
    if (state[unit.full(mask)] == _REFUSED).any():
        unit.cta.cluster.refused = True
    made: Lanes = state == _GRANTED
    return made


def _request(ins: Instruction) -> Op:
    target, barrier = (address_sources(each, "shared") for each in ins.operands[:2])
    everywhere, line = "multicast::cluster::all" in ins.modifiers, ins.line

    def run(unit: Unit, mask: Mask | None, *arguments: Lanes) -> None:
        there = sum(arguments[1 : len(target)], arguments[0])
        signal = sum(arguments[len(target) + 1 :], arguments[len(target)])
        for lane in unit.active(mask).tolist():
            _issue(unit, (int(there[lane]), int(signal[lane])), everywhere, line)

    return Op((*target, *barrier), run=run, machine=True)


def _issue(unit: Unit, addresses: tuple[int, int], everywhere: bool, line: int) -> None:
    """One request: the address of the answer and that of the mbarrier that is told."""
    cluster = unit.cta.cluster
    offset, signal = (address & OFFSET_MASK for address in addresses)
    if cluster.refused:
        reason = "clusterlaunchcontrol.try_cancel after one that is known to have failed: its behaviour is undefined"
        raise Fault("cudaErrorIllegalInstruction", reason)
    if offset % _BYTES:
        raise Fault("cudaErrorMisalignedAddress", f"try_cancel: shared+{offset:#x} is not aligned to 16 bytes")
    ranks = range(len(cluster.ctas)) if everywhere else (addresses[0] >> RANK_SHIFT & 0xFF,)
    ctas = [peer_of(unit.cta, rank) for rank in ranks]
    told = [find(cluster, unit, cta.rank << RANK_SHIFT | signal, remote=True) for cta in ctas]
    if offset + _BYTES > unit.cta.shared.limit:
        raise Fault("cudaErrorIllegalAddress", f"try_cancel: shared+{offset:#x} is beyond the shared memory")

    def move() -> None:
        schedule = cluster.schedule
        granted = not schedule.eager and (schedule.seed is None or schedule.choose(2) == 0)
        place = cluster.kernel.cancel() if granted else None
        words = (*place, _GRANTED) if place is not None else (0, 0, 0, _REFUSED)
        for cta in ctas:
            cta.shared.bytes[offset : offset + _BYTES].view(np.uint32)[:] = words

    spans = tuple(Span(cta, offset, _BYTES) for cta in ctas)
    barriers = tuple((phases, _BYTES) for phases in told)
    Work(unit, line, move, writes=spans, barriers=barriers, kind="cancel request", size=_BYTES * len(ctas)).issue()


BINDERS: dict[str, Callable[[Instruction, Program], Op | None]] = {"clusterlaunchcontrol": bind}
