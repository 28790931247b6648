"""The Blackwell GEMM of this repository: right and clean in all schedules, and what is found when a part is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.emulator.blackwell.gemm import GEMM, PAIR, built, multiply, ptx
from tests.emulator.blackwell.tiny import SCHEDULES

from ptxbench.emulator.launch import Executed
from ptxbench.evaluate.emulated_profile import operations


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("shape", "ctas"), [((128, 256, 256), 1), ((200, 512, 384), 2), ((256, 768, 512), 1)])
def test_the_product_is_right_and_nothing_is_found(shape: tuple[int, int, int], ctas: int, schedule: str) -> None:
    result, got, expected = multiply(ptx(), shape, ctas, schedule)
    assert not result.error
    assert not result.unsupported
    assert not result.findings
    assert (got == expected).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("shape", "pairs"), [((128, 256, 256), 1), ((200, 512, 384), 2), ((600, 512, 448), 2)])
def test_a_pair_of_ctas_is_right_and_nothing_is_found(shape: tuple[int, int, int], pairs: int, schedule: str) -> None:
    result, got, expected = multiply(ptx(PAIR), shape, 2 * pairs, schedule, cluster=2)
    assert not result.error
    assert not result.unsupported
    assert not result.findings
    assert (got == expected).all()


@pytest.mark.parametrize("path", [GEMM, PAIR], ids=lambda path: path.stem)
def test_it_compiles_without_spills(path: Path) -> None:
    (kernel,) = built(path).stage.kernels
    assert kernel.spill_store_bytes == kernel.spill_load_bytes == kernel.stack_bytes == 0


def test_its_operations_are_counted() -> None:
    result, _, _ = multiply(ptx(), (200, 256, 128), 1)
    lines = [each for each in result.counts if each.name.startswith("tcgen05.mma")]
    assert sum(operations(each, "TCGEN_MMA") or 0 for each in lines) == 2 * 256 * 256 * 128
    assert operations(Executed(1, lines[0].name, 1, 1, 5), "TCGEN_MMA") == 5


BROKEN = {
    "fence behind the wait": (r"tcgen05\.fence::after_thread_sync;", "tcgen05-fence"),
    "fence before the arrival": (r"tcgen05\.fence::before_thread_sync;", "tcgen05-fence"),
    "wait for loads": (r"tcgen05\.wait::ld\.sync\.aligned;", ""),
    "proxy fence before the store": (r"fence\.proxy\.async\.shared::cta;", "proxy-fence"),
    "free tensor memory": (r"tcgen05\.dealloc[^;]*;", "tensor-memory-leak"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_missing_is_found(name: str) -> None:
    pattern, rule = BROKEN[name]
    text, count = re.subn(pattern, "", ptx())
    assert count
    result, _, _ = multiply(text, (256, 512, 256), 1)
    assert result.findings
    assert not rule or rule in {each.rule for each in result.findings}
    assert all(each.location is not None for each in result.findings if each.line)


def test_an_accumulator_that_is_not_cleared_is_found() -> None:
    text = re.sub(r"setp\.ne\.b32 p, %r\d+, 0;", "setp.eq.b32 p, 0, 0;", ptx())
    result, _, _ = multiply(text, (128, 256, 128), 1)
    assert "never-written" in {each.rule for each in result.findings}


def test_a_stage_that_is_released_by_no_commit_is_a_deadlock() -> None:
    commit = r"tcgen05\.commit\.cta_group::1\.mbarrier::arrive::one\.shared::cluster\.b64 \[%r\d+\];"
    text = re.sub(commit, "", ptx(), count=1)
    result, _, _ = multiply(text, (128, 256, 512), 1)
    assert result.error.startswith("deadlock")


PAIRED = {
    "the peer's bit": (r"and\.b32\s+(%r\d+), (%r\d+), -167772\d\d;", r"mov.b32 \1, \2;", "deadlock"),
    "bytes of one CTA": (r"\b65536;", "32768;", ""),
    "arrival of the peer": (r"mapa\.shared::cluster\.u32 even, (%r\d+), 0;", r"mov.u32 even, \1;", "deadlock"),
    "the last barrier": (r"barrier\.cluster\.wait\.acquire\.aligned;(?![\s\S]*barrier\.cluster\.wait)", "", ""),
}


@pytest.mark.parametrize("name", PAIRED)
def test_what_a_pair_forgets_is_found(name: str) -> None:
    pattern, instead, rule = PAIRED[name]
    text, count = re.subn(pattern, instead, ptx(PAIR))
    assert count
    found = set()
    for schedule in ("late", "seed 1"):
        result, _, _ = multiply(text, (512, 512, 512), 2, schedule, cluster=2)
        found |= {each.rule for each in result.findings}
    assert found
    assert not rule or rule in found


@pytest.mark.parametrize("which", [0, 1, 3, 7])
def test_one_descriptor_with_another_swizzle_than_its_tile_is_found_whichever_it_is(which: int) -> None:
    lines = ptx().splitlines()
    place = [number for number, line in enumerate(lines) if "tcgen05.mma" in line][which]
    first = re.findall(r"%rd\d+", lines[place])[0]
    change = f"xor.b64 {first}, {first}, 0xC000000000000000;"  # 128 bytes become 64
    lines[place] = f"{change}\n{lines[place]}\n{change}"
    result, _, _ = multiply("\n".join(lines), (256, 512, 384), 1)
    assert {each.rule for each in result.findings} == {"layout-mismatch"}
