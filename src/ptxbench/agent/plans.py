"""Makes a run's plan from what was asked for and a preset; nothing is opened or paid."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from ptxbench.agent.context import Policy
from ptxbench.agent.replay import is_replay, open_replay
from ptxbench.errors import CommandError
from ptxbench.knowledge import packs_for
from ptxbench.schema.problem import Problem, Role
from ptxbench.schema.turn import Price, RunPlan, SampleKey
from ptxbench.schema.values import Target
from ptxbench.suite import load_problem, pick_workload, problem_names

ALL = "all"
"""In place of packs: the base pack, and each with patterns of the problem's operator."""


@dataclass(frozen=True)
class Wish:
    """What a run is asked to be; None: as the preset says, else as `DEFAULTS` does.

    Attributes:
        model: Name of the model.
        tasks: Problems by name or folder; empty: the whole suite.
        target: The architecture.
        packs: Levels or tags of knowledge packs, `none`, or `all`.
        trajectories: Of each problem and pack.
        turns: Of each trajectory, at most.
        target_speedup: What ends a trajectory; 0: nothing does.
        workload: A workload's uuid or role; by default `paper`, on the emulator `small`.
        context: Which messages a model gets.
    """

    model: str = ""
    tasks: tuple[str, ...] | None = None
    target: Target = Target.SM_90A
    packs: tuple[str, ...] | None = None
    trajectories: int | None = None
    turns: int | None = None
    target_speedup: float | None = None
    workload: str | None = None
    context: Policy | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    token_limit: int | None = None
    context_limit: int | None = None
    cost_limit: float | None = None
    time_limit: float | None = None
    price: Price | None = None
    baseline_ms: dict[str, float] | None = None
    preset: str = ""


DEFAULTS = Wish(tasks=(), packs=("patterns",), trajectories=1, turns=8, target_speedup=1.2, context="full")

PRESETS = {
    "paper": Wish(packs=(ALL,), trajectories=4),
    "smoke": Wish(tasks=("gemm_n7168_k5120",), packs=("nano",), turns=2),
    "ablation-context": Wish(
        tasks=("gemm_n7168_k5120",), packs=("parameters", "templates", "contract", "patterns"), trajectories=4
    ),
}
"""`paper`: the published setting, three packs x four trajectories x eight turns for each of five problems.
`ablation-context`: how much of the pack is needed. `smoke`: does everything work."""


def make_plan(wish: Wish, device: str) -> tuple[RunPlan, Mapping[str, Problem]]:
    """The plan of a run, and its problems by name.

    Args:
        wish: What is asked for.
        device: `cuda:N` or `emulator`, as it was found.

    Raises:
        CommandError: The preset is unknown, or a number is out of range.
        ProblemError: A problem or workload is unknown.
        ProviderError: A recorded conversation cannot be read.
    """
    full = _completed(wish)
    tasks = full.tasks or problem_names()
    loaded = [load_problem(task) for task in tasks]
    problems = {problem.name: problem for problem in loaded}
    if len(problems) < len(loaded):
        raise CommandError("A problem is named twice.", "Name each once.")
    recorded = is_replay(full.model)
    plan = RunPlan(
        model=full.model,
        tasks=tuple(tasks),
        keys=tuple(key for problem in loaded for key in _keys(full, problem, device)),
        turns=_recorded_turns(full) if recorded and wish.turns is None else full.turns,
        recorded=recorded,
        device=device,
        **{name: getattr(full, name) for name in _SAME if getattr(full, name) is not None},
    )
    return plan, problems


def problems_of(plan: RunPlan) -> Mapping[str, Problem]:
    """The problems of a plan that was made before, by name.

    Raises:
        ProblemError: One is no longer there.
    """
    return {problem.name: problem for problem in map(load_problem, plan.tasks)}


_SAME = tuple({each.name for each in fields(Wish)} & RunPlan.model_fields.keys() - {"model", "tasks", "turns"})


def _completed(wish: Wish) -> Wish:
    """The wish with the preset's and the usual values where it says nothing."""
    preset = PRESETS.get(wish.preset) if wish.preset else Wish()
    if preset is None:
        raise CommandError(f"There is no preset {wish.preset!r}.", f"There are: {', '.join(PRESETS)}.")
    for source in (preset, DEFAULTS):
        unsaid = [each.name for each in fields(Wish) if getattr(wish, each.name) is None]
        wish = replace(wish, **{name: getattr(source, name) for name in unsaid})
    for name in ("trajectories", "turns"):
        if getattr(wish, name) < 1:
            raise CommandError(f"--{name} is {getattr(wish, name)}.", "Give at least 1.")
    if wish.target_speedup is not None and wish.target_speedup < 0:
        raise CommandError(
            f"--target-speedup is {wish.target_speedup:g}.", "Give at least 0; 0 never ends a trajectory."
        )
    if wish.cost_limit is not None and wish.price is None:
        raise CommandError("--cost-limit needs to know prices.", "Give --price IN/OUT, in US$ for a million tokens.")
    return wish


def _keys(wish: Wish, problem: Problem, device: str) -> list[SampleKey]:
    small = any(workload.role is Role.SMALL for workload in problem.workloads)
    usual = Role.SMALL if device == "emulator" and small else Role.PAPER
    workload = pick_workload(problem, wish.workload or usual.value)
    packs = itertools.chain.from_iterable(
        packs_for(wish.target, problem) if pack == ALL else (pack,) for pack in wish.packs or ()
    )
    return [
        SampleKey(problem=problem.name, workload=workload.uuid, target=wish.target, pack=pack, number=number)
        for pack in dict.fromkeys(packs)
        for number in range(wish.trajectories or 1)
    ]


def _recorded_turns(wish: Wish) -> int:
    replay = open_replay(wish.model)
    lengths = [len(replay.answers), *(len(answers) for answers in (replay.by_sample or {}).values())]
    return max(1, *lengths)
