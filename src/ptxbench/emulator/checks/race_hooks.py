"""Instructions that tell the check for races what they do: wraps bound operations; judges nothing.

A kernel is bound once more for a launch that looks for races; its operations call `cluster.races` besides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ptxbench.emulator.checks.history import Kind
from ptxbench.emulator.checks.race_checks import RaceChecks, Touch
from ptxbench.emulator.checks.race_ground import size_of
from ptxbench.emulator.checks.race_maps import BYTES
from ptxbench.emulator.checks.race_order import CLUSTER, CTA, GPU, SCOPES, SYS, Semantics
from ptxbench.emulator.codegen.bind_memory import space_of
from ptxbench.emulator.codegen.op import Op
from ptxbench.emulator.codegen.values import address_sources
from ptxbench.emulator.machine.unit import WARP, Answer, Lanes, Mask, Unit
from ptxbench.emulator.ptx.ir import Immediate, Instruction, TensorAddress
from ptxbench.emulator.tensor.matrix_moves import MatrixMove

_STRONG = ("relaxed", "acquire", "release", "acq_rel", "sc", "volatile", "mmio")
_OWN = ("param", "const", "local")
_UNKNOWN = frozenset(("multimem", "griddepcontrol", "wmma"))
Maker = Callable[[Instruction, Op], Op | None]
Run = Callable[..., Any]


def watched(ins: Instruction, op: Op) -> Op:
    """The operation with what the check wants to know of it."""
    maker = _MAKERS.get(ins.opcode)
    made = maker(ins, op) if maker is not None and not op.refused else None
    return op if made is None else made


def _run_of(op: Op) -> Run:
    """How an operation runs, given the unit and the mask."""
    run = op.run
    if run is None:
        return lambda unit, mask, *arguments: None
    if op.machine:
        return run
    if op.warp:
        return lambda unit, mask, *arguments: run(unit.full(mask), *arguments)
    return lambda unit, mask, *arguments: run(*arguments)


def _before(op: Op, tell: Run) -> Op:
    """`tell` is called with (races, unit, mask, arguments) first."""
    run = _run_of(op)

    def both(unit: Unit, mask: Mask | None, *arguments: Lanes) -> Answer:
        tell(unit.cta.cluster.races, unit, mask, arguments)
        return run(unit, mask, *arguments)

    return replace(op, run=both, expression="", machine=True, warp=False)


def _behind(op: Op, tell: Run) -> Op:
    """`tell` is called with (races, unit, mask, arguments, result) afterwards."""
    run = _run_of(op)

    def both(unit: Unit, mask: Mask | None, *arguments: Lanes) -> Answer:
        made = run(unit, mask, *arguments)
        tell(unit.cta.cluster.races, unit, mask, arguments, made)
        return made

    return replace(op, run=both, expression="", machine=True, warp=False)


def _sum(parts: tuple[Lanes, ...]) -> Lanes:
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def _scope(ins: Instruction, default: int) -> int:
    return next((SCOPES[word] for word in ins.modifiers if word in SCOPES), default)


# Loads, stores, atomic operations.


def _strength(ins: Instruction) -> int:
    """The scope of a strong access; 0 for a weak one."""
    if ins.opcode in ("atom", "red"):
        return _scope(ins, GPU)
    strong = any(word in _STRONG for word in ins.modifiers)
    return _scope(ins, SYS) if strong else 0


def _semantics(ins: Instruction) -> Semantics:
    words = set(ins.modifiers)
    releases, acquires = bool(words & {"release", "acq_rel"}), bool(words & {"acquire", "acq_rel"})
    return Semantics(releases, acquires, _scope(ins, GPU if ins.opcode in ("atom", "red") else SYS))


def _access(ins: Instruction, op: Op) -> Op | None:
    words = ins.modifiers
    if any(word.startswith(_OWN) for word in words):
        return None
    if words[0] == "bulk":
        return _unknown(ins, op)
    if words[:1] == ("async",) and len(ins.operands) > 2:
        return _before(op, _lanes_of(Semantics()))
    atomic = ins.opcode in ("atom", "red")
    operand = ins.operands[1 if ins.opcode in ("ld", "ldu", "atom") else 0]
    space = space_of(ins)
    split = len(address_sources(operand, space))
    scope = _strength(ins)
    kind = Kind(ins.name, ins.line, scope=scope, atomic=atomic)
    touch = Touch(
        kind,
        space,
        size_of(ins),
        reads=ins.opcode != "st",
        writes=atomic or ins.opcode == "st",
        how=_semantics(ins),
        flag=scope > 0 and "f" not in words[-1],
    )
    stores, swaps = ins.opcode == "st", "cas" in words

    def tell(races: RaceChecks, unit: Unit, mask: Mask | None, arguments: tuple[Lanes, ...], made: Answer) -> None:
        addresses = _sum(arguments[:split])
        if not swaps or isinstance(made, list | tuple) or made.ndim > 1:
            races.touched(unit, mask, touch, addresses, arguments[split:] if stores else None)
            return
        same = made == arguments[split]
        for chosen, one in ((same, touch), (~same, replace(touch, writes=False, kind=replace(kind, atomic=False)))):
            lanes = chosen if mask is None else mask & chosen
            if lanes.any():
                races.touched(unit, lanes, one, addresses)

    return _behind(op, tell)


def _matrix(ins: Instruction, op: Op) -> Op:
    """`ldmatrix` and `stmatrix`: each row counts for the lane that gives its address."""
    form = MatrixMove.parse(ins)
    stores = ins.opcode == "stmatrix"
    split = len(address_sources(ins.operands[0 if stores else 1], "shared"))
    touch = Touch(Kind(ins.name, ins.line), "shared", 16, reads=not stores, writes=stores)

    def tell(races: RaceChecks, unit: Unit, mask: Mask | None, arguments: tuple[Lanes, ...], made: Answer) -> None:
        rows = form.row_addresses(_sum(arguments[:split]).astype(np.uint32, copy=False))
        warps = np.unique(unit.active(mask) // WARP)
        threads = (races.base(unit) + warps[:, None] * WARP + np.arange(rows.shape[1])).ravel()
        if threads.size:
            races.touch_all(touch, threads, rows[warps].ravel())
            if not stores:
                races.converged(unit, mask, visible=False)

    return _behind(op, tell)


# Copies and their groups.


def _copy(ins: Instruction, op: Op) -> Op | None:
    words = ins.modifiers
    bulk = "bulk" in words
    if "commit_group" in words:
        name = "bulk_committed" if bulk else "copies_committed"
        return _before(op, lambda races, unit, mask, _: getattr(races.engines, name)(races.threads(unit, mask)))
    if "wait_group" in words or "wait_all" in words:
        return _group_wait(ins, op, bulk=bulk)
    if "tensor" in words and "prefetch" not in words:
        return _through_map(ins, op)
    if words[:1] != ("async",) or bulk or "mbarrier" in words:
        return _before(op, _lanes_of(Semantics()))
    return _plain(ins, op)


def _through_map(ins: Instruction, op: Op) -> Op:
    """A tensor copy."""
    place = next(at for at, each in enumerate(ins.operands) if isinstance(each, TensorAddress))
    tensor = ins.operands[place]
    assert isinstance(tensor, TensorAddress)
    before = (1,) if place == 0 else (0, 2)
    first = sum(len(address_sources(ins.operands[at], "shared")) for at in before)
    first += "multicast::cluster" in ins.modifiers
    split = first + len(address_sources(tensor.map, "global"))
    kind = Kind(ins.name, ins.line, engine=True)

    def tell(races: RaceChecks, unit: Unit, mask: Mask | None, arguments: tuple[Lanes, ...]) -> None:
        races.doing(mask, Semantics())
        lanes = unit.active(mask)
        races.maps.used(lanes + races.base(unit), _sum(arguments[first:split])[lanes], kind)

    return _before(op, tell)


def _edit(ins: Instruction, op: Op) -> Op:
    """`tensormap.replace`, and `tensormap.cp_fenceproxy`, of which the first lane of each warp is told."""
    publishes = ins.modifiers[0] == "cp_fenceproxy"
    shared = "shared::cta" in ins.modifiers and not publishes
    space = "shared" if shared else "global" if "global" in ins.modifiers else "generic"
    kind = Kind(ins.name, ins.line)
    writes = Touch(kind, space, BYTES, reads=False, writes=True)
    reads = Touch(kind, "shared", BYTES, reads=True, writes=False)
    first = len(address_sources(ins.operands[0], space))
    second = first + (len(address_sources(ins.operands[1], "shared")) if publishes else 0)

    def tell(races: RaceChecks, unit: Unit, mask: Mask | None, arguments: tuple[Lanes, ...], made: Answer) -> None:
        lanes = unit.active(mask)
        lanes = lanes[::WARP] if publishes else lanes
        threads = lanes + races.base(unit)
        if publishes:
            races.converged(unit, mask, visible=False)
            races.touch_all(reads, threads, _sum(arguments[first:second])[lanes])
        if threads.size:
            races.touch_all(writes, threads, _sum(arguments[:first])[lanes])
        if publishes:
            races.maps.released(threads)

    return _behind(op, tell)


def _fence(ins: Instruction, op: Op) -> Op | None:
    """Fences of maps; the others are told as they run."""
    word = next((each for each in ins.modifiers if each.startswith("tensormap")), "")
    if not word:
        return None
    if "acquire" not in ins.modifiers:
        return _before(op, lambda races, unit, mask, _: races.maps.released(races.threads(unit, mask)))
    op = replace(op, sources=address_sources(ins.operands[0], "generic"))

    def tell(races: RaceChecks, unit: Unit, mask: Mask | None, arguments: tuple[Lanes, ...], made: Answer) -> None:
        lanes = unit.active(mask)
        races.maps.acquired(lanes + races.base(unit), _sum(arguments)[lanes], ins.line)

    return _behind(op, tell)


def _group_wait(ins: Instruction, op: Op, *, bulk: bool) -> Op:
    first = ins.operands[0] if ins.operands else None
    newest = first.value if isinstance(first, Immediate) else None
    read = "read" in ins.modifiers

    def tell(races: RaceChecks, unit: Unit, mask: Mask | None, arguments: tuple[Lanes, ...], made: Answer) -> None:
        threads = races.threads(unit, mask)
        if bulk:
            races.engines.bulk_waited(threads, newest or 0, read=read)
        else:
            races.engines.copies_waited(threads, newest)

    return _behind(op, tell)


def _plain(ins: Instruction, op: Op) -> Op:
    """`cp.async`."""
    size = ins.operands[2]
    count = size.value if isinstance(size, Immediate) else 0
    first, second = (len(address_sources(ins.operands[at], ("shared", "global")[at])) for at in (0, 1))
    kind = Kind(ins.name, ins.line)
    writes = Touch(kind, "shared", count, reads=False, writes=True)
    # Bytes that a shorter source size leaves out are not read; their places are only ever read by such copies.
    reads = Touch(kind, "global", count, reads=len(ins.operands) == 3, writes=False)

    def tell(races: RaceChecks, unit: Unit, mask: Mask | None, arguments: tuple[Lanes, ...]) -> None:
        ends = (_sum(arguments[:first]), _sum(arguments[first : first + second]))
        races.engines.copied(unit, mask, (writes, reads), ends)

    return _before(op, tell)


# Barriers, warps, products.


def _lanes_of(how: Semantics) -> Run:
    return lambda races, unit, mask, *_: races.doing(mask, how)


def _mbarrier(ins: Instruction, op: Op) -> Op | None:
    if op.run is None:
        return None
    how = Semantics("relaxed" not in ins.modifiers, False, _scope(ins, CTA))
    return _before(op, _lanes_of(how))


def _bar(ins: Instruction, op: Op) -> Op | None:
    words = ins.modifiers
    if "warp" in words:
        return _before(op, lambda races, unit, mask, _: races.converged(unit, mask, visible=True))
    if "cluster" in words:
        return _before(op, _lanes_of(Semantics("relaxed" not in words, False, CLUSTER)))
    return None


def _together(ins: Instruction, op: Op) -> Op:
    return _before(op, lambda races, unit, mask, _: races.converged(unit, mask, visible=False))


def _wgmma(ins: Instruction, op: Op) -> Op | None:
    word = ins.modifiers[0]
    if word == "commit_group":
        return _before(op, lambda races, unit, mask, _: races.engines.products_committed(unit))
    if word == "wait_group":
        newest = ins.operands[0]
        assert isinstance(newest, Immediate)
        count = newest.value
        return _behind(op, lambda races, unit, mask, *_: races.engines.products_waited(unit, count))
    return None


def _request(ins: Instruction, op: Op) -> Op | None:
    """`try_cancel`; the queries of its answer concern no memory."""
    return _before(op, _lanes_of(Semantics())) if ins.modifiers[0] == "try_cancel" else None


def _unknown(ins: Instruction, op: Op) -> Op:
    what = f"what {ins.opcode} does is not watched"
    return _before(op, lambda races, unit, mask, _: races.unknown(what, ins.line))


_MAKERS: dict[str, Maker] = {
    **dict.fromkeys(("ld", "ldu", "st", "atom", "red"), _access),
    **dict.fromkeys(("ldmatrix", "stmatrix"), _matrix),
    **dict.fromkeys(("shfl", "vote", "match", "redux"), _together),
    **dict.fromkeys(("bar", "barrier"), _bar),
    **dict.fromkeys(_UNKNOWN, _unknown),
    **{"clusterlaunchcontrol": _request, "tensormap": _edit, "fence": _fence},
    **{"cp": _copy, "mbarrier": _mbarrier, "wgmma": _wgmma},
}
