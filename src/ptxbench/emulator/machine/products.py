"""wgmma in time: products are issued, committed and done at a wait; accumulators stay matrices while nobody looks.

A register that an asynchronous product owes is in `unit.owed`; the first block that uses it has it settled. That is
late execution, as far as the protocol allows; with an eager schedule each product is done when it is issued.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.codegen.lanes import core
from ptxbench.emulator.machine.unit import Unit
from ptxbench.emulator.tensor.descriptor import Descriptor
from ptxbench.emulator.tensor.fast import to_f32
from ptxbench.emulator.tensor.formats import Bits, decode
from ptxbench.emulator.tensor.fragments import unpack, wgmma_d
from ptxbench.emulator.tensor.wgmma import M, Wgmma

if TYPE_CHECKING:
    from ptxbench.emulator.machine.blocks import RunBlock

Slots = tuple[int, ...]
_CHUNK = np.dtype("V16")
_LINE = 128


@dataclass(frozen=True, eq=False)
class Operand:
    """A matrix in shared memory as one descriptor gives it.

    Attributes:
        chunks: Numbers of its 16-byte chunks, in the order of the form.
        start: First byte.
        end: First byte beyond the last.
    """

    descriptor: Descriptor
    chunks: NDArray[np.int64]
    start: int
    end: int

    @cached_property
    def places(self) -> NDArray[np.int64] | slice:
        """The chunks for those who watch: a run of whole 128-byte lines where the operand fills a good part of them.

        The steps along K of a swizzled tile have its lines in common; the run is the same for all of them.
        """
        run = slice(self.start // _LINE * 8, (self.end + _LINE - 1) // _LINE * 8)
        if run.stop - run.start <= 8 * np.unique(self.chunks // 8).size * 8:
            return run
        return self.chunks


@lru_cache(maxsize=4096)
def operand(form: Wgmma, side: int, value: int) -> Operand:
    """The operand of a form, A (0) or B (1), behind a descriptor.

    Raises:
        Trap: The descriptor has reserved bits.
    """
    descriptor = Descriptor.decode(value)
    addresses = form.b_addresses(descriptor) if side else form.a_addresses(descriptor)
    return Operand(descriptor, addresses >> 4, int(addresses.min()), int(addresses.max()) + 16)


@lru_cache(maxsize=4096)
def _chain(operands: tuple[Operand, ...], axis: int) -> NDArray[np.int64]:
    """The chunks of operands that follow each other along K, as one matrix."""
    return np.concatenate([each.chunks for each in operands], axis=axis)


def _joined(form: Wgmma, side: int, operands: tuple[Operand, ...]) -> NDArray[np.int64]:
    """The chunks of operands that follow each other along K."""
    return operands[0].chunks if len(operands) == 1 else _chain(operands, 0 if form.transposed[side] else 1)


@dataclass(eq=False)
class Product:
    """One issued `wgmma.mma_async`.

    Attributes:
        a: Descriptor of A, or its four registers.
        slots: Registers of the accumulator.
        lent: Registers of A.
        metadata: The register with the places of a sparse A's elements.
    """

    form: Wgmma
    line: int
    a: Operand | tuple[Any, ...]
    b: Operand
    scale_d: bool
    slots: Slots
    lent: Slots = ()
    metadata: Any = None
    done: bool = False
    knowledge: Any = None

    def operands(self) -> tuple[Operand, ...]:
        """The operands in shared memory: B, and A if it is there."""
        first = () if isinstance(self.a, tuple) else (self.a,)
        return (self.b, *first)


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

    def issue(self, product: Product) -> None:
        """A product begins."""
        self.open.append(product)
        self.unit.owed.update(product.slots)
        self.unit.lent.update(product.lent)
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
        if self.unit.lent:
            self.unit.lent = {slot for each in self.unwaited() for slot in each.lent}
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
        return not self.exact and form.result.name == "f32" and form.sparsity is None

    def _values(self, form: Wgmma, side: int, operands: tuple[Operand, ...]) -> NDArray[np.float32]:
        """The numbers [M or N, K] of operands that follow each other along K."""
        native, shared = core(), self.unit.cta.shared.bytes
        if native is not None and form.types[side].name == "bf16":
            found: NDArray[np.float32] | None = native.widen(shared, _joined(form, side, operands))
            if found is not None:
                return found[:, : (form.n if side else M)].T if form.transposed[side] else found
        return decode(self._bits(form, side, operands), form.types[side])

    def _bits(self, form: Wgmma, side: int, operands: tuple[Operand, ...]) -> Bits:
        """Element bits [M or N, K] of operands that follow each other along K."""
        transposed = form.transposed[side]
        chunks = _joined(form, side, operands)
        raw = self.unit.cta.shared.bytes.view(_CHUNK)[chunks].view(np.uint8)
        bits = unpack(raw.reshape(chunks.shape[0], -1), form.types[side].bits)
        return bits[:, : (form.n if side else M)].T if transposed else bits

    def _left(self, chain: list[Product]) -> Bits:
        """A of a chain: [64, K]."""
        parts = [each.a for each in chain if isinstance(each.a, tuple)]
        if not parts:
            return self._bits(chain[0].form, 0, _shared(chain))
        made = [chain[0].form.a_from_registers(part) for part in parts]
        return made[0] if len(made) == 1 else np.concatenate(made, axis=1)

    def _accumulate(self, chain: list[Product]) -> None:
        """The fast way: one float32 product for the chain, kept as a matrix."""
        form, slots = chain[0].form, chain[0].slots
        shared = _shared(chain)
        a = self._values(form, 0, shared) if shared else decode(self._left(chain), form.types[0])
        b = self._values(form, 1, tuple(each.b for each in chain))
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
        old = [registers[slot] for slot in product.slots] if product.scale_d else None
        a, b = self._left([product]), self._bits(product.form, 1, (product.b,))
        mode = "exact" if self.exact else "fast"
        made = product.form.multiply(a, b, old, mode, product.metadata)
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

    def settle(self, unit: Unit, block: RunBlock) -> None:
        """A block uses registers that products owe; those that nobody waited for are done as ptxas would have it."""
        observers = unit.cta.cluster.observers
        for product in self.unwaited():
            if not block.slots.isdisjoint(product.slots):
                for observer in observers:
                    observer.accumulator_used(unit, product, block)
                self.run(self.unwaited())
        for slots in list(self.matrices):
            if not block.slots.isdisjoint(slots):
                self._write_out(slots)
                for observer in observers:
                    observer.registers_exposed(unit)
        unit.owed = {slot for product in self._unfinished() for slot in product.slots}
        unit.owed.update(slot for slots in self.matrices for slot in slots)

    def overwritten(self, unit: Unit, block: RunBlock) -> None:
        """A block writes registers of A of products that nobody waited for; these have read them here."""
        for product in self.unwaited():
            if not block.written.isdisjoint(product.lent):
                for observer in unit.cta.cluster.observers:
                    observer.operand_overwritten(unit, product, block)

    def unwaited(self) -> list[Product]:
        """Products that no wait has covered."""
        return [*(each for group in self.groups for each in group), *self.open]

    def _unfinished(self) -> list[Product]:
        return [
            *(each for group in self.groups for each in group if not each.done),
            *(x for x in self.open if not x.done),
        ]


def _shared(chain: Sequence[Product]) -> tuple[Operand, ...]:
    """The operands A of a chain that lie in shared memory: all or none."""
    return tuple(each.a for each in chain if isinstance(each.a, Operand))


def _continues(first: Product, other: Product) -> bool:
    """Whether a product adds to the accumulator of the one before, with operands of the same form."""
    return other.scale_d and other.form is first.form and other.slots == first.slots
