"""One trajectory goes from answer to verdict to feedback, ends for one reason, and loses or pays nothing twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.agent.scripted import ScriptedModel, WordEvaluator, open_session, plan_of, said, words

from ptxbench.agent.ask import CONTINUE, ContextFullError
from ptxbench.agent.loop import ATTEMPTS, Means
from ptxbench.agent.session import Session, carry_all_on
from ptxbench.errors import ProviderError, RecordError
from ptxbench.records.read import read_run
from ptxbench.schema.turn import Answer, RunPlan, StopReason, Trajectory, TurnState


async def _no_pause(seconds: float) -> None:
    """Waits for nobody."""


def run(
    plan: RunPlan, model: ScriptedModel, evaluator: WordEvaluator | None = None, folder: Path | None = None
) -> Trajectory:
    session = open_session(plan, folder)
    try:
        means = Means(model, evaluator or WordEvaluator(), session.records, session.purse, pause=_no_pause)
        return asyncio.run(session.carry_on(plan.keys[0], means))
    finally:
        session.close()


def test_a_model_reads_what_was_found_about_each_answer() -> None:
    model = ScriptedModel(said("wrong"), said("broken"), said("fast 1.3"))
    trajectory = run(plan_of(), model)
    assert words(trajectory) == ["failed", "failed", "passed"]
    assert trajectory.stop is StopReason.TARGET_REACHED
    first, second, third = (request.messages for request in model.requests)
    assert [message.role for message in first] == ["system", "user"]
    assert [message.role for message in third] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert second[-1].content == trajectory.turns[0].feedback != ""
    assert trajectory.turns[-1].feedback == ""


def test_the_latest_pair_and_the_single_message_are_shorter_histories_of_the_same_prompt() -> None:
    roles = {}
    for policy in ("latest_pair", "single"):
        model = ScriptedModel(said("wrong one"), said("wrong two"), said("wrong three"))
        run(plan_of(context=policy, turns=3), model)
        roles[policy] = [message.role for message in model.requests[-1].messages]
        text = "".join(message.content for message in model.requests[-1].messages)
        assert "wrong two" in text
        assert ("wrong one" in text) == (policy == "single")
    assert roles == {"latest_pair": ["system", "user", "assistant", "user"], "single": ["system", "user"]}


def test_an_answer_without_a_kernel_is_a_turn_and_its_note_reaches_the_model() -> None:
    model = ScriptedModel(Answer(text="I would use wgmma."), said("right"))
    trajectory = run(plan_of(turns=2), model)
    assert words(trajectory) == [TurnState.NO_KERNEL, TurnState.PASSED]
    assert "no fenced code block" in model.requests[1].messages[-1].content


def test_an_answer_cut_at_its_token_limit_is_continued_and_compiled_whole() -> None:
    whole = said("right").text
    first, second = Answer(text=whole[:55], stop="length"), Answer(text="```cuda\n" + whole[whole.index("// right") :])
    model = ScriptedModel(first, second)
    trajectory = run(plan_of(turns=1), model)
    assert model.requests[1].messages[-1].content == CONTINUE
    assert trajectory.turns[0].answer.parts == 2
    assert trajectory.turns[0].candidate is not None
    assert trajectory.turns[0].candidate.entry_source == whole.split("```")[1].removeprefix("cuda\n")


def test_an_answer_that_stays_cut_after_its_continuations_is_not_compiled() -> None:
    model = ScriptedModel(said("right", stop="length"))
    evaluator = WordEvaluator()
    trajectory = run(plan_of(turns=1, continuations=2), model, evaluator)
    assert len(model.requests) == 3
    assert trajectory.turns[0].extracted == "cut"
    assert evaluator.candidates == []


def test_a_fault_of_the_infrastructure_is_tried_again_and_never_reaches_the_model(tmp_path: Path) -> None:
    model = ScriptedModel(said("wrong, after a fault"), said("right"))
    trajectory = run(plan_of(turns=2), model, WordEvaluator(faults=ATTEMPTS - 1), tmp_path)
    assert words(trajectory) == ["failed", "passed"]
    assert not any("device is gone" in each.content.lower() for each in model.requests[1].messages)
    assert [fault.error for fault in read_run(tmp_path).faults()] == ["DeviceError"] * (ATTEMPTS - 1)


def test_an_evaluator_that_stays_down_leaves_a_run_that_is_resumed_without_a_new_request(tmp_path: Path) -> None:
    plan = plan_of(turns=1)
    trajectory = run(plan, ScriptedModel(said("fault")), WordEvaluator(faults=ATTEMPTS), tmp_path)
    assert (trajectory.stop, trajectory.turns) == (StopReason.HARNESS_ERROR, ())
    model = ScriptedModel(said("another"))
    assert words(run(plan, model, WordEvaluator(), tmp_path)) == ["passed"]
    assert model.requests == []


@pytest.mark.parametrize(
    ("changes", "answers", "stop"),
    [
        ({"turns": 2}, [said("wrong")], StopReason.TURN_LIMIT),
        ({"token_limit": 300}, [said("wrong")], StopReason.TOKEN_LIMIT),
        ({"cost_limit": 0.02}, [said("wrong")], StopReason.COST_LIMIT),
        ({"time_limit": 1.5}, [said("wrong")], StopReason.TIME_LIMIT),
        ({"context_limit": 2500}, [said("wrong " * 2000)], StopReason.CONTEXT_FULL),
        ({}, [said("wrong"), ContextFullError("too long")], StopReason.CONTEXT_FULL),
        ({}, [said("wrong"), ProviderError("refused", "Pay.")], StopReason.PROVIDER_ERROR),
    ],
)
def test_a_trajectory_ends_for_the_limit_that_it_reaches(
    changes: dict[str, Any], answers: list[Answer | BaseException], stop: StopReason
) -> None:
    trajectory = run(plan_of(**changes), ScriptedModel(*answers))
    assert trajectory.stop is stop
    assert 1 <= len(trajectory.turns) <= 2


@pytest.mark.parametrize(
    ("word", "target", "turns"),
    [("own work", 1.2, 1), ("no work of its own", 1.2, 2), ("own work", 0, 2)],
)
def test_on_the_emulator_a_correct_kernel_by_the_targets_own_work_ends_a_trajectory(
    word: str, target: float, turns: int
) -> None:
    source = word if word == "own work" else "right"
    trajectory = run(
        plan_of(turns=2, target_speedup=target), ScriptedModel(said(source)), WordEvaluator(device="emulator")
    )
    assert len(trajectory.turns) == turns


def test_a_journal_that_answers_another_prompt_is_refused(tmp_path: Path) -> None:
    plan = plan_of(turns=1)
    run(plan, ScriptedModel(said("fault")), WordEvaluator(faults=ATTEMPTS), tmp_path)
    journal = next((tmp_path / "journal").iterdir())
    journal.write_text(journal.read_text().replace('"prompt_hash":"', '"prompt_hash":"0'))
    with pytest.raises(RecordError, match="to another prompt"):
        run(plan, ScriptedModel(said("right")), WordEvaluator(), tmp_path)


def test_a_run_of_another_plan_is_refused_and_the_difference_named(tmp_path: Path) -> None:
    run(plan_of(turns=1), ScriptedModel(said("right")), folder=tmp_path)
    with pytest.raises(RecordError, match="differ in turns, temperature"):
        run(plan_of(turns=2, temperature=1.0), ScriptedModel(said("right")), folder=tmp_path)


def test_a_folder_with_other_content_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RecordError, match="neither empty nor a run"):
        run(plan_of(), ScriptedModel(said("right")), folder=tmp_path)


def test_an_interrupted_trajectory_says_so_and_goes_on_where_it_was(tmp_path: Path) -> None:
    plan = plan_of(turns=3, target_speedup=0)
    model = ScriptedModel(said("wrong"), said("right"), asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        run(plan, model, folder=tmp_path)
    (left,) = read_run(tmp_path).trajectories()
    assert (left.stop, words(left)) == (StopReason.INTERRUPTED, ["failed", "passed"])
    again = ScriptedModel(said("right again"))
    assert words(run(plan, again, folder=tmp_path)) == ["failed", "passed", "passed"]
    assert [request.turn for request in again.requests] == [2]


def test_trajectories_go_on_side_by_side_and_none_is_lost(tmp_path: Path) -> None:
    plan = plan_of(trajectories=20, turns=2)
    session: Session = open_session(plan, tmp_path)
    model = ScriptedModel(said("wrong"), said("right"))
    asyncio.run(carry_all_on(session, model, WordEvaluator(), 7, lambda trajectory: None))
    session.close()
    stored = list(read_run(tmp_path).trajectories())
    assert [words(each) for each in stored] == [["failed", "passed"]] * 20
    assert len(model.requests) == 40
