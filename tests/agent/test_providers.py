"""Models behind the wire formats of OpenAI and Anthropic: what is paid is counted, what fails is tried again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.agent.fake_provider import KEY, Act, FakeProvider, serving
from tests.agent.scripted import WordEvaluator, open_session, plan_of, said, words

from ptxbench.agent import inspect_model
from ptxbench.agent.loop import Means
from ptxbench.errors import ProviderError
from ptxbench.records.read import read_run
from ptxbench.schema.turn import StopReason, Trajectory

OPENAI, ANTHROPIC = "openai/gpt-4o", "anthropic/claude-sonnet-4-5"
RIGHT = said("right").text
both = pytest.mark.parametrize("model", [OPENAI, ANTHROPIC])


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, KEY)


def ask(model: str, *acts: Act, turns: int = 1, folder: Path | None = None) -> tuple[Trajectory, FakeProvider]:
    """One trajectory against a provider that carries these acts out."""
    with serving(*acts) as provider:
        plan = plan_of(model=model, turns=turns)
        session = open_session(plan, folder)
        url = provider.url if model == ANTHROPIC else f"{provider.url}/v1"
        opened = inspect_model.open_model(model, plan, url, retries=3)
        means = Means(inspect_model.InspectModel(plan, opened), WordEvaluator(), session.records)
        trajectory = asyncio.run(session.carry_on(plan.keys[0], means))
        session.close()
    return trajectory, provider


@both
def test_tokens_and_reasoning_are_recorded_and_reasoning_is_not_sent_back(model: str) -> None:
    trajectory, provider = ask(model, Act(said("wrong").text, thought="I doubt it"), Act(RIGHT), turns=2)
    assert words(trajectory) == ["failed", "passed"]
    answer = trajectory.turns[0].answer
    assert (answer.reasoning, answer.model, answer.stop) == ("I doubt it", "fake-1", "stop")
    usage = answer.usage
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens) == (100, 70, 30)
    assert usage.cache_read_tokens == 10
    assert provider.keys == [KEY, KEY]
    assert "I doubt it" not in str(provider.bodies[1])


@both
def test_an_answer_that_ends_for_its_length_is_continued(model: str) -> None:
    trajectory, provider = ask(model, Act(RIGHT[:55], cut=True), Act(RIGHT[51:]))
    assert words(trajectory) == ["passed"]
    assert (trajectory.turns[0].answer.parts, len(provider.bodies)) == (2, 2)
    assert trajectory.turns[0].answer.usage.output_tokens == 140


@both
@pytest.mark.parametrize("fault", [Act(status=429), Act(status=500), Act(RIGHT, broken=True)])
def test_a_passing_fault_is_tried_again_and_costs_no_turn(model: str, fault: Act) -> None:
    trajectory, provider = ask(model, fault, Act(RIGHT))
    assert words(trajectory) == ["passed"]
    assert len(provider.bodies) == 2


def test_anthropic_is_asked_for_a_stream_where_answers_are_long() -> None:
    _, provider = ask(ANTHROPIC, Act(RIGHT))
    assert provider.bodies[0]["stream"] is True


@both
def test_a_refused_key_stops_the_trajectory_and_is_on_no_record(model: str, tmp_path: Path) -> None:
    trajectory, provider = ask(model, Act(status=401), folder=tmp_path)
    assert (trajectory.stop, len(provider.bodies)) == (StopReason.PROVIDER_ERROR, 1)
    assert "AuthenticationError" in trajectory.stop_note
    assert read_run(tmp_path).faults()[0].boundary == "provider"
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert not any(KEY.encode() in path.read_bytes() for path in written)


@pytest.mark.parametrize("model", ["nobody/gpt", "gpt", "openai/gpt-4o"])
def test_an_unknown_provider_or_a_missing_key_is_an_error_before_anything_is_sent(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ProviderError, match=f"The model '{model}' cannot be used") as caught:
        inspect_model.open_model(model, plan_of(), None, 0)
    assert "key" in caught.value.remedy


def test_an_endpoint_that_nobody_listens_at_is_a_provider_error() -> None:
    plan = plan_of(turns=1)
    session = open_session(plan)
    opened = inspect_model.open_model(OPENAI, plan, "http://127.0.0.1:9/v1", retries=0)
    means = Means(inspect_model.InspectModel(plan, opened), WordEvaluator(), session.records)
    trajectory = asyncio.run(session.carry_on(plan.keys[0], means))
    assert trajectory.stop is StopReason.PROVIDER_ERROR
    assert "did not answer" in trajectory.stop_note
