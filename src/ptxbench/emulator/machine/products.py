"""wgmma in time: products are issued, committed and done at a wait; accumulators stay matrices while nobody looks.

A register that an asynchronous product owes is in `unit.owed`; the first block that uses it has it settled. That is late
execution, as far as the protocol allows; with an eager schedule each product is done when it is issued.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.machine.unit import Unit
from ptxbench.emulator.tensor.descriptor import Descriptor
from ptxbench.emulator.tensor.fast import to_f32
from ptxbench.emulator.tensor.formats import decode
from ptxbench.emulator.tensor.fragments import wgmma_d
from ptxbench.emulator.tensor.wgmma import Wgmma

Slots = tuple[int, ...]


@dataclass(eq=False)
class Product:
    """One issued `wgmma.mma_async`.

    Attributes:
        a: Descriptor of A, or its four registers.
        slots: Registers of the accumulator.
    """

    form: Wgmma
    line: int
    a: Descriptor | tuple[Any, ...]
    b: Descriptor
    scale_d: bool
    slots: Slots
    done: bool = False
    knowledge: Any = None

    def spans(self) -> list[NDArray[np.int64]]:
        """Shared-memory addresses of the 16-byte chunks that it reads: B's, and A's if that is in memory."""
        found = [self.form.b_addresses(self.b)]
        if isinstance(self.a, Descriptor):
            found.append(self.form.a_addresses(self.a))
        return found


@dataclass(eq=False)
class Products:
    """The products of one warpgroup.

    Attributes:
        open: Issued since the last commit.
        groups: Committed and not waited for, oldest first.
        matrices: Accumulators whose value is newer than their registers: float32 [64, N].
    """

    unit: Unit
    exact: bool
    open: list[Product] = field(default_factory=list)
    groups: list[list[Product]] = field(default_factory=list)
    matrices: dict[Slots, tuple[Wgmma, NDArray[np.float32]]] = field(default_factory=dict)
    report: Callable[[Product, int], None] | None = None

    def issue(self, product: Product) -> None:
        """A product begins."""
        self.open.append(product)
        self.unit.owed.update(product.slots)
        for observer in self.unit.cta.cluster.observers:
            observer.product_issued(self.unit, product)
        if self.unit.cta.cluster.schedule.at_issue():
            self.run([each for group in self.groups for each in group] + self.open)

    def commit(self) -> None:
        """`wgmma.commit_group`."""
        self.groups.append(self.open)
        self.open = []

    def wait(self, newest: int) -> None:
        """`wgmma.wait_group`: all but the newest groups are done."""
        count = max(len(self.groups) - newest, 0)
        due, self.groups = self.groups[:count], self.groups[count:]
        products = [each for group in due for each in group]
        self.run(products)
        for observer in self.unit.cta.cluster.observers:
            observer.products_waited(self.unit, products)

    def run(self, products: list[Product]) -> None:
        """Do products in their order; equal ones into the same accumulator as one."""
        waiting = [each for each in products if not each.done]
        place = 0
        while place < len(waiting):
            first, end = waiting[place], place + 1
            while end < len(waiting) and _continues(first, waiting[end]):
                end += 1
            chain = waiting[place:end]
            if self._is_fast(first.form):
                self._accumulate(chain)
            else:
                for each in chain:
                    self._exactly(each)
            for each in chain:
                each.done = True
            place = end

    def _is_fast(self, form: Wgmma) -> bool:
        return not self.exact and form.result.name == "f32"

    def _chunks(self, addresses: NDArray[np.int64]) -> NDArray[np.uint8]:
        shared = self.unit.cta.shared
        lines = shared.bytes.view(np.dtype("V16"))
        index = addresses >> 4
        made: NDArray[np.uint8] = lines[index].view(np.uint8)
        return made

    def _operands(self, product: Product) -> tuple[Any, Any]:
        """Element bits of A [64, K] and B [N, K]."""
        form = product.form
        if isinstance(product.a, Descriptor):
            a = form.a_matrix(self._chunks(form.a_addresses(product.a)))
        else:
            a = form.a_from_registers(product.a)
        return a, form.b_matrix(self._chunks(form.b_addresses(product.b)))

    def _accumulate(self, chain: list[Product]) -> None:
        """The fast way: one float32 product for the chain, kept as a matrix."""
        form, slots = chain[0].form, chain[0].slots
        parts = [self._operands(each) for each in chain]
        a = decode(_joined([part[0] for part in parts]), form.types[0])
        b = decode(_joined([part[1] for part in parts]), form.types[1])
        if form.negated[0] != form.negated[1]:
            a = -a
        total = np.matmul(a, b.T)
        if chain[0].scale_d:
            total += self._matrix(form, slots)
        self._forget(slots)
        self.matrices[slots] = (form, total)

    def _matrix(self, form: Wgmma, slots: Slots) -> NDArray[np.float32]:
        """The accumulator as a matrix, from its registers if need be."""
        known = self.matrices.get(slots)
        if known is not None:
            return known[1]
        self._forget(slots)
        registers = np.stack([self.unit.registers[slot] for slot in slots])
        made: NDArray[np.float32] = wgmma_d(form.n, 32).matrix(registers)[0].view(np.float32)
        return made

    def _exactly(self, product: Product) -> None:
        """The way by registers: integers, half results, and the device's own rounding."""
        self._forget(product.slots, keep=False)
        registers = self.unit.registers
        old = [registers[slot] for slot in product.slots]
        a, b = self._operands(product)
        mode = "exact" if self.exact else "fast"
        made = product.form.multiply(a, b, old, product.scale_d, mode)
        for slot, row in zip(product.slots, made, strict=True):
            registers[slot] = row

    def _forget(self, slots: Slots, *, keep: bool = True) -> None:
        """Write out matrices that share registers with these, all but the one with exactly these if `keep`."""
        for other in list(self.matrices):
            if (other != slots or not keep) and not set(other).isdisjoint(slots):
                self._write_out(other)

    def _write_out(self, slots: Slots) -> None:
        form, matrix = self.matrices.pop(slots)
        rows = wgmma_d(form.n, 32).spread(to_f32(matrix)[None])
        registers = self.unit.registers
        for slot, row in zip(slots, rows, strict=True):
            registers[slot] = row

    def settle(self, unit: Unit, block: Any) -> None:
        """A block uses registers that products owe."""
        for slots in list(self.matrices):
            if not block.slots.isdisjoint(slots):
                self._write_out(slots)
        for product in [*(each for group in self.groups for each in group), *self.open]:
            if not block.slots.isdisjoint(product.slots):
                for observer in unit.cta.cluster.observers:
                    observer.accumulator_used(unit, product, block)
        unit.owed = {slot for product in self._unfinished() for slot in product.slots}
        unit.owed.update(slot for slots in self.matrices for slot in slots)

    def _unfinished(self) -> list[Product]:
        return [
            *(each for group in self.groups for each in group if not each.done),
            *(x for x in self.open if not x.done),
        ]


def _continues(first: Product, other: Product) -> bool:
    """Whether a product adds to the accumulator of the one before, with operands of the same form."""
    return other.scale_d and other.form == first.form and other.slots == first.slots


def _joined(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
