"""Logic, shifts, bit fields, permutations and counts of register bits; no arithmetic.

PTX ISA, sections Logic and Shift Instructions, Integer Arithmetic Instructions, prmt.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ptxbench.emulator.codegen.scalar.form import Bits, Form, Run, ScalarOp, dtype, same, signed, unsigned, width

_LOGIC: dict[str, Run] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.bitwise_not}


def logic(form: Form) -> ScalarOp:
    """`and`, `or`, `xor`, `not`, on predicates too (NumPy's bitwise functions negate booleans logically)."""
    return same(_LOGIC[form.ins.opcode], form.type, 1 if form.ins.opcode == "not" else 2)


def cnot(form: Form) -> ScalarOp:
    """`cnot`: 1 for zero, else 0."""
    name = dtype(form.type)
    return same(lambda a: (a == 0).astype(name), form.type, 1)


def lop3(form: Form) -> ScalarOp:
    """`lop3`: any function of three bits; table entry number 4a + 2b + c."""
    table = form.immediate(len(form.ins.operands) - (2 if form.paired else 1)) or 0
    made = _by_table(table & 0xFF)
    if not form.paired:
        return same(lambda a, b, c, _: made(a, b, c), "b32", 4)
    join: Run = np.logical_and if "and" in form.words else np.logical_or

    def both(a: Bits, b: Bits, c: Bits, _: Bits, q: Bits) -> tuple[Bits, Bits]:
        word = made(a, b, c)
        return word, join(word != 0, q)

    return ScalarOp(both, ("b32", "b32", "b32", "b32", "pred"), ("b32", "pred"))


_HALF: tuple[Run, ...] = (
    lambda b, c: (b | c) & np.uint32(0),
    lambda b, c: ~(b | c),
    lambda b, c: ~b & c,
    lambda b, c: ~b | c & np.uint32(0),
    lambda b, c: b & ~c,
    lambda b, c: ~c | b & np.uint32(0),
    lambda b, c: b ^ c,
    lambda b, c: ~(b & c),
)
_OF_TWO: tuple[Run, ...] = (
    *_HALF,
    lambda b, c: b & c,
    lambda b, c: ~(b ^ c),
    lambda b, c: c | b & np.uint32(0),
    lambda b, c: ~b | c,
    lambda b, c: b | c & np.uint32(0),
    lambda b, c: b | ~c,
    lambda b, c: b | c,
    lambda b, c: ~((b | c) & np.uint32(0)),
)
"""Functions of two bits by their table, entry number 2b + c; all have the shape of both operands."""


def _by_table(table: int) -> Run:
    """Shannon's expansion over a."""
    zeros, ones = table & 15, table >> 4
    clear, set_ = _OF_TWO[zeros], _OF_TWO[ones]
    if zeros == ones:
        return lambda a, b, c: clear(b, c) | a & np.uint32(0)
    if zeros ^ ones == 15:
        return lambda a, b, c: clear(b, c) ^ a
    if zeros == 0:
        return lambda a, b, c: set_(b, c) & a
    if ones == 0:
        return lambda a, b, c: clear(b, c) & ~a
    if zeros == 15:
        return lambda a, b, c: set_(b, c) | ~a
    if ones == 15:
        return lambda a, b, c: clear(b, c) | a
    return lambda a, b, c: (set_(b, c) & a) | (clear(b, c) & ~a)


def shift(form: Form) -> ScalarOp:
    """`shl` and `shr`; amounts beyond the width shift everything out, or leave the sign."""
    size = width(form.type)
    negative = form.type[0] == "s"
    left = form.ins.opcode == "shl"
    name = dtype(form.type)

    def run(a: Bits, amount: Bits) -> Bits:
        if negative:
            return unsigned(signed(a) >> np.minimum(amount, np.uint32(size - 1)).astype(f"int{size}"))
        by = np.minimum(amount, np.uint32(size - 1)).astype(name)
        shifted = a << by if left else a >> by
        made: Bits = np.where(amount < size, shifted, a.dtype.type(0))
        return made

    def fixed(a: Bits, amount: Bits) -> Bits:
        del amount
        shifted: Bits = a << constant if left else a >> constant
        return shifted

    written = form.immediate(2)
    if written is not None and 0 <= written < size and not negative:
        constant = np.dtype(name).type(written)
        return ScalarOp(fixed, (form.type, "u32"), (form.type,))
    return ScalarOp(run, (form.type, "u32"), (form.type,))


def funnel(form: Form) -> ScalarOp:
    """`shf`: a double word shifted; `.l` gives its upper word, `.r` its lower."""
    left, wrap = "l" in form.words, "wrap" in form.words

    def run(a: Bits, b: Bits, amount: Bits) -> Bits:
        by = (amount & np.uint32(31) if wrap else np.minimum(amount, np.uint32(32))).astype(np.uint64)
        both = (b.astype(np.uint64) << np.uint64(32)) | a
        moved = (both << by) >> np.uint64(32) if left else both >> by
        return moved.astype(np.uint32)

    return same(run, "b32", 3)


def _mask(length: Bits) -> Bits:
    """64-bit masks of that many low bits."""
    ones = np.uint64(0xFFFFFFFFFFFFFFFF)
    return np.where(length >= 64, ones, ~(ones << np.minimum(length, 63).astype(np.uint64)))


def extract(form: Form) -> ScalarOp:
    """`bfe`: a field; what lies beyond the top is the sign (of the field's last bit) or zero.

    Of position and length an H200 takes the low 8 bits where the field is of 32 bits, and all where it is of 64.
    """
    size, negative, name = width(form.type), form.type[0] == "s", dtype(form.type)
    taken = np.uint32(255 if size == 32 else 0xFFFFFFFF)

    def run(a: Bits, position: Bits, length: Bits) -> Bits:
        low = (position & taken).astype(np.int64)
        count = (length & taken).astype(np.int64)
        extended = a.astype(np.uint64)
        inside = np.where(low >= size, np.uint64(0), extended >> np.minimum(low, size - 1).astype(np.uint64))
        kept = inside & _mask(count)
        if negative:
            last = np.clip(low + count - 1, 0, size - 1).astype(np.uint64)
            sign = ((extended >> last) & np.uint64(1)).astype(bool) & (count > 0)
            kept = np.where(sign, kept | ~_mask(np.minimum(count, np.maximum(size - low, 0))), kept)
        return kept.astype(name)

    return ScalarOp(run, (form.type, "u32", "u32"), (form.type,))


def insert(form: Form) -> ScalarOp:
    """`bfi`: a field of a put into b, clipped at the top; position and length count as those of `bfe`."""
    name = dtype(form.type)
    taken = np.uint32(255 if width(form.type) == 32 else 0xFFFFFFFF)

    def run(a: Bits, b: Bits, position: Bits, length: Bits) -> Bits:
        low = (position & taken).astype(np.int64)
        by = np.minimum(low, 63).astype(np.uint64)
        mask = np.where(low > 63, np.uint64(0), _mask((length & taken).astype(np.int64)) << by)
        return ((b & ~mask) | ((a.astype(np.uint64) << by) & mask)).astype(name)

    return ScalarOp(run, (form.type, form.type, "u32", "u32"), (form.type,))


def _length(bits: Bits) -> Bits:
    """Position of the highest set bit, counted from 1; 0 for none."""
    size = bits.dtype.itemsize * 8
    step = 1
    while step < size:
        bits = bits | bits >> bits.dtype.type(step)
        step *= 2
    return np.bitwise_count(bits).astype(np.uint32)


def count(form: Form) -> ScalarOp:
    """`popc`, `clz`, `bfind`, `bfind.shiftamt`; results are 32 bits."""
    size = np.uint32(width(form.type))
    one = np.uint32(1)

    def clz(a: Bits) -> Bits:
        return np.asarray(size - _length(a))

    def bfind(a: Bits) -> Bits:
        found = _length(np.where(signed(a) < 0, ~a, a) if form.type[0] == "s" else a)
        place = size - found if "shiftamt" in form.words else found - one
        return np.where(found == 0, np.uint32(0xFFFFFFFF), place)

    runs: dict[str, Run] = {"popc": lambda a: np.bitwise_count(a).astype(np.uint32), "clz": clz, "bfind": bfind}
    return ScalarOp(runs[form.ins.opcode], (form.type,), ("u32",))


def reverse(form: Form) -> ScalarOp:
    """`brev`: bits in opposite order."""
    size = width(form.type)
    steps = [(step, sum(((1 << step) - 1) << at for at in range(0, size, 2 * step))) for step in _powers(size)]

    def run(a: Bits) -> Bits:
        of = a.dtype.type
        for step, mask in steps:
            a = ((a >> of(step)) & of(mask)) | ((a & of(mask)) << of(step))
        return a

    return same(run, form.type, 1)


def _powers(below: int) -> list[int]:
    return [1 << i for i in range(below.bit_length() - 1)]


def nth_set(form: Form) -> ScalarOp:
    """`fns`: the n-th set bit of a mask from a base, upwards or downwards; all ones if there is none."""

    def run(mask: Bits, base: Bits, offset: Bits) -> Bits:
        n = signed(offset).astype(np.int64)
        at = base.astype(np.int64)
        left = np.maximum(np.abs(n) - 1, 0)
        step = np.where(n < 0, -1, 1)
        found = np.full(np.broadcast(mask, base, offset).shape, 0xFFFFFFFF, np.uint32)
        for i in range(32):
            inside = (at >= 0) & (at < 32) & ((n != 0) | (i == 0)) & (found == 0xFFFFFFFF)
            hit = inside & ((mask.astype(np.int64) >> np.clip(at, 0, 31) & 1) > 0)
            found = np.where(hit & (left == 0), at, found).astype(np.uint32)
            left = left - hit
            at = at + step
        return np.where(n == -(1 << 31), np.uint32(0), found)  # an H200 cannot count down from there

    return same(run, "b32", 3)


def mask(form: Form) -> ScalarOp:
    """`bmsk`: b ones from position a on."""
    clamp = "clamp" in form.words

    def run(a: Bits, b: Bits) -> Bits:
        low = a.astype(np.int64) if clamp else a.astype(np.int64) & 31
        count = np.minimum(b.astype(np.int64), 32) if clamp else b.astype(np.int64) & 31
        ones = np.uint64(0xFFFFFFFF)
        made = np.where(low > 31, np.uint64(0), _mask(count) << np.minimum(low, 31).astype(np.uint64)) & ones
        return made.astype(np.uint32)

    return same(run, "b32", 2)


def extend(form: Form) -> ScalarOp:
    """`szext`: the low b bits, filled with zeros or their sign."""
    clamp, negative = "clamp" in form.words, form.type[0] == "s"

    def run(a: Bits, b: Bits) -> Bits:
        count = b.astype(np.int64) if clamp else b.astype(np.int64) & 31
        kept = _mask(count).astype(np.uint32)
        low = a & kept
        if not negative:
            return low
        sign = (a >> np.clip(count - 1, 0, 31).astype(np.uint32)) & np.uint32(1)
        return np.where((sign > 0) & (count > 0) & (count < 32), low | ~kept, low)

    return same(run, "b32", 2)


def permute(form: Form) -> ScalarOp:
    """`prmt`: bytes of the pair (a, b) chosen by c, or by one of six patterns."""
    pattern = form.one_of("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    written = form.immediate(3)
    if pattern:
        run: Run = partial(_patterned, pattern)
    elif written is not None:
        run = partial(_fixed_bytes, written)
    else:
        run = _chosen_bytes
    return same(run, "b32", 3)


def _chosen_bytes(a: Bits, b: Bits, c: Bits) -> Bits:
    both = (b.astype(np.uint64) << np.uint64(32)) | a
    made = np.zeros(np.broadcast(both, c).shape, np.uint32)
    for i in range(4):
        selector = c >> np.uint32(4 * i)
        byte = (both >> ((selector & np.uint32(7)) << np.uint32(3)).astype(np.uint64)).astype(np.uint32) & np.uint32(
            255
        )
        byte = np.where(selector & np.uint32(8), (byte >> np.uint32(7)) * np.uint32(255), byte)
        made = made | byte << np.uint32(8 * i)
    return made


def _fixed_bytes(selector: int, a: Bits, b: Bits, c: Bits) -> Bits:
    """As `_chosen_bytes` with a constant: neighbouring bytes move together."""
    if selector & 0x8888:
        return _chosen_bytes(a, b, c)
    moves: dict[tuple[bool, int], int] = {}
    for i in range(4):
        source = selector >> 4 * i & 7
        key = (source > 3, i - (source & 3))
        moves[key] = moves.get(key, 0) | 0xFF << 8 * i
    made: Bits = (a | b) & np.uint32(0)
    for (second, up), kept in moves.items():
        word = b if second else a
        moved = word << np.uint32(8 * up) if up > 0 else word >> np.uint32(-8 * up)
        made = made | moved & np.uint32(kept)
    return made


def _patterned(pattern: str, a: Bits, b: Bits, c: Bits) -> Bits:
    s = c & np.uint32(3)
    places = [np.full_like(s, i) for i in range(4)]
    half = s & np.uint32(1)
    chosen = {
        "f4e": [s + i for i in places],
        "b4e": [(s - i) & np.uint32(7) for i in places],
        "rc8": [s] * 4,
        "ecl": [np.maximum(i, s) for i in places],
        "ecr": [np.minimum(i, s) for i in places],
        "rc16": [half * np.uint32(2) + (i & np.uint32(1)) for i in places],
    }[pattern]
    selector: Bits = s & np.uint32(0)
    for i, each in enumerate(chosen):
        selector = selector | each << np.uint32(4 * i)
    return _chosen_bytes(a, b, selector)


BUILDERS = {
    **{opcode: (logic,) for opcode in _LOGIC},
    "cnot": (cnot,),
    "lop3": (lop3,),
    "shl": (shift,),
    "shr": (shift,),
    "shf": (funnel,),
    "bfe": (extract,),
    "bfi": (insert,),
    "popc": (count,),
    "clz": (count,),
    "bfind": (count,),
    "brev": (reverse,),
    "fns": (nth_set,),
    "bmsk": (mask,),
    "szext": (extend,),
    "prmt": (permute,),
}
