"""Exported runs are read by the tools that the formats belong to."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.report.making import make_run

from ptxbench.records.read import read_run
from ptxbench.report.export import export

PROBLEM = "gemm_n7168_k5120"


class AnyModule(ModuleType):
    """Stands for torch, which the reader's neighbours import and reading files does not need."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return AnyModule(name)

    def __call__(self) -> None:
        """What can be called may stand in an annotation."""


@pytest.fixture(scope="module")
def flashinfer_data() -> Iterator[Any]:
    """The data layer of flashinfer-bench, without its `__init__`, which imports what only running kernels needs."""
    spec = find_spec("flashinfer_bench")
    assert spec is not None
    bare = ModuleType("flashinfer_bench")
    bare.__path__ = list(spec.submodule_search_locations or [])
    before = dict(sys.modules)
    sys.modules |= {"flashinfer_bench": bare, "torch": AnyModule("torch")}
    yield importlib.import_module("flashinfer_bench.data")
    for name in set(sys.modules) - set(before):
        if name.split(".")[0] in ("flashinfer_bench", "torch"):
            del sys.modules[name]


@pytest.fixture
def inspector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The inspector of mini-swe-agent, which keeps its settings in a folder of the test's."""
    monkeypatch.setenv("MSWEA_GLOBAL_CONFIG_DIR", str(tmp_path / "settings"))
    monkeypatch.setenv("MSWEA_SILENT_STARTUP", "1")
    return importlib.import_module("minisweagent.run.utilities.inspector")


def test_flashinfer_bench_reads_the_data_set(tmp_path: Path, flashinfer_data: Any) -> None:
    run = make_run(tmp_path / "run", "broken", "fast 1.1 own work")
    export([read_run(run)], "traces", tmp_path / "set")
    found = flashinfer_data.TraceSet.from_path(str(tmp_path / "set"))
    assert list(found.definitions) == [PROBLEM]
    statuses = [trace.evaluation.status.value for trace in found.traces[PROBLEM]]
    assert sorted(statuses) == ["COMPILE_ERROR", "PASSED"]
    assert {trace.solution for trace in found.traces[PROBLEM]} == {each.name for each in found.solutions[PROBLEM]}


def test_mini_swe_agents_inspector_finds_a_step_for_every_answer(tmp_path: Path, inspector: Any) -> None:
    run = make_run(tmp_path / "run", "broken", "wrong", "own work")
    for path in export([read_run(run)], "mini-swe-agent", tmp_path / "out"):
        steps = inspector._messages_to_steps(json.loads(path.read_text())["messages"])
        assert [message["role"] for message in steps[0]] == ["system", "user"]
        assert [step[0]["role"] for step in steps[1:]] == ["assistant"] * 3
        assert [message["role"] for message in steps[-1]] == ["assistant", "user", "exit"]
