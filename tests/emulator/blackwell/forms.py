"""A kernel for each form of tcgen05.mma: operands of any kind, for one CTA or a pair, and what it must give."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from tests.emulator.blackwell.products import WAIT, Case, descriptor, filled, in_tensor, instruction, k_major, read_out
from tests.emulator.blackwell.test_products import CODES, accumulator, raw, small
from tests.emulator.blackwell.test_scales import SCALES, block, dense
from tests.emulator.blackwell.tiny import Ran, allocated, run, text

from ptxbench.emulator.ptx import isa

N = 64
A_COLUMN, SCALE_COLUMN, META_COLUMN = 64, 80, 96
TYPES = {
    **{"f16": ("bf16", "bf16"), "tf32": ("tf32", "tf32"), "f8f6f4": ("e4m3", "e5m2"), "i8": ("s8", "u8")},
    **{"mxf8f6f4": ("e4m3", "e5m2"), "mxf4": ("e2m1", "e2m1"), "mxf4nvf4": ("e2m1", "e2m1")},
}
DEPTH = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
SYNC = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
HEAD = "mov.u32 %r355, %cluster_ctarank; setp.eq.and.u32 %p17, %r355, 0, %p19;\nmov.u16 %h1, 3;\n"
HANDED = "tcgen05.fence::before_thread_sync;\n{sync}tcgen05.fence::after_thread_sync;\n"
KEPT = ((5, 37), (0, 127))
"""Lanes that the even and the odd CTA keep where the form can say so."""


CODES_OF = {"tf32": (0x4, 0xE)}
"""Four bits for a chunk of K: the places of what is kept, low two bits first."""
ANY_CODES = (0x4, 0x8, 0xC, 0x9, 0xD, 0x6, 0xE)


def sparse_rows(kept: NDArray[np.float32], kind: str, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Rows with zeros between what is kept, twice as long, and the codes of their chunks."""
    random = np.random.default_rng(seed)
    wide = {"tf32": 1, "mxf4": 4, "mxf4nvf4": 4}.get(kind, 2)
    codes = random.choice(CODES_OF.get(kind, ANY_CODES), (kept.shape[0], kept.shape[1] // wide))
    made = np.zeros((kept.shape[0], 2 * kept.shape[1]), np.float32)
    for row, chunk in np.ndindex(codes.shape):
        code = int(codes[row, chunk])
        places = [code & 3, code >> 2]
        if wide == 1:
            places = [places[0] // 2]
        if wide == 4:
            places = [2 * each + i for each in places for i in (0, 1)]
        for i, place in enumerate(places):
            made[row, 2 * wide * chunk + place] = kept[row, wide * chunk + i]
    return made, codes


def metadata(codes: NDArray[np.int64], kind: str, lanes: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The two columns of all 128 lanes that hold the codes of rows which lie in these lanes."""
    cells = np.zeros((128, 2), np.uint32)
    for row, chunk in np.ndindex(codes.shape):
        lane, column, shift = int(lanes[row]), chunk // 8, chunk % 8 * 4
        if kind in ("f16", "tf32"):
            shift = lane % 16 // 8 * 16 + chunk % 4 * 4
            lane, column = lane // 16 * 16 + lane % 8 + chunk // 4 * 8, 0
        cells[lane, column] |= int(codes[row, chunk]) << shift
    return cells


@dataclass
class Every:
    """The kernel of one form.

    Attributes:
        cases: Operands and shared memory of each CTA.
        expected: D of the whole product.
    """

    form: isa.Form
    cases: list[Case] = field(default_factory=list)
    expected: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    def __post_init__(self) -> None:
        self.name = isa.mnemonics(self.form)[0]
        words = self.name.split(".")
        self.group = 2 if "cta_group::2" in words else 1
        self.kind = next(word[6:] for word in words if word.startswith("kind::"))
        specs = isa.operands(self.form, self.name)
        self.weight, self.in_tensor = "ws" in words, specs[1].space == "tensor"
        self.masked = any(spec.kind == "vector" for spec in specs)
        self.scaled, self.sparse = "block_scale" in words, "sp" in words
        self.block = 16 if {"scale_vec::4X", "block16"} & set(words) else 32
        self.scale = "ue4m3" if self.block == 16 else "ue8m0"
        self._operands()

    def _rows(self, values: NDArray[np.float32], side: int) -> NDArray[np.uint8]:
        type_ = TYPES[self.kind][side]
        return dense(values) if type_ == "e2m1" else raw(values, type_)

    def _operands(self) -> None:
        rows, wide, k = 128, N // self.group, DEPTH[self.kind]
        a = small(rows * self.group, k, TYPES[self.kind][0], 1)
        b = small(N, k * (1 + self.sparse), TYPES[self.kind][1], 2)
        whole_a, codes = sparse_rows(a, self.kind, 3) if self.sparse else (a, np.zeros((0, 0), np.int64))
        factors = [np.ones(b.shape[1:], np.float32) for _ in (a, b)]
        stored: list[NDArray[np.uint8]] = []
        if self.scaled:
            count = k // self.block
            for side, each in enumerate((a, b)):
                numbers = 2.0 ** np.random.default_rng(side).integers(-2, 3, (each.shape[0], count))
                whole = np.zeros((each.shape[0], 4), np.uint8)
                whole[:, :count] = numbers.astype(SCALES[self.scale]).view(np.uint8)
                stored.append(whole)
                factors[side] = np.repeat(numbers.astype(np.float32), self.block * (1 + self.sparse), axis=1)
        self.expected = (whole_a * factors[0]) @ (b * factors[1]).T
        for rank in range(self.group):
            case = Case(N)
            own = a[rank * rows : (rank + 1) * rows]
            if self.in_tensor:
                self._left_in_tensor(case, self._rows(own, 0))
            else:
                case.operand(1, k_major(self._rows(own, 0), 0), 0)
            case.operand(2, k_major(self._rows(b[rank * wide : (rank + 1) * wide], 1), 0), 0)
            if self.sparse:
                cells = metadata(codes[rank * rows : (rank + 1) * rows], self.kind, np.arange(rows))
                in_tensor(case, cells.view(np.uint8), META_COLUMN, 230)
            for side, whole in enumerate(stored):
                part = whole[rank * rows : (rank + 1) * rows] if side == 0 else whole
                case.setup += descriptor(3 + side, case.place(block(part)), 16, 128, 0)
            self.cases.append(case)

    def _left_in_tensor(self, case: Case, rows: NDArray[np.uint8]) -> None:
        in_tensor(case, rows, A_COLUMN, 220)
        case.setup += f"add.u32 %r204, %r300, {A_COLUMN};\n"

    def _flags(self) -> int:
        types = TYPES[self.kind]
        codes = (1, 1) if types[0] == "e2m1" else (CODES[types[0]], CODES[types[1]])
        more = (1 << 23 if self.scale == "ue8m0" else 0) if self.scaled else 0
        more |= 4 if self.sparse else 0
        result = 0 if self.scaled else 2 if self.kind == "i8" else 1
        return instruction(128 * self.group, N, codes, result, more=more)

    def _issue(self) -> str:
        """The copies of scale factors, the product, and once more with lanes to keep."""
        group = f"cta_group::{self.group}"
        body = ""
        if self.scaled:
            for side in range(2):
                column = SCALE_COLUMN + 8 * side
                body += f"add.u32 %r{205 + side}, %r300, {column};\n"
                body += f"@%p17 tcgen05.cp.{group}.32x128b.warpx4 [%r{205 + side}], %d{3 + side};\n"
        left = "[%r204]" if self.in_tensor else "%d1"
        scales = ", [%r205], [%r206]" if self.scaled else ""
        places = ", [%r209]" if self.sparse else ""
        body += f"add.u32 %r209, %r300, {META_COLUMN};\n"
        head = f"@%p17 {self.name} [%r300], {left}, %d2{places}, {self._flags():#x}{scales}"
        mask = "{" + ", ".join(f"%r{210 + place}" for place in range(4 * self.group)) + "}"
        for place in range(4 * self.group):
            lanes = [lane - 32 * (place % 4) for lane in KEPT[place // 4] if lane // 32 == place % 4]
            body += f"mov.u32 %r{210 + place}, {sum(1 << lane for lane in lanes)};\n"
        nothing = "{" + ", ".join(["%r208"] * (4 * self.group)) + "}"
        body += "mov.u32 %r208, 0; setp.ne.u32 %p12, 0, 0; setp.eq.u32 %p13, 0, 0;\n"
        body += f"{head}{f', {nothing}' if self.masked else ''}, %p12;\n"
        body += f"{head}{f', {mask}' if self.masked else ''}, %p13;\n"
        more = ".multicast::cluster" if self.group == 2 else ""
        to = "[bar], %h1" if self.group == 2 else "[bar]"
        return body + f"@%p17 tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster{more}.b64 {to};\n"

    def body(self) -> str:
        """The statements."""
        case = self.cases[0]
        sync = SYNC if self.group == 2 else "bar.sync 0;\n"
        own = f"mul.wide.u32 %d41, %r355, {case.image.size}; add.s64 %d52, %d52, %d41;\n"
        whole = HEAD + own + filled(case.image.size) + case.setup + HANDED.format(sync=sync) + self._issue()
        whole += WAIT.format(phase=0) + "tcgen05.fence::after_thread_sync;\n" + read_out(N)
        return allocated(whole, 128).replace("cta_group::1", f"cta_group::{self.group}")

    def text(self) -> str:
        """The whole module."""
        return text(self.body(), per_thread=N, shared=self.cases[0].image.size)

    def run(self, schedule: str = "late") -> Ran:
        """Launch it."""
        return run(
            self.body(),
            per_thread=N,
            grid=self.group,
            cluster=self.group,
            given=b"".join(each.image.tobytes() for each in self.cases),
            shared=self.cases[0].image.size,
            schedules=(schedule,),
        )

    def answer(self, ran: Ran) -> NDArray[np.float32]:
        """D as it is."""
        return accumulator(ran.words, "s32" if self.kind == "i8" else "f32").reshape(-1, N)

    def wanted(self) -> NDArray[np.float32]:
        """D as it must be: added twice, but for the lanes that are kept."""
        made = 2 * self.expected
        if self.masked:
            for rank in range(self.group):
                for lane in KEPT[rank]:
                    made[128 * rank + lane] = self.expected[128 * rank + lane]
        return made
