"""What a run is asked to be becomes its plan, and what it may cost is said before anything is paid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ptxbench.agent.estimate import FEEDBACK_TOKENS, KERNEL_TOKENS, REASONING_TOKENS, estimate
from ptxbench.agent.plans import Wish, make_plan
from ptxbench.agent.session import Session
from ptxbench.errors import CommandError, PackError, ProblemError, ProviderError
from ptxbench.schema.turn import Price
from ptxbench.suite import load_problem


def test_the_paper_preset_is_the_published_setting() -> None:
    plan, problems = make_plan(Wish(model="p/m", preset="paper"), "cuda:0")
    assert (len(problems), plan.turns, plan.target_speedup, plan.context) == (5, 8, 1.2, "full")
    assert len(plan.keys) == 5 * 3 * 4
    for name in problems:
        packs = {key.pack for key in plan.keys if key.problem == name}
        assert len(packs) == 3
        assert {key.number for key in plan.keys if key.problem == name} == {0, 1, 2, 3}
    assert {problems[key.problem].workload(key.workload).role for key in plan.keys} == {"paper"}  # type: ignore[union-attr]


def test_options_go_before_the_preset_and_the_preset_before_the_usual() -> None:
    plan, _ = make_plan(Wish(model="p/m", preset="ablation-context", turns=3), "emulator")
    assert (plan.turns, plan.target_speedup) == (3, 1.2)
    packs = ["parameters", "templates", "contract", "patterns"]
    assert [key.pack for key in plan.keys] == [pack for pack in packs for _ in range(4)]


def test_on_the_emulator_the_small_workload_is_taken() -> None:
    plan, problems = make_plan(Wish(model="p/m", tasks=("mha_bwd_d128",)), "emulator")
    assert problems["mha_bwd_d128"].workload(plan.keys[0].workload).role == "small"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("wish", "error", "says"),
    [
        (Wish(preset="papper"), CommandError, "no preset 'papper'"),
        (Wish(turns=0), CommandError, "--turns is 0"),
        (Wish(trajectories=0), CommandError, "--trajectories is 0"),
        (Wish(target_speedup=-1.0), CommandError, "--target-speedup"),
        (Wish(cost_limit=1.0), CommandError, "--cost-limit needs"),
        (Wish(tasks=("gemm_n7168_k5120", "gemm_n7168_k5120")), CommandError, "named twice"),
        (Wish(tasks=("gem",)), ProblemError, "gem"),
        (Wish(tasks=("gemm_n7168_k5120",), workload="huge"), ProblemError, "huge"),
        (Wish(model="replay/nowhere.json"), ProviderError, "nowhere.json cannot be replayed"),
    ],
)
def test_what_means_nothing_is_refused_by_name(wish: Wish, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make_plan(wish, "emulator")


def test_an_unknown_pack_is_refused_when_the_session_opens() -> None:
    plan, problems = make_plan(Wish(model="p/m", tasks=("gemm_n7168_k5120",), packs=("petterns",)), "emulator")
    with pytest.raises(PackError, match="petterns"):
        Session.open(plan, problems, None)


def test_the_estimate_counts_every_turns_prompt_with_the_turns_before_it() -> None:
    wish = Wish(
        model="p/m",
        tasks=("gemm_n7168_k5120",),
        packs=("none",),
        turns=3,
        trajectories=2,
        price=Price(input=1, output=10),
    )
    plan, problems = make_plan(wish, "emulator")
    session = Session.open(plan, problems, None)
    forecast = estimate(session, plan.keys, parallel=2)
    first = estimate(Session.open(*make_plan(Wish(**{**vars(wish), "turns": 1}), "emulator"), None), plan.keys, 2)
    pair = KERNEL_TOKENS + FEEDBACK_TOKENS
    assert forecast.usage.input_tokens == 3 * first.usage.input_tokens + 2 * (0 + 1 + 2) * pair
    assert forecast.usage.output_tokens == 6 * (KERNEL_TOKENS + REASONING_TOKENS)
    assert forecast.cost == pytest.approx((forecast.usage.input_tokens + 10 * forecast.usage.output_tokens) / 1e6)


def test_a_recorded_conversation_gives_its_own_number_of_turns(tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    path.write_text(json.dumps(["one", {"text": "two"}, "three"]))
    plan, _ = make_plan(Wish(model=f"replay/{path}", tasks=("gemm_n7168_k5120",)), "emulator")
    assert (plan.turns, plan.recorded) == (3, True)


def test_a_problem_of_ones_own_is_found_again_by_its_folder() -> None:
    plan, problems = make_plan(Wish(model="p/m", tasks=("gemm_n7168_k5120",)), "emulator")
    assert plan.tasks == ("gemm_n7168_k5120",)
    assert problems == {"gemm_n7168_k5120": load_problem("gemm_n7168_k5120")}
