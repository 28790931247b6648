"""The demo's recorded conversation: its kernels are the demo's own but for a line each, and any run can replay it."""

from __future__ import annotations

from difflib import SequenceMatcher
from pathlib import Path

from ptxbench.agent.replay import open_replay
from ptxbench.cli.conversation import EXPECTED, kernel_of, recorded_answers
from ptxbench.cli.reference import reference_file

FILE = Path(__file__).parents[2] / "reference" / "demo" / "conversation.json"


def changed_lines(before: str, after: str) -> int:
    pairs = SequenceMatcher(None, before.splitlines(), after.splitlines()).get_opcodes()
    return sum(end - begin for kind, begin, end, _, _ in pairs if kind != "equal")


def test_the_last_answer_is_the_demos_right_kernel_and_each_answer_mends_one_line_of_the_one_before() -> None:
    first, second, third = (kernel_of(answer).entry_source for answer in recorded_answers())
    assert third == reference_file("demo/gemm.cu").read_text()
    assert (changed_lines(first, second), changed_lines(second, third)) == (1, 1)


def test_a_run_can_replay_it() -> None:
    replay = open_replay(f"replay/{FILE}")
    assert replay.answers == recorded_answers()
    assert len(replay.answers) == len(EXPECTED)
