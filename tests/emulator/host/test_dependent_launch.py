"""Two kernels of one stream, launched by CUDA host code with programmatic stream serialization, on the emulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.emulator.host.conftest import Call

from ptxbench.emulator.device import Device
from ptxbench.emulator.host.record import Allocate
from ptxbench.emulator.launch import Policy
from ptxbench.emulator.ptx.parse import parse
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.values import Target
from ptxbench.settings import Settings
from ptxbench.toolchain.build import build


def test_a_kernel_that_may_begin_early_reads_old_data_unless_it_waits(call: Call, settings: Settings) -> None:
    made = call("dependent")
    assert made.ending.kind == "returned", made.ending
    assert [launch.programmatic for launch in made.launches] == [False, True, False, True]
    source = (Path(__file__).parent / "calls.cu").read_text()
    ptx = build(Candidate.from_source(source), Target.SM_90A, settings).ptx
    assert ptx is not None
    device = Device(parse(ptx.read_text()), {}, Policy())
    device.replay(made.operations)
    assert not device.refused
    own = [each.address for each in made.operations if isinstance(each, Allocate) and not each.symbol]
    left, right = (np.frombuffer(device.read(own[place], 256), np.float32) for place in (1, 3))
    assert (left == 0).all()  # without griddepcontrol.wait
    assert (right == 10 * np.arange(1, 65)).all()
    rules = [[each.rule for each in ran.result.findings] for ran in device.ran]
    assert rules == [[], ["dependent-launch"], [], []]
