"""What the text of a turn says, beyond the examples of docs/feedback.md: order, progress, budget, doubles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ptxbench.agent.feedback import Best, TurnContext, render_feedback, tokens
from ptxbench.agent.feedback.quoting import kernel_name, plain
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.verdict import Verdict

DATA = Path(__file__).parents[2] / "data"
FAST = "gpu/verdicts/reference-gemm_n7168_k5120"


def document(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def verdict(name: str, **build: Any) -> Verdict:
    made = document(name)
    made["stages"]["build"] |= build
    return Verdict.model_validate(made)


def told(made: Verdict | None, **changes: Any) -> str:
    return render_feedback(made, TurnContext(**{"candidate": None, "index": 2, "turns": 8, **changes}))


def with_speedup(speedup: float) -> Verdict:
    made = document(FAST)
    made["stages"]["time"]["baselines"][0]["speedup"] = speedup
    made["candidate"] = f"{speedup}"
    return Verdict.model_validate(made)


def test_the_first_line_is_the_status_and_the_last_says_how_many_turns_are_left() -> None:
    lines = told(verdict("agent/verdicts/deadlock")).splitlines()
    assert lines[0] == "Turn 3 of 8: the kernel failed at check (hang, deadlock)."
    assert lines[-1].startswith("5 turns are left.")
    assert told(verdict("agent/verdicts/deadlock"), index=6).splitlines()[-1].startswith("1 turn is left.")
    assert told(verdict("agent/verdicts/deadlock"), index=7).splitlines()[-1] == "This was the last turn."


def test_without_a_kernel_the_note_and_the_best_so_far_are_told() -> None:
    text = told(None, extraction_note="The answer has no fenced code block.", best=Best(1, 0.5))
    assert text.startswith("Turn 3 of 8: no kernel was found in the answer: The answer has no fenced code block.")
    assert "the best so far is turn 2 (0.500x)" in text


@pytest.mark.parametrize(
    ("best", "said"),
    [
        (Best(0, 1.05), "slower than the best so far, turn 1 (1.050x)"),
        (Best(0, 0.95), "this is the best so far; before it was turn 1 (0.950x)"),
        (Best(0), "the best so far is turn 1\n"),
    ],
)
def test_a_speedup_is_held_against_the_best_so_far(best: Best, said: str) -> None:
    assert said in told(with_speedup(1.0), best=best)


def test_the_target_speedup_is_told_as_a_time_or_as_reached() -> None:
    assert "the target of 1.2x means 0.6191 ms" in told(with_speedup(1.0), target_speedup=1.2)
    assert "the target of 1.2x is reached" in told(with_speedup(1.25), target_speedup=1.2)
    assert "the target of" not in told(with_speedup(1.0))


def test_what_changed_since_the_turn_before_is_told() -> None:
    before = verdict(FAST, kernels=[dict.fromkeys(RESOURCES, 64) | {"name": "gemm"}])
    before = before.model_copy(update={"candidate": "another"})
    text = told(with_speedup(1.0), previous=before)
    assert "the turn before: correct, 1.019x" in text
    assert "registers a thread: 64 before, 168 now" in text
    assert "bytes of spills: 128 before, 0 now" in text


RESOURCES = ("registers", "spill_store_bytes", "spill_load_bytes", "stack_bytes", "static_shared_bytes", "barriers")


def test_the_same_kernel_again_is_called_that() -> None:
    made = verdict("agent/verdicts/swizzle")
    assert "this is the same kernel as in the turn before" in told(made, previous=made)


def error(message: str, line: int) -> dict[str, object]:
    return {"severity": "error", "message": message, "file": "kernel.cu", "line": line}


def test_the_same_compiler_error_is_told_once_with_all_its_lines() -> None:
    made = verdict(
        "gpu/verdicts/wrong-compile_error", diagnostics=[error("x is undefined", line) for line in (3, 5, 9)]
    )
    text = told(made)
    assert text.count("x is undefined") == 1
    assert "(also on lines 5, 9)" in text


def test_of_many_compiler_errors_the_first_and_the_last_are_told() -> None:
    many = [error(f"error number {number}", number) for number in range(1, 61)]
    text = told(verdict("gpu/verdicts/wrong-compile_error", diagnostics=many))
    assert "60 different ones" in text
    assert "[45 more errors left out]" in text
    shown = [number for number in range(1, 61) if f"`error number {number}`" in text]
    assert shown == [*range(1, 13), 58, 59, 60]


def test_a_small_budget_keeps_status_first_errors_and_last_ones() -> None:
    many = [error(f"error number {number} {'x' * 200}", number) for number in range(1, 61)]
    text = told(verdict("gpu/verdicts/wrong-compile_error", diagnostics=many), budget=700)
    assert tokens(text) <= 700
    assert text.startswith("Turn 3 of 8: the kernel failed at build (compile_error).")
    assert "`error number 1 " in text
    assert "`error number 60 " in text
    assert "more lines left out]" in text
    assert text.splitlines()[-1].startswith("5 turns are left.")


def test_a_line_of_source_is_shown_once() -> None:
    source = Candidate.from_source("\n".join(f"line {number};" for number in range(1, 200)))
    text = told(verdict("agent/verdicts/early_release"), candidate=source)
    listed = [line for line in text.splitlines() if line.startswith("    >")]
    assert listed
    assert len(listed) == len(set(listed))


def test_a_kernel_that_cannot_be_judged_is_not_called_wrong() -> None:
    made = document("agent/verdicts/correct")
    reason = {"code": "unsupported", "message": "gemm: unsupported: mma.sp at PTX line 3."}
    made["stages"]["check"] |= {"outcome": "unavailable", "reason": reason}
    text = told(Verdict.model_validate(made))
    assert "the kernel could not be judged at check (unsupported)" in text
    assert "mma.sp" in text
    assert "Write it without this instruction" in text


def test_a_time_that_does_not_count_leaves_the_kernel_correct() -> None:
    made = document(FAST)
    reason = {"code": "kernels_vary", "message": "Its calls launched different kernels."}
    made["stages"]["time"] |= {"outcome": "inconclusive", "reason": reason}
    text = told(Verdict.model_validate(made))
    assert "the kernel is correct on the GPU, but its time does not count" in text
    assert "Its calls launched different kernels." in text


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("gemm", "`gemm`"),
        ("_Z4gemmPKfi", "`gemm`"),
        ("_ZN21_GLOBAL__N__candidate9gradientsENS_4ArgsE", "`gradients`"),
        ("_ZN3abc4gemmILi3EEEv14CUtensorMap_st", "`gemm`"),
        ("_Z99gemm", "`_Z99gemm`"),
        ("_Z", "`_Z`"),
        ("4gemm", "`4gemm`"),
        ("", "` `"),
    ],
)
def test_a_kernels_own_name_is_read_from_its_mangled_one(mangled: str, name: str) -> None:
    assert kernel_name(mangled) == name


def test_a_path_loses_its_folders_and_a_fraction_does_not() -> None:
    assert plain('open "/a/b.c/x.h" failed, 3/4/5 and a/b/c') == 'open "x.h" failed, 3/4/5 and a/b/c'
