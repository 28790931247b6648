# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""The judge's flow on a machine without a GPU: CPU tensors and a candidate played by Python; no process is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ptxbench.evaluate.statistics import DeviceLimits
from ptxbench.schema.problem import Problem, Role, Workload
from ptxbench.schema.stages import GpuState, Outcome
from ptxbench.schema.values import ToolVersion, Unavailable
from ptxbench.suite import load_problem

torch = pytest.importorskip("torch", reason="the judge needs torch, which is an extra")

from ptxbench.evaluate.child import protocol
from ptxbench.evaluate.child.arena import View
from ptxbench.evaluate.child.baselines import Call
from ptxbench.evaluate.child.device import DeviceFacts
from ptxbench.evaluate.child.faults import CandidateFault
from ptxbench.evaluate.child.instrument import Activity, KernelSpan, SpanResult, Window
from ptxbench.evaluate.child.measuring import measure
from ptxbench.evaluate.child.memory import GUARD
from ptxbench.evaluate.child.preparing import Baselines
from ptxbench.evaluate.child.process import Ended
from ptxbench.evaluate.child.session import CallResult
from ptxbench.evaluate.child.wire import Phase
from ptxbench.evaluate.child.wrapping import run_wrapped

KERNEL, CUBIN = "_Z4gemm", "ab" * 32
Act = Callable[["Play"], None]


def spans(nanoseconds: int, *names: str) -> SpanResult:
    kernels = tuple(KernelSpan(name, 1000, 1000 + nanoseconds, 7, Activity.KERNEL, 0) for name in names)
    return SpanResult(1000, 1000 + nanoseconds, (0, 10**9), kernels, len(kernels), 0, 0, 0, 0)


class Clock:
    """The judge's own instrument: every library call takes 2 ms."""

    @contextmanager
    def window(self) -> Iterator[Window]:
        window = Window()
        yield window
        window.close(spans(2_000_000, "library"))


class Cpu:
    torch_device = torch.device("cpu")
    facts = DeviceFacts("CPU", "GPU-0", "1", (9, 0), DeviceLimits(9, 132, 1.98e9, 4.8e12), 1 << 20, 1 << 34)

    def __init__(self) -> None:
        self.alive = True

    def synchronize(self) -> None: ...

    def flush_l2(self) -> None: ...

    def generator(self, seed: int) -> Any:
        return torch.Generator().manual_seed(seed)

    def answers(self, seconds: float) -> bool:
        return self.alive


class Host:
    def allocate(self, nbytes: int) -> tuple[int, Any]:
        return 0, torch.zeros(GUARD + nbytes + GUARD, dtype=torch.uint8)


class Nvml:
    tool = ToolVersion(name="nvml", version="13")

    def read(self) -> GpuState:
        return GpuState(sm_clock_mhz=1980, power_w=500, temperature_c=50)


@dataclass
class Play:
    """One call as the played candidate sees it."""

    number: int
    view: View
    spans: SpanResult = field(default_factory=lambda: spans(1_000_000, KERNEL))
    wall_ns: int = 1_020_000

    def honest(self) -> None:
        data = self.view.inputs
        if "A" in data:
            self.view.outputs["C"].copy_(data["A"].float() @ data["B"].float().t())
            return
        q, k, v = (data[name].float() for name in "QKV")
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        self.view.outputs["O"].copy_(torch.softmax(scores, -1) @ v)
        self.view.outputs["LSE"].copy_(torch.logsumexp(scores.double(), -1))


class Actor:
    protections = ("seccomp",)
    missing_protections = (Unavailable(name="bubblewrap", reason="absent"),)
    loaded_cubins: tuple[str, ...] = (CUBIN,)

    def __init__(self, act: Act) -> None:
        self._act = act
        self.calls = 0
        self.ended = False

    def ready(self) -> None: ...

    def load(self) -> None: ...

    def call(self, view: View) -> CallResult:
        assert not self.ended
        play = Play(self.calls, view)
        self.calls += 1
        self._act(play)
        return CallResult(play.wall_ns, play.wall_ns, play.spans)

    call_cold = call

    def empty_call_ms(self) -> float:
        return 0.02

    def finish(self, seconds: float) -> Ended:
        return Ended(0, "out", "err", 1.0)

    def end(self) -> Ended:
        self.ended = True
        return Ended(-9, "", "", 1.0)


class Stage:
    """A desk whose candidate is `act`."""

    meter = Clock()
    instrument = ToolVersion(name="cupti", version="130001")
    reader = Nvml()

    def __init__(self, act: Act) -> None:
        self.device = Cpu()
        self.actor = Actor(act)

    @contextmanager
    def memory(self) -> Iterator[Host]:
        yield Host()

    def begin(self, files: protocol.CandidateFiles, memory: Any, deadline: float, tool: Any = None) -> Actor:
        return self.actor


class PlayedCublas:
    name, version, how, is_reference = "cublas", "13.1.0", "torch.matmul", True

    def bind(self, problem: Problem, inputs: dict[str, Any]) -> Call:
        result = (inputs["A"].float() @ inputs["B"].float().t()).bfloat16()
        return lambda: {"C": result}


def small_gemm() -> Problem:
    problem = load_problem("gemm_n7168_k5120")
    axes = tuple(axis.model_copy(update={"value": {"N": 256, "K": 320}.get(axis.name)}) for axis in problem.axes)
    return problem.model_copy(update={"axes": axes})


def request(problem: Problem | None = None, **update: Any) -> protocol.Measure:
    axes = {"M": 200} if problem is None else {"B": 1, "H": 2, "S": 200}
    fields: dict[str, Any] = {
        "problem": problem or small_gemm(),
        "workload": Workload(uuid="paper", axes=axes, role=Role.PAPER),
        "seed": 7,
        "candidate": protocol.CandidateFiles(library=Path("x"), symbol="run", kernels=(KERNEL,), cubin_hashes=(CUBIN,)),
        "time": True,
        "deadline": 5.0,
    }
    return protocol.Measure(**(fields | update))


@pytest.fixture
def cublas(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(problem: Problem) -> Baselines:
        return Baselines(problem, (PlayedCublas(),), ())

    monkeypatch.setattr("ptxbench.evaluate.child.preparing.Baselines.find", staticmethod(found))


def played(act: Act, **update: Any) -> Any:
    return measure(Stage(act), request(**update))


@pytest.mark.usefixtures("cublas")
def test_an_honest_candidate_passes_both_rules_and_gets_a_speedup() -> None:
    measured = played(Play.honest, neighbours=(Workload(uuid="n", axes={"M": 72}, role=Role.NEIGHBOUR),))
    check, clock = measured.check, measured.time
    assert check.outcome is Outcome.PASSED, check.reason
    assert (check.published.state, check.contract.state, check.generalises.state) == ("yes", "yes", "yes")
    assert check.published_reference == "cublas 13.1.0"
    assert sorted(draw.recipe for draw in check.draws) == ["normal"] * 4 + ["spiky"]
    assert clock is not None
    assert clock.outcome is Outcome.PASSED, clock.reason
    assert len(clock.candidate.milliseconds) == len(clock.baselines[0].samples.milliseconds) == 50
    assert clock.baselines[0].speedup == pytest.approx(2.0)
    assert clock.outputs_checked == 25
    assert clock.witnesses[0].agrees
    assert len(clock.states) == 2
    assert {"check", "time", "prepare", "neighbours"} <= measured.held.keys()
    assert measured.protections == ("seccomp",)


def test_without_a_library_the_oracle_is_the_reference_and_the_contract_stays_open() -> None:
    measured = played(Play.honest, problem=load_problem("mha_with_lse_d128"))
    assert measured.check.outcome is Outcome.PASSED, measured.check.reason
    assert measured.check.published_reference == "oracle"
    assert measured.check.contract.state == "unavailable"
    assert [reason.code for reason in measured.time.missing_baselines] == [
        "cudnn_unavailable",
        "flashinfer_unavailable",
    ]
    assert measured.time.baselines == ()


def corrupt(change: Callable[[View], None], since: int = 0) -> Act:
    def act(play: Play) -> None:
        play.honest()
        if play.number >= since:
            change(play.view)

    return act


def fill(name: str, rows: slice, value: float) -> Callable[[View], None]:
    return lambda view: view.outputs[name][rows].fill_(value)


def poison_rows(view: View) -> None:
    view.outputs["C"].view(torch.int16)[128:] = -1


def write_past_the_end(view: View) -> None:
    view.guards[-1][5] = 0


def change_an_input(view: View) -> None:
    view.inputs["B"][3, 3] += 1


def zero(view: View) -> None:
    view.outputs["C"].zero_()


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (zero, "wrong_numbers", "everywhere"),
        (fill("C", slice(128, 200), 0.0), "wrong_numbers", "rows 128-199"),
        (fill("C", slice(0, 1), float("nan")), "nan_output", "NaN or infinity in rows 0"),
        (poison_rows, "missing_output", "72 of 200 rows"),
        (write_past_the_end, "out_of_bounds_write", "outside"),
        (change_an_input, "changed_input", "input B"),
    ],
)
@pytest.mark.usefixtures("cublas")
def test_a_wrong_result_fails_with_a_code_and_a_place(change: Any, code: str, words: str) -> None:
    measured = played(corrupt(change))
    assert measured.check.outcome is Outcome.FAILED
    assert measured.check.reason.code == code
    assert words in measured.check.reason.message
    assert measured.check.reason.hint
    assert measured.time is None
    assert measured.check.published.state == "no"


def fault(code: Any, since: int = 0) -> Act:
    def act(play: Play) -> None:
        if play.number >= since:
            raise CandidateFault(code, "The candidate did not come back.", Phase.CALLING)
        play.honest()

    return act


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("hang", "failed"),
        ("crashed", "failed"),
        ("raised", "failed"),
        ("cuda_error", "failed"),
        ("forged_reply", "cheated"),
    ],
)
@pytest.mark.usefixtures("cublas")
def test_a_fault_of_the_candidates_process_is_a_result(code: str, outcome: str) -> None:
    measured = played(fault(code))
    assert measured.check.outcome == outcome
    assert measured.check.reason.code == code
    assert measured.fatal == ""


@pytest.mark.usefixtures("cublas")
def test_a_device_that_does_not_answer_after_a_hang_replaces_the_judge() -> None:
    desk = Stage(fault("hang"))
    desk.device.alive = False
    measured: Any = measure(desk, request())
    assert measured.check.reason.code == "hang"
    assert "did not answer" in measured.fatal


@pytest.mark.usefixtures("cublas")
def test_a_neighbour_that_crashes_leaves_the_time_of_the_workload_itself() -> None:
    measured = played(fault("crashed", since=64), neighbours=(Workload(uuid="n", axes={"M": 8}, role=Role.NEIGHBOUR),))
    assert measured.check.outcome is Outcome.PASSED
    assert measured.check.generalises.state == "no"
    assert measured.time.outcome is Outcome.PASSED


def idle(play: Play) -> None:
    if play.number < 12:
        play.honest()


def by_pointer() -> Act:
    """Keeps the first output of each set of pointers and later only copies it."""
    kept: dict[int, Any] = {}

    def act(play: Play) -> None:
        output = play.view.outputs["C"]
        if output.data_ptr() not in kept:
            play.honest()
            kept[output.data_ptr()] = output.clone()
        output.copy_(kept[output.data_ptr()])

    return act


@pytest.mark.parametrize("act", [idle, by_pointer()])
@pytest.mark.usefixtures("cublas")
def test_a_candidate_that_computes_only_while_it_is_checked_is_a_cheat(act: Act) -> None:
    measured = played(act)
    assert measured.check.outcome is Outcome.PASSED
    assert measured.time.outcome is Outcome.CHEATED
    assert measured.time.reason.code == "timed_output_wrong"


@pytest.mark.usefixtures("cublas")
def test_a_kernel_that_is_wrong_now_and_then_fails_and_is_not_called_a_cheat() -> None:
    measured = played(corrupt(zero, since=20))
    assert measured.check.outcome is Outcome.FAILED
    assert measured.check.reason.code == "wrong_numbers"
    assert measured.time.outcome is Outcome.NOT_RUN


@pytest.mark.usefixtures("cublas")
def test_a_result_that_only_the_contract_refuses_is_imprecise() -> None:
    def coarse(view: View) -> None:
        view.outputs["C"].copy_(1.005 * (view.inputs["A"].float() @ view.inputs["B"].float().t()))

    measured = played(corrupt(coarse))
    assert measured.check.reason.code == "imprecise"
    assert (measured.check.published.state, measured.check.contract.state) == ("yes", "no")


@pytest.mark.usefixtures("cublas")
def test_without_an_instrument_the_time_is_unavailable() -> None:
    desk: Any = Stage(Play.honest)
    desk.meter = Unavailable(name="cupti", reason="not installed", remedy="Install it.")
    measured: Any = measure(desk, request())
    assert measured.check.outcome is Outcome.PASSED
    assert (measured.time.outcome, measured.time.reason.hint) == (Outcome.UNAVAILABLE, "Install it.")


@pytest.mark.usefixtures("cublas")
def test_a_run_under_a_tool_says_whether_its_outputs_were_right() -> None:
    fields = request().model_dump(exclude={"kind", "neighbours", "time"}) | {"wrapper": ("ncu",)}
    order = protocol.Wrapped.model_validate(fields)
    right = run_wrapped(Stage(Play.honest), order)
    wrong = run_wrapped(Stage(corrupt(zero)), order)
    hung: Any = run_wrapped(Stage(fault("hang")), order)
    assert (right.called, right.outputs_right, right.stdout) == (True, True, "out")
    assert (wrong.called, wrong.outputs_right) == (True, False)
    assert (hung.called, hung.outputs_right, hung.reason.code) == (False, None, "hang")


@pytest.mark.usefixtures("cublas")
def test_an_infinite_error_survives_the_way_through_json() -> None:
    measured = played(corrupt(fill("C", slice(0, 1), float("inf"))))
    assert protocol.Measured.model_validate_json(measured.model_dump_json()) == measured
