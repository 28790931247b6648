"""Comparisons and selections, and conversions, one lane at a time, from the text of the PTX ISA and measured rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from tests.emulator.forms.floats import Expected, Model, mode_of, ones
from tests.emulator.forms.integers import clamp, value, width, wrap
from tests.emulator.forms.numbers import LAYOUT, NO_NUMBER, Number, decode, encode, finite, to_integer

_FLOAT = re.compile(r"(f16|bf16|tf32|f32|f64)(x2)?\Z")
_UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_IRND = ("rni", "rzi", "rmi", "rpi")


def _key(number: Number) -> Fraction:
    """A fraction that orders infinities too: they lie beyond all numbers of any format."""
    if number.size is None:
        return Fraction(-1 if number.negative else 1) * 2**5000
    return number.value


def _holds(compare: str, a: Fraction | int, b: Fraction | int) -> bool:
    return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[compare]


def compared(words: Sequence[str], a: int, b: int, type_: str) -> bool:
    """Whether the comparison named in the mnemonic holds."""
    name = words[1]
    if not _FLOAT.match(type_):
        return _holds(_UNSIGNED.get(name, name), value(a, type_), value(b, type_))
    left, right = (decode(each, type_, "ftz" in words) for each in (a, b))
    broken = left.nan or right.nan
    if name in ("num", "nan"):
        return broken == (name == "nan")
    if broken:
        return name in _UNORDERED
    return _holds(_UNORDERED.get(name, name), _key(left), _key(right))


def _combined(words: Sequence[str], told: bool, given: Sequence[int]) -> bool:
    """With the predicate, if the mnemonic names how."""
    for word, combine in (("and", min), ("or", max)):
        if word in words:
            return bool(combine(int(told), given[2]))
    return told != bool(given[2]) if "xor" in words else told


def _each(words: Sequence[str], given: Sequence[int]) -> list[bool]:
    """The comparison of each number of the registers."""
    type_ = words[-1]
    if not type_.endswith("x2"):
        return [compared(words, given[0], given[1], type_)]
    one = type_.removesuffix("x2")
    return [compared(words, given[0] >> s & 0xFFFF, given[1] >> s & 0xFFFF, one) for s in (0, 16)]


def set_(words: Sequence[str], given: Sequence[int]) -> Sequence[Expected]:
    """set: all ones or 1.0 where it holds."""
    told = [_combined(words, each, given) for each in _each(words, given)]
    type_ = words[-2]
    if _FLOAT.match(type_):
        one = ones(type_.removesuffix("x2"))
        return (sum((one if each else 0) << 16 * i for i, each in enumerate(told)),)
    if len(told) == 2:
        return (sum((0xFFFF if each else 0) << 16 * i for i, each in enumerate(told)),)
    return ((1 << width(type_)) - 1 if told[0] else 0,)


def setp(words: Sequence[str], given: Sequence[int]) -> Sequence[Expected]:
    """setp: p, and where there is a q: the complement's, or the upper half's."""
    told = _each(words, given)
    if len(told) == 1:
        told.append(not told[0])
    return tuple(int(_combined(words, each, given)) for each in told)


def slct(words: Sequence[str], given: Sequence[int]) -> Sequence[Expected]:
    """slct: a if c is not negative, b if it is or is no number."""
    a, b, c = given
    if words[-1] == "s32":
        return (a if value(c, "s32") >= 0 else b,)
    number = decode(c, "f32", "ftz" in words)
    return (b if number.nan or (number.negative and not number.zero) else a,)


def selp(words: Sequence[str], given: Sequence[int]) -> Sequence[Expected]:
    """selp."""
    return (given[0] if given[2] else given[1],)


def convert(words: Sequence[str], given: Sequence[int]) -> Sequence[Expected]:
    """cvt between single numbers."""
    target, source = words[-2], words[-1]
    if "rna" in words and given[0] >> 23 & 0xFF == 0xFF:  # an H200 only cuts what is not finite, then goes one down
        return ((given[0] & 0xFFFFE000) - (0x2000 if "satfinite" in words else 0),)
    if not _FLOAT.match(source) and not _FLOAT.match(target):
        whole = value(given[0], source)
        return (clamp(whole, target) if "sat" in words else wrap(whole, width(target)),)
    if not _FLOAT.match(source):
        return (_narrowed(words, finite(value(given[0], source)), target),)
    unknown = target == "f16" and mode_of(words) in ("rm", "rp")  # the device has no such conversion with .ftz
    number = decode(given[0], source, "ftz" in words and source != "f16" and not unknown)
    rounding = next((word for word in words if word in _IRND), "")
    if not _FLOAT.match(target):
        return (_whole(number, target, source, rounding),)
    if rounding and not number.nan and number.size is not None:
        number = finite(to_integer(number, rounding), number.negative)
    return (_narrowed(words, number, target),)


def _whole(number: Number, target: str, source: str, rounding: str) -> int:
    size = width(target)
    if number.nan:
        return 1 << (size - 1) if size == 64 or source == "f64" else 0
    if number.size is None:
        return clamp(-(1 << 70) if number.negative else 1 << 70, target)
    return clamp(to_integer(number, rounding), target)


def _narrowed(words: Sequence[str], number: Number, target: str) -> Expected:
    """A number in a floating-point format, with `.sat`, `.relu`, `.satfinite`."""
    if "sat" in words:
        if number.nan or number.negative or number.zero:
            return 0
        return min(encode(number, target, mode_of(words), "ftz" in words and target != "f64"), ones(target))
    if "relu" in words and number.negative and not number.nan:
        return 0
    mode = "rna" if "rna" in words else mode_of(words)
    return encode(number, target, mode, "ftz" in words and target == "f32", "satfinite" in words)


def convert_packed(words: Sequence[str], given: Sequence[int]) -> Sequence[Expected]:
    """cvt to and from packed formats: the parts of the result, the lowest first."""
    target, source = words[-2], words[-1]
    if "rs" in words:
        return _stochastic(words, given)
    numbers = _numbers(source, given)
    if target.startswith("ue8m0"):
        return tuple(_scale(words, each) for each in numbers)
    format_ = target.removesuffix("x2")
    return tuple(_small(words, each, format_) for each in numbers)


def _stochastic(words: Sequence[str], given: Sequence[int]) -> Sequence[Expected]:
    """Away from zero where the random bits carry out of the bits that a result has no room for."""
    *sources, random = given
    format_ = words[-2][:-2]
    upper, lower = random >> 16, random & 0xFFFF
    shares = {
        "f16": [lower & 0x1FFF, upper & 0x1FFF],
        "bf16": [lower, upper],
        "e2m1": [lower & 0xFF, upper & 0xFF, lower >> 8, upper >> 8],
    }.get(format_, [lower, lower, upper, upper])
    room = {"f16": 13, "e2m1": 8}.get(format_, 16)
    numbers = [decode(each, "f32") for each in sources[::-1]]
    return tuple(_small(words, _moved(*each, format_, room), format_) for each in zip(numbers, shares, strict=True))


def _moved(number: Number, share: int, format_: str, room: int) -> Number:
    """The neighbour in the format that random bits choose, exponents unbounded."""
    if number.size is None or number.nan or number.zero:
        return number
    exponent, fraction = LAYOUT[format_]
    place = 2 - (1 << (exponent - 1))
    while Fraction(2) ** (place + 1) <= number.size:
        place += 1
    ulp = Fraction(2) ** (place - fraction)
    whole, rest = divmod(number.size, ulp)
    carried = int(rest / ulp * (1 << room)) + share >> room
    return Number(number.negative, (whole + carried) * ulp)


def _numbers(source: str, given: Sequence[int]) -> list[Number]:
    if source == "f32":
        return [decode(each, "f32") for each in given[::-1]]
    format_ = source.removesuffix("x2")
    if format_ == "ue8m0":
        parts = [given[0] & 0xFF, given[0] >> 8 & 0xFF]
        return [finite(Fraction(2) ** (each - 127)) if each < 255 else NO_NUMBER for each in parts]
    size = 16 if format_ in ("f16", "bf16") else 4 if format_ == "e2m1" else 8
    return [decode(given[0] >> size * i & ((1 << size) - 1), format_) for i in (0, 1)]


def _small(words: Sequence[str], number: Number, format_: str) -> int:
    if number.nan and format_ in ("e2m1", "e2m3", "e3m2"):
        top = 1 << sum(LAYOUT[format_])
        return top - 1  # the ISA: no NaN there, the largest positive number
    made = _narrowed(words, number, format_)
    assert isinstance(made, int)
    return made


def _scale(words: Sequence[str], number: Number) -> int:
    """An exponent of two, rounded toward zero or up; the sign is dropped."""
    if number.nan:
        return 0xFF
    if number.size is None:
        return 0xFE if "satfinite" in words else 0xFF
    if number.zero:
        return 0
    exponent = -127
    while exponent < 128 and Fraction(2) ** (exponent + 1) <= number.size:
        exponent += 1
    below = Fraction(2) ** exponent
    if "rp" in words and (number.size > below):
        exponent += 1
    code = exponent + 127
    return max(code, 0) if code < 255 else 0xFE if "satfinite" in words else 0xFF


COMPARES: dict[str, Model] = {"set": set_, "setp": setp, "slct": slct, "selp": selp}
