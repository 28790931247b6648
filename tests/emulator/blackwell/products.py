"""Parts of the tests of tcgen05.mma: operands laid out in shared memory by plain loops, descriptors, whole kernels."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from tests.emulator.blackwell.tiny import Ran, allocated, run, stored

Bytes = NDArray[np.uint8]
SPANS = {0: 0, 1: 128, 2: 128, 4: 64, 6: 32}
"""Bytes of the pattern of a swizzle code."""


def instruction(
    m: int, n: int, types: tuple[int, int] = (1, 1), result: int = 1, major: tuple[int, int] = (0, 0), more: int = 0
) -> int:
    """An instruction descriptor; `more` is any further bits."""
    return (
        result << 4
        | types[0] << 7
        | types[1] << 10
        | major[0] << 15
        | major[1] << 16
        | n >> 3 << 17
        | m >> 4 << 24
        | more
    )


def exchanged(address: int, code: int) -> int:
    """The address after the XOR of a swizzle code."""
    if code == 1:
        return address ^ (address >> 7 & 3) << 5
    mask = {0: 0, 2: 7, 4: 3, 6: 1}[code]
    return address ^ (address >> 7 & mask) << 4


def k_major(rows: Bytes, code: int) -> tuple[Bytes, int, int]:
    """A matrix of rows of bytes along K, laid out; with the leading and the stride byte offset."""
    count, depth = rows.shape
    span = SPANS[code]
    leading, stride = (16, 8 * span) if span else (128, 8 * depth)
    image = np.zeros(count // 8 * max(stride, 8 * depth) if count % 8 == 0 else 8 * stride, np.uint8)
    for row in range(count):
        for byte in range(depth):
            if span:
                place = row // 8 * stride + row % 8 * span + byte
            else:
                place = row // 8 * stride + byte // 16 * leading + row % 8 * 16 + byte % 16
            image[exchanged(place, code)] = rows[row, byte]
    return image, leading, stride


def mn_major(lines: Bytes, code: int) -> tuple[Bytes, int, int]:
    """A matrix of lines (one per step along K) of bytes along M or N, laid out; with both offsets."""
    depth, wide = lines.shape
    span, high = SPANS[code] or 16, 4 if code == 1 else 8
    block = span * depth
    leading, stride = (block, high * span) if SPANS[code] else (high * 16, 16 * depth)
    image = np.zeros(wide // span * block, np.uint8)
    for k in range(depth):
        for byte in range(wide):
            if SPANS[code]:
                place = byte // span * leading + k // high * stride + k % high * span + byte % span
            else:
                place = byte // 16 * stride + k // 8 * leading + k % 8 * 16 + byte % 16
            image[exchanged(place, code)] = lines[k, byte]
    return image, leading, stride


def descriptor(register: int, offset: int, leading: int, stride: int, code: int) -> str:
    """Statements that make the descriptor of what lies at `tile + offset` in %d<register>."""
    high = leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | code << 61
    return (
        f"mov.u32 %r340, tile; add.u32 %r340, %r340, {offset}; shr.u32 %r340, %r340, 4;\n"
        f"cvt.u64.u32 %d{register}, %r340; or.b64 %d{register}, %d{register}, {high:#x};\n"
    )


def filled(size: int, threads: int = 128) -> str:
    """The first bytes of the input go to `tile`, and are shown to the async proxy."""
    return f"""
mov.u32 %r341, %r350; mov.u32 %r342, tile;
fill: shl.b32 %r343, %r341, 4; cvt.u64.u32 %d40, %r343; add.s64 %d40, %d52, %d40; add.u32 %r343, %r342, %r343;
setp.lt.u32 %p10, %r341, {size // 16};
@!%p10 bra full;
ld.global.v4.u32 {{%r344, %r345, %r346, %r347}}, [%d40]; st.shared.v4.u32 [%r343], {{%r344, %r345, %r346, %r347}};
add.u32 %r341, %r341, {threads};
bra fill;
full: fence.proxy.async.shared::cta;
@%p19 mbarrier.init.shared::cta.b64 [bar], 1;
fence.mbarrier_init.release.cluster;
bar.sync 0;
"""


COMMIT = "@%p19 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];\n"
WAIT = """
wait{phase}: mbarrier.try_wait.parity.shared::cta.b64 %p11, [bar], {phase};
@!%p11 bra wait{phase};
"""
AFTER = "tcgen05.fence::after_thread_sync;\n"


def read_out(columns: int) -> str:
    """Every thread writes the columns of its lane."""
    names = ", ".join(f"%r{1 + place}" for place in range(columns))
    return (
        f"tcgen05.ld.sync.aligned.32x32b.x{columns}.b32 {{{names}}}, [%r301];\ntcgen05.wait::ld.sync.aligned;\n"
        + stored(1, columns)
    )


@dataclass
class Case:
    """One kernel with products into one accumulator of `columns` columns.

    Attributes:
        image: What lies in shared memory.
        body: Statements of the products, each with guard %p19.
    """

    columns: int
    image: Bytes = field(default_factory=lambda: np.zeros(0, np.uint8))
    setup: str = ""
    body: str = ""

    def place(self, image: Bytes) -> int:
        """Put bytes behind the others, at a multiple of 1024; answers where."""
        start = self.image.size
        padded = np.zeros((image.size + 1023) // 1024 * 1024, np.uint8)
        padded[: image.size] = image
        self.image = np.concatenate([self.image, padded])
        return start

    def operand(self, register: int, laid: tuple[Bytes, int, int], code: int) -> None:
        """An operand in shared memory, its descriptor in a register."""
        image, leading, stride = laid
        self.setup += descriptor(register, self.place(image), leading, stride, code)

    def text(self, wait: str = COMMIT + WAIT.format(phase=0) + AFTER, allocate: int = 0) -> str:
        """The statements of the kernel."""
        power = max(32, 1 << (self.columns - 1).bit_length(), allocate)
        whole = filled(self.image.size) + self.setup + self.body + wait + read_out(self.columns)
        return allocated(whole, power)

    def run(
        self, schedule: str = "late", *, wait: str = COMMIT + WAIT.format(phase=0) + AFTER, allocate: int = 0
    ) -> Ran:
        """The accumulator, 128 lanes by columns, is the answer."""
        return run(
            self.text(wait, allocate),
            per_thread=self.columns,
            given=self.image.tobytes(),
            shared=self.image.size,
            schedules=(schedule,),
        )


def mma(kind: str, flags: int, first: str = "%d1", enable: str = "0", more: str = "", target: str = "%r300") -> str:
    """A product with the descriptors %d1 (or what `first` says) and %d2."""
    return (
        f"setp.ne.u32 %p12, {enable}, 0;\n"
        f"@%p19 tcgen05.mma.cta_group::1.kind::{kind} [{target}], {first}, %d2, {flags:#x}, %p12{more};\n"
    )


def in_tensor(case: Case, rows: Bytes, column: int, first: int) -> None:
    """Each lane stores its row of bytes from a column on, through registers from the first on."""
    start, count = case.place(rows.reshape(-1)), rows.shape[1] // 4
    words = ", ".join(f"%r{first + place}" for place in range(count))
    case.setup += f"mov.u32 %r201, tile; mad.lo.u32 %r201, %r350, {rows.shape[1]}, %r201;\n"
    for place in range(count):
        case.setup += f"ld.shared.u32 %r{first + place}, [%r201+{start + 4 * place}];\n"
    case.setup += f"add.u32 %r203, %r301, {column};\n"
    case.setup += f"tcgen05.st.sync.aligned.32x32b.x{count}.b32 [%r203], {{{words}}};\n"
    case.setup += "tcgen05.wait::st.sync.aligned;\n"
