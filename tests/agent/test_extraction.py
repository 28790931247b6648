"""Whatever an answer looks like, its kernel is found whole, or the refusal says what was missing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.agent.extraction import extract
from ptxbench.schema.candidate import MAX_SOURCE_BYTES
from ptxbench.schema.turn import Answer, Extracted, Usage

KERNEL = "#include <cuda.h>\nvoid run(int a) {\n  go<<<1, 2>>>(a);\n}\nTVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);\n"
DRAFT = KERNEL.replace("go", "draft")
NO_EXPORT = KERNEL.rpartition("TVM")[0]
SNIPPET = "run(tensor);\n"


def block(code: str = KERNEL, label: str = "cuda", fence: str = "```", indent: str = "") -> str:
    ended = code if code.endswith("\n") or not code else f"{code}\n"
    text = f"{fence}{label}\n{ended}{fence}\n"
    return "".join(f"{indent}{line}\n" for line in text.removesuffix("\n").split("\n")) if indent else text


FOUND = {
    "labelled cuda": block(),
    "labelled cpp": block(label="cpp"),
    "labelled c++": block(label="c++"),
    "labelled C++ in capitals": block(label="CPP"),
    "labelled cu": block(label="cu"),
    "labelled c": block(label="c"),
    "without a label": block(label=""),
    "a label and a space": block(label="cuda "),
    "a space before the label": block(label=" cuda"),
    "a label and a file's name": block(label="cuda kernel.cu"),
    "a label with attributes": block(label='cuda title="kernel.cu"'),
    "a label that is wrong": block(label="python"),
    "tildes": block(fence="~~~"),
    "four backticks": block(fence="````"),
    "four backticks around three": block(code=KERNEL + "// ```\n", fence="````"),
    "CRLF": block().replace("\n", "\r\n"),
    "old Mac line ends": block().replace("\n", "\r"),
    "indented by two": block(indent="  "),
    "indented by four": block(indent="    "),
    "indented by a tab": block(indent="\t"),
    "only the fence is indented": f"  ```cuda\n{KERNEL}  ```\n",
    "prose before and after": f"Here it is:\n\n{block()}\nIt uses wgmma.",
    "no line end at the end": block().rstrip("\n"),
    "a draft before": f"{block(DRAFT)}\nBetter:\n{block()}",
    "a snippet after": f"{block()}\nCalled as\n{block(SNIPPET, 'cpp')}",
    "shell commands after": f"{block()}\n{block('nvcc kernel.cu', 'bash')}",
    "a header before": f"{block('#pragma once', 'cuda')}\n{block()}",
    "a diff after": f"{block()}\nWhat changed:\n{block('+void run(int a)', 'diff')}",
    "a block never closed before another": f"```cuda\n{NO_EXPORT}\n\nAgain:\n{block()}",
    "wrapped in markdown": f"```markdown\n# Kernel\n{block()}```\n",
    "inline code in the prose": f"Use `run`, not ``go``.\n{block()}",
    "an inline fence in the prose": f"The fence ```cuda``` follows.\n{block()}",
    "thoughts with a draft": f"<think>\n{block(DRAFT)}\n</think>\n{block()}",
    "the end of thoughts alone": f"{block(DRAFT)}\n</think>\n{block()}",
    "an empty fence at the end": f"{block()}\n```\n",
    "lone surrogates": f"\ud800 {block()}",
    "no fence at all": f"{KERNEL}",
    "no fence, prose around": f"Here is the kernel.\n\n{KERNEL}\nIt is fast.",
    "an export with other spaces": block(KERNEL.replace("(run, run)", "( run , run )")),
    "the export in a comment of a later block": f"{block()}\n{block('// TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);')}",
}


@pytest.mark.parametrize("shape", FOUND)
def test_the_kernel_is_found_in_an_answer_that_is(shape: str) -> None:
    extraction = extract(Answer(text=FOUND[shape]))
    assert extraction.found is Extracted.KERNEL, extraction.note
    assert extraction.candidate is not None
    source = extraction.candidate.entry_source.replace("( run , run )", "(run, run)")
    assert source.removesuffix("// ```\n") == KERNEL


@pytest.mark.parametrize(
    ("text", "found", "says"),
    [
        ("", Extracted.MISSING, "is empty"),
        ("I would begin with TMA.", Extracted.MISSING, "no fenced code block"),
        ("Use `wgmma`.", Extracted.MISSING, "no fenced code block"),
        (block(""), Extracted.MISSING, "has no `run`"),
        (block("int x;\n"), Extracted.MISSING, "has no `run`"),
        (block("int x;\n") * 2, Extracted.MISSING, "None of the 2 code blocks has a `run`"),
        (block("// void run(int a)\n"), Extracted.MISSING, "has no `run`"),
        (block("".join(f"+{line}\n" for line in KERNEL.splitlines()), "diff"), Extracted.MISSING, "holds a diff"),
        (f"```cuda\n{KERNEL}", Extracted.CUT, "never closed"),
        (f"{block(DRAFT)}\n```cuda\n{KERNEL[:40]}", Extracted.CUT, "never closed"),
        (f"<think>\n{block()}", Extracted.MISSING, "is empty"),
        (block(KERNEL + "//" + "x" * MAX_SOURCE_BYTES + "\n"), Extracted.MISSING, "larger than"),
    ],
)
def test_a_refusal_says_what_was_missing(text: str, found: Extracted, says: str) -> None:
    extraction = extract(Answer(text=text))
    assert (extraction.found, extraction.candidate) == (found, None)
    assert says in extraction.note


def test_a_run_without_its_export_is_left_to_the_evaluation() -> None:
    extraction = extract(Answer(text=block(NO_EXPORT)))
    assert extraction.candidate is not None
    assert extraction.candidate.entry_source == NO_EXPORT


def test_an_answer_ended_for_its_length_is_cut_even_after_a_whole_block() -> None:
    assert extract(Answer(text=block(), stop="length")).found is Extracted.CUT


def test_an_answer_that_was_spent_on_thoughts_says_so() -> None:
    answer = Answer(text="", stop="length", usage=Usage(output_tokens=32000))
    assert "All 32,000 tokens" in extract(answer).note


def test_a_filtered_answer_says_so() -> None:
    assert "content filter" in extract(Answer(text="", stop="filtered")).note


_lines = st.text(st.characters(exclude_characters="`~\r\n", exclude_categories=["Cs"]), max_size=30)
_prose = st.lists(_lines.filter(lambda line: "think>" not in line), max_size=4).map("\n".join)
_code = st.lists(_lines.filter(lambda line: "*/" not in line and "think>" not in line), max_size=8).map(
    lambda lines: "".join(f"// {line}\n" for line in lines) + KERNEL
)


@settings(max_examples=150, deadline=None)
@given(
    code=_code,
    before=_prose,
    after=_prose,
    label=st.sampled_from(["", "cuda", "cpp", " c++", "CUDA kernel.cu", "text"]),
    fence=st.sampled_from(["```", "````", "~~~", "~~~~~"]),
    indent=st.sampled_from(["", " ", "    ", "\t"]),
    line_end=st.sampled_from(["\n", "\r\n"]),
)
def test_any_kernel_comes_back_as_it_was_sent(  # noqa: PLR0917  (each is drawn)
    code: str, before: str, after: str, label: str, fence: str, indent: str, line_end: str
) -> None:
    answer = f"{before}\n{block(code, label, fence, indent)}{after}".replace("\n", line_end)
    extraction = extract(Answer(text=answer))
    assert extraction.candidate is not None, extraction.note
    assert extraction.candidate.entry_source.split("\n") == code.split("\n")


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("`~ru n(\n\r\t{}/*;<>think")))
def test_no_text_makes_the_extraction_fail(text: str) -> None:
    extraction = extract(Answer(text=text))
    assert (extraction.candidate is None) == (extraction.found is not Extracted.KERNEL)
    assert bool(extraction.note) == (extraction.candidate is None)
