"""docs/feedback.md shows what render_feedback says of the stored verdicts, and those are of the kernels it names."""

from __future__ import annotations

import pytest
from tests.agent.feedback.examples import EXAMPLES, PAGE, STORED, Example, page

from ptxbench.agent.feedback import tokens
from ptxbench.schema.verdict import State

JUDGED = [example for example in EXAMPLES if example.kernel]

SAID = {
    "no_kernel": "no kernel was found in the answer",
    "forbidden": "cublasCreate_v2",
    "compile_error": 'identifier "offset" is undefined',
    "launch_failure": "bytes of dynamic shared memory",
    "deadlock": "128 of the bytes that expect_tx announced never do",
    "missing_wait": "while the TMA load of kernel.cu:",
    "early_release": "while the read of kernel.cu:",
    "swizzle": "wrote it with 128 bytes",
    "out_of_bounds": "out-of-bounds",
    "one_wrong_tile": "where: tiles of 128x128 at [0, 384]",
    "nan_output": "NaN or infinity",
    "missing_output": "was not written in",
    "changed_input": "changed its input A",
    "imprecise": "RMS-relative error",
    "hang": "did not come back in time",
    "target_missing": "executes none of its target's instructions",
    "decorative": "TMA (cp.async.bulk.tensor) is decorative",
    "correct": "the outputs need all of them",
    "read_out_of_bounds": "Invalid __global__ read of size 4 bytes",
    "fast": "% of the roofline",
}
"""What each text must say, whatever else it says."""


def test_the_page_is_made_of_the_stored_verdicts() -> None:
    assert PAGE.read_text() == page(), (
        "docs/feedback.md has drifted; run python -m tests.agent.feedback.examples --page"
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.name for example in EXAMPLES])
def test_an_example_says_what_is_wrong(example: Example) -> None:
    assert SAID[example.name] in example.text
    assert tokens(example.text) < 1_500


@pytest.mark.parametrize("example", JUDGED, ids=[example.name for example in JUDGED])
def test_an_examples_verdict_is_of_the_kernel_that_is_shown(example: Example) -> None:
    verdict, candidate = example.verdict, example.candidate
    assert verdict is not None
    assert candidate is not None
    assert verdict.candidate == candidate.id


def test_every_stored_verdict_is_shown() -> None:
    shown = {example.name for example in JUDGED if not example.gpu}
    assert {path.stem for path in STORED.glob("*.json")} == shown


def test_the_examples_end_in_every_state_but_the_undecided() -> None:
    states = {example.verdict.status.state for example in JUDGED if example.verdict}
    assert states == set(State) - {State.INCONCLUSIVE}
