"""Integer and bit instructions on Python integers, one lane at a time, from the text of the PTX ISA alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

Model = Callable[[Sequence[str], Sequence[int]], Sequence[int]]
"""Words of the mnemonic and bits of the sources to bits of the results."""
_INT = re.compile(r"[usb](\d+)(x2)?\Z")


def width(type_: str) -> int:
    """Bits of an integer type, of one half for packed ones."""
    match = _INT.match(type_)
    assert match, type_
    return int(match[1])


def value(bits: int, type_: str) -> int:
    """The integer that bits mean."""
    size = width(type_)
    bits &= (1 << size) - 1
    return bits - (1 << size) if type_[0] == "s" and bits >> (size - 1) else bits


def wrap(number: int, size: int) -> int:
    """The low bits."""
    return number & ((1 << size) - 1)


def clamp(number: int, type_: str) -> int:
    """The bits of the nearest value of a type."""
    size = width(type_)
    low, high = (-(1 << (size - 1)), (1 << (size - 1)) - 1) if type_[0] == "s" else (0, (1 << size) - 1)
    return wrap(min(max(number, low), high), size)


def _halves(plain: Callable[..., int]) -> Model:
    """A function of values, for both halves if the type is packed."""

    def model(words: Sequence[str], given: Sequence[int]) -> Sequence[int]:
        type_ = words[-1]
        size = width(type_)
        if not type_.endswith("x2"):
            return (wrap(plain(words, *(value(each, type_) for each in given)), size),)
        one = type_.removesuffix("x2")
        parts = [wrap(plain(words, *(value(each >> 16 * i, one) for each in given)), 16) for i in (0, 1)]
        return (parts[0] | parts[1] << 16,)

    return model


def _add(words: Sequence[str], a: int, b: int) -> int:
    return clamp(a + b, "s32") if "sat" in words else a + b


def _sub(words: Sequence[str], a: int, b: int) -> int:
    return clamp(a - b, "s32") if "sat" in words else a - b


def _least(words: Sequence[str], a: int, b: int) -> int:
    return max(min(a, b), 0) if "relu" in words else min(a, b)


def _greatest(words: Sequence[str], a: int, b: int) -> int:
    return max(a, b, 0) if "relu" in words else max(a, b)


def _product(words: Sequence[str], given: Sequence[int]) -> Sequence[int]:
    """mul, mad, mul24, mad24 and their `.lo`, `.hi`, `.wide`."""
    type_ = words[-1]
    size = width(type_)
    short = words[0].endswith("24")
    narrow = f"{type_[0]}24" if short else type_
    product = value(given[0], narrow) * value(given[1], narrow)
    if "wide" in words:
        addend = given[2] if len(given) > 2 else 0
        return (wrap(product + addend, 2 * size),)
    if "hi" in words:
        product >>= 16 if short else size
    addend = value(given[2], type_) if len(given) > 2 else 0
    if "sat" in words:
        return (clamp(value(wrap(product, 32), "s32") + addend, "s32"),)
    return (wrap(product + addend, size),)


def _divide(words: Sequence[str], given: Sequence[int]) -> Sequence[int]:
    type_ = words[-1]
    a, b = (value(each, type_) for each in given)
    size = width(type_)
    if b == 0:  # the ISA leaves it open; an H200 answers all ones for 32 and 64 bits and for u16
        return ((1 << size) - 1,)
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return (wrap(quotient if words[0] == "div" else a - quotient * b, size),)


def _sad(words: Sequence[str], a: int, b: int, c: int) -> int:
    return c + abs(a - b)


def _bfind(words: Sequence[str], given: Sequence[int]) -> Sequence[int]:
    type_ = words[-1]
    size, number = width(type_), value(given[0], words[-1])
    place = (~number if number < 0 else number).bit_length() - 1
    return (wrap(size - 1 - place if "shiftamt" in words and place >= 0 else place, 32),)


def _fns(words: Sequence[str], given: Sequence[int]) -> Sequence[int]:
    mask, base, offset = given[0], given[1], value(given[2], "s32")
    if offset == -(1 << 31):
        return (0,)  # an H200 cannot count down from there
    if offset == 0:
        return (base if base < 32 and mask >> base & 1 else 0xFFFFFFFF,)
    count, place = abs(offset) - 1, base
    while 0 <= place < 32:
        if mask >> place & 1:
            if count == 0:
                return (place,)
            count -= 1
        place += 1 if offset > 0 else -1
    return (0xFFFFFFFF,)


def _taken(number: int, size: int) -> int:
    """Of a position or length the ISA takes 8 bits; an H200 does so for fields of 32 bits, and takes all for 64."""
    return number & 0xFF if size == 32 else number


def _bfe(words: Sequence[str], given: Sequence[int]) -> Sequence[int]:
    type_ = words[-1]
    size, a = width(type_), given[0]
    place, length = (_taken(each, size) for each in given[1:3])
    if length == 0:
        return (0,)
    sign = a >> min(place + length - 1, size - 1) & 1 if type_[0] == "s" else 0
    made = sum((a >> (place + i) & 1 if place + i < size and i < length else sign) << i for i in range(size))
    return (made,)


def _bfi(words: Sequence[str], given: Sequence[int]) -> Sequence[int]:
    size = width(words[-1])
    a, made = given[0], given[1]
    place, length = (_taken(each, size) for each in given[2:4])
    for i in range(min(length, size)):
        if place + i < size:
            made = made & ~(1 << (place + i)) | (a >> i & 1) << (place + i)
    return (made,)


def _szext(words: Sequence[str], given: Sequence[int]) -> Sequence[int]:
    a, b = given
    low = b & 31
    if b >= 32 and "clamp" in words:
        return (a,)
    sign = a >> (low - 1) & 1 if low and words[-1] == "s32" else 0
    mask = wrap(-1 << low, 32)
    return (a & ~mask & 0xFFFFFFFF | (mask if sign else 0),)


def _bmsk(words: Sequence[str], given: Sequence[int]) -> Sequence[int]:
    a, b = given
    first, length = a & 31, b & 31
    above = wrap(-1 << first, 32)
    beyond = wrap(-1 << (first + length), 32)
    over = first + length >= 32
    if "clamp" in words:
        above = 0 if a >= 32 else above
        over = over or a >= 32 or b >= 32
    if over:
        beyond = 0
    elif length == 0:
        beyond = 0xFFFFFFFF
    return (above & ~beyond & 0xFFFFFFFF,)


def _dot(words: Sequence[str], given: Sequence[int]) -> Sequence[int]:
    """dp4a: four bytes by four bytes; dp2a: two halves by two bytes."""
    a_type, b_type = words[-2], words[-1]
    total = value(given[2], "s32" if "s32" in (a_type, b_type) else "u32")
    count = 4 if words[0] == "dp4a" else 2
    wide = 8 if count == 4 else 16
    first = 2 if "hi" in words else 0
    for i in range(count):
        left = value(given[0] >> wide * i, f"{a_type[0]}{wide}")
        total += left * value(given[1] >> 8 * (first + i), f"{b_type[0]}8")
    return (wrap(total, 32),)


def _logic(combine: Callable[[int, int], int]) -> Model:
    return lambda words, given: (combine(given[0], given[1]),)


def _not(words: Sequence[str], given: Sequence[int]) -> Sequence[int]:
    size = 1 if words[-1] == "pred" else width(words[-1])
    return (wrap(~given[0], size),)


def _lop3(words: Sequence[str], given: Sequence[int]) -> Sequence[int]:
    a, b, c, table = given[:4]
    made = sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32))
    if len(words) == 2:
        return (made,)
    told = made != 0
    return made, int(told and given[4]) if words[1] == "and" else int(told or given[4])


def _shift(words: Sequence[str], given: Sequence[int]) -> Sequence[int]:
    type_ = words[-1]
    size = width(type_)
    amount = min(given[1], size)
    number = value(given[0], type_)
    return (wrap(number << amount if words[0] == "shl" else number >> amount, size),)


def _funnel(words: Sequence[str], given: Sequence[int]) -> Sequence[int]:
    both = given[1] << 32 | given[0]
    amount = min(given[2], 32) if "clamp" in words else given[2] & 31
    return (wrap((both << amount) >> 32 if words[1] == "l" else both >> amount, 32),)


def _prmt(words: Sequence[str], given: Sequence[int]) -> Sequence[int]:
    a, b, c = given
    data = [(b << 32 | a) >> 8 * i & 0xFF for i in range(8)]
    s = c & 3
    chosen = {
        "f4e": [s, s + 1, s + 2, s + 3],
        "b4e": [s, s - 1, s - 2, s - 3],
        "rc8": [s] * 4,
        "ecl": [max(i, s) for i in range(4)],
        "ecr": [min(i, s) for i in range(4)],
        "rc16": [2 * (s & 1), 2 * (s & 1) + 1] * 2,
    }.get(words[-1])
    if chosen is not None:
        return (sum(data[each % 8] << 8 * i for i, each in enumerate(chosen)),)
    made = 0
    for i in range(4):
        picked = c >> 4 * i & 15
        byte = data[picked & 7]
        made |= (0xFF * (byte >> 7) if picked & 8 else byte) << 8 * i
    return (made,)


def _pack(words: Sequence[str], given: Sequence[int]) -> Sequence[int]:
    """cvt.pack.sat: a above b, above them c."""
    type_ = words[3]
    size = width(type_)
    a, b = (clamp(value(each, "s32"), type_) for each in given[:2])
    rest = given[2] << 2 * size if len(given) > 2 else 0
    return (wrap(rest | a << size | b, 32),)


def carry(words: Sequence[str], given: Sequence[int]) -> Sequence[int]:
    """addc, subc, madc and the `.cc` ones: sources, then the carry; the result, then the carry out."""
    size = width(words[-1])
    *numbers, inward = given
    name = words[0]
    inward = inward if name in ("addc", "subc", "madc") else 0
    if name.startswith("sub"):
        exact = numbers[0] - numbers[1] - inward
        return wrap(exact, size), int(exact < 0)
    if name.startswith("mad"):
        product = value(numbers[0], words[-1]) * value(numbers[1], words[-1])
        numbers = [wrap(product >> size if "hi" in words else product, size), numbers[2]]
    exact = sum(numbers) + inward
    return wrap(exact, size), exact >> size


INTEGERS: dict[str, Model] = {
    **{"add": _halves(_add), "sub": _halves(_sub), "min": _halves(_least), "max": _halves(_greatest)},
    **dict.fromkeys(("mul", "mad", "mul24", "mad24"), _product),
    **{"div": _divide, "rem": _divide, "sad": _halves(_sad)},
    "abs": _halves(lambda _, a: abs(a)),
    "neg": _halves(lambda _, a: -a),
    "popc": lambda words, given: (given[0].bit_count(),),
    "clz": lambda words, given: (width(words[-1]) - given[0].bit_length(),),
    "brev": lambda words, given: (int(f"{given[0]:0{width(words[-1])}b}"[::-1], 2),),
    **{"bfind": _bfind, "fns": _fns, "bfe": _bfe, "bfi": _bfi, "szext": _szext, "bmsk": _bmsk},
    **{"dp4a": _dot, "dp2a": _dot, "not": _not, "lop3": _lop3, "prmt": _prmt},
    "and": _logic(lambda a, b: a & b),
    "or": _logic(lambda a, b: a | b),
    "xor": _logic(lambda a, b: a ^ b),
    "cnot": lambda words, given: (int(given[0] == 0),),
    **{"shl": _shift, "shr": _shift, "shf": _funnel, "cvt": _pack},
}
