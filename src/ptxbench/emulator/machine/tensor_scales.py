"""Scale factors of block-scaled tcgen05.mma in tensor memory: where they lie, and the factor of each element.

A row's factors lie in one 32-bit cell, rows 32 apart in neighbouring columns, and all again in each quarter of the
lanes. PTX ISA, section Scale Factor A/B layouts; CUTLASS and DeepGEMM agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.machine.cta import Cta
from ptxbench.emulator.machine.tensor_memory import Region, TensorMemory, rule
from ptxbench.emulator.machine.unit import Unit
from ptxbench.emulator.tensor.accumulators import scale_places
from ptxbench.emulator.tensor.narrow import scales
from ptxbench.emulator.tensor.tcgen05 import Form, Shape

_QUARTERS = 4


@dataclass(frozen=True, eq=False)
class Factors:
    """The scale factors of one product.

    Attributes:
        columns: Of A's and of B's.
    """

    unit: Unit
    line: int
    form: Form
    shape: Shape
    ctas: tuple[Cta, ...]
    columns: tuple[int, int]

    def widths(self) -> tuple[int, int]:
        """Columns of A's and B's factors in each CTA."""
        rows = self.shape.m // self.form.group
        n = self.shape.n // 2 if self._split() else self.shape.n
        return -(-rows // 32), -(-n // 32)

    def _split(self) -> bool:
        """Whether B's factors follow the halves of N into the halves of the lanes (layout B of D)."""
        return self.form.group == 2 and self.shape.m == 128

    def regions(self) -> tuple[Region, ...]:
        """Tensor memory that is read."""
        return tuple(
            Region(cta, slice(0, 8), slice(column, column + width))
            for cta in self.ctas
            for column, width in zip(self.columns, self.widths(), strict=True)
        )

    def __call__(self, side: int) -> NDArray[np.float32]:
        """The factor of each element: [M or N, K]."""
        made = self._rows_of_a() if side == 0 else self._rows_of_b()
        return np.repeat(scales(made, self.shape.scale_type), self.form.k // made.shape[1], axis=1)

    def _rows_of_a(self) -> NDArray[np.uint8]:
        rows = self.shape.m // self.form.group
        return np.concatenate([self._bytes(cta, 0, rows, 0) for cta in self.ctas])

    def _rows_of_b(self) -> NDArray[np.uint8]:
        if not self._split():
            return self._bytes(self.ctas[0], 1, self.shape.n, 0)
        return np.concatenate([self._bytes(self.ctas[0], 1, self.shape.n // 2, quarter) for quarter in (0, 2)])

    def _bytes(self, cta: Cta, side: int, rows: int, quarter: int) -> NDArray[np.uint8]:
        """Factor bytes [rows, factors] of one CTA; the other quarters must hold the same."""
        column, width = self.columns[side], self.widths()[side]
        block = np.ascontiguousarray(TensorMemory.of(cta).cells[:, column : column + width])
        raw = block.view(np.uint8).reshape(_QUARTERS, 32, -1)
        copies = range(quarter, quarter + 2) if self._split() and side else range(_QUARTERS)
        count = self.form.factors
        lanes, places = scale_places(rows, self.shape.scale_ids[side], count)
        made: NDArray[np.uint8] = raw[quarter][lanes[:, None], places]
        if any((raw[other][lanes[:, None], places] != made).any() for other in copies):
            message = f"the scale factors of {'AB'[side]} in columns {column} to {column + width - 1} are not the same "
            message += f"in all quarters of the lanes of {cta.name()}"
            rule(self.unit, ("tensor-scale-copies", "error"), message, self.line)
        return made
