"""What the profiler prints is read right, on real pages and on every odd one; absent is never zero."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.errors import ToolError
from ptxbench.sass import ncu
from ptxbench.sass.families import family_of
from ptxbench.sass.work import flops_of
from ptxbench.schema.values import Target

DATA = Path(__file__).parent.parent / "data" / "ncu"
SOURCE_PAGE = (DATA / "source_page.csv").read_text()
RAW_PAGE = (DATA / "raw_page.csv").read_text()

MANGLED_GEMM = "_ZN41_GLOBAL__N__919d0dec_9_sm_90a_cu_e9fed5f04gemmE14CUtensorMap_stS0_S0_i"


def as_csv(rows: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return out.getvalue()


def source_block(name: str, lines: list[tuple[str, str, str]], headings: tuple[str, str] | None = None) -> str:
    warp, true = headings or ("inst_executed", "thread_inst_executed_true")
    rows = [["Kernel Name", name, ""], ["Address", "Source", warp, true]]
    rows += [[hex(0x7F00 + 16 * i), text, executed, threads] for i, (text, executed, threads) in enumerate(lines)]
    return as_csv(rows)


def raw_page(launches: list[tuple[str, dict[str, str]]], units: dict[str, str] | None = None) -> str:
    names = sorted({name for _, counters in launches for name in counters})
    rows = [["ID", "Kernel Name", *names], ["", "", *((units or {}).get(name, "") for name in names)]]
    rows += [[str(i), kernel, *(values.get(n, "n/a") for n in names)] for i, (kernel, values) in enumerate(launches)]
    return as_csv(rows)


def test_real_pages_give_each_launch_once_with_its_counts() -> None:
    launches = ncu.read_launches(SOURCE_PAGE, RAW_PAGE)
    names = ["known_hgmma(float *, int)", "dead_branch(float *, int)", "spin(long long)"]
    assert [launch.name for launch in launches] == names
    known, dead, spin = launches
    hgmma = [line for line in known.lines if family_of(line.opcode, Target.SM_90A) == "GMMA"]
    assert sum(line.warp_instructions or 0 for line in hgmma) == 100 * 4 * 4  # 100 loops, 4 CTAs, 4 warps
    assert sum(line.thread_instructions_true or 0 for line in hgmma) == 100 * 4 * 128
    (never,) = [line for line in dead.lines if family_of(line.opcode, Target.SM_90A) == "GMMA"]
    assert (never.warp_instructions, never.thread_instructions_true) == (0, 0)
    assert spin.counters[ncu.GPU_TIME] == pytest.approx(1.001568e-3)
    assert known.counters[ncu.DRAM_READ] == 6400
    assert known.counters[ncu.TMA_BYTES] == 0


def test_the_work_by_real_executed_lines_equals_the_hardware_counter() -> None:
    known = ncu.read_launches(SOURCE_PAGE, RAW_PAGE)[0]
    by_lines = sum(
        flops_of(line.opcode, line.thread_instructions_true or 0) or 0.0
        for line in known.lines
        if line.opcode.startswith("HGMMA")
    )
    assert (
        by_lines == known.counters["sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32.sum"] == 100 * 4 * 2 * 64 * 16 * 16
    )


def test_real_executed_lines_add_up_to_the_counter_of_all_instructions() -> None:
    for launch in ncu.read_launches(SOURCE_PAGE, RAW_PAGE):
        threads = sum(line.thread_instructions_true or 0 for line in launch.lines)
        assert threads == launch.counters[ncu.THREAD_INSTRUCTIONS_TRUE]
        assert sum(line.warp_instructions or 0 for line in launch.lines) == launch.counters[ncu.WARP_INSTRUCTIONS]


def test_predicates_of_real_lines_are_kept_apart_from_opcodes() -> None:
    known = ncu.read_launches(SOURCE_PAGE, RAW_PAGE)[0]
    branches = [(line.predicate, line.opcode) for line in known.lines if line.opcode == "BRA"]
    assert {"@P0", "@!P0"} <= {predicate for predicate, _ in branches}
    assert all(line.opcode[0].isalpha() for line in known.lines)


def test_labels_of_sections_are_read_like_metric_names() -> None:
    headings = ("Instructions Executed", "Predicated-On Thread Instructions Executed")
    page = source_block("k", [("      HGMMA.64x8x16.F32 R24, gdesc[UR4]", "1,600", "51,200")], headings)
    (launch,) = ncu.read_launches(page, raw_page([("k", {})]))
    assert (launch.lines[0].warp_instructions, launch.lines[0].thread_instructions_true) == (1600, 51200)


def test_launches_of_one_kernel_stay_apart() -> None:
    pages = [source_block("k", [("HMMA.16816 R0", str(n), str(32 * n))]) for n in (1, 2)]
    launches = ncu.read_launches(
        "".join(pages), raw_page([("k", {"gpu__time_duration.sum": "5"}), ("k", {"gpu__time_duration.sum": "7"})])
    )
    assert [launch.lines[0].warp_instructions for launch in launches] == [1, 2]
    assert [launch.counters[ncu.GPU_TIME] for launch in launches] == [5.0, 7.0]


def test_names_with_quoted_commas_and_both_forms_of_a_name_match() -> None:
    page = source_block('void (anonymous namespace)::gemm<float, (int)3>(const float *, "x", int)', [("BRA", "1", "1")])
    (launch,) = ncu.read_launches(page, raw_page([(MANGLED_GEMM, {})]))
    assert launch.name == MANGLED_GEMM


def test_messages_before_the_table_are_passed_over() -> None:
    page = raw_page([("k", {"dram__bytes_read.sum": "2"})], {"dram__bytes_read.sum": "Mbyte"})
    (launch,) = ncu.read_launches(
        "==PROF== Connected\n" + source_block("k", []), "==PROF== Connected to process 1, 2\n" + page
    )
    assert launch.counters[ncu.DRAM_READ] == 2e6


@pytest.mark.parametrize(
    "text", ["nan", "-nan", "NaN", "n/a", "N/A", "inf", "-inf", "", "-", "(!) n/a", "no data", "1e999"]
)
def test_a_value_that_was_not_read_is_absent_and_never_zero(text: str) -> None:
    page = source_block("k", [("HGMMA.64x8x16.F32 R0", text, text)])
    (launch,) = ncu.read_launches(page, raw_page([("k", {"gpu__time_duration.sum": text})]))
    assert ncu.GPU_TIME not in launch.counters
    assert launch.lines[0].warp_instructions is None
    assert launch.lines[0].thread_instructions_true is None


def test_a_counter_in_an_unknown_unit_is_absent() -> None:
    page = raw_page([("k", {"dram__bytes_read.sum": "2"})], {"dram__bytes_read.sum": "furlong"})
    (launch,) = ncu.read_launches(source_block("k", []), page)
    assert launch.counters == {}


def test_columns_that_were_not_collected_give_no_counts() -> None:
    page = as_csv([["Kernel Name", "k", ""], ["Address", "Source", "# Samples"], ["0x10", "HGMMA.64x8x16 R0", "3"]])
    (launch,) = ncu.read_launches(page, raw_page([("k", {})]))
    assert launch.lines[0].thread_instructions_true is None


@pytest.mark.parametrize(
    ("source", "raw"),
    [
        ("", ""),
        ("", raw_page([("k", {})])),
        (source_block("k", []), raw_page([("k", {}), ("k", {})])),
        (source_block("k", []) + source_block("k", []) + source_block("k", []), raw_page([("k", {}), ("k", {})])),
        (source_block("a", []), raw_page([("b", {})])),
        (source_block("k", [("BRA", "1", "1")]) + source_block("k", [("BRA", "2", "2")]), raw_page([("k", {})])),
        (as_csv([["Kernel Name", "k", ""], ["Address", "Source"], ["zzz", "BRA"]]), raw_page([("k", {})])),
        (source_block("k", []), "no csv"),
        (source_block("k", []), as_csv([["ID", "Kernel Name", "a"], ["", "", ""], ["0", "k"]])),
    ],
)
def test_pages_that_do_not_belong_together_are_refused(source: str, raw: str) -> None:
    with pytest.raises(ToolError):
        ncu.read_launches(source, raw)


@given(st.floats(0, 1e15) | st.integers(0, 10**15))
def test_numbers_are_read_with_and_without_thousands_separators(value: float) -> None:
    assert ncu.number(f"{value:,}") == ncu.number(f"{value}") == value


@given(st.text(max_size=20))
def test_no_text_is_read_as_anything_but_a_finite_number(text: str) -> None:
    value = ncu.number(text)
    assert value is None or math.isfinite(value)


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        (MANGLED_GEMM, "gemm"),
        ("_Z11known_hgmmaPfi", "known_hgmma"),
        ("known_hgmma(float *, int)", "known_hgmma"),
        ("void a::b::gemm<(int)3, c::d>(c::d *, int)", "gemm"),
        ("_ZN1a1b4gemmILi3EN1c1dEEEvPS2_i", "gemm"),
        ("void (anonymous namespace)::gemm(CUtensorMap, int)", "gemm"),
        ("void <unnamed>::gemm<int>(int)", "gemm"),
        ("extern_c_kernel", "extern_c_kernel"),
        ("_Zodd", "_Zodd"),
    ],
)
def test_both_forms_of_a_name_give_the_same_identifier(name: str, identifier: str) -> None:
    assert ncu.base_name(name) == identifier


def test_a_missing_right_to_counters_is_told_with_its_remedy() -> None:
    found = ncu.failure(
        "==PROF== Connected to process 12 (/usr/bin/python3)\n"
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters\n"
    )
    assert found is not None
    assert "ERR_NVGPUCTRPERM" in found.reason
    assert "NVreg_RestrictProfilingToAdminUsers=0" in found.remedy


def test_a_run_without_kernels_and_a_failed_one_are_told_apart() -> None:
    nothing = ncu.failure("==PROF== Disconnected from process 3\n==WARNING== No kernels were profiled.\n")
    failed = ncu.failure("==ERROR== Failed to find metric regex:x\n==WARNING== No kernels were profiled.\n")
    assert nothing is not None
    assert "no kernel" in nothing.reason
    assert failed is not None
    assert "Failed to find metric" in failed.reason


def test_the_messages_of_a_real_good_run_are_no_failure() -> None:
    assert ncu.failure((DATA / "run.txt").read_text()) is None
