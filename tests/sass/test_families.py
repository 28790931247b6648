"""Opcode families: which opcode belongs to which, on real listings and under any modifiers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.sass.families import count, family_of, table, total
from ptxbench.schema.values import Target
from ptxbench.suite import load_problem, problem_names
from ptxbench.toolchain.disassemble import KernelCode, SassLine

DATA = Path(__file__).parent.parent / "data" / "sass"

HOPPER = {
    "GMMA": ("HGMMA", "QGMMA", "IGMMA", "BGMMA"),
    "TMA": ("UTMALDG", "UTMASTG", "UTMAREDG"),
    "OTHER_MMA": ("HMMA", "IMMA", "BMMA", "DMMA"),
}
BLACKWELL = {
    "TCGEN_MMA": ("UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA"),
    "TCGEN_CONTROL": ("UTCBAR", "UTCATOMSWS", "UTCCP", "UTCSHIFT"),
    "TMEM": ("LDTM", "STTM"),
    "TMA": ("UTMALDG", "UTMASTG", "UTMAREDG"),
    "OTHER_MMA": ("HMMA", "IMMA", "BMMA", "DMMA"),
}
KNOWN = [
    (target, family, base)
    for target, families in ((Target.SM_90A, HOPPER), (Target.SM_100A, BLACKWELL))
    for family, bases in families.items()
    for base in bases
]
MODIFIERS = st.lists(st.from_regex(r"[A-Z0-9][A-Za-z0-9_]{0,7}", fullmatch=True), max_size=4)


def listed(name: str) -> tuple[KernelCode, ...]:
    """Kernels of a stored listing."""
    kernels: dict[str, list[SassLine]] = {}
    for row in (DATA / name).read_text().splitlines():
        kernel, address, predicate, opcode = row.split()
        line = SassLine(int(address, 16), opcode, predicate.removeprefix("-"), row)
        kernels.setdefault(kernel, []).append(line)
    return tuple(KernelCode(kernel, tuple(lines)) for kernel, lines in kernels.items())


@given(known=st.sampled_from(KNOWN), modifiers=MODIFIERS)
def test_modifiers_never_change_the_family(known: tuple[Target, str, str], modifiers: list[str]) -> None:
    target, family, base = known
    assert family_of(".".join([base, *modifiers]), target) == family


@given(opcode=st.from_regex(r"[A-Z][A-Z0-9]{1,9}(\.[A-Z0-9]{1,6}){0,3}", fullmatch=True))
def test_an_opcode_is_of_a_family_only_by_the_rules_of_the_published_tag(opcode: str) -> None:
    base = opcode.partition(".")[0]
    expected = "GMMA" in base or base in ("UTMALDG", "UTMASTG", "UTMAREDG")
    assert (family_of(opcode, Target.SM_90A) in ("GMMA", "TMA")) == expected
    expected = base.startswith("UTC") or base in ("LDTM", "STTM")
    assert (family_of(opcode, Target.SM_100A) in ("TCGEN_MMA", "TCGEN_CONTROL", "TMEM")) == expected


@pytest.mark.parametrize(
    "opcode",
    ["UTMAPF.L2.2D", "UTMACMDFLUSH", "UTMACCTL.IV", "UBLKCP.S.G", "WARPGROUP.ARRIVE", "SYNCS.EXCH.64", "LDGSTS.E",
     "HFMA2.MMA", "LDT", "STTMX", "hgmma", ""],
)  # fmt: skip
@pytest.mark.parametrize("target", list(Target))
def test_neighbours_of_the_families_do_not_count(opcode: str, target: Target) -> None:
    assert family_of(opcode, target) is None


def test_wgmma_is_no_family_of_blackwell_and_tcgen05_none_of_hopper() -> None:
    assert family_of("HGMMA.64x256x16.F32.BF16", Target.SM_100A) is None
    assert family_of("UTCHMMA.2CTA", Target.SM_90A) is None


def test_real_hopper_code_has_the_families_that_its_source_names() -> None:
    families = {kernel.name: kernel.families for kernel in count(listed("hopper.sm_90a.txt"), Target.SM_90A)}
    assert families.pop("tma") == {"TMA": 3}
    assert set(map(str, families.values())) == {"{'GMMA': 1}"}
    assert len(families) == 8


def test_real_blackwell_code_has_the_families_that_its_source_names() -> None:
    families = {kernel.name: kernel.families for kernel in count(listed("blackwell.sm_100a.txt"), Target.SM_100A)}
    assert families.pop("tma") == {"TMA": 2}
    assert families.pop("tensor_memory") == {"TCGEN_CONTROL": 6, "TMEM": 2}
    kinds = ("f16", "tf32", "f8f6f4", "i8", "mxf4", "f16_pair")
    assert families == {f"mma_{kind}": {"TCGEN_MMA": 1} for kind in kinds}


@pytest.mark.parametrize("target", list(Target))
def test_portable_tensor_core_code_has_no_family_of_its_target(target: Target) -> None:
    kernels = count(listed(f"portable.{target.value}.txt"), target)
    assert set(total(kernels)) == {"OTHER_MMA"}
    plain = next(kernel for kernel in kernels if kernel.name == "plain")
    assert plain.families == {}
    assert plain.instructions > 5


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["HGMMA.64x8x16.F32", "UTMALDG.2D", "BRA", "HMMA.16816"]),
            st.sampled_from(["", "@!P0", "@UP1"]),
        )
    )
)
def test_static_counts_count_lines_whatever_their_predicate(rows: list[tuple[str, str]]) -> None:
    lines = tuple(SassLine(16 * i, opcode, predicate, "") for i, (opcode, predicate) in enumerate(rows))
    (kernel,) = count([KernelCode("k", lines)], Target.SM_90A)
    assert kernel.instructions == len(rows)
    assert sum(kernel.families.values()) == sum(opcode != "BRA" for opcode, _ in rows)
    assert kernel.families.get("GMMA", 0) == sum(opcode.startswith("HGMMA") for opcode, _ in rows)


@pytest.mark.parametrize("name", problem_names())
@pytest.mark.parametrize("target", list(Target))
def test_every_problem_of_the_suite_asks_for_families_that_exist(name: str, target: Target) -> None:
    problem = load_problem(name)
    asked = {*problem.families[target], *problem.work_families[target].mma, *problem.work_families[target].tma}
    assert asked <= set(table(target).names) - {table(target).portable}
