"""Spoils the results of the target's instructions, so that one sees whether anything depends on them; judges nothing.

The necessity witness runs a kernel a second time with these observers: outputs that stay right did not need what was
spoilt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from ptxbench.emulator.checks.observer import Observer
from ptxbench.emulator.machine.tensor_memory import TensorMemory
from ptxbench.emulator.machine.tensor_work import PipeWork
from ptxbench.emulator.tensor.tmem import LANES

if TYPE_CHECKING:
    from ptxbench.emulator.machine.cluster import Cluster
    from ptxbench.emulator.machine.products import Product
    from ptxbench.emulator.machine.unit import Unit
    from ptxbench.emulator.machine.work import Span, Work

Spoilt = Literal["mma", "tma"]

_FLIPPED = np.uint8(0x60)
"""The upper mantissa bits of every second byte: bf16, f16 and f32 elements change by up to three quarters."""


class SpoiltProducts(Observer):
    """Every wgmma and tcgen05.mma result becomes `1.25 x + 0.5`, `1.25 x + 1` or `1.25 x + 1.5`, in turn by columns.

    Uneven, so that no softmax or difference takes it out again.
    """

    def products_waited(self, unit: Unit, products: Sequence[Product]) -> None:
        """The accumulators that the wait made visible are changed."""
        held = unit.matrices.matrices if unit.matrices is not None else {}
        for slots in {product.slots: product.form for product in products}:
            if slots in held:
                form, matrix = held[slots]
                held[slots] = (form, 1.25 * matrix + (np.arange(matrix.shape[1], dtype=np.float32) % 3 + 1) / 2)
                continue
            form = next(product.form for product in products if product.slots == slots)
            for place, slot in enumerate(slots):
                unit.registers[slot] = _spoil(unit.registers[slot], form.result.name, place % 3 + 1)

    def landed(self, work: Work) -> None:
        """A tcgen05.mma has written its accumulator."""
        if not isinstance(work, PipeWork) or work.kind != "tcgen05.mma":
            return
        for region in work.targets:
            lanes = np.arange(LANES).reshape(-1, 16)[region.groups].ravel()
            cells = TensorMemory.of(region.cta).cells
            for column in range(region.columns.start, region.columns.stop):
                new = _spoil(cells[lanes, column], work.detail.shape.result, column % 3 + 1)
                cells[lanes, column] = new


def _spoil(bits: np.ndarray, type_: str, step: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        if type_ == "s32":
            return bits + np.uint32(step)
        if type_ == "f16":
            return (bits.view(np.float16) * np.float16(1.25) + np.float16(step / 2)).view(np.uint32)
        return (bits.view(np.float32) * np.float32(1.25) + np.float32(step / 2)).view(np.uint32)


class SpoiltCopies(Observer):
    """Every TMA payload is changed: loads after they have landed, stores before they are read."""

    def landed(self, work: Work) -> None:
        """The bytes of a load are there."""
        if work.kind.startswith("TMA"):
            _flip(work.writes)

    def issued(self, work: Work) -> None:
        """The bytes of a store are ready."""
        if work.kind.startswith("TMA"):
            _flip(work.reads)


def _flip(spans: Sequence[Span]) -> None:
    for span in spans:
        span.cta.shared.bytes[span.start : span.start + span.size : 2] ^= _FLIPPED


def spoiler(what: Spoilt) -> Callable[[Cluster], Observer]:
    """For `Policy.watch`: spoils the results of tensor cores, or what TMA moves."""
    return lambda cluster: SpoiltProducts() if what == "mma" else SpoiltCopies()
