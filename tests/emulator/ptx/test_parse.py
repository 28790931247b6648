"""PTX texts become the values that they mean; what is wrong is named with its line."""

from __future__ import annotations

import pytest
from tests.emulator.ptx.texts import COMPILED, all_instructions, compiled, instructions, kernel, module, only

from ptxbench.emulator.errors import PtxError
from ptxbench.emulator.ptx.ir import (
    Address,
    Immediate,
    Label,
    Negated,
    Pair,
    Register,
    Sink,
    Space,
    Special,
    Symbol,
    TensorAddress,
    Vector,
)
from ptxbench.emulator.ptx.parse import parse

REGISTERS = ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>; .reg .f32 %f<9>;\n"


def test_texts_of_both_compiler_dialects_are_there() -> None:
    assert {"language.sm_90a", "language.sm_100a", "language.debug", "gemm.sm_90a", "blackwell.sm_100a"} == set(
        COMPILED
    )


@pytest.mark.parametrize("name", COMPILED)
def test_every_statement_of_a_compiled_text_becomes_an_instruction(name: str) -> None:
    text = compiled(name)
    code = text.split("\t.section")[0]
    parsed = parse(text)
    semicolons = sum(
        line.rstrip().endswith(";") and not line.lstrip().startswith((".", "//", "prototype", ")", ",", "}"))
        for line in code.splitlines()
    )
    calls_end_in_their_own_line = sum(line.strip() in (");", ", prototype_5;") for line in code.splitlines())
    declarations_end_so_too = sum(line.strip() == ";" for line in code.splitlines())
    one_line = sum(line.count(";") - 1 for line in code.splitlines() if "setp.ne.b32 p, %r9, 0;" in line)
    found = len(all_instructions(parsed))
    assert abs(found - (semicolons + calls_end_in_their_own_line - declarations_end_so_too + one_line)) <= found // 50


def test_version_target_and_files_of_a_compiled_text() -> None:
    parsed = parse(compiled("language.sm_100a"))
    assert (parsed.version, parsed.target, parsed.address_size) == ((9, 0), "sm_100a", 64)
    assert "language.cu" in parsed.files.values()


def test_parameters_keep_size_alignment_and_order() -> None:
    function = kernel("ret;")
    assert [(p.name, p.size, p.align, p.space) for p in function.parameters] == [
        ("a", 8, 8, Space.PARAM),
        ("b", 24, 8, Space.PARAM),
    ]


def test_launch_bounds_become_directives() -> None:
    text = module("ret;").replace(
        ") {", ") .maxntid 384, 1, 1\n.minnctapersm 1\n.explicitcluster .reqnctapercluster 2, 1, 1 {"
    )
    assert parse(text).functions["k"].directives == {
        "maxntid": (384, 1, 1),
        "minnctapersm": (1,),
        "explicitcluster": (),
        "reqnctapercluster": (2, 1, 1),
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%tid.x", Special("%tid.x")),
        ("-3", Immediate(-3, "int")),
        ("0x1F", Immediate(31, "int")),
        ("WARP_SZ", Immediate(32, "int")),
        ("0f3F800000", Immediate(0x3F800000, "f32")),
        ("s", Symbol("s", 0)),
        ("s+8", Symbol("s", 8)),
        ("s[3]", Symbol("s", 12)),
        ("a", Symbol("a", 0)),
    ],
)
def test_a_source_operand_means(text: str, expected: object) -> None:
    assert only(f"{REGISTERS}.shared .u32 s[4];\nmov.u64 %rd1, {text};").operands[1] == expected


@pytest.mark.parametrize(
    ("text", "base", "offset"),
    [
        ("[%rd2]", "%rd2", 0),
        ("[ %rd2 + 4 ]", "%rd2", 4),
        ("[%rd2+-4]", "%rd2", -4),
        ("[%rd2-4]", "%rd2", -4),
        ("[%rd2+4*3]", "%rd2", 12),
        ("[a+8]", "a", 8),
        ("[4096]", 4096, 0),
    ],
)
def test_an_address_has_base_and_offset(text: str, base: object, offset: int) -> None:
    address = only(f"{REGISTERS}ld.u32 %r1, {text};").operands[1]
    assert isinstance(address, Address)
    found = address.base.value if isinstance(address.base, Immediate) else address.base.name
    assert (found, address.offset) == (base, offset)


def test_vectors_sinks_pairs_and_negations() -> None:
    vector = only(f"{REGISTERS}ld.v4.u32 {{%r1, _, %r2, %r3}}, [%rd1];").operands[0]
    assert isinstance(vector, Vector)
    assert [getattr(item, "name", "_") for item in vector.items] == ["%r1", "_", "%r2", "%r3"]
    compare = only(f"{REGISTERS}setp.eq.and.u32 %p1|%p2, %r1, %r2, !%p3;")
    assert isinstance(compare.operands[0], Pair)
    assert isinstance(compare.operands[3], Negated)
    elect = only(f"{REGISTERS}elect.sync _|%p1, -1;").operands[0]
    assert isinstance(elect, Pair)
    assert isinstance(elect.first, Sink)


def test_a_guard_is_kept_with_its_sense() -> None:
    body = f"{REGISTERS}@%p1 mov.u32 %r1, 1;\n@!%p2 mov.u32 %r1, 2;"
    guards = [each.guard for each in instructions(kernel(body))]
    assert [(g.register.name, g.negated) for g in guards if g] == [("%p1", False), ("%p2", True)]


def test_register_vectors_have_components() -> None:
    whole, part = instructions(kernel(".reg .v4 .f32 v; .reg .b64 d;\nld.v4.f32 v, [d];\nmov.f32 v.x, v.b;"))
    assert isinstance(whole.operands[0], Vector)
    assert [getattr(item, "name", "") for item in whole.operands[0].items] == ["v.x", "v.y", "v.z", "v.w"]
    assert part.operands == (whole.operands[0].items[0], whole.operands[0].items[2])


def test_a_huge_register_range_costs_only_what_is_used() -> None:
    function = kernel(".reg .b32 %r<2000000000>;\nmov.u32 %r1999999999, 1;")
    assert [(each.name, each.slot) for each in function.registers] == [("%r1999999999", 0)]


def test_im2col_offsets_join_their_tensor_address() -> None:
    loads = [each for each in all_instructions(parse(compiled("blackwell.sm_100a"))) if "im2col" in each.modifiers]
    destination, tensor, barrier = loads[0].operands
    assert isinstance(tensor, TensorAddress)
    assert tensor.offsets is not None
    assert (len(tensor.coordinates.items), len(tensor.offsets.items)) == (4, 2)
    assert isinstance(destination, Address)
    assert isinstance(barrier, Address)


def test_modifiers_come_in_the_order_of_the_isa() -> None:
    body = ".reg .b32 %r<9>; .reg .b64 %rd<2>;\n"
    odd = only(
        f"{body}cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.tile "
        "[%r1], [%rd1, {%r2, %r3}], [%r4];"
    )
    assert odd.name == "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    assert only(f"{body}atom.add.release.gpu.global.u32 %r1, [%rd1], %r2;").name == "atom.release.gpu.global.add.u32"
    assert only(f"{body}.reg .b16 %h; cvt.f32.f16 %r1, %h;").name == "cvt.f32.f16"


def test_names_of_inner_scopes_are_their_own() -> None:
    function = kernel(
        ".reg .b32 x;\nmov.u32 x, 1;\n{ .reg .b32 x; .shared .b32 s; mov.u32 x, 2; mov.u32 x, s; }\n"
        "{ .reg .f32 x; .shared .b32 s; mov.u32 x, s; }\nmov.u32 x, 4;"
    )
    slots = [each.operands[0].slot for each in instructions(function) if isinstance(each.operands[0], Register)]
    assert slots == [0, 1, 1, 2, 0]
    assert [variable.name for variable in function.variables] == ["s", "s@2"]
    symbols = [each.operands[1].name for each in instructions(function) if isinstance(each.operands[1], Symbol)]
    assert symbols == ["s", "s@2"]


def test_a_variable_that_hides_one_of_the_module_gets_another_name() -> None:
    function = kernel(".reg .b64 d;\nmov.u64 d, x;\n{ .shared .b32 x; mov.u64 d, x; }", before=".global .b32 x;")
    outer, inner = (each.operands[1] for each in instructions(function))
    assert outer == Symbol("x")
    assert inner == Symbol(function.variables[0].name) != outer


def test_repeated_labels_are_told_apart_and_found_from_inner_scopes() -> None:
    loop = "{ .reg .pred p;\nagain:\nsetp.eq.u32 p, 1, 2;\n{ @p bra again; }\n@!p bra after; }\n"
    function = kernel(f"{loop}{loop}after:\nret;")
    targets = [each.operands[0] for each in instructions(function) if each.opcode == "bra"]
    assert targets == [Label(name) for name in ("again", "after", "again@2", "after")]
    assert sorted(label for block in function.blocks for label in block.labels) == ["after", "again", "again@2"]


def test_calls_have_results_target_and_arguments() -> None:
    calls = [each for each in all_instructions(parse(compiled("language.sm_90a"))) if each.opcode == "call"]
    shapes = {
        (type(target).__name__, len(results.items), len(arguments.items))
        for results, target, arguments in (each.operands for each in calls)
        if isinstance(results, Vector) and isinstance(arguments, Vector)
    }
    assert shapes == {("Symbol", 1, 1), ("Symbol", 1, 2), ("Symbol", 0, 5), ("Register", 1, 1)}


def test_every_call_sequence_has_its_own_parameter_variables() -> None:
    function = parse(compiled("language.sm_90a")).functions["_Z9fibonaccii"]
    assert [each.name for each in function.variables] == ["param0", "retval0", "param0@2", "retval0@2"]
    assert [each.size for each in function.returns] == [4]


def test_functions_without_body_have_no_blocks() -> None:
    functions = parse(compiled("language.sm_90a")).functions
    assert functions["vprintf"].blocks == ()
    assert functions["_Z5twicef"].blocks != ()
    assert not functions["_Z5twicef"].entry


def test_an_alias_is_the_function_it_stands_for() -> None:
    before = ".func f() { ret; }\n.func g();\n.alias g, f;"
    functions = parse(module("ret;", before)).functions
    assert functions["g"].blocks == functions["f"].blocks


def test_a_branch_table_becomes_the_labels_it_lists() -> None:
    body = ".reg .u32 i;\nts: .branchtargets one, two, one;\n@%p0 brx.idx i, ts;\none:\nmov.u32 i, 1;\ntwo:\nret;"
    function = kernel(f".reg .pred %p<1>;\n{body}")
    jump = instructions(function)[0]
    assert jump.operands[1] == Vector((Label("one"), Label("two"), Label("one")))
    assert function.blocks[0].successors == (1, 2)


def test_source_lines_lead_through_inlined_calls() -> None:
    parsed = parse(compiled("gemm.sm_90a"))
    deep = [each.location for each in all_instructions(parsed) if each.location and each.location.inlined_at]
    assert deep
    chains = {len(list(_outwards(location))) for location in deep}
    assert max(chains) >= 3
    assert all(list(_outwards(location))[-1].file.endswith(".cu") for location in deep)


def _outwards(location):  # type: ignore[no-untyped-def]
    while location is not None:
        yield location
        location = location.inlined_at


def test_lines_are_those_of_the_text() -> None:
    text = module("/* two\nlines */ .reg .b32 x; // note; }\nmov.u32 x, 1;\n\nmov.u32 x, 2;")
    assert [each.line for each in instructions(parse(text).functions["k"])] == [8, 10]
    assert text.splitlines()[7] == "mov.u32 x, 1;"


@pytest.mark.parametrize(
    ("body", "message", "line"),
    [
        ("mov.u32 %r1, 1;", "`%r1` is not declared", 6),
        (".reg .b32 x;\nmov.u32 x, y;", "`y` is not declared", 7),
        (".reg .b32 x;\nbra nowhere;", "label `nowhere` is not declared", 7),
        ("{ inner: ret; }\nbra inner;", "label `inner` is not declared", 7),
        ("l: ret;\nl: ret;", "label `l` is declared twice", 7),
        (".reg .b32 x;\n.reg .b32 x;", "`x` is declared twice", 7),
        (".reg .b32 x;\n@x mov.u32 x, 1;", "not a predicate", 7),
        (".reg .b32 x;\nmov.u32 x, 1", "not ended by a semicolon", 7),
        (".reg .b32 x;\nmov.u32 x, , 1;", "operand is missing", 7),
        (".reg .b32 x;\nld.u32 x, [x;", "not an address", 7),
        (".reg .b32 x;\nmov.u32 x, {x, x;", "`}` is missing", 7),
        (".reg .b32 x;\nmov.u32 x, 1/0;", "divides by zero", 7),
        (".shared .pred x;", "memory holds no `.pred`", 6),
        (".shared .b8 x[4] = {1};", "cannot have an initial value", 6),
        (".tex .u32 t;", "does not belong", 6),
        ("!", "not a statement", 6),
        ("/* endless", "a comment never ends", 6),
        ('.pragma "nounroll;', "string does not end", 6),
    ],
)
def test_a_mistake_is_named_with_its_line(body: str, message: str, line: int) -> None:
    with pytest.raises(PtxError) as caught:
        parse(module(body))
    assert message in caught.value.message
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begins with .version"),
        (".version 9.0\n", "no .target"),
        (".version 9.0\n.target sm_90a\n.address_size 32\n", "64-bit addresses"),
        (".version 9.0\n.target sm_90a\n.func f() { ret; } .func f() { ret; }", "defined twice"),
        (".version 9.0\n.target sm_90a\n.entry f() { ret;", "does not end"),
        (".version 9.0\n.target sm_90a\n.global .texref t;", "does not belong in a declaration"),
    ],
)
def test_a_faulty_module_is_refused(text: str, message: str) -> None:
    with pytest.raises(PtxError) as caught:
        parse(text)
    assert message in caught.value.message
