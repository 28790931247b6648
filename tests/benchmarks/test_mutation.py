"""The mutation operators, as pure functions; the sample and its labels; three mutants on the emulator."""

from __future__ import annotations

from collections import Counter

import pytest
from benchmarks.mutants import labels, operators
from benchmarks.mutants.emulated import emulate
from benchmarks.mutants.kernels import KERNELS
from benchmarks.mutants.operators import IN_TEXT, Mutant, applied, in_maps
from benchmarks.mutants.results import share, wilson
from benchmarks.mutants.sample import EACH, Site, draw, located

from ptxbench.emulator.ptx.parse import parse
from ptxbench.schema.values import Target

TEXT = """\
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, 1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 1;
@%p1 bra $L_7;
mbarrier.arrive.shared::cta.b64 _, [%r1];
$L_7:
mbarrier.init.shared::cta.b64 [%r2], %r3;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], %r5;
again:
mbarrier.try_wait.parity.shared::cta.b64 done, [%r6], %r7;
@!done bra again;
fence.proxy.async.shared::cta;
bar.sync 1, 128;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r8}, [%r9];
tcgen05.mma.cta_group::1.kind::f16 [%r10], %rd3, %rd4, %r11, p;
tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r12], %rs1;
"""
EDITS = {
    "drop-fence": {(1, ""), (13, "")},
    "late-fence": {(1, ""), (13, "")},
    "drop-arrive": {(6, ""), (9, "")},
    "twice-arrive": {(6, "mbarrier.arrive.shared::cta.b64 _, [%r1]; mbarrier.arrive.shared::cta.b64 _, [%r1];")},
    "drop-wait": {(4, "")},
    "drop-mbarrier-wait": {(12, "")},
    "wait-depth": {(4, "wgmma.wait_group.sync.aligned 2;")},
    "drop-commit": {(3, ""), (17, "")},
    "early-release": {(4, ""), (7, "$L_7: wgmma.wait_group.sync.aligned 1;")},
    "drop-barrier": {(14, "")},
    "count": {(14, "bar.sync 1, 160;"), (14, "bar.sync 1, 96;")},
    "accumulate": set(),
}
SHAPES = [each.shape for each in KERNELS["ring"].problem().maps()]


def edits(operator: str) -> set[tuple[int, str]]:
    return {edit for mutant in IN_TEXT[operator](TEXT.splitlines()) for edit in mutant.edits}


@pytest.mark.parametrize("operator", EDITS)
def test_an_operator_changes_the_lines_that_it_is_for(operator: str) -> None:
    assert EDITS[operator] <= edits(operator)


@pytest.mark.parametrize("operator", IN_TEXT)
def test_a_mutant_keeps_the_number_of_lines_and_changes_few(operator: str) -> None:
    for mutant in IN_TEXT[operator](TEXT.splitlines()):
        changed = applied(TEXT, mutant).splitlines()
        assert len(changed) == len(TEXT.splitlines())
        assert 1 <= sum(old != new for old, new in zip(TEXT.splitlines(), changed, strict=True)) <= 2


def test_a_moved_fence_stands_behind_the_next_instruction_that_has_an_effect() -> None:
    assert (14, "bar.sync 1, 128; fence.proxy.async.shared::cta;") in edits("late-fence")


def test_numbers_are_changed_by_an_instruction_of_their_own() -> None:
    assert "xor.b32 mutant, %r7, 1" in next(text for line, text in edits("parity") if line == 11)
    assert any("add.s32 mutant, %r5, 16" in text for line, text in edits("bytes") if line == 9)
    assert any("xor.b32 mutant, %r11, 67108864" in text for line, text in edits("instruction-descriptor"))
    assert any("add.s32 mutant, %r9, 2097152" in text for line, text in edits("tensor-address"))
    assert any("mov.b16 mutant, 2" in text for line, text in edits("cluster-target"))


@pytest.mark.parametrize("operator", operators.FIELDS)
def test_descriptors_of_both_operands_are_changed(operator: str) -> None:
    found = Counter(mutant.line for mutant in IN_TEXT[operator](TEXT.splitlines()))
    assert found == Counter({2: 2 * len(operators.FIELDS[operator]), 16: 2 * len(operators.FIELDS[operator])})


def test_tensor_maps_are_changed_in_one_field_each() -> None:
    found = list(in_maps(SHAPES))
    assert Counter(each.operator for each in found) == {"swizzle": 4, "stride": 4, "box": 4}
    assert all(each.shape != SHAPES[each.map] for each in found)


@pytest.fixture(scope="module")
def ring() -> list[Mutant]:
    text = KERNELS["ring"].ptx()
    return operators.mutants(text, SHAPES, frozenset(range(len(text.splitlines()) + 1)))


def test_the_sample_is_the_same_each_time_and_has_every_kind(ring: list[Mutant]) -> None:
    found = {name: ring if name == "ring" else [] for name in KERNELS}
    sample = draw(found, Target.SM_90A)
    assert [each.name for each in sample] == [each.name for each in draw(found, Target.SM_90A)]
    for operator in {each.operator for each in ring}:
        kinds = {each.kind for each in ring if each.operator == operator}
        assert {each.mutant.kind for each in sample if each.mutant.operator == operator} == kinds
    assert max(Counter(each.mutant.operator for each in sample).values()) >= EACH


def test_every_mutant_has_a_label_with_a_rule_and_a_reason(ring: list[Mutant]) -> None:
    found = [labels.label(located(KERNELS["ring"], each)) for each in ring]
    assert all(each.rule and each.why for each in found)
    assert {each.real for each in found} == {True, False}


def test_every_mutant_is_ptx(ring: list[Mutant]) -> None:
    text = KERNELS["ring"].ptx()
    firsts = {each.operator: each for each in ring if each.edits}
    for mutant in firsts.values():
        parse(applied(text, mutant))


@pytest.mark.parametrize("operator", ["drop-mbarrier-wait", "bytes", "drop-commit"])
def test_a_mutant_that_is_a_bug_is_flagged(operator: str, ring: list[Mutant]) -> None:
    kernel = KERNELS["ring"]
    site = next(located(kernel, each) for each in ring if each.operator == operator)
    assert labels.label(site).real
    seen = emulate(applied(kernel.ptx(), site.mutant), kernel.problem(), ("late",))
    assert seen.errors


def test_a_store_beyond_its_array_is_out_of_bounds_where_races_are_looked_for_too() -> None:
    kernel, problem = KERNELS["cluster"], KERNELS["cluster"].problem()
    shapes = [each.shape for each in problem.maps()]
    wider = next(each for each in in_maps(shapes) if each.what == "map 2: stride 0 +16 bytes")
    assert wider.shape is not None
    seen = emulate(kernel.ptx(), problem.with_map(2, wider.shape), ("late",))
    assert seen.errors[0].startswith("out-of-bounds")


def test_an_answer_about_a_share_has_wilsons_interval() -> None:
    low, high = wilson(9, 10)
    assert (round(low, 3), round(high, 3)) == (0.596, 0.982)  # by hand from the formula
    answers = [{"answers": {"emulator": {"flagged": level}}} for level in ("error", "warning", "no", "unknown")]
    assert share(answers, "emulator").startswith("2 of 4 (50.0 %")
    assert share(answers, "emulator", ("error",)).startswith("1 of 4 (25.0 %")
    assert share([*answers, {"answers": {}}], "emulator") == "not measured"


def test_a_site_is_named_by_its_place_and_its_change() -> None:
    assert (
        Site("ring", Mutant("box", 0, "map 1: box 0 32 for 64", map=1)).name == "ring:box:map1:map 1: box 0 32 for 64"
    )
