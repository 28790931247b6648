"""A run as a task of Inspect AI: its log holds the trajectories, it is resumed, and no key is in any file."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from tests.agent.fake_provider import KEY, Act, FakeProvider, serving
from tests.agent.scripted import WordEvaluator, open_session, plan_of, said, words

from ptxbench.agent import inspect_model, inspect_task
from ptxbench.errors import PtxbenchError
from ptxbench.records.read import read_run
from ptxbench.schema.turn import RunPlan, StopReason

MODEL = "openai/gpt-4o"
RIGHT, WRONG = said("right").text, said("wrong").text


def run(plan: RunPlan, provider: FakeProvider, folder: Path) -> list[PtxbenchError]:
    session = open_session(plan, folder)
    faults: list[PtxbenchError] = []
    try:
        model = inspect_model.open_model(MODEL, plan, f"{provider.url}/v1", retries=0)
        made = inspect_task.make_task(session, WordEvaluator(), lambda trajectory: None, faults.append)
        inspect_task.run_task(made, model, folder / "logs", parallel=2)
    finally:
        session.close()
    return faults


def key_is_in(folder: Path) -> bool:
    """Whether any file holds the key, archives unpacked and colours taken off."""
    found = []
    for path in folder.rglob("*"):
        if path.suffix == ".eval":
            with zipfile.ZipFile(path) as archive:
                found += [archive.read(name) for name in archive.namelist()]
        elif path.is_file():
            found.append(path.read_bytes())
    assert len(found) > 4
    return any(KEY.encode() in re.sub(rb"\\u001b\[[0-9;]*m", b"", content) for content in found)


def test_a_run_through_inspect_is_logged_resumed_and_holds_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    plan = plan_of(model=MODEL, trajectories=2, turns=2)
    with serving(Act(WRONG), Act(WRONG), Act(status=401)) as provider:
        assert run(plan, provider, tmp_path) == []
    stopped = list(read_run(tmp_path).trajectories())
    assert [(each.stop, words(each)) for each in stopped] == [(StopReason.PROVIDER_ERROR, ["failed"])] * 2
    assert not key_is_in(tmp_path)

    with serving(Act(RIGHT)) as provider:
        run(plan, provider, tmp_path)
    assert len(provider.bodies) == 2
    ended = list(read_run(tmp_path).trajectories())
    assert [(each.stop, words(each)) for each in ended] == [(StopReason.TURN_LIMIT, ["failed", "passed"])] * 2
    assert not key_is_in(tmp_path)

    log = max((tmp_path / "logs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    logged = read_run(log)
    assert logged.run == read_run(tmp_path).run
    assert sorted(logged.trajectories(), key=lambda each: each.key.number) == ended
