"""Records approximations of a GPU on all mantissas of some binades, as differences to the correctly rounded results."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.gpu.cuda_driver import Driver

COUNT = 1 << 23
"""Mantissas of a binade."""
OPERATIONS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    # mnemonic: function in float64, first bits of each table
    "ex2.approx.ftz.f32": (np.exp2, (0x3F800000, 0x3F000000, 0xBF800000, 0xC0000000, 0xC1000000, 0xBE000000)),
    "lg2.approx.ftz.f32": (np.log2, (0x3F800000, 0x40000000)),
    "rcp.approx.ftz.f32": (np.reciprocal, (0x3F800000,)),
    "rsqrt.approx.ftz.f32": (lambda x: 1.0 / np.sqrt(x), (0x3F800000, 0x40000000)),
    "sqrt.approx.ftz.f32": (np.sqrt, (0x3F800000,)),
}
_TEXT = """.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 first) {
.reg .b32 r<9>; .reg .b64 d<5>; .reg .f32 f<4>;
ld.param.u64 d0, [out]; ld.param.u32 r0, [first]; mov.u32 r1, %ctaid.x; mov.u32 r2, %ntid.x; mov.u32 r3, %tid.x;
mad.lo.u32 r4, r1, r2, r3; add.u32 r5, r0, r4; mov.b32 f0, r5; OPERATION f1, f0;
mad.wide.u32 d1, r4, 4, d0; st.global.f32 [d1], f1; ret; }
"""


def answers(driver: Driver, mnemonic: str, first: int) -> NDArray[np.uint32]:
    """The bits of the results for `COUNT` inputs from the bits `first` on."""
    function = driver.function(driver.load(_TEXT.replace("OPERATION", mnemonic).encode() + b"\0"), "k")
    out = driver.allocate(4 * COUNT)
    driver.launch(
        function, (COUNT // 256, 1, 1), (256, 1, 1), 0, [out.to_bytes(8, "little"), first.to_bytes(4, "little")]
    )
    return np.frombuffer(driver.read(out, 4 * COUNT), np.uint32)


def record(folder: Path) -> None:
    """One file per operation and binade: int8 differences in units of the last place, compressed."""
    folder.mkdir(parents=True, exist_ok=True)
    driver = Driver()
    for mnemonic, (function, starts) in OPERATIONS.items():
        for first in starts:
            inputs = np.arange(first, first + COUNT, dtype=np.uint32).view(np.float32).astype(np.float64)
            rounded = np.asarray(function(inputs)).astype(np.float32).view(np.uint32)
            difference = answers(driver, mnemonic, first).astype(np.int64) - rounded.astype(np.int64)
            print(f"  {mnemonic} {first:#x}: {difference.min()} .. {difference.max()}", flush=True)
            small = np.clip(difference, -128, 127).astype(np.int8).tobytes()
            name = f"{mnemonic.split('.')[0]}_{first:08x}.xz"
            (folder / name).write_bytes(lzma.compress(small, preset=1))
