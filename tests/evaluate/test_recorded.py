"""What an H200 said of every kernel of the repository, held against what it must say."""

import json
import statistics
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ptxbench.schema.stages import Outcome
from ptxbench.schema.verdict import Verdict

ROOT = Path(__file__).parents[1]
GPU = ROOT / "data" / "gpu"
EXPECTED: dict[str, dict[str, dict[str, Any]]] = tomllib.loads((ROOT / "kernels" / "expected.toml").read_text())
ENTRIES = {f"{group}-{name}": entry for group, names in EXPECTED.items() for name, entry in names.items()}
RECORDED = list(ENTRIES)
AGAIN = [label for label, entry in ENTRIES.items() if entry.get("again")]
BF16_STEP = 2**-9 / 3**0.5


def recorded(label: str) -> Verdict:
    return Verdict.model_validate_json((GPU / "verdicts" / f"{label}.json").read_text())


def honest_milliseconds() -> float:
    """What the kernel that most attacks launch takes."""
    samples = recorded("wrong-dead_branch_hgmma").stages.time.candidate
    assert samples is not None
    return samples.median


def replayed_with_its_honest_time(verdict: Verdict) -> bool:
    """Whether none of its host code ran beside the clock, and nothing was gained."""
    samples = verdict.stages.time.candidate
    replayed = verdict.environment.host_code == "replayed"
    return replayed and samples is not None and samples.median > 0.98 * honest_milliseconds()


def test_every_kernel_has_a_verdict() -> None:
    stored = {path.stem for path in (GPU / "verdicts").glob("*.json")}
    assert stored == {*RECORDED, *(f"{label}-without-policy" for label in AGAIN)}


@pytest.mark.parametrize("label", RECORDED)
def test_the_verdict_is_what_the_kernel_deserves(label: str) -> None:
    verdict, expected = recorded(label), ENTRIES[label]
    status = verdict.status
    assert status.state == expected["state"]
    assert "stage" not in expected or status.stage == expected["stage"]
    assert "codes" not in expected or (status.reason and status.reason.code in expected["codes"])
    assert "static" not in expected or verdict.layers.target.static.state == expected["static"]
    assert "executed" not in expected or verdict.layers.target.executed.state == expected["executed"]


@pytest.mark.parametrize("label", AGAIN)
def test_an_attack_that_policy_refuses_is_stopped_without_it_too(label: str) -> None:
    verdict = recorded(f"{label}-without-policy")
    stages = verdict.stages
    assert stages.policy.outcome is Outcome.NOT_RUN
    stopped = stages.check.outcome in (Outcome.FAILED, Outcome.CHEATED)
    doubted = stages.time.outcome in (Outcome.CHEATED, Outcome.INCONCLUSIVE)
    assert stopped or doubted or replayed_with_its_honest_time(verdict)


def test_the_reference_gemm_executes_its_targets_instructions_and_they_do_the_work() -> None:
    verdict = recorded("reference-gemm_n7168_k5120")
    executed = {family.family: family for kernel in verdict.stages.profile.kernels for family in kernel.families}
    assert executed["GMMA"].thread_instructions_true > 0
    assert executed["TMA"].thread_instructions_true > 0
    assert verdict.stages.profile.work is not None
    assert verdict.stages.profile.work.target_mma == pytest.approx(1.0)
    assert verdict.layers.speed.value is not None
    assert verdict.layers.speed.interval is not None
    assert verdict.layers.speed.value >= 0.6


@pytest.mark.parametrize("label", [label for label in RECORDED if ENTRIES[label]["state"] == "passed"])
def test_both_further_clocks_agree_with_the_instrument(label: str) -> None:
    witnesses = {witness.name: witness for witness in recorded(label).stages.time.witnesses}
    assert set(witnesses) == {"judge_wall_clock", "ncu_gpu_time"}
    assert all(witness.agrees for witness in witnesses.values())


def test_a_candidate_that_shortens_its_own_clock_is_disputed_or_has_no_clock() -> None:
    verdict = recorded("attacks-forge_spans-without-policy")
    reason = verdict.stages.time.reason
    disputed = reason is not None and reason.code == "timer_disputed"
    assert disputed or replayed_with_its_honest_time(verdict)


def test_persisting_lines_and_side_streams_gain_no_time() -> None:
    for label in ("attacks-persist_l2", "attacks-side_stream"):
        samples = recorded(label).stages.time.candidate
        assert samples is not None
        assert samples.median > 0.98 * honest_milliseconds()


def test_ten_evaluations_of_one_kernel_agree_within_half_a_percent() -> None:
    document = json.loads((GPU / "repeat.json").read_text())
    speedups = document["speedups"]
    assert len(speedups) == 10
    assert statistics.stdev(speedups) / statistics.mean(speedups) <= 0.005


def test_one_evaluation_holds_the_gpu_for_less_than_six_tenths_of_a_second() -> None:
    document = json.loads((GPU / "evaluator.json").read_text())
    held = [sum(value for phase, value in row.items() if phase != "neighbours") for row in document["ours"]]
    theirs = [seconds for seconds, status, _ in document["flashinfer_bench"] if status == "PASSED"]
    assert statistics.median(held) <= 0.6
    assert statistics.median(theirs) > 5 * statistics.median(held)


def structured_errors(draws: list[dict[str, Any]], recipe: str) -> list[float]:
    return [
        output["block"]["rms_relative_error"]
        for draw in draws
        if draw["recipe"] == recipe
        for output in draw["outputs"]
        if output["name"] != "LSE"
    ]


def test_honest_kernels_of_other_designs_keep_the_bounds_of_structured_inputs_and_fp8_does_not() -> None:
    honest = [json.loads(path.read_text())["draws"] for path in sorted((GPU / "structured").glob("*.json"))]
    assert len(honest) == 5
    # Half of 16 rounding steps: the rounding of a block is at least half of what a uniform mantissa gives.
    assert max(max(structured_errors(draws, "spiky")) for draws in honest) < 8 * BF16_STEP
    fp8 = [draw.model_dump() for draw in recorded("wrong-fp8_attention").stages.check.draws]
    assert min(structured_errors(fp8, "spiky")) > 16 * BF16_STEP


def test_honest_kernels_keep_the_contract_on_normal_inputs() -> None:
    for path in sorted((GPU / "structured").glob("*.json")):
        draws = [draw for draw in json.loads(path.read_text())["draws"] if draw["recipe"] == "normal"]
        assert draws
        assert all(output["contract"] for draw in draws for output in draw["outputs"])
