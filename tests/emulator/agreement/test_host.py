"""What the stub runtime tells host code against what an H200's runtime told the same code."""

from __future__ import annotations

import re

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

CALLS = (answers.load("host") or {"calls": {}})["calls"]
CODES = ROOT / "tests" / "emulator" / "agreement" / "codes.cu"
LISTS = sorted(set(re.findall(r"_FUNC\((\w+)", CODES.read_text())))
X = TensorArgument(address=0x7000_0000_0100, shape=(4096,), dtype=DType.FLOAT32)


@pytest.mark.parametrize("name", LISTS)
def test_refused_calls_return_the_devices_codes(name: str) -> None:
    """Each function raises an error that lists what its calls returned."""
    built = build(Candidate.from_source(CODES.read_text()), Target.SM_90A, Settings.load())
    assert built.library is not None, built.stage.log
    told = record(built.library, name, [X], Settings.load()).ending.message.partition("codes: ")[2].split()
    assert told
    there = CALLS.get(name, {"raised": ""})["raised"].partition("codes: ")[2].split()
    if there:  # not recorded, or the device's runtime broke down
        assert told == there
