"""Files of the machine cannot be named in a source; ordinary sources are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxbench.schema.candidate import Candidate
from ptxbench.toolchain.includes import refused_includes, safe_name

ROOT = Path(__file__).parents[2]


def _lines(source: str) -> list[int | None]:
    return [item.line for item in refused_includes(Candidate.from_source(source))]


@pytest.mark.parametrize(
    "source",
    [
        '#include "/etc/passwd"',
        "#include </etc/passwd>",
        '  #  include   "/etc/passwd"',
        '#/**/include "/etc/passwd"',
        '/* x */ #include "/etc/passwd"',
        '%:include "/etc/passwd"',
        '#include_next "/etc/passwd"',
        '#import "/etc/passwd"',
        '#embed "/etc/passwd"',
        '#include "../../etc/passwd"',
        '#include "a/../../b.h"',
        '#inc\\\nlude "/etc/passwd"',
        '#include \\\n  "/etc/passwd"',
        '#define F "/etc/passwd"\n#include F',
        '#if __has_include("/etc/passwd")\n#endif',
        'asm(".incbin \\"/etc/passwd\\"");',
        'asm(R"(.include "/etc/passwd")");',
        'const char* s = "//";\n#include "/etc/passwd"',
    ],
)
def test_a_way_to_a_file_of_the_machine_is_refused(source: str) -> None:
    assert _lines(source)


@pytest.mark.parametrize(
    "source",
    [
        "#include <cuda_runtime.h>",
        '#include "mine.h"  // not "/etc/passwd"',
        '// #include "/etc/passwd"',
        '/*\n#include "/etc/passwd"\n*/',
        'const char* s = "#include \\"/etc/passwd\\"";',
        "#if __has_include(<cuda/ptx>)\n#endif",
        "set.include(3);",
    ],
)
def test_an_ordinary_source_is_left_alone(source: str) -> None:
    assert _lines(source) == []


def test_the_line_of_a_refusal_counts_comments_and_spliced_lines() -> None:
    assert _lines('int a; /* one\n two */\n#define X \\\n  1\n#include "/x"\n') == [5]


@pytest.mark.parametrize("path", ["reference/gemm_n7168_k5120/sm_90a.cu", "tests/kernels/simple/gemm_mma.cu"])
def test_real_kernels_are_left_alone(path: str) -> None:
    assert _lines((ROOT / path).read_text()) == []


@pytest.mark.parametrize("name", ["-o.cu", "a b.cu", "$(id).cu", "@x.cu", 'a";id;".cu', "a/-b.cu", "a\n.cu", "../a.cu"])
def test_a_name_that_a_shell_or_a_compiler_would_read_otherwise_is_not_safe(name: str) -> None:
    assert not safe_name(name)


@pytest.mark.parametrize("name", ["kernel.cu", "src/my-kernel_2.cu", "main.cpp"])
def test_ordinary_names_are_safe(name: str) -> None:
    assert safe_name(name)
