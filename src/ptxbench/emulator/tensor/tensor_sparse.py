"""Sparse A of tcgen05.mma: where its metadata lies in tensor memory, and A with its zeros; holds no cells.

Half of A's elements are kept, as `sparse` says. Of a row in lane p, 8 and 4-bit elements have 16 chunks of four bits in
two columns of that lane. 16 and 32-bit ones have 8 chunks in one column: rows 8 apart share the lanes p % 8 and p % 8 +
8 of their 16 lanes, the second row in the upper halves, the second half of K in the second lane. PTX ISA, section
Sparse Matrices, whose figures CUTLASS and JAX read alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.errors import Fault
from ptxbench.emulator.tensor.sparse import positions_of
from ptxbench.emulator.tensor.tcgen05 import Form

_WIDTHS = {"f16": 16, "tf32": 32, "f8f6f4": 8, "i8": 8, "mxf8f6f4": 8, "mxf4": 4, "mxf4nvf4": 4}
"""Bits of an element for the rules of sparsity; narrow ones of f8f6f4 count as bytes."""
_DEFINED = {32: (0x4, 0xE)}
_OF_FOUR = (0x4, 0x6, 0x8, 0x9, 0xC, 0xD, 0xE)


def selects(form: Form) -> bool:
    """Whether the instruction descriptor's sparsity selector chooses a column."""
    return form.kind in ("f16", "tf32")


def metadata_columns(form: Form) -> int:
    """Columns of metadata of one product."""
    return 1 if selects(form) else 2


def kept_places(form: Form, cells: NDArray[np.uint32], lanes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place along K of each kept element of rows: [rows, K / 2].

    Args:
        form: Of the product.
        cells: The columns of metadata, uint32 [128, columns].
        lanes: Of the rows.

    Raises:
        Fault: A chunk's four bits have no meaning. The ISA leaves their effect undefined.
    """
    number = np.arange(8 * metadata_columns(form))
    if selects(form):
        words = cells[(lanes // 16 * 16 + lanes % 8)[:, None] + number // 4 * 8, 0]
        shifts = (lanes % 16 // 8 * 16)[:, None] + number % 4 * 4
    else:
        words, shifts = cells[lanes[:, None], number // 8], number % 8 * 4
    chunks = (words >> shifts.astype(np.uint32) & np.uint32(15)).astype(np.uint8)
    width = _WIDTHS[form.kind]
    wrong = ~np.isin(chunks, _DEFINED.get(width, _OF_FOUR))
    if wrong.any():
        row, chunk = (int(each[0]) for each in np.nonzero(wrong))
        raise Fault(
            "cudaErrorIllegalInstruction",
            f"sparse metadata {int(chunks[row, chunk]):#06b} of the row in lane {int(lanes[row])} of tensor memory, "
            f"chunk {chunk}, is undefined",
        )
    return positions_of(chunks, width)


def with_zeros(values: NDArray[np.float32], places: NDArray[np.int64]) -> NDArray[np.float32]:
    """Kept elements [rows, K / 2] at their places along K: [rows, K]."""
    made = np.zeros((values.shape[0], 2 * values.shape[1]), np.float32)
    np.put_along_axis(made, places, values, axis=1)
    return made
