"""A run's folder is readable whenever the process died, and what is damaged is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxbench.errors import RecordError
from ptxbench.records.layout import RunFolder
from ptxbench.records.read import read_run
from ptxbench.records.write import RunStore, append_line
from ptxbench.schema.journal import Fault, JournalEntry
from ptxbench.schema.turn import Answer, Message, Run, RunPlan, SampleKey, Trajectory
from ptxbench.schema.values import Target

KEYS = tuple(
    SampleKey(problem="gemm", workload="12345678-abcd", target=Target.SM_90A, pack="base+rules", number=number)
    for number in range(3)
)


def run_of(keys: tuple[SampleKey, ...] = KEYS) -> Run:
    return Run(id="r", plan=RunPlan(model="replay/x", keys=keys), created=1.0)


def trajectory_of(key: SampleKey) -> Trajectory:
    message = Message(role="user", content="write")
    return Trajectory(key=key, model="m", device="emulator", problem_hash="p", prompt=(message,), created=2.0)


def entry_of(turn: int) -> JournalEntry:
    answer = Answer(text=f"answer {turn}\nsecond line")
    return JournalEntry(sample=KEYS[0].name, turn=turn, prompt_hash="h", answer=answer, created=3.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    store = RunStore(RunFolder(tmp_path / "run"))
    yield store
    store.close()


def test_what_is_written_is_read_back_in_the_plans_order(store: RunStore) -> None:
    store.save_run(run_of())
    for key in (KEYS[2], KEYS[0]):
        store.save(trajectory_of(key))
    stored = read_run(store.folder.root)
    assert stored.run == run_of()
    assert [each.key.number for each in stored.trajectories()] == [0, 2]


def test_an_answer_is_in_the_file_when_record_answer_returns(store: RunStore) -> None:
    store.record_answer(KEYS[0], entry_of(0))
    store.record_answer(KEYS[0], entry_of(1))
    assert store.answers(KEYS[0]) == (entry_of(0), entry_of(1))
    assert store.answers(KEYS[1]) == ()


def test_a_line_that_was_cut_off_by_a_crash_is_left_out_and_overwritten(store: RunStore) -> None:
    store.record_answer(KEYS[0], entry_of(0))
    path = store.folder.journal(KEYS[0])
    path.write_bytes(path.read_bytes() + entry_of(1).model_dump_json().encode()[:50])
    assert store.answers(KEYS[0]) == (entry_of(0),)
    store.record_answer(KEYS[0], entry_of(2))
    assert store.answers(KEYS[0]) == (entry_of(0), entry_of(2))


def test_a_damaged_line_within_the_journal_is_named(store: RunStore) -> None:
    store.record_answer(KEYS[0], entry_of(0))
    path = store.folder.journal(KEYS[0])
    path.write_bytes(b'{"sample": 1}\n' + path.read_bytes())
    with pytest.raises(RecordError, match=r"000\.jsonl, line 1, is damaged"):
        store.answers(KEYS[0])


def test_a_damaged_trajectory_is_named_and_the_others_are_still_read(store: RunStore) -> None:
    store.save_run(run_of())
    for key in KEYS:
        store.save(trajectory_of(key))
    store.folder.trajectory(KEYS[1]).write_text('{"key": ')
    read = read_run(store.folder.root).trajectories()
    assert next(read).key == KEYS[0]
    with pytest.raises(RecordError, match=r"001\.json is damaged") as caught:
        next(read)
    assert "journal" in caught.value.remedy


def test_a_trajectory_under_anothers_name_is_refused(store: RunStore) -> None:
    store.save_run(run_of())
    store.folder.trajectory(KEYS[0]).write_text(trajectory_of(KEYS[1]).model_dump_json())
    with pytest.raises(RecordError, match="holds the trajectory"):
        list(read_run(store.folder.root).trajectories())


def test_a_document_of_another_schema_says_which_was_expected(store: RunStore) -> None:
    document = json.loads(run_of().model_dump_json())
    store.folder.run.write_text(json.dumps(document | {"new_field": 1}))
    with pytest.raises(RecordError, match=r"new_field.*schema 1\.0"):
        read_run(store.folder.root)


@pytest.mark.parametrize("name", ["nothing", "."])
def test_what_is_no_run_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(RecordError, match="no run"):
        read_run(tmp_path / name)


def test_a_folder_is_written_by_one_process_at_a_time(store: RunStore) -> None:
    with pytest.raises(RecordError, match="Another process"):
        RunStore(store.folder)


def test_a_sample_whose_name_would_leave_the_folder_is_refused(store: RunStore) -> None:
    key = KEYS[0].model_copy(update={"problem": "../gemm"})
    with pytest.raises(RecordError, match="cannot be the name of a file"):
        store.save(trajectory_of(key))


def test_faults_are_kept_apart_from_conversations(store: RunStore) -> None:
    fault = Fault(sample="s", turn=1, boundary="evaluator", error="DeviceError", message="gone", created=1.0)
    store.save_run(run_of())
    store.record_fault(fault)
    assert read_run(store.folder.root).faults() == (fault,)


def test_a_file_that_cannot_be_written_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot be written"):
        append_line(tmp_path / "file" / "journal.jsonl", entry_of(0))
