"""Programmatic dependent launch: two kernels of one stream; the second may begin before the first has ended."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ptxbench.emulator.device import ARGUMENTS, Device
from ptxbench.emulator.host.record import Blob, Fill, Launch, Order
from ptxbench.emulator.launch import Policy
from ptxbench.emulator.machine.memory import BASE
from ptxbench.emulator.ptx.parse import parse

CTAS, THREADS = 4, 64
COUNT = CTAS * THREADS
MIDDLE, OUT = BASE + 4096, BASE + 65536
TEXT = """.version 9.0
.target sm_90a
.address_size 64
.visible .entry first(.param .u64 to) {{
.reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p<3>;
ld.param.u64 %d1, [to]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, {threads}, %r1;
mad.wide.u32 %d2, %r3, 4, %d1; add.u32 %r4, %r3, 1;
{first}
ret;
}}
.visible .entry second(.param .u64 of, .param .u64 to) {{
.reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p<3>; .shared .align 4 .b8 there[{bytes}];
ld.param.u64 %d1, [of]; ld.param.u64 %d3, [to]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
mad.lo.u32 %r3, %r2, {threads}, %r1; mad.wide.u32 %d2, %r3, 4, %d1; mad.wide.u32 %d4, %r3, 4, %d3;
setp.eq.u32 %p1, %r1, 0; mov.u32 %r5, 0;
{second}
ret;
}}
"""
TRIGGER, WAIT = "griddepcontrol.launch_dependents;\n", "griddepcontrol.wait;\n"
WRITE = "st.global.u32 [%d2], %r4;\n"
READ, ANSWER = "ld.global.u32 %r5, [%d2];\n", "st.global.u32 [%d4], %r5;\n"
RIGHT = np.arange(1, COUNT + 1, dtype=np.uint32)


def _launch(kernel: str, *addresses: int, programmatic: bool = False, stream: int = 0) -> Launch:
    return Launch(
        kernel=kernel,
        grid=(CTAS, 1, 1),
        block=(THREADS, 1, 1),
        cluster=(1, 1, 1),
        dynamic_shared=0,
        parameters=tuple(Blob(data=address.to_bytes(8, "little")) for address in addresses),
        stream=stream,
        programmatic=programmatic,
    )


FIRST, SECOND = _launch("first", MIDDLE), _launch("second", MIDDLE, OUT, programmatic=True)


class Both:
    """Both kernels, and what they left."""

    def __init__(self, first: str, second: str, *schedules: str) -> None:
        text = TEXT.format(threads=THREADS, bytes=4 * THREADS, first=first, second=second)
        self.device = Device(parse(text), {}, Policy(schedules or ("late",)))
        for address in (MIDDLE, OUT):
            self.device.memory.place(address, 4 * COUNT)

    def run(self, *operations: Launch | Fill | Order) -> NDArray[np.uint32]:
        """Carry out operations, by default both launches; the answer of the second kernel."""
        for each in operations or (FIRST, SECOND):
            assert self.device.perform(each) == 0, self.device.ran[-1].result
        return np.frombuffer(self.device.read(OUT, 4 * COUNT), np.uint32)

    @property
    def found(self) -> list[tuple[str, str]]:
        """Findings of the last kernel."""
        return [(each.rule, each.severity) for each in self.device.ran[-1].result.findings]


SCHEDULES = ("late", "eager", "seed 1", "seed 2")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_behind_the_wait_everything_is_there(schedule: str) -> None:
    both = Both(TRIGGER + WRITE, WAIT + READ + ANSWER, schedule)
    assert (both.run() == RIGHT).all()
    assert both.found == []


@pytest.mark.parametrize("trigger", [TRIGGER + WRITE, WRITE + TRIGGER])
def test_before_the_wait_the_old_data_may_be_there(trigger: str) -> None:
    """Not even what was written before launch_dependents is visible without the wait."""
    both = Both(trigger, READ + WAIT + ANSWER, "late", "eager")
    assert (both.run() == 0).all()
    assert both.found == [("schedule-dependent", "warning")]
    assert (np.frombuffer(both.device.read(MIDDLE, 4 * COUNT), np.uint32) == RIGHT).all()


def test_without_a_wait_the_old_data_may_be_there_and_it_is_said() -> None:
    both = Both(TRIGGER + WRITE, READ + ANSWER)
    assert (both.run() == 0).all()
    assert both.found == [("dependent-launch", "warning")]


def test_a_wait_of_one_thread_and_a_barrier_are_enough_for_its_block() -> None:
    both = Both(TRIGGER + WRITE, f"@%p1 {WAIT}bar.sync 0;\n" + READ + ANSWER)
    assert (both.run() == RIGHT).all()
    assert both.found == []


def test_a_block_that_relies_on_another_blocks_wait_may_read_old_data() -> None:
    both = Both(TRIGGER + WRITE, "setp.eq.u32 %p2, %r2, 0;\n@%p2 " + WAIT + READ + ANSWER)
    answer = both.run().reshape(CTAS, THREADS)
    assert (answer[0] == RIGHT[:THREADS]).all()
    assert (answer[1:] == 0).all()


def test_a_kernel_that_polls_what_the_one_in_front_writes_comes_to_its_end() -> None:
    both = Both(
        TRIGGER + WRITE, "again: ld.volatile.global.u32 %r5, [%d2]; setp.eq.u32 %p2, %r5, 0; @%p2 bra again;\n" + ANSWER
    )
    assert (both.run() == RIGHT).all()


def test_what_both_write_without_a_wait_is_an_error() -> None:
    both = Both(TRIGGER + WRITE, "st.global.u32 [%d2], %r3;\n" + WAIT + READ + ANSWER)
    both.run()
    assert both.found == [("dependent-launch", "error")]


@pytest.mark.parametrize(
    ("first", "launches"),
    [
        (WRITE, (FIRST, SECOND)),
        (TRIGGER + WRITE, (FIRST, SECOND.model_copy(update={"programmatic": False}))),
        (TRIGGER + WRITE, (FIRST, SECOND.model_copy(update={"stream": 7}))),
        (f"setp.lt.u32 %p1, %r1, 0;\n@%p1 {TRIGGER}{WRITE}", (FIRST, SECOND)),
    ],
    ids=["no trigger", "no attribute", "another stream", "a trigger that nobody executes"],
)
def test_a_kernel_that_must_not_begin_early_sees_everything(first: str, launches: tuple[Launch, ...]) -> None:
    both = Both(first, READ + ANSWER)
    assert (both.run(*launches) == RIGHT).all()
    assert both.found == []


def test_what_lies_between_two_launches_ends_the_first() -> None:
    fill = Fill(address=BASE + ARGUMENTS, value=0, element_bytes=1, width=4, height=1, pitch=0, stream=0)
    both = Both(TRIGGER + WRITE, READ + ANSWER)
    both.device.memory.place(fill.address, 4)
    assert (both.run(FIRST, fill, SECOND) == RIGHT).all()


def test_a_third_kernel_waits_for_the_second_alone() -> None:
    both = Both(TRIGGER + WRITE, WAIT + READ + TRIGGER + ANSWER)
    third = _launch("second", OUT, MIDDLE, programmatic=True)
    assert (both.run(FIRST, SECOND, third) == RIGHT).all()
    assert both.found == []
