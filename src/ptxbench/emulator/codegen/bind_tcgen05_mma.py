"""tcgen05.mma and tcgen05.commit of single threads, bound to the machine: operands decoded, checked and issued."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.codegen.op import Op, Source
from ptxbench.emulator.codegen.values import address_sources
from ptxbench.emulator.errors import Fault, Unsupported
from ptxbench.emulator.machine.cta import Cta
from ptxbench.emulator.machine.phases import find
from ptxbench.emulator.machine.products import Operand
from ptxbench.emulator.machine.spaces import OFFSET_MASK, RANK_SHIFT, Lanes
from ptxbench.emulator.machine.tensor_alloc import peer
from ptxbench.emulator.machine.tensor_memory import TensorMemory, rule
from ptxbench.emulator.machine.tensor_products import (
    A_COLUMNS,
    DEPTH,
    Product,
    Sides,
    check_lane,
    overlaps,
    shared_operand,
)
from ptxbench.emulator.machine.tensor_scales import Factors
from ptxbench.emulator.machine.tensor_work import Commit, Pipe, PipeWork
from ptxbench.emulator.machine.unit import Mask, Unit
from ptxbench.emulator.ptx.ir import Address, Immediate, Instruction, Vector
from ptxbench.emulator.ptx.ir import Operand as PtxOperand
from ptxbench.emulator.tensor import zero_columns
from ptxbench.emulator.tensor.narrow import element_bytes
from ptxbench.emulator.tensor.tcgen05 import Form, Shape, decode
from ptxbench.emulator.tensor.tensor_sparse import metadata_columns

_LANES = 128
_SHIFT = ".ashift: no document says whether A's rows move before the product or behind it; here behind"
_FORMS: dict[Form, Form] = {}
Sources = tuple[tuple[Source, str], ...]
Issue = Callable[[Unit, int, list[int]], None]


def by_thread(name: str, groups: tuple[Sources, ...], issue: Issue) -> Op:
    """An operation that calls `issue` for each thread with the sums of the groups of sources."""
    sizes = [len(group) for group in groups]

    def run(unit: Unit, mask: Mask | None, *arguments: Lanes) -> None:
        lanes = unit.active(mask).tolist()
        if len(lanes) > unit.warps_of(unit.full(mask)):
            message = f"{len(lanes)} threads of warps {unit.warp_numbers(mask)} execute {name}, each one of its own"
            rule(unit, ("tensor-many-issuers", "warning"), message, unit.line)
        for lane in lanes:
            values, place = [], 0
            for size in sizes:
                values.append(sum(int(part[lane]) for part in arguments[place : place + size]))
                place += size
            issue(unit, lane, values)

    return Op(tuple(each for group in groups for each in group), run=run, machine=True)


def ctas_of(unit: Unit, group: int) -> tuple[Cta, ...]:
    """The CTAs that an instruction concerns, the even one of a pair first."""
    if group == 1:
        return (unit.cta,)
    other = peer(unit.cta)
    return (other, unit.cta) if unit.cta.rank & 1 else (unit.cta, other)


@dataclass(frozen=True)
class _Operands:
    """The operands of one tcgen05.mma by their meaning."""

    target: PtxOperand
    a: PtxOperand
    b: PtxOperand
    metadata: tuple[PtxOperand, ...]
    descriptor: PtxOperand
    scales: tuple[PtxOperand, ...]
    kept: tuple[PtxOperand, ...]
    enable: PtxOperand
    last: PtxOperand | None

    @classmethod
    def read(cls, ins: Instruction, form: Form) -> _Operands:
        """By the order of the PTX ISA."""
        target, a, b, *rest = ins.operands
        metadata = (rest.pop(0),) if form.sparse else ()
        descriptor = rest.pop(0)
        scales = (rest.pop(0), rest.pop(0)) if form.block else ()
        kept = rest.pop(0) if isinstance(rest[0], Vector) else None
        enable, last = rest[0], rest[1] if len(rest) > 1 else None
        lanes = kept.items if isinstance(kept, Vector) else ()
        return cls(target, a, b, metadata, descriptor, scales, lanes, enable, last)

    def groups(self) -> tuple[Sources, ...]:
        """Sources in the order: D, A, B, descriptor, enable, metadata, scale factors, lanes to keep, zero columns."""
        left = address_sources(self.a, "shared") if isinstance(self.a, Address) else ((self.a, "b64"),)
        made: list[Sources] = [address_sources(self.target, "shared"), left, ((self.b, "b64"),)]
        made += [((self.descriptor, "b32"),), ((self.enable, "pred"),)]
        made += [address_sources(each, "shared") for each in (*self.metadata, *self.scales)]
        made += [((each, "b32"),) for each in self.kept]
        if self.last is not None and not isinstance(self.last, Immediate):
            made.append(((self.last, "b64"),))
        return tuple(made)


def product(ins: Instruction) -> Op:
    """`tcgen05.mma`."""
    # Equal forms are one object, so that chains of products are seen quickly.
    form = _FORMS.setdefault(Form.parse(ins), Form.parse(ins))
    operands, line, name = _Operands.read(ins, form), ins.line, ins.name
    down = operands.last.value if isinstance(operands.last, Immediate) and not form.weight else 0
    scales, kept = len(operands.scales), len(operands.kept)

    def issue(unit: Unit, lane: int, values: list[int]) -> None:
        target, a, b, descriptor, enable, *more = values
        places = more.pop(0) if form.sparse else None
        shape = decode(form, descriptor)
        zero = zero_columns.decode(more[-1], shape.m, shape.n) if any(more[scales + kept :]) else None
        ctas = ctas_of(unit, form.group)
        for cta in ctas:
            TensorMemory.of(cta).use_group(form.group)
        home = _placed((form, shape), ctas, target)
        factors = _factors((form, shape), unit, ctas, more[:scales])
        sides = _sides((form, shape), ctas, (a, b), factors, _Beside(home[0], places, zero.first if zero else 0))
        if form.sparse and not shape.transposed[1] and 0 < sides.b.descriptor.span < 2 * DEPTH:
            raise Unsupported(name, line, "64 bytes along K of a K-major B in a swizzle of 32 bytes")
        if form.shifts:
            rule(unit, ("tensor-shift", "warning"), _SHIFT, line)
        _advise(unit, line, (shape.doubtful, zero.doubtful if zero else ""), sides)
        made = Product(
            form,
            shape,
            ctas,
            home,
            sides,
            bool(enable),
            down,
            _kept(more[scales : scales + kept]),
            zero,
        )
        if over := made.overlap() if form.a_in_tensor or form.sparse or form.block else "":
            message = f"{over} of the product at line {line} lie in its accumulator, from column {home[1]} on"
            rule(unit, ("tensor-overlap", "error"), message, line)
        read, written = made.regions()
        work = PipeWork(
            unit,
            line,
            made.run,
            kind="tcgen05.mma",
            size=2 * shape.m * shape.n * form.k // (2 if form.sparse else 1),
            sources=read,
            targets=written,
            place=("mma", made.target, shape.m, shape.n, form.kind, form.weight),
            operands=tuple(made.operands()),
            detail=made,
        )
        Pipe.of(unit, lane).add(work)

    return by_thread("tcgen05.mma", operands.groups(), issue)


def _placed(what: tuple[Form, Shape], ctas: tuple[Cta, ...], address: int) -> tuple[int, int]:
    """Lane and column of D."""
    form, shape = what
    rows = shape.m // form.group
    width = shape.n if rows == _LANES or (not form.weight and shape.m == 64) else shape.n * rows // _LANES
    for cta in ctas:
        lane, column = TensorMemory.of(cta).check(address, width, f"the accumulator of tcgen05.mma at {address:#x}")
    check_lane(form, shape, lane, "the accumulator")
    return lane, column


@dataclass(frozen=True)
class _Beside:
    """What operands depend on: the lane of D, the address of metadata, the first row of B."""

    lane: int
    metadata: int | None
    first: int


def _sides(
    what: tuple[Form, Shape],
    ctas: tuple[Cta, ...],
    values: tuple[int, int],
    factors: Factors | None,
    beside: _Beside,
) -> Sides:
    """Where A, B and what belongs to them lie."""
    form, shape = what
    others = factors.regions() if factors is not None else ()
    b = _shared(what, ctas, values[1], 1, beside.first)
    metadata = _metadata(what, ctas, beside.metadata, beside.lane) if beside.metadata is not None else None
    if not form.a_in_tensor:
        return Sides(_shared(what, ctas, values[0], 0), b, factors, others, metadata)
    for cta in ctas:
        lane, column = TensorMemory.of(cta).check(values[0], A_COLUMNS, f"operand A of tcgen05.mma at {values[0]:#x}")
    check_lane(form, shape, lane, "operand A", beside.lane)
    return Sides((lane, column), b, factors, others, metadata)


def _metadata(what: tuple[Form, Shape], ctas: tuple[Cta, ...], address: int, home: int) -> tuple[int, int]:
    """Lane and column of a sparse A's metadata."""
    form, shape = what
    name = f"the metadata of tcgen05.mma.sp at {address:#x}"
    for cta in ctas:
        lane, column = TensorMemory.of(cta).check(address + shape.selector, metadata_columns(form), name)
    check_lane(form, shape, lane, "the metadata", home)
    return lane, column


def _shared(what: tuple[Form, Shape], ctas: tuple[Cta, ...], value: int, side: int, more: int = 0) -> Operand:
    """The operand behind a descriptor, and so many rows more."""
    form, shape = what
    rows = (shape.n if side else shape.m) // form.group + more
    depth = DEPTH * 2 if side and form.sparse else DEPTH
    found = shared_operand(value, rows, depth, element_bytes(shape.types[side]), shape.transposed[side])
    for cta in ctas:
        if found.end > cta.shared.limit:
            raise Fault(
                "cudaErrorIllegalAddress",
                f"tcgen05.mma reads up to shared+{found.end:#x} of {cta.name()}, beyond the shared memory",
            )
    return found


def _advise(unit: Unit, line: int, doubts: tuple[str, ...], sides: Sides) -> None:
    """Tell of what is allowed, but hardly meant."""
    for doubt in filter(None, doubts):
        rule(unit, ("tensor-shape", "warning"), doubt, line)
    for operand, name in ((sides.a, "A"), (sides.b, "B")):
        if isinstance(operand, Operand) and overlaps(operand):
            message = f"rows of operand {name} at shared+{operand.descriptor.start:#x} lie over each other: the stride "
            message += f"byte offset is {operand.descriptor.stride}, the pattern {operand.descriptor.span} bytes wide"
            rule(unit, ("operand-overlap", "warning"), message, line)


def _factors(what: tuple[Form, Shape], unit: Unit, ctas: tuple[Cta, ...], addresses: list[int]) -> Factors | None:
    if not addresses:
        return None
    form, shape = what
    made = Factors(unit, unit.line, form, shape, ctas, (addresses[0] & 0xFFFF, addresses[1] & 0xFFFF))
    for address, width, side in zip(addresses, made.widths(), "AB", strict=True):
        for cta in ctas:
            lane, _ = TensorMemory.of(cta).check(address, width, f"scale factors of {side} at {address:#x}")
            check_lane(Form(form.kind, 1, True, False, 0, False), shape, lane, f"the scale factors of {side}")
    return made


def _kept(words: list[int]) -> NDArray[np.bool_] | None:
    """Lanes of D that stay as they are: bool [CTAs, 128]; words of 32 lanes, the even CTA's first."""
    if not any(words):
        return None
    bits = np.unpackbits(np.array(words, np.uint32).view(np.uint8), bitorder="little")
    return bits.astype(np.bool_).reshape(-1, _LANES)


def commit(ins: Instruction) -> Op:
    """`tcgen05.commit`, to one mbarrier or to those of several CTAs."""
    line = ins.line
    groups: tuple[Sources, ...] = (address_sources(ins.operands[0], "shared"),)
    multicast = "multicast::cluster" in ins.modifiers
    if multicast:
        groups = (*groups, ((ins.operands[1], "b16"),))

    def issue(unit: Unit, lane: int, values: list[int]) -> None:
        cluster, address = unit.cta.cluster, values[0] & 0xFFFF_FFFF
        places = [address]
        if multicast:
            ranks = [rank for rank in range(16) if values[1] >> rank & 1]
            places = [rank << RANK_SHIFT | address & OFFSET_MASK for rank in ranks]
        told = tuple(find(cluster, unit, place, remote=True) for place in places)
        earlier = tuple(Pipe.of(unit, lane).works)
        Commit(unit, line, kind="tcgen05.commit", lane=lane, earlier=earlier, told=told).begin()

    return by_thread("tcgen05.commit", groups, issue)
