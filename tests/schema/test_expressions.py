"""Expressions are integer arithmetic and nothing else."""

import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.schema.expressions import ExpressionError, evaluate, names_in

BINARY = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
NUMBERS = st.integers(min_value=-50, max_value=50)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 * M * N", 2 * 6 * 7),
        ("M // 4 + -N % 4", 6 // 4 + -7 % 4),
        ("(M + N) * (M - N)", 13 * -1),
        ("M ** 2 ** 2", 6**4),
        ("N / 2 * 2", 7),
        (" +M ", 6),
    ],
)
def test_arithmetic_has_its_usual_value(text: str, value: int) -> None:
    assert evaluate(text, {"M": 6, "N": 7}) == value


@settings(deadline=None)
@given(
    left=NUMBERS,
    middle=NUMBERS,
    right=NUMBERS,
    first=st.sampled_from(sorted(BINARY)),
    second=st.sampled_from(sorted(BINARY)),
)
def test_nested_arithmetic_agrees_with_python(left: int, middle: int, right: int, first: str, second: str) -> None:
    values = {"a": left, "b": middle, "c": right}
    text = f"(a {first} b) {second} c"
    try:
        expected = BINARY[second](BINARY[first](left, middle), right)
    except ZeroDivisionError:
        with pytest.raises(ExpressionError, match="divides by zero"):
            evaluate(text, values)
    else:
        assert evaluate(text, values) == expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "M.real",
        "[M]",
        "M if N else 1",
        "lambda: 1",
        "1.5 * M",
        "True + 1",
        "M == N",
        "M @ N",
        "M << 2",
        "(M := 3)",
        "'M'",
        "",
        "M +",
        "M; N",
        "((" * 300,
        "1" * 1001,
    ],
)
def test_anything_but_integer_arithmetic_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        names_in(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("M * X", "unknown name 'X'; known: M, N"),
        ("N / 2", "7/2, which is not an integer"),
        ("M / (N - 7)", "divides by zero"),
        ("0 ** -1", "divides by zero"),
        ("10 ** 10 ** 10", "not an integer power of moderate size"),
        ("2 ** (1 / 2)", "not an integer power"),
        ("9999999999 ** 100 * 9999999999 ** 100 * 9999999999 ** 100", "more than 4096 bits"),
    ],
)
def test_an_expression_without_an_integer_value_says_why(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        evaluate(text, {"M": 6, "N": 7})


def test_the_names_of_an_expression_are_found() -> None:
    assert names_in("2 * M * (N - M) // k_2") == {"M", "N", "k_2"}
