"""Comments, strings and characters hide what is in them from the source scan, and nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.evaluate.source_scan import pieces


def headers(source: str) -> list[tuple[str, int]]:
    return [(piece.text, piece.line) for piece in pieces(source) if piece.kind == "header"]


def words(source: str) -> list[str]:
    return [piece.text for piece in pieces(source) if piece.kind == "word"]


@pytest.mark.parametrize(
    "source",
    [
        "#include <cublas_v2.h>",
        '#include "cublas_v2.h"',
        "  #  include\t<cublas_v2.h> // why",
        "/* a */ # /* b */ include /* c */ <cublas_v2.h>",
        "#include<cublas_v2.h>",
        "#inc\\\nlude <cublas_v2.h>",
        "#include \\\n<cublas_v2.h>",
        "#import <cublas_v2.h>",
        "#include_next <cublas_v2.h>",
        "int a = 1'000'000; char c = '\"';\n#include <cublas_v2.h>",
        'auto s = R"x(" // )" )x";\n#include <cublas_v2.h>',
        'auto s = "\\\\";\n#include <cublas_v2.h>',
        "#define X 'a\n#include <cublas_v2.h>",
    ],
)
def test_an_include_is_seen_however_it_is_spelled(source: str) -> None:
    assert [name for name, _ in headers(source)] == ["cublas_v2.h"]


@pytest.mark.parametrize(
    "source",
    [
        "// #include <cublas_v2.h>",
        "// continued \\\n#include <cublas_v2.h>",
        "/*\n#include <cublas_v2.h>\n*/",
        'auto s = "#include <cublas_v2.h>";',
        'auto s = R"(\n#include <cublas_v2.h>\n)";',
        'auto s = u8R"--(\n)"\n#include <cublas_v2.h>\n)--";',
        'auto s = "a\\\n#include <cublas_v2.h>";',
        "int x; #include <cublas_v2.h>",
        "#define include <cublas_v2.h>",
        "#warning include <cublas_v2.h>",
        "/* never closed\n#include <cublas_v2.h>",
    ],
)
def test_an_include_that_is_no_code_is_not_seen(source: str) -> None:
    assert headers(source) == []


def test_words_come_from_code_alone() -> None:
    source = 'int run /* one */ = f("two", \'t\', R"(three)"); // four\n#define G cublasGemmEx'
    assert words(source) == ["int", "run", "f", "define", "G", "cublasGemmEx"]


def test_lines_are_counted_in_the_original_text() -> None:
    source = 'a \\\n b\n/*\n\n*/\nR"(\n\n)"\n#include <x.h>\n#include \\\n<y.h>\n'
    assert headers(source) == [("x.h", 9), ("y.h", 11)]


HIDDEN = st.sampled_from(
    [
        "// #include <cublas_v2.h>\n",
        "/* #include <cublas_v2.h> */",
        '"#include <cublas_v2.h>"',
        'R"q(\n#include <cublas_v2.h>\n)q"',
        "'\\''",
        "'\"'",
        '"\\""',
        '"//"',
        '"/*"',
        "/* \" ' */",
        "1'000",
        "0x1p-3",
        " x ",
        "\n",
        ";",
        "// \\\n still a comment\n",
    ]
)


@given(before=st.lists(HIDDEN, max_size=12), after=st.lists(HIDDEN, max_size=12))
def test_whatever_stands_around_it_exactly_the_real_include_is_seen(before: list[str], after: list[str]) -> None:
    head = " ".join(before) + "\n"
    found = headers(head + "#include <cudnn.h>\n" + " ".join(after))
    assert found == [("cudnn.h", head.count("\n") + 1)]


@given(st.text(alphabet="#include <\"'/*\\\nR()abc>x\r", max_size=80))
def test_no_text_breaks_the_scan(source: str) -> None:
    for piece in pieces(source):
        assert 1 <= piece.line <= source.count("\n") + 1
        assert piece.text
