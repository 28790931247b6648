"""Which host code can be recorded and replayed, which runs live and why, and what the evaluator makes of either."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from ptxbench.emulator.host.device import HostDevice
from ptxbench.evaluate.child.memory import GUARD, DeviceMemory
from ptxbench.evaluate.child.protocol import Measure, Measured
from ptxbench.evaluate.child.session import Session
from ptxbench.evaluate.child.wire import Argument
from ptxbench.evaluate.devices import Gpu
from ptxbench.evaluate.gpu import GpuEvaluator, GpuStages, Plan
from ptxbench.evaluate.judge_client import Judge
from ptxbench.evaluate.profiler import same_launches
from ptxbench.evaluate.recording import JUDGED_CALLS, HostMode, Recorded, Subject, record_program
from ptxbench.evaluate.replay import Code, Place, Step, encode_program
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.problem import Problem, Role, Workload
from ptxbench.schema.stages import CheckStage, KernelProfile, Outcome, ProfileStage, Reason, TimeStage
from ptxbench.schema.values import Layer, Target
from ptxbench.schema.verdict import StageName
from ptxbench.settings import Settings
from ptxbench.suite import load_problem, make_gemm, pick_workload, write_problem
from ptxbench.toolchain.build import build
from ptxbench.toolchain.elf import cubins
from ptxbench.toolchain.toolkit import find_toolkit

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KERNELS = ROOT / "tests" / "kernels"
EXPECTED: dict[str, dict[str, dict[str, Any]]] = tomllib.loads((KERNELS / "expected.toml").read_text())
HOSTS = {
    f"{group}.{name}": entry for group, all_ in EXPECTED.items() for name, entry in all_.items() if "host" in entry
}
SETTINGS = Settings.load()

Recorder = Callable[[str], Recorded | str]


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """A small product."""
    return load_problem(write_problem(make_gemm(256, 512), tmp_path_factory.mktemp("problem")))


@pytest.fixture(scope="module")
def habits() -> Path:
    """The library of host_code.cu."""
    built = build(Candidate.from_source((HERE / "host_code.cu").read_text()), Target.SM_90A, SETTINGS)
    assert built.library is not None, built.stage.log
    return built.library


def subject(library: Path, symbol: str, problem: Problem) -> Subject:
    return Subject(library, symbol, cubins(library, find_toolkit(SETTINGS)), problem, HostDevice())


@pytest.fixture(scope="module")
def recorded(habits: Path, problem: Problem) -> Recorder:
    """What the recorder says of one function of host_code.cu."""

    def made(symbol: str) -> Recorded | str:
        return record_program(subject(habits, symbol, problem), [pick_workload(problem, "small")], SETTINGS)

    return made


@pytest.mark.parametrize(("symbol", "exact"), [("steady", True), ("counts", True), ("sets_up", True), ("pads", False)])
def test_honest_host_code_can_be_replayed(recorded: Recorder, symbol: str, exact: bool) -> None:
    made = recorded(symbol)
    assert isinstance(made, Recorded), made
    assert made.exact == exact
    (calls,) = made.program.workloads
    assert len(calls.steps) == JUDGED_CALLS


def test_a_counter_of_the_host_code_goes_on_from_call_to_call(recorded: Recorder) -> None:
    made = recorded("counts")
    assert isinstance(made, Recorded)
    numbers = [steps[0].pieces[3].data[0] for steps in made.program.workloads[0].steps]
    assert numbers == [number % 64 for number in range(JUDGED_CALLS)]


def test_what_the_first_call_sets_up_is_there_for_the_others(recorded: Recorder) -> None:
    made = recorded("sets_up")
    assert isinstance(made, Recorded)
    (calls,) = made.program.workloads
    later = [Code.FILL, Code.RECORD, Code.WAIT, Code.LAUNCH]
    assert [[step.code for step in steps] for steps in calls.steps[:3]] == [[Code.ALLOCATE, *later], later, later]
    assert (calls.allocations, calls.streams, calls.events) == (1, (1,), (2,))
    assert calls.steps[2][-1].pieces[1].patches == ((0, Place(1, 0, 0)),)


def test_padding_may_differ_between_recordings_and_addresses_are_still_found(recorded: Recorder) -> None:
    made = recorded("pads")
    assert isinstance(made, Recorded)
    (piece,) = made.program.workloads[0].steps[7][0].pieces
    assert piece.patches == ((8, Place(0, 2, 0)),)
    assert piece.data[:1] == b"p"


def test_a_pointer_of_an_earlier_call_makes_a_replay_doubtful(recorded: Recorder) -> None:
    made = recorded("keeps_a_pointer")
    assert isinstance(made, Recorded)
    assert not made.exact


@pytest.mark.parametrize(
    ("symbol", "reason"),
    [
        ("looks_at_addresses", "depends on more than the call: call 1 differs"),
        ("looks_at_the_clock", "depends on more than the call"),
        ("knows_pointers", "depends on more than the call: call 3 differs"),
        ("reads_results", "the host code reads device data on the host"),
        ("keeps_lines_in_l2", "sets what a record does not hold: cudaStreamSetAttribute"),
        ("ignores_errors", "a call of the host code fails: launch: error 9"),
        ("raises_at_last", "does not return (raised): InternalError: Check failed: (++calls < 50) is false: tired"),
        ("no_such_function", "does not return (no_symbol)"),
    ],
)
def test_other_host_code_runs_live_with_the_reason(recorded: Recorder, symbol: str, reason: str) -> None:
    made = recorded(symbol)
    assert isinstance(made, str)
    assert reason in made


def of_repository(label: str, task: str, chosen: list[Workload] | None = None) -> Recorded | str:
    """What the recorder says of a kernel of the repository, as it is judged or on chosen workloads."""
    group, name = label.split(".")
    path = ROOT / "reference" / name / "sm_90a.cu" if group == "reference" else KERNELS / group / f"{name}.cu"
    library = build(Candidate.from_source(path.read_text()), Target.SM_90A, SETTINGS).library
    assert library is not None
    problem = load_problem(task)
    neighbours = [each for each in problem.workloads if each.role is Role.NEIGHBOUR]
    workloads = chosen or [pick_workload(problem, None), *neighbours]
    return record_program(subject(library, "run", problem), workloads, SETTINGS)


@pytest.mark.parametrize("label", HOSTS)
def test_each_kernel_of_the_repository_is_replayed_or_runs_live_as_it_must(label: str) -> None:
    made = of_repository(label, HOSTS[label].get("task", "gemm_n7168_k5120"))
    if HOSTS[label]["host"] == "replayed":
        assert isinstance(made, Recorded), made
    else:
        assert isinstance(made, str)
        assert HOSTS[label]["host"] in made


def test_a_launch_of_a_thread_that_outlives_its_call_is_no_launch_of_that_call() -> None:
    made = of_repository("attacks.late_thread", "gemm_n7168_k5120")
    if isinstance(made, str):
        assert "depends on more than the call" in made
    else:
        assert made.program.workloads[0].steps[0] == ()


def test_host_code_that_stops_launching_stops_in_the_replay_too() -> None:
    made = of_repository("attacks.slow_then_fast", "gemm_n7168_k5120")
    assert isinstance(made, Recorded)
    assert [len(steps) for steps in made.program.workloads[0].steps] == [1] * 12 + [0] * (JUDGED_CALLS - 12)


def test_more_calls_are_recorded_than_the_judge_makes() -> None:
    pytest.importorskip("torch", reason="the judge needs torch, which is an extra")
    from ptxbench.evaluate.child.draws import CHECKED, NEIGHBOUR
    from ptxbench.evaluate.child.measuring import REPEATS
    from ptxbench.evaluate.child.timing import SAMPLES, WARM_UPS
    from ptxbench.evaluate.recording import OTHER_CALLS

    assert (1 + REPEATS) * len(CHECKED) + WARM_UPS + SAMPLES <= JUDGED_CALLS
    assert len(NEIGHBOUR) <= OTHER_CALLS


def driver_lines(steps: tuple[Step, ...], kernels: tuple[tuple[int, str], ...]) -> list[str]:
    """What the driver of the tests says when it is asked for these launches, attributes and tensor maps."""
    lines = []
    for step in steps:
        for words in (each.words for piece in step.pieces for each in piece.maps):
            sizes = (f"{words[10 + i]},{words[15 + i]},{words[20 + i]},{words[25 + i]}" for i in range(words[2]))
            lines.append(f"tiled {words[1]} {words[2]} {' '.join(sizes)} {' '.join(map(str, words[4:8]))}")
        if step.code is Code.LAUNCH:
            shape = [",".join(map(str, step.words[at : at + 3])) for at in (1, 4, 7)]
            cluster = "" if shape[2] == "1,1,1" else f" cluster {shape[2]}"
            lines.append(f"launch {kernels[step.words[0]][1]} {shape[0]} {shape[1]} {step.words[10]} made{cluster}")
        elif step.code is Code.ATTRIBUTE:
            lines.append(f"attribute {kernels[step.words[0]][1]} {step.words[1]} {step.words[2]}")
    return lines


@pytest.mark.parametrize("name", ["gemm_n7168_k5120", "mha_bwd_d128"])
def test_a_replayed_reference_kernel_asks_the_driver_for_what_its_host_code_asked_for(
    name: str, start_session: Callable[..., Session], memory: DeviceMemory, tmp_path: Path
) -> None:
    problem = load_problem(name)
    workload = pick_workload(problem, "small")
    made = of_repository(f"reference.{name}", name, [workload])
    assert isinstance(made, Recorded), made
    path = tmp_path / "program.bin"
    path.write_bytes(encode_program(made.program))
    shapes = [(spec.dtype, problem.shape(spec, workload)) for spec in problem.arguments]
    arguments = [Argument(number, GUARD, dtype, shape) for number, (dtype, shape) in enumerate(shapes)]
    buffers = tuple(memory.allocate(argument.nbytes) for argument in arguments)
    session = start_session(path, "run", replayed=True, buffers=buffers)
    for _ in range(2):
        session.call(arguments, 10.0)
    said = [line for line in session.close().stderr.splitlines() if line.startswith(("tiled", "launch", "attribute"))]
    (calls,) = made.program.workloads
    wanted = [line for steps in calls.steps[:2] for line in driver_lines(steps, made.program.kernels)]
    assert said == wanted
    assert any(line.startswith("tiled") for line in said)


# ---- what the evaluator makes of it ----


class Scripted:
    """A judge that gives one answer after the other and keeps what it was asked."""

    alive = True

    def __init__(self, *codes: str) -> None:
        self.codes = list(codes)
        self.asked: list[bool] = []
        self.hello = cast(Any, type("Hello", (), dict.fromkeys(("device_name", "gpu_uuid", "driver"), "x")))()
        self.hello.sm_count, self.hello.tools = 132, ()

    def measure(self, request: Measure, _: float) -> Measured:
        program = request.candidate.program
        assert program is None or program.read_bytes().startswith(b"PtReplay")
        self.asked.append(program is not None)
        code = self.codes.pop(0)
        outcome = Outcome.FAILED if code else Outcome.PASSED
        reason = Reason(code=code, message=code) if code else None
        check = CheckStage(outcome=outcome, reason=reason)
        return Measured(check=check, time=None, protections=(), missing_protections=(), held={})


def judged(judge: Scripted, habits: Path, problem: Problem, symbol: str, host: HostMode = "auto") -> GpuStages:
    candidate = Candidate.from_source("x").model_copy(update={"entry_symbol": symbol})
    plan = Plan(candidate, problem, pick_workload(problem, "small"), Target.SM_90A, habits, host)
    evaluator = GpuEvaluator(Gpu(0, "x", "x", (9, 0), "x"), SETTINGS, cast(Judge, judge))
    return evaluator.run(plan, frozenset({StageName.CHECK}), (), lambda stage, text: None)


def test_replay_is_the_default_and_live_can_be_asked_for(habits: Path, problem: Problem) -> None:
    judge = Scripted("", "")
    assert judged(judge, habits, problem, "steady").environment.host_code == "replayed"
    assert judged(judge, habits, problem, "steady", "live").environment.host_code == "live: as asked"
    assert judge.asked == [True, False]


def test_host_code_that_cannot_be_replayed_runs_live_and_the_record_says_why(habits: Path, problem: Problem) -> None:
    judge = Scripted("")
    stages = judged(judge, habits, problem, "reads_results")
    assert stages.environment.host_code == "live: the host code reads device data on the host"
    assert judge.asked == [False]


def test_replay_alone_refuses_what_cannot_be_replayed(habits: Path, problem: Problem) -> None:
    judge = Scripted()
    stages = judged(judge, habits, problem, "reads_results", "replay")
    assert (stages.check.outcome, judge.asked) == (Outcome.UNAVAILABLE, [])
    assert stages.check.reason is not None
    assert stages.check.reason.code == "not_replayable"


def test_a_failed_replay_counts_where_both_recordings_agree(habits: Path, problem: Problem) -> None:
    judge = Scripted("wrong_numbers")
    stages = judged(judge, habits, problem, "steady")
    assert (stages.check.outcome, judge.asked) == (Outcome.FAILED, [True])


def test_a_failed_replay_of_doubtful_records_is_decided_live(habits: Path, problem: Problem) -> None:
    judge = Scripted("wrong_numbers", "")
    stages = judged(judge, habits, problem, "keeps_a_pointer")
    assert (stages.check.outcome, judge.asked) == (Outcome.PASSED, [True, False])
    assert "the replay failed (wrong_numbers)" in stages.environment.host_code


def test_a_profile_of_other_launches_than_the_timed_ones_proves_nothing() -> None:
    yes = Layer.yes_or_no(answer=True)
    kernels = (KernelProfile(name="setup", own=True), KernelProfile(name="gemm", own=True))
    profile = ProfileStage(outcome=Outcome.PASSED, kernels=kernels, executed=yes)
    timed = TimeStage(outcome=Outcome.PASSED, launches=("gemm",))
    found = same_launches(profile, timed)
    assert found.reason is not None
    assert (found.outcome, found.reason.code) == (Outcome.INCONCLUSIVE, "launches_differ")
    assert found.executed.state == "unavailable"
    assert same_launches(profile, timed.model_copy(update={"launches": ("gemm", "setup")})) == profile
