"""Integer arithmetic written as text (`2 * M * N * K`), evaluated by walking its syntax tree; runs no Python."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction

MAX_CHARACTERS = 1000
MAX_BITS = 4096
"""No intermediate value may need more bits: a tower of powers must not take the process down."""

_BINARY: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: Fraction(left // right),
    ast.Mod: operator.mod,
}


class ExpressionError(ValueError):
    """The text is no arithmetic expression, names something unknown, or has no integer value."""


def names_in(text: str) -> frozenset[str]:
    """The names that an expression refers to.

    Raises:
        ExpressionError: The text holds anything but integers, names, `+ - * / // % **` and parentheses.
    """
    return frozenset(node.id for node in ast.walk(_parse(text)) if isinstance(node, ast.Name))


def evaluate(text: str, values: Mapping[str, int]) -> int:
    """The integer value of an expression.

    Division is exact, so `S * S / 2` is an integer only where S is even.

    Raises:
        ExpressionError: See `names_in`; also an unknown name, a division by zero, a value that is not an integer or
            needs more than `MAX_BITS` bits.
    """
    try:
        result = _value(_parse(text), values)
    except ZeroDivisionError:
        raise ExpressionError(f"{text!r} divides by zero") from None
    if result.denominator != 1:
        raise ExpressionError(f"{text!r} is {result}, which is not an integer")
    return result.numerator


def _parse(text: str) -> ast.expr:
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(f"an expression of {len(text)} characters; at most {MAX_CHARACTERS} are read")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"{text!r} is not an arithmetic expression") from None
    for node in ast.walk(tree):
        if not _allowed(node):
            raise ExpressionError(f"{text!r} uses {type(node).__name__}; only integers, names and + - * / // % ** may")
    return tree


def _allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    kinds = (ast.BinOp, ast.UnaryOp, ast.Name, ast.Load, ast.UAdd, ast.USub, ast.Pow, *_BINARY)
    return isinstance(node, kinds)


def _value(node: ast.expr, values: Mapping[str, int]) -> Fraction:
    match node:
        case ast.Constant(value=int() as number):
            result = Fraction(number)
        case ast.Name(id=name):
            if name not in values:
                raise ExpressionError(f"unknown name {name!r}; known: {', '.join(sorted(values)) or 'none'}")
            result = Fraction(values[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            result = -_value(operand, values)
        case ast.UnaryOp(operand=operand):
            result = _value(operand, values)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            result = _power(_value(left, values), _value(right, values))
        case ast.BinOp(left=left, op=op, right=right):
            result = _BINARY[type(op)](_value(left, values), _value(right, values))
        case _:
            raise ExpressionError(f"{type(node).__name__} is not arithmetic")
    if max(result.numerator.bit_length(), result.denominator.bit_length()) > MAX_BITS:
        raise ExpressionError(f"a value needs more than {MAX_BITS} bits")
    return result


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if exponent.denominator != 1 or bits * abs(exponent.numerator) > MAX_BITS:
        raise ExpressionError(f"the power {base} ** {exponent} is not an integer power of moderate size")
    return Fraction(base**exponent.numerator)
