"""Literals and constant expressions of PTX (section Constants): 64-bit integers and floats; no names but WARP_SZ.

Integers follow the rules of C: `.s64` unless written with `U`, too large for it, or combined with such a one.
"""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable

from ptxbench.emulator.errors import PtxError
from ptxbench.emulator.ptx.ir import Immediate
from ptxbench.emulator.ptx.source import TOKEN

WARP_SIZE = 32
_MAX_LENGTH = 4096
_MAX_DEPTH = 24
_INTEGER = re.compile(r"(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|(0[0-7]*)|([1-9]\d*))U?\Z")
_FLOATING = re.compile(r"(?=.*[.eE])(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")
_DECIMAL = re.compile(r"-?(?:0|[1-9]\d{0,18})\Z")
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_PLAIN: dict[str, Callable[[int, int], int]] = {
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_FLOAT: dict[str, Callable[[float, float], float]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


class _Bits(int):
    """A hexadecimal floating literal (`0f`, `0d`), kept as its bits."""

    kind: str


def evaluate(text: str, line: int) -> Immediate:
    """The value of a literal or constant expression.

    Raises:
        PtxError: It is none.
    """
    if _DECIMAL.match(text):
        return Immediate(int(text), "int")
    if len(text) > _MAX_LENGTH:
        raise PtxError(line, "a constant expression is too long")
    reader = _Expression(TOKEN.findall(text), line)
    value = reader.conditional(0)
    if reader.tokens[reader.position :]:
        raise PtxError(line, f"`{text.strip()[:60]}` is not a constant")
    if isinstance(value, _Bits):
        return Immediate(int(value), value.kind)
    if isinstance(value, float):
        return Immediate(int.from_bytes(struct.pack("<d", value), "little"), "f64")
    return Immediate(value, "int")


def integer(text: str, line: int) -> int:
    """The value of an integer constant expression.

    Raises:
        PtxError: It is none, or a floating one.
    """
    value = evaluate(text, line)
    if value.kind != "int":
        raise PtxError(line, f"`{text.strip()[:60]}` is not an integer")
    return value.value


def _wrap(value: int, unsigned: bool) -> int:
    value &= (1 << 64) - 1
    return value if unsigned or value < 1 << 63 else value - (1 << 64)


def _as_float(value: int | float) -> float:
    if isinstance(value, _Bits):
        size, code = (4, "<f") if value.kind == "f32" else (8, "<d")
        return float(struct.unpack(code, int(value).to_bytes(size, "little"))[0])
    return float(value)


class _Expression:
    """Recursive descent over the operator levels of C, bounded in depth."""

    def __init__(self, tokens: list[str], line: int) -> None:
        self.tokens = tokens
        self.line = line
        self.position = 0

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def fail(self, message: str) -> PtxError:
        return PtxError(self.line, message)

    def conditional(self, depth: int) -> int | float:
        condition = self.binary(0, depth)
        if self.peek() != "?":
            return condition
        self.position += 1
        then = self.conditional(self._deeper(depth))
        self._expect(":")
        otherwise = self.conditional(self._deeper(depth))
        return then if condition else otherwise

    def binary(self, level: int, depth: int) -> int | float:
        if level == len(_LEVELS):
            return self.unary(depth)
        left = self.binary(level + 1, depth)
        while self._operator() in _LEVELS[level]:
            sign = self._operator()
            if self.peek() != sign:  # `5%3` was read as the name `%3`
                self.tokens[self.position] = self.peek()[1:]
            else:
                self.position += 1
            left = self._apply(sign, left, self.binary(level + 1, depth))
        return left

    def _operator(self) -> str:
        token = self.peek()
        return "%" if token[:1] == "%" and token[1:].isdecimal() else token

    def unary(self, depth: int) -> int | float:
        token = self.peek()
        if token in ("-", "+", "!", "~"):
            self.position += 1
            return self._sign(token, self.unary(self._deeper(depth)))
        if token == "(":  # noqa: S105  (a token of PTX)
            self.position += 1
            cast = self.peek()
            if cast in (".s64", ".u64"):
                self.position += 1
                self._expect(")")
                value = self.unary(self._deeper(depth))
                return _wrap(self._whole(value), cast == ".u64")
            value = self.conditional(self._deeper(depth))
            self._expect(")")
            return value
        self.position += 1
        return self._literal(token)

    def _literal(self, token: str) -> int | float:
        if token == "WARP_SZ":  # noqa: S105  (a token of PTX)
            return WARP_SIZE
        match = _INTEGER.match(token)
        if match:
            digits, base = next((g, b) for g, b in zip(match.groups(), (16, 2, 8, 10), strict=True) if g is not None)
            # Python bounds the digits of decimal conversions itself; others are cut here the same way for all bases.
            value = int(digits, base) if len(digits) <= 64 else 1 << 64
            if value >= 1 << 64:
                raise self.fail(f"`{token[:60]}` does not fit 64 bits")
            return value
        head = token[:2].lower()
        if head in ("0f", "0d") and len(token) in (10, 18):
            bits = _Bits(int(token[2:], 16))
            bits.kind = "f32" if head == "0f" else "f64"
            return bits
        if _FLOATING.match(token):
            return float(token)
        raise self.fail(f"`{token[:60]}` is not a constant")

    def _sign(self, sign: str, value: int | float) -> int | float:
        if sign == "+":
            return value
        if sign == "!":
            return int(not _as_float(value))
        if isinstance(value, _Bits):
            flipped = _Bits(int(value) ^ (1 << (31 if value.kind == "f32" else 63)))
            flipped.kind = value.kind
            return flipped if sign == "-" else self._whole(value)
        if sign == "-":
            return -value if isinstance(value, float) or value <= 1 << 63 else _wrap(-value, unsigned=True)
        return _wrap(~self._whole(value), unsigned=value >= 1 << 63)

    def _apply(self, sign: str, left: int | float, right: int | float) -> int | float:
        if sign in ("&&", "||"):
            truth = (bool(_as_float(left)), bool(_as_float(right)))
            return int(all(truth) if sign == "&&" else any(truth))
        if isinstance(left, float | _Bits) or isinstance(right, float | _Bits):
            return self._apply_float(sign, _as_float(left), _as_float(right))
        if sign in _COMPARE:
            return int(_COMPARE[sign](left, right))
        return self._apply_integer(sign, left, right)

    def _apply_float(self, sign: str, left: float, right: float) -> int | float:
        if sign in _COMPARE:
            return int(_COMPARE[sign](left, right))
        if sign in _FLOAT:
            return _FLOAT[sign](left, right)
        if sign == "/" and right != 0:
            return left / right
        raise self.fail(f"`{sign}` has no value for these floating constants")

    def _apply_integer(self, sign: str, left: int, right: int) -> int:
        unsigned = left >= 1 << 63 or right >= 1 << 63
        if sign in _PLAIN:
            return _wrap(_PLAIN[sign](left, right), unsigned)
        if sign in ("<<", ">>"):
            count = right & 63
            return _wrap(left << count if sign == "<<" else left >> count, left >= 1 << 63)
        if right == 0:
            raise self.fail("a constant expression divides by zero")
        if unsigned:
            left, right = _wrap(left, unsigned=True), _wrap(right, unsigned=True)
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return _wrap(quotient if sign == "/" else left - quotient * right, unsigned)

    def _whole(self, value: int | float) -> int:
        if isinstance(value, float | _Bits):
            raise self.fail("an integer operator meets a floating constant")
        return value

    def _expect(self, token: str) -> None:
        if self.peek() != token:
            raise self.fail(f"expected `{token}` in a constant expression, found `{self.peek()[:40]}`")
        self.position += 1

    def _deeper(self, depth: int) -> int:
        if depth >= _MAX_DEPTH:
            raise self.fail("a constant expression is nested too deeply")
        return depth + 1
