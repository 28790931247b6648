"""`ptxbench demo`: kernels, right and broken, and a recorded conversation, judged on the emulator; holds no kernel."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ptxbench.cli.conversation import kernel_of, paragraph, recorded_answers, told
from ptxbench.cli.reference import reference_file
from ptxbench.evaluate.pipeline import EvaluationRequest, evaluate
from ptxbench.evaluate.render import STATE_STYLES, status_sentence
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.stages import SanitizerFinding
from ptxbench.schema.turn import Answer
from ptxbench.schema.values import Target
from ptxbench.schema.verdict import StageName, State, Verdict
from ptxbench.suite import load_problem, make_gemm, pick_workload, write_problem

SMALL_GEMM = (256, 512)
"""N and K of the problem on which the Blackwell kernel, the broken variant and the conversation are judged."""

FIRST_LINE = (
    "Judging six Hopper kernels and one for Blackwell here and now, with no GPU: each is compiled, its host code is "
    "called, and every PTX instruction of its kernels is carried out on this machine's processor."
)
CONVERSATION = (
    "[bold]A conversation[/], as a model has it: write C[M,256] = A[M,512] B[256,512]^T in bf16 for sm_90a. The three "
    "answers are recorded, and were written for this demo; their verdicts, and what is told of them, are computed now."
)


@dataclass(frozen=True)
class Case:
    """One kernel of the demo.

    Attributes:
        title: What it is.
        kernel: Its file below `reference`.
        problem: A problem of the suite; empty for the small product.
        target: The architecture that it is for.
        change: A text of the small kernel, and what stands there instead.
        expected: How its verdict must be.
        kind: The rule of a finding that must be among the findings, or the reason's code.
    """

    title: str
    kernel: str = "demo/gemm.cu"
    problem: str = ""
    target: Target = Target.SM_90A
    change: tuple[str, str] = ("", "")
    expected: State = State.FAILED
    kind: str = ""


PRODUCTS = {Target.SM_90A: "wgmma", Target.SM_100A: "tcgen05"}
"""The instructions that multiply, by target."""

_WAIT = '    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");\n'
_RELEASE = "    if (threadIdx.x % 128 == 0) barrier_arrive(ring.empty(stage));\n"

CASES = (
    Case(
        "our GEMM: TMA, wgmma, clusters",
        "gemm_n7168_k5120/sm_90a.cu",
        problem="gemm_n7168_k5120",
        expected=State.PASSED,
    ),
    Case(
        "our attention: softmax between two wgmma",
        "mha_with_lse_d128/sm_90a.cu",
        problem="mha_with_lse_d128",
        expected=State.PASSED,
    ),
    Case(
        "our GEMM for Blackwell: tcgen05, tensor memory",
        "gemm_n7168_k5120/sm_100a.cu",
        target=Target.SM_100A,
        expected=State.PASSED,
    ),
    Case(
        "a GEMM that frees a buffer too early",
        change=(_WAIT + _RELEASE, _RELEASE + _WAIT),
        kind="overwrite-before-release",
    ),
)


@dataclass(frozen=True)
class Judged:
    """A case with its verdict and how long it took."""

    case: Case
    verdict: Verdict
    seconds: float

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is what a right ptxbench gives."""
        status = self.verdict.status
        reason = {status.reason.code} if status.reason else set()
        kinds = {finding.kind for finding in _findings(self.verdict)} | reason
        return status.state is self.case.expected and (not self.case.kind or self.case.kind in kinds)


def run_demo() -> int:
    """Judge all cases and the conversation, print a paragraph each; 0 when every verdict is what it should be.

    Raises:
        PtxbenchError: A tool or a kernel file is missing.
    """
    console = Console(highlight=False)
    console.print(FIRST_LINE + "\n")
    answers = recorded_answers()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        cases = [pool.submit(judge, case) for case in CASES]
        turns = [pool.submit(judge_answer, answer) for answer in answers]
        right = sum(_show_case(console, number, made.result()) for number, made in enumerate(cases, 1))
        right += _show_conversation(console, answers, turns)
    verdicts = f"{right} of {len(CASES) + len(answers)} verdicts are as they should be"
    console.print(f"[bold]{verdicts}[/]: right kernels pass, and each mistake is found with its line.")
    console.print(
        "\n[bold]next:[/] ptxbench eval KERNEL.cu --task gemm_n7168_k5120   (docs/emulator.md explains findings)"
    )
    return 0 if right == len(CASES) + len(answers) else 1


def judge(case: Case) -> Judged:
    """Judge one case on the emulator."""
    source = _changed(reference_file(case.kernel).read_text(), case.change)
    until = StageName.PROFILE if case.expected is State.PASSED else StageName.SANITIZE
    request = EvaluationRequest(target=case.target, device="emulator", until=until)
    verdict, seconds = _judge(Candidate.from_source(source, name=case.title), case.problem, request)
    return Judged(case, verdict, seconds)


def judge_answer(answer: Answer) -> tuple[Verdict, float]:
    """Judge the kernel of a recorded answer on the small product; the verdict, and the seconds that it took."""
    request = EvaluationRequest(target=Target.SM_90A, device="emulator", until=StageName.PROFILE)
    return _judge(kernel_of(answer), "", request)


def _judge(candidate: Candidate, problem_name: str, request: EvaluationRequest) -> tuple[Verdict, float]:
    """The verdict on a problem of the suite, or on the small product, and the seconds that it took."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ptxbench-demo-") as folder:
        problem = load_problem(problem_name or write_problem(make_gemm(*SMALL_GEMM), Path(folder)))
        verdict = evaluate(candidate, problem, pick_workload(problem, "small"), request)
    return verdict, time.monotonic() - started


def _show_case(console: Console, number: int, judged: Judged) -> bool:
    for part in _paragraph(number, judged):
        console.print(part)
    return judged.as_expected


def _show_conversation(
    console: Console, answers: tuple[Answer, ...], judged: list[Future[tuple[Verdict, float]]]
) -> int:
    """Print the turns as they are judged; how many verdicts are as they should be."""
    console.print(CONVERSATION + "\n")
    right = 0
    for turn in told(answers, (made.result() for made in judged)):
        for part in paragraph(turn):
            console.print(part)
        right += turn.as_expected
    return right


def _changed(source: str, change: tuple[str, str]) -> str:
    before, after = change
    if before and source.count(before) != 1:
        raise AssertionError(f"the demo's kernel has {source.count(before)} times {before!r}")
    return source.replace(before, after) if before else source


def _paragraph(number: int, judged: Judged) -> Iterator[RenderableType]:
    verdict, state = judged.verdict, judged.verdict.status.state
    yield Text(f"{number}. {judged.case.title}  ({judged.seconds:.0f} s)", "bold")
    body = Table.grid(padding=(0, 1))
    body.add_column(min_width=6)
    body.add_column(ratio=1)
    body.add_row(Text(state.value, STATE_STYLES[state]), _headline(verdict))
    for word, text in _lines(verdict):
        body.add_row(Text(word, "dim"), text)
    if not judged.as_expected:
        fault = f"this is a fault of ptxbench: {judged.case.expected.value} was expected"
        body.add_row(Text("fault:", "bold red"), fault)
    yield Padding(body, (0, 0, 1, 3))


def _headline(verdict: Verdict) -> str:
    """The status in one sentence; a finding that says the same more fully follows."""
    status = verdict.status
    first = next(iter(_findings(verdict)), None)
    if (
        status.stage is not None
        and first is not None
        and (status.reason is None or first.kind in status.reason.message)
    ):
        return f"at {status.stage.value}: {first.kind}"
    return status_sentence(verdict)


def _lines(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """What is worth knowing beyond the status: (a word, a sentence)."""
    work = verdict.stages.profile.work
    products = PRODUCTS[verdict.target]
    if work is not None:
        over = ", for its tiles reach beyond this small size" if work.target_mma > 1 else ""
        yield "work:", f"{work.target_mma:.0%} of the required multiplications done by {products}{over}"
    if verdict.layers.target.necessity.state == "yes":
        yield "needed:", f"with the results of {products} spoilt, or what TMA moves, the output is wrong"
    for finding in _findings(verdict)[:1]:
        yield "where:", finding.place
        kind = "" if finding.kind in _headline(verdict) else f"{finding.kind}: "
        yield "what:", kind + (finding.state[0] if finding.state else finding.message)
        yield "to do:", finding.hint


def _findings(verdict: Verdict) -> tuple[SanitizerFinding, ...]:
    return tuple(
        finding for run in verdict.stages.sanitize.runs for finding in run.findings if finding.severity == "error"
    )
