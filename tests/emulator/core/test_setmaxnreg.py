"""`setmaxnreg` of kernels whose directives do not say how many registers a thread has: `ptxas` leaves it out."""

from __future__ import annotations

import pytest

from ptxbench.emulator.device import Device
from ptxbench.emulator.host.kernels import KernelInfo
from ptxbench.emulator.host.record import Launch
from ptxbench.emulator.launch import Policy
from ptxbench.emulator.ptx.parse import parse

TEXT = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry k() {directives} {{
.reg .pred p; .reg .b32 r;
mov.u32 r, %tid.x; setp.lt.u32 p, r, 128; @p bra LOW;
setmaxnreg.inc.sync.aligned.u32 232; bra DONE;
LOW: setmaxnreg.dec.sync.aligned.u32 40;
DONE: bar.sync 0; ret;
}}
"""
KNOWN = (".maxntid 384 .minnctapersm 1", ".reqntid 384 .minnctapersm 1", ".maxnreg 154")
UNKNOWN = ("", ".maxntid 384", ".reqntid 384", ".minnctapersm 1")


def _error(directives: str) -> str:
    """384 threads with 154 registers want 40 + 2 * 232 = 504 of 3 * 154 = 462."""
    info = KernelInfo("k", (), 0, 154)
    device = Device(parse(TEXT.format(directives=directives)), {"k": info}, Policy())
    one = (1, 1, 1)
    device.perform(
        Launch(kernel="k", grid=one, block=(384, 1, 1), cluster=one, dynamic_shared=0, parameters=(), stream=0)
    )
    return device.ran[0].result.error.split(" ")[0]


@pytest.mark.parametrize("directives", KNOWN)
def test_an_increase_beyond_the_launch_hangs_where_the_launch_is_known(directives: str) -> None:
    assert _error(directives) == "deadlock"


@pytest.mark.parametrize("directives", UNKNOWN)
def test_without_the_directives_it_has_no_effect(directives: str) -> None:
    assert _error(directives) == ""
