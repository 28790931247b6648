"""What the stub runtime tells host code against what an H200's runtime told the same code."""

from __future__ import annotations

import pytest
from tests.emulator.agreement import answers
from tests.emulator.agreement.cases import ROOT

from ptxbench.emulator.host.process import record
from ptxbench.emulator.host.record import TensorArgument
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.problem import DType
from ptxbench.schema.values import Target
from ptxbench.settings import Settings
from ptxbench.toolchain.build import build

DOCUMENT = answers.load("host")
CALLS = ROOT / "tests" / "emulator" / "host" / "calls.cu"
X = TensorArgument(address=0x7000_0000_0100, shape=(4096,), dtype=DType.FLOAT32)


@pytest.mark.parametrize("name", sorted((DOCUMENT or {"calls": {"queries": {}}})["calls"]))
def test_host_code_is_told_what_the_device_told_it(name: str) -> None:
    """The functions of calls.cu raise an error that quotes the first condition that does not hold."""
    built = build(Candidate.from_source(CALLS.read_text()), Target.SM_90A, Settings.load())
    assert built.library is not None
    told = record(built.library, name, [X], Settings.load())
    if DOCUMENT is not None:
        there = DOCUMENT["calls"][name]["raised"]
        assert (told.ending.kind == "returned") == (there == ""), (told.ending, there)
