"""tcgen05.cp and tcgen05.shift, bound to the machine: shared memory to tensor memory, rows moved one lane down.

Which lanes a multicast reaches is CUTLASS's account of it. PTX ISA, sections tcgen05.cp and tcgen05.shift.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.codegen.bind_tcgen05_mma import by_thread, ctas_of
from ptxbench.emulator.codegen.op import Op
from ptxbench.emulator.codegen.values import address_sources
from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine.cta import Cta
from ptxbench.emulator.machine.products import Operand
from ptxbench.emulator.machine.tensor_memory import ILLEGAL, SHIFTED, Region, TensorMemory, shift_down
from ptxbench.emulator.machine.tensor_products import shared_operand
from ptxbench.emulator.machine.tensor_work import Pipe, PipeWork
from ptxbench.emulator.machine.unit import Unit
from ptxbench.emulator.ptx.ir import Instruction
from ptxbench.emulator.tensor.narrow import codes

_CHUNK = np.dtype("V16")


@dataclass(frozen=True)
class _Copy:
    """What the text of one tcgen05.cp fixes.

    Attributes:
        rows: In shared memory.
        depth: Bytes of each.
        copies: First lane of each copy of some rows: (first lane, first row, rows).
        bits: Of a source element that becomes a byte; 0: bytes are copied as they are.
    """

    rows: int
    depth: int
    copies: tuple[tuple[int, int, int], ...]
    bits: int

    @classmethod
    def parse(cls, ins: Instruction) -> _Copy:
        shape = next(word for word in ins.modifiers if word.endswith("b") and "x" in word and word[0].isdigit())
        rows, bits = (int(part) for part in shape[:-1].split("x"))
        copies: tuple[tuple[int, int, int], ...] = ((0, 0, rows),)
        if rows == 4:
            copies = tuple((32 * row, row, 1) for row in range(4))
        elif "warpx4" in ins.modifiers:
            copies = tuple((32 * quarter, 0, 32) for quarter in range(4))
        elif "warpx2::02_13" in ins.modifiers:
            copies = ((0, 0, 64), (64, 0, 64))
        elif "warpx2::01_23" in ins.modifiers:
            copies = ((0, 0, 32), (32, 0, 32), (64, 32, 32), (96, 32, 32))
        narrow = next((int(word[1]) for word in ins.modifiers if word in ("b4x16_p64", "b6x16_p32")), 0)
        return cls(rows, bits // 8, copies, narrow)

    def image(self, cta: Cta, operand: Operand) -> NDArray[np.uint32]:
        """The cells [rows, columns] that are copied."""
        raw = cta.shared.bytes.view(_CHUNK)[operand.chunks].view(np.uint8).reshape(self.rows, self.depth)
        if self.bits:
            raw = codes(raw, self.bits, "padded")
        return np.ascontiguousarray(raw).view(np.uint32)


def copy(ins: Instruction) -> Op:
    """`tcgen05.cp`."""
    form, line = _Copy.parse(ins), ins.line
    group = 2 if "cta_group::2" in ins.modifiers else 1
    groups = (address_sources(ins.operands[0], "shared"), ((ins.operands[1], "b64"),))
    single = form.rows == 4

    def issue(unit: Unit, lane: int, values: list[int]) -> None:
        ctas = ctas_of(unit, group)
        operand = shared_operand(values[1], form.rows, form.depth, 1, False)
        width = form.depth // 4
        for cta in ctas:
            TensorMemory.of(cta).use_group(group)
            first, column = TensorMemory.of(cta).check(values[0], width, f"tcgen05.cp at {values[0]:#x}")
            if operand.end > cta.shared.limit:
                reason = f"tcgen05.cp reads up to shared+{operand.end:#x}, beyond the shared memory"
                raise Fault("cudaErrorIllegalAddress", reason)
        if first >= (32 if single else 1):
            raise Fault(ILLEGAL, f"tcgen05.cp begins at lane {first} of tensor memory; it fills lanes from 0 on")

        def move() -> None:
            for cta in ctas:
                image, cells = form.image(cta, operand), TensorMemory.of(cta).cells
                for place, row, count in form.copies:
                    lanes = slice(first + place, first + place + count)
                    cells[lanes, column : column + width] = image[row : row + count]

        span = slice(column, column + width)
        reached = slice(first // 16, 8, 2) if single else slice(0, 8)
        work = PipeWork(
            unit,
            line,
            move,
            kind="tcgen05.cp",
            targets=tuple(Region(cta, reached, span) for cta in ctas),
            place=("cp4" if single else "cp",),
            operands=tuple((cta, operand.places, operand.descriptor.span) for cta in ctas),
        )
        Pipe.of(unit, lane).add(work)

    return by_thread("tcgen05.cp", groups, issue)


def shift(ins: Instruction) -> Op:
    """`tcgen05.shift.down`: in each quarter rows 1 to 31 move one lane down, over 8 columns."""
    line, group = ins.line, 2 if "cta_group::2" in ins.modifiers else 1

    def issue(unit: Unit, lane: int, values: list[int]) -> None:
        ctas = ctas_of(unit, group)
        for cta in ctas:
            TensorMemory.of(cta).use_group(group)
            first, column = TensorMemory.of(cta).check(values[0], SHIFTED, f"tcgen05.shift at {values[0]:#x}")
        if first % 32:
            raise Fault(ILLEGAL, f"tcgen05.shift at lane {first}; the lane must be a multiple of 32")

        def move() -> None:
            for cta in ctas:
                shift_down(cta, first, column)

        regions = tuple(Region(cta, slice(first // 16, 8), slice(column, column + SHIFTED)) for cta in ctas)
        work = PipeWork(unit, line, move, kind="tcgen05.shift", sources=regions, targets=regions, place=("shift",))
        Pipe.of(unit, lane).add(work)

    return by_thread("tcgen05.shift", (address_sources(ins.operands[0], "shared"),), issue)
