"""The examples of docs/feedback.md: kernels of the repository, their stored verdicts, and the page made of both.

`python -m tests.agent.feedback.examples [NAME...]` judges them anew on the emulator, all or the named ones, and writes
verdicts and page; `--page` writes the page alone. Examples of a GPU are verdicts that an H200 gave (tests/data/gpu).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ptxbench.agent.extraction import extract
from ptxbench.agent.feedback import Best, TurnContext, render_feedback
from ptxbench.evaluate.pipeline import EvaluationRequest, evaluate
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.turn import Answer
from ptxbench.schema.verdict import Verdict
from ptxbench.suite import load_problem, make_gemm, write_problem

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "feedback.md"
STORED = ROOT / "tests" / "data" / "agent" / "verdicts"
ON_GPU = ROOT / "tests" / "data" / "gpu" / "verdicts"
SIZE = (512, 512)
"""N and K of the product that the kernels are judged on."""

INTRODUCTION = """# What a model is told after a turn

`ptxbench.agent.feedback.render_feedback` makes a text of a verdict. It is a pure function: the verdict, the kernel's
source, the turn, what was best so far and the verdict before give the text, and nothing else does. The status comes
first and the turns left come last; between them stand sections, the most useful first, until the budget of 6,000 tokens
is used up (a token is taken as three bytes of UTF-8, which is on the safe side for source code). A section that does
not fit is cut in its middle or at its end, and says how much is missing.

Not in it: other workloads than the one that the model was given, and whether they pass; seeds; inputs; folders, names
and versions of the machine that judges. Names, messages and source that the kernel's author chose stand between
backticks, or in listings with a gutter, on one line each and of bounded length. PTX lines that the emulator names are
given as the lines of the source that they come from.

Every example below was made by an evaluation: `python -m tests.agent.feedback.examples` judges the kernels again and
writes this page, and a test holds the texts against the stored verdicts.
"""


@dataclass(frozen=True)
class Example:
    """One example.

    Attributes:
        name: Of its stored verdict.
        title: What is wrong.
        kernel: Its file; empty where no kernel was extracted.
        changes: Texts of the file, and what stands there instead.
        answer: What the model said, where no kernel was extracted.
        gpu: Name of a verdict of an H200; empty: it was judged on the emulator.
        rows: M of the product on the emulator.
    """

    name: str
    title: str
    kernel: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    answer: str = ""
    gpu: str = ""
    rows: int = 128

    @property
    def candidate(self) -> Candidate | None:
        """What was judged."""
        if not self.kernel:
            return None
        source = (ROOT / self.kernel).read_text()
        for before, after in self.changes:
            assert source.count(before) == 1, before
            source = source.replace(before, after)
        return Candidate.from_source(source, name=self.name)

    @property
    def verdict(self) -> Verdict | None:
        """What the evaluation said."""
        if not self.kernel:
            return None
        path = ON_GPU / f"{self.gpu}.json" if self.gpu else STORED / f"{self.name}.json"
        return Verdict.model_validate_json(path.read_text())

    @property
    def text(self) -> str:
        """What the model is told, in the third of eight turns."""
        note = "" if self.kernel else extract(Answer(text=self.answer)).note
        best = Best(0, 0.71) if self.gpu else None
        context = TurnContext(self.candidate, 2, 8, extraction_note=note, target_speedup=1.2, best=best)
        return render_feedback(self.verdict, context)


DEMO = "reference/demo/gemm.cu"
WAIT = '    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");\n'
RELEASE = "    if (threadIdx.x % 128 == 0) barrier_arrive(ring.empty(stage));\n"
WRONG = "tests/kernels/wrong"
EXAMPLES = (
    Example(
        "no_kernel",
        "An answer without a kernel",
        answer="The ring needs one more stage.\n```cuda\nint stages = 4;\n```\n",
    ),
    Example("forbidden", "A forbidden library", f"{WRONG}/uses_cublas.cu"),
    Example("compile_error", "It does not compile", f"{WRONG}/compile_error.cu"),
    Example("launch_failure", "It asks for more than a CTA can have", f"{WRONG}/launch_failure.cu"),
    Example(
        "deadlock",
        "A deadlock: more bytes are announced than come",
        DEMO,
        (("expected = 2 * kBytes;", "expected = 2 * kBytes + 128;"),),
    ),
    Example("missing_wait", "A race: a tile is read before it is there", DEMO, (("    wait_full(ring, k);\n", ""),)),
    Example("early_release", "A race: a stage is handed back too early", DEMO, ((WAIT + RELEASE, RELEASE + WAIT),)),
    Example("swizzle", "Tensor map and descriptor disagree", DEMO, (("(uint64_t)1 << 62", "(uint64_t)2 << 62"),)),
    Example("out_of_bounds", "It writes out of bounds", f"{WRONG}/out_of_bounds.cu"),
    Example("one_wrong_tile", "Wrong numbers in one tile", f"{WRONG}/one_wrong_tile.cu", rows=200),
    Example("nan_output", "Not a number", f"{WRONG}/nan_output.cu", (("out_col == 1000", "out_col == 100"),)),
    Example("missing_output", "Rows that nobody writes", f"{WRONG}/missing_output.cu"),
    Example("changed_input", "An input is written", f"{WRONG}/changed_input.cu"),
    Example("target_missing", "Right, without its target", "tests/kernels/simple/gemm_mma.cu"),
    Example("decorative", "Right, with its target for show", "tests/kernels/decorative/idle_tma.cu"),
    Example("correct", "Right, on the emulator", DEMO),
    Example("imprecise", "Too little precision, on an H200", f"{WRONG}/late_rows_fp8.cu", gpu="wrong-late_rows_fp8"),
    Example("hang", "It does not come back, on an H200", f"{WRONG}/hang.cu", gpu="wrong-hang"),
    Example(
        "read_out_of_bounds",
        "A sanitizer's finding, on an H200",
        f"{WRONG}/out_of_bounds_read.cu",
        gpu="wrong-out_of_bounds_read",
    ),
    Example(
        "fast",
        "Right and measured, on an H200",
        "reference/gemm_n7168_k5120/sm_90a.cu",
        gpu="reference-gemm_n7168_k5120",
    ),
)


def page() -> str:
    """The text of docs/feedback.md."""
    return "\n".join((INTRODUCTION, *(part for example in EXAMPLES for part in _shown(example))))


def _shown(example: Example) -> Iterator[str]:
    yield f"## {example.title}\n"
    yield f"<!-- example: {example.name} -->"
    yield f"~~~text\n{example.text}~~~\n"


def _judge(names: list[str]) -> None:
    """Judge the named examples, or all, and store their verdicts without the tools' places on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        problem = load_problem(write_problem(make_gemm(*SIZE), Path(folder)))
    STORED.mkdir(parents=True, exist_ok=True)
    for example in EXAMPLES:
        candidate = example.candidate
        if candidate is None or example.gpu or (names and example.name not in names):
            continue
        workload = next(each for each in problem.workloads if each.axes == {"M": example.rows})
        verdict = evaluate(candidate, problem, workload, EvaluationRequest(device="emulator"))
        (STORED / f"{example.name}.json").write_text(_kept(verdict).model_dump_json(indent=1) + "\n")


def _kept(verdict: Verdict) -> Verdict:
    """The verdict without what tells of this machine and is read by no text."""
    build = verdict.stages.build.model_copy(update={"command": (), "log": "", "instrument": None})
    inspect = verdict.stages.inspect.model_copy(update={"instrument": None})
    stages = verdict.stages.model_copy(update={"build": build, "inspect": inspect})
    environment = verdict.environment.model_copy(update={"tools": ()})
    return verdict.model_copy(update={"stages": stages, "environment": environment})


if __name__ == "__main__":
    if "--page" not in sys.argv:
        _judge(sys.argv[1:])
    PAGE.write_text(page())
