"""A prompt says what a kernel has to do and how it is judged, and nothing that would let it be made for the judge."""

from __future__ import annotations

import itertools
import re

import pytest

from ptxbench.agent.prompt import Asked, pack_for, prompt
from ptxbench.errors import PackError
from ptxbench.schema.problem import Problem, Role, Workload
from ptxbench.schema.turn import RunPlan, SampleKey
from ptxbench.schema.values import Target
from ptxbench.suite import load_problem, pick_workload, problem_names


def texts(
    problem: Problem, workload: Workload, pack: str = "none", emulated: bool = False, **plan: object
) -> list[str]:
    key = SampleKey(problem=problem.name, workload=workload.uuid, target=Target.SM_90A, pack=pack, number=0)
    asked = Asked(key, problem, workload, pack_for(key, problem))
    base: dict[str, object] = {"model": "m", "keys": ()}
    return [each.content for each in prompt(asked, RunPlan.model_validate(base | plan), emulated=emulated)]


@pytest.mark.parametrize(("name", "role"), [*itertools.product(problem_names(), (Role.PAPER, Role.SMALL))])
def test_no_other_workload_is_told(name: str, role: Role) -> None:
    problem = load_problem(name)
    workload = pick_workload(problem, role.value)
    system, user = texts(problem, workload, "patterns")
    text = system + user
    for axis, value in problem.axis_values(workload).items():
        assert re.search(rf"\b{axis} = {value}\b", user)
    for other in problem.workloads:
        if other == workload:
            continue
        assert other.uuid[:8] not in text
        for axis, value in other.axes.items():
            if value != workload.axes[axis]:
                assert not re.search(rf"\b{axis}\s*=\s*{value}\b", user)
    assert workload.uuid[:8] not in text
    assert "seed" not in user.lower()


def test_tolerance_goal_and_turns_are_told() -> None:
    problem = load_problem("gemm_n7168_k5120")
    paper = pick_workload(problem, "paper")
    _, user = texts(problem, paper, turns=6, target_speedup=1.5, baseline_ms={problem.name: 0.93})
    for part in ("max(0.01, 0.01 * |reference|)", "You have 6 turns", "at least 1.5", "cuBLAS", "0.93 ms", "cutlass"):
        assert part in user
    _, emulated = texts(problem, paper, emulated=True)
    assert "Not at all" in emulated
    assert "at least 1.2" not in emulated
    assert "ends it" not in texts(problem, paper, target_speedup=0)[1]


@pytest.mark.parametrize("pack", ["none", "nano", "base", "patterns"])
def test_the_interface_stands_in_every_system_message(pack: str) -> None:
    problem = load_problem("gemm_n7168_k5120")
    system, _ = texts(problem, pick_workload(problem, "paper"), pack)
    assert "void run(tvm::ffi::TensorView" in system
    assert system.count("# Interface of a candidate") <= 1
    assert "wgmma" in system
    assert "Hopper" in system


def test_a_pack_in_a_language_that_is_not_judged_is_refused() -> None:
    problem = load_problem("gemm_n7168_k5120")
    with pytest.raises(PackError, match="teaches triton"):
        texts(problem, pick_workload(problem, "paper"), "triton")
