"""Blocks end where control or waiting may change, and lanes meet again at immediate post-dominators."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.emulator.ptx.texts import COMPILED, compiled, kernel

from ptxbench.emulator.errors import PtxError
from ptxbench.emulator.ptx import cfg
from ptxbench.emulator.ptx.ir import Block, Function, Guard, Instruction, Register
from ptxbench.emulator.ptx.parse import parse

DECLARED = ".reg .pred p; .reg .b32 x; .reg .b64 d;\n"


def shape(body: str) -> list[tuple[list[str], tuple[int, ...]]]:
    return [
        ([each.opcode for each in block.instructions], block.successors) for block in kernel(DECLARED + body).blocks
    ]


def test_a_branch_around_falls_through_first() -> None:
    body = "mov.u32 x, 1;\n@p bra over;\nmov.u32 x, 2;\nover:\nret;"
    assert shape(body) == [(["mov", "bra"], (1, 2)), (["mov"], (2,)), (["ret"], ())]


def test_an_unguarded_branch_does_not_fall_through() -> None:
    assert shape("top:\nmov.u32 x, 1;\nbra top;\nret;") == [(["mov", "bra"], (0,)), (["ret"], ())]


def test_a_branch_without_a_label_is_refused_with_its_line() -> None:
    with pytest.raises(PtxError, match="`bra` names no label"):
        shape("mov.u32 x, 1;\nbra;\nret;")


def test_a_guarded_exit_falls_through() -> None:
    assert shape("@p exit;\nret;") == [(["exit"], (1,)), (["ret"], ())]


@pytest.mark.parametrize(
    "waiting",
    [
        "bar.sync 0;",
        "barrier.sync 1, 64;",
        "bar.warp.sync -1;",
        "barrier.cluster.wait;",
        "mbarrier.try_wait.b64 p, [d], d;",
        "mbarrier.test_wait.parity.b64 p, [d], x;",
        "wgmma.wait_group.sync.aligned 0;",
        "cp.async.wait_all;",
        "cp.async.bulk.wait_group.read 0;",
        "nanosleep.u32 20;",
        "setmaxnreg.dec.sync.aligned.u32 24;",
        "griddepcontrol.wait;",
        "tcgen05.wait::ld.sync.aligned;",
    ],
)
def test_a_block_ends_behind_what_may_wait(waiting: str) -> None:
    assert [len(opcodes) for opcodes, _ in shape(f"mov.u32 x, 1;\n{waiting}\nmov.u32 x, 2;\nret;")] == [2, 2]


@pytest.mark.parametrize(
    "going", ["bar.arrive 1, 64;", "barrier.cluster.arrive;", "cp.async.commit_group;", "membar.cta;"]
)
def test_a_block_goes_on_behind_what_does_not_wait(going: str) -> None:
    assert len(shape(f"mov.u32 x, 1;\n{going}\nret;")) == 1


def test_a_call_ends_a_block_and_returns_behind_it() -> None:
    function = kernel("call f;\nret;", before=".func f() { ret; }")
    assert [block.successors for block in function.blocks] == [(1,), ()]


def test_a_label_at_the_end_has_a_block() -> None:
    function = kernel(f"{DECLARED}@p bra end;\nmov.u32 x, 1;\nend:")
    assert [(block.labels, block.successors) for block in function.blocks] == [((), (1, 2)), ((), (2,)), (("end",), ())]


def test_an_empty_body_is_one_empty_block() -> None:
    assert kernel("").blocks == (Block(0, (), (), ()),)


@pytest.mark.parametrize("name", COMPILED)
def test_blocks_hold_all_instructions_in_order(name: str) -> None:
    for function in parse(compiled(name)).functions.values():
        indices = [each.index for block in function.blocks for each in block.instructions]
        assert indices == list(range(len(indices)))
        assert [block.index for block in function.blocks] == list(range(len(function.blocks)))


def test_lanes_meet_behind_an_if_and_behind_a_loop() -> None:
    branch = kernel(f"{DECLARED}@p bra other;\nmov.u32 x, 1;\nbra join;\nother:\nmov.u32 x, 2;\njoin:\nret;")
    assert cfg.reconvergence(branch) == (3, 3, 3, None)
    loop = kernel(f"{DECLARED}top:\nmov.u32 x, 1;\n@p bra top;\nret;")
    assert cfg.reconvergence(loop) == (1, None)


def test_an_endless_loop_meets_nowhere() -> None:
    endless = kernel(f"{DECLARED}@p bra out;\ntop:\nbra top;\nout:\nret;")
    assert cfg.reconvergence(endless) == (2, None, None)


def _by_sets(successors: Sequence[Sequence[int]], leaves: Sequence[bool]) -> list[int | None]:
    """Immediate post-dominators by the definition: iterated intersection of sets; the exit is the number of nodes."""
    count = len(successors)
    after = [[*each, *([count] if leaf or not each else [])] for each, leaf in zip(successors, leaves, strict=True)]
    reaches = {count}
    while True:
        more = {node for node in range(count) if any(target in reaches for target in after[node])} | reaches
        if more == reaches:
            break
        reaches = more
    sets = [set(range(count + 1)) for _ in range(count)] + [{count}]
    changed = True
    while changed:
        changed = False
        for node in range(count):
            targets = [sets[target] for target in after[node] if target in reaches]
            new = {node} | set.intersection(*targets) if targets else {node}
            changed, sets[node] = changed or new != sets[node], new
    found: list[int | None] = []
    for node in range(count):
        strict = sets[node] - {node} if node in reaches else set()
        nearest = next((each for each in strict if strict <= sets[each]), None)
        found.append(None if nearest in (None, count) else nearest)
    return found


def test_post_dominators_are_those_of_the_definition() -> None:
    random_ = random.Random(7)
    for _ in range(400):
        count = random_.randrange(1, 9)
        graph = [tuple(random_.sample(range(count), min(count, random_.randrange(0, 3)))) for _ in range(count)]
        leaves = [random_.random() < 0.15 for _ in range(count)]
        exit_ = Instruction("exit", (), (), Guard(Register("p", "pred", 0), False), 0, 1)
        blocks = tuple(
            Block(index, (), (exit_,) if leaf and targets else (), targets)
            for index, (targets, leaf) in enumerate(zip(graph, leaves, strict=True))
        )
        function = replace(Function("f", True, (), (), (), (), ()), blocks=blocks)
        assert list(cfg.reconvergence(function)) == _by_sets(graph, leaves), graph


def test_a_long_chain_of_branches_takes_linear_time() -> None:
    chain = "".join(f"@p bra l{number};\nmov.u32 x, 1;\nl{number}:\n" for number in range(20_000))
    function = kernel(f"{DECLARED}{chain}ret;")
    assert cfg.reconvergence(function)[0] == 2
