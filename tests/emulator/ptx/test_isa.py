"""The table of instruction forms agrees with the assembler, with what the compiler writes, and with itself."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.emulator.ptx.samples import instruction, instructions, text
from tests.emulator.ptx.texts import COMPILED, all_instructions, compiled, only

from ptxbench.emulator.ptx import isa
from ptxbench.emulator.ptx.parse import parse
from ptxbench.settings import Settings
from ptxbench.toolchain.toolkit import find_toolkit

CHUNK = 500


def assembler_says(target: str, lines: Sequence[str], folder: Path) -> dict[str, str]:
    """What ptxas has against the instructions: instruction -> message."""
    source = folder / "forms.ptx"
    complete, first = text(target, lines)
    source.write_text(complete)
    ptxas = str(find_toolkit(Settings.load()).ptxas)
    command = [ptxas, "-w", "-arch", target, str(source), "-o", str(folder / "forms.cubin")]
    call = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    found = {
        lines[int(match[1]) - first]: match[2]
        for match in re.finditer(r"line (\d+); (?:error|fatal)\s*: (.*)", call.stderr)
    }
    if call.returncode and not found and len(lines) > 1:  # a limit of the whole kernel, such as its registers
        half = len(lines) // 2
        return assembler_says(target, lines[:half], folder) | assembler_says(target, lines[half:], folder)
    return found or ({lines[0]: call.stderr} if call.returncode else {})


def chunks(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """A kernel must not mix the two CTA groups, so they come apart."""
    for pair in (False, True):
        group = [line for line in lines if ("cta_group::2" in line) == pair]
        yield from (group[start : start + CHUNK] for start in range(0, len(group), CHUNK))


@pytest.mark.parametrize("target", isa.TARGETS)
def test_the_assembler_takes_an_example_of_every_form(target: str, tmp_path: Path) -> None:
    lines = [line for _, line in instructions(target, variants=False)]
    refused: dict[str, str] = {}
    for chunk in chunks(lines):
        refused |= assembler_says(target, chunk, tmp_path)
    assert refused == {}
    assert len(lines) > 1900


@pytest.mark.parametrize("target", isa.TARGETS)
def test_the_assembler_takes_a_sample_of_all_modifiers(target: str, tmp_path: Path) -> None:
    lines = [line for _, line in instructions(target, variants=True)][::6]
    refused: dict[str, str] = {}
    for chunk in chunks(lines):
        refused |= assembler_says(target, chunk, tmp_path)
    assert refused == {}


def test_the_assembler_refuses_the_other_targets_forms(tmp_path: Path) -> None:
    for target, other in (isa.TARGETS, isa.TARGETS[::-1]):
        foreign = [line for form, line in instructions(other, variants=False) if target not in form.targets]
        taken = [line for line in foreign[::25] if not assembler_says(target, [line], tmp_path)]
        assert taken == []


@pytest.mark.parametrize("target", isa.TARGETS)
def test_every_example_is_described_as_its_own_form(target: str) -> None:
    examples = list(instructions(target, variants=False))
    complete, first = text(target, [line for _, line in examples])
    parsed = {each.line: each for each in all_instructions(parse(complete)) if each.line >= first}
    for offset, (form, line) in enumerate(examples):
        found = isa.describe(parsed[first + offset])
        assert found is not None, line
        assert found.form is form or _overlaps(found.form, form), line


def _overlaps(found: isa.Form, form: isa.Form) -> bool:
    """Some forms differ in optional operands or in an immediate for a register only: the first one is found."""
    return found.section == form.section and set(isa.mnemonics(form)) & set(isa.mnemonics(found)) != set()


def test_names_of_forms_are_unique_and_many() -> None:
    forms = isa.coverage()
    assert len({form.name for form in forms}) == len(forms) > 2400
    assert {target for form in forms for target in form.targets} == set(isa.TARGETS)


@pytest.mark.parametrize("name", COMPILED)
def test_every_instruction_that_the_compiler_writes_has_a_form(name: str) -> None:
    parsed = parse(compiled(name))
    assert {reason for each in all_instructions(parsed) if (reason := isa.unsupported(each))} == set()
    used = {found.form for each in all_instructions(parsed) if (found := isa.describe(each))}
    assert all(parsed.target in form.targets for form in used)


DECLARED = ".reg .pred p<5>; .reg .b16 h<9>; .reg .b32 r<40>; .reg .b64 d<9>;\n"


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("add.u33 r1, r2, r3;", "is no instruction"),
        ("tex.2d.v4.f32.f32 {r1, r2, r3, r4}, [d1, {r5, r6}];", "is no instruction"),
        ("vadd.u32.u32.u32 r1, r2, r3;", "is no instruction"),
        ("cvt.f16.f32 h1, r1;", "is no instruction"),
        ("add.u32 r1, r2;", "does not take these operands"),
        ("add.u32 r1, p1, r2;", "does not take these operands"),
        ("ld.v4.u32 {r1, r2}, [d1];", "does not take these operands"),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {r1,r2,r3,r4}, {r5,r6}, {r7,r8}, {r9,r10,r11,r12};",
            "does not",
        ),
    ],
)
def test_what_is_no_form_is_named(statement: str, reason: str) -> None:
    assert reason in (isa.unsupported(only(DECLARED + statement)) or "")


@pytest.mark.parametrize(
    ("statement", "kinds"),
    [
        ("add.u32 r1, r2, 3;", ["written", "read", "read"]),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {r1,r2,r3,r4}, d1, d2, p1, 1, 1, 0, 0;", ["both"]),
        ("st.shared.v2.u32 [r1], {r2, r3};", ["read", "read"]),
        ("setp.eq.u32 p1|p2, r1, r2;", ["written", "read", "read"]),
    ],
)
def test_a_description_tells_destinations_from_sources(statement: str, kinds: list[str]) -> None:
    found = isa.describe(only(DECLARED + statement))
    assert found is not None
    told = ["both" if o.written and o.read else "written" if o.written else "read" for o in found.operands]
    assert told[: len(kinds)] == kinds


def test_operand_types_follow_the_mnemonic() -> None:
    found = isa.describe(only(f"{DECLARED}mad.wide.s32 d1, r1, r2, d2;"))
    assert found is not None
    assert [operand.type for operand in found.operands] == ["s64", "s32", "s32", "s64"]
    assert found.form.kind is isa.Kind.SCALAR


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("ld.global.relaxed.gpu.u32", "ld.relaxed.gpu.global.u32"),
        ("mbarrier.arrive.shared::cta.release.cta.b64", "mbarrier.arrive.release.cta.shared::cta.b64"),
        ("ldmatrix.sync.aligned.x4.m8n8.shared.b16", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
        ("tcgen05.shift.down.cta_group::1", "tcgen05.shift.cta_group::1.down"),
        ("cvt.f32.rn.s32", "cvt.rn.f32.s32"),
        ("cvt.f16.f32", "cvt.f16.f32"),
        (
            "cp.async.bulk.global.shared::cta.mbarrier::complete_tx::bytes",
            "cp.async.bulk.global.shared::cta.mbarrier::complete_tx::bytes",
        ),
        ("nonsense.u32", "nonsense.u32"),
    ],
)
def test_modifiers_are_brought_into_order_where_that_keeps_the_meaning(given: str, expected: str) -> None:
    assert isa.canonical(given) == expected


def test_an_example_can_be_written_for_each_modifier() -> None:
    form = next(form for form in isa.coverage() if form.name == "add.f32")
    assert isa.mnemonics(form) == ("add.f32", "add.ftz.f32", "add.sat.f32")
    assert instruction("add.ftz.f32", isa.operands(form, "add.ftz.f32")) == "add.ftz.f32 r1, r2, r3;"
