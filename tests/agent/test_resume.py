"""A run that was killed or interrupted at any moment is readable, goes on where it was, and pays nothing twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.agent.scripted import ScriptedModel, WordEvaluator, open_session, plan_of, said, words

from ptxbench.agent.ask import Request
from ptxbench.agent.session import carry_all_on
from ptxbench.records.read import read_run
from ptxbench.schema.turn import Answer, RunPlan, StopReason, Trajectory

PLAN = plan_of(turns=8, target_speedup=0)


@pytest.fixture(autouse=True)
def _a_terminal_can_interrupt() -> Iterator[None]:
    """A shell starts what runs in its background with SIGINT ignored; here it arrives, wherever the tests run."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class PaidModel:
    """Writes every request that it is paid for into a file that outlives its process."""

    def __init__(self, bill: Path) -> None:
        self.bill = bill

    async def __call__(self, request: Request) -> Answer:
        with self.bill.open("a", encoding="utf-8") as file:
            file.write(f"{request.key.name} {request.turn}\n")
        return said(f"wrong at turn {request.turn}")


def run(plan: RunPlan, folder: Path, before_evaluation: Callable[[int], None] = lambda turn: None) -> None:
    session = open_session(plan, folder)
    turns: Counter[str] = Counter({key.name: len(session.begun(key).turns) for key in plan.keys})

    def before() -> None:
        (name,) = turns
        before_evaluation(turns[name])
        turns[name] += 1

    model = PaidModel(folder.parent / "bill.txt")
    asyncio.run(carry_all_on(session, model, WordEvaluator(before=before), 1, lambda trajectory: None))
    session.close()


def in_a_process_of_its_own(work: Callable[[], None]) -> int:
    """What a process that does this work ends with: its exit code, or minus the signal that killed it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def only(folder: Path) -> Trajectory:
    (trajectory,) = read_run(folder).trajectories()
    return trajectory


def test_killed_ten_times_at_turn_6_of_8_no_request_is_paid_twice(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def die(turn: int) -> None:
        if turn == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    for _ in range(10):
        assert in_a_process_of_its_own(lambda: run(PLAN, folder, die)) == -signal.SIGKILL
        left = only(folder)
        assert (left.stop, words(left)) == (None, ["failed"] * 5)
    run(PLAN, folder)
    ended = only(folder)
    assert (ended.stop, words(ended)) == (StopReason.TURN_LIMIT, ["failed"] * 8)
    bill = (tmp_path / "bill.txt").read_text().splitlines()
    assert bill == [f"{ended.key.name} {turn}" for turn in range(8)]


def test_killed_at_every_file_operation_a_run_is_readable_and_pays_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    plan = plan_of(turns=2, target_speedup=0)
    synced = os.fsync
    kills = 0

    def killed_at(last: int) -> Callable[[int], None]:
        calls = iter(range(last + 1))

        def fsync(file: int) -> None:
            if next(calls) == last:
                os.kill(os.getpid(), signal.SIGKILL)
            synced(file)

        return fsync

    for last in range(3):
        monkeypatch.setattr(os, "fsync", killed_at(last))
        kills += in_a_process_of_its_own(lambda: run(plan, folder)) == -signal.SIGKILL
        monkeypatch.setattr(os, "fsync", synced)
        if (folder / "run.json").is_file():
            list(read_run(folder).trajectories())
    run(plan, folder)
    assert kills == 3
    assert words(only(folder)) == ["failed", "failed"]
    # An answer whose line was not yet safe is asked for again; none that was.
    bill = Counter((tmp_path / "bill.txt").read_text().splitlines())
    assert len(bill) == 2
    assert sum(bill.values()) <= 2 + 1


def test_an_interrupt_leaves_a_readable_run_that_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def interrupt(turn: int) -> None:
        if turn == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(PLAN, folder, interrupt)
    left = only(folder)
    assert left.stop is StopReason.INTERRUPTED
    assert 2 <= len(left.turns) <= 3
    run(PLAN, folder)
    assert words(only(folder)) == ["failed"] * 8
    assert len((tmp_path / "bill.txt").read_text().splitlines()) == 8


def test_a_run_that_has_ended_asks_nobody(tmp_path: Path) -> None:
    run(PLAN, tmp_path / "run")
    session = open_session(PLAN, tmp_path / "run")
    assert session.open_keys() == ()
    model = ScriptedModel(said("right"))
    asyncio.run(carry_all_on(session, model, WordEvaluator(), 1, lambda trajectory: None))
    session.close()
    assert model.requests == []


def test_what_was_spent_before_counts_for_the_cost_limit(tmp_path: Path) -> None:
    plan = plan_of(turns=8, target_speedup=0, cost_limit=0.04)
    with pytest.raises(KeyboardInterrupt):
        run(plan, tmp_path / "run", lambda turn: signal.raise_signal(signal.SIGINT) if turn == 2 else None)
    run(plan, tmp_path / "run")
    ended = only(tmp_path / "run")
    assert (ended.stop, len(ended.turns)) == (StopReason.COST_LIMIT, 4)
