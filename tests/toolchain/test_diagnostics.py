"""Real output of nvcc 13.0 becomes values; any other text becomes none and never an exception."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ptxbench.schema.stages import Diagnostic, KernelResources
from ptxbench.toolchain.diagnostics import MAX_DIAGNOSTICS, parse_diagnostics, parse_resources

DATA = Path(__file__).parents[1] / "data" / "toolchain"


def _log(name: str) -> str:
    return (DATA / f"{name}.txt").read_text()


def _short(name: str, ptx: str = "") -> list[tuple[str, str, int | None, str]]:
    return [(item.severity, item.file, item.line, item.message) for item in parse_diagnostics(_log(name), ptx)]


def test_errors_of_the_front_end_have_file_and_line() -> None:
    assert _short("bad_identifier") == [
        ("error", "bad_identifier.cu", 2, 'identifier "y" is undefined'),
        ("error", "bad_identifier.cu", 3, 'expected a ";"'),
        ("error", "bad_identifier.cu", 4, 'expected a ";"'),
    ]


def test_a_missing_header_is_an_error_of_the_line_that_includes_it() -> None:
    assert _short("missing_header") == [("error", "missing_header.cu", 1, "nowhere.h: No such file or directory")]


def test_warnings_are_no_errors() -> None:
    assert _short("warnings") == [("warning", "warnings.cu", 2, 'variable "unused" was declared but never referenced')]


def test_errors_of_the_assembler_for_the_gpu_name_the_source_line_where_the_ptx_tells_it() -> None:
    ptx = (DATA / "bad_ptx.ptx").read_text()
    assert _short("bad_ptx", ptx)[0] == ("error", "bad_ptx.cu", 5, "Unknown modifier '.nonsense'")
    assert _short("bad_ptx")[0] == ("error", "bad_ptx.ptx", 33, "Unknown modifier '.nonsense'")
    assert _short("bad_ptx")[-1] == ("error", "", None, "Ptx assembly aborted due to errors")


def test_errors_of_the_hosts_assembler_are_read() -> None:
    assert _short("assembler") == [("error", "kernel.s", 1, "no such instruction: `vm'")]


def test_performance_remarks_of_ptxas_are_warnings() -> None:
    remarks = _short("serial")
    assert {severity for severity, *_ in remarks} == {"warning"}
    assert any(message.startswith("(C7511) Potential Performance Loss: wgmma") for *_, message in remarks)


def test_resources_are_those_of_kernels_only() -> None:
    assert parse_resources(_log("serial")) == (
        KernelResources(
            name="_Z1kPfmmi",
            registers=30,
            spill_store_bytes=0,
            spill_load_bytes=0,
            stack_bytes=0,
            static_shared_bytes=0,
            barriers=0,
        ),
    )


def test_stack_shared_memory_and_barriers_of_each_kernel_are_read() -> None:
    plain, spills = parse_resources(_log("warnings"))
    assert (plain.name, plain.registers, plain.barriers) == ("_Z5plainPi", 8, 0)
    assert (spills.stack_bytes, spills.static_shared_bytes, spills.barriers) == (256, 128, 1)


resources = st.builds(
    KernelResources,
    name=st.from_regex(r"_Z[A-Za-z0-9_$.]{1,40}", fullmatch=True),
    registers=st.integers(0, 255),
    spill_store_bytes=st.integers(0, 10**6),
    spill_load_bytes=st.integers(0, 10**6),
    stack_bytes=st.integers(0, 10**6),
    static_shared_bytes=st.integers(1, 232448),
    barriers=st.integers(0, 16),
)


@given(st.lists(resources, unique_by=lambda kernel: kernel.name, max_size=5))
def test_resources_survive_being_printed_as_ptxas_prints_them(kernels: list[KernelResources]) -> None:
    printed = "".join(
        f"ptxas info    : Compiling entry function '{kernel.name}' for 'sm_90a'\n"
        f"ptxas info    : Function properties for {kernel.name}\n"
        f"    {kernel.stack_bytes} bytes stack frame, {kernel.spill_store_bytes} bytes spill stores, "
        f"{kernel.spill_load_bytes} bytes spill loads\n"
        f"ptxas info    : Used {kernel.registers} registers, used {kernel.barriers} barriers, "
        f"{kernel.stack_bytes} bytes cumulative stack size, {kernel.static_shared_bytes} bytes smem\n"
        for kernel in kernels
    )
    assert parse_resources(printed) == tuple(kernels)


@given(
    st.text(alphabet=st.characters(categories=["L", "N"], include_characters="._"), min_size=1),
    st.integers(1, 10**6),
    st.sampled_from(["error", "warning"]),
    st.text(alphabet=st.characters(exclude_categories=["C", "Z"]), min_size=1),
)
def test_a_message_survives_each_tools_way_to_print_it(name: str, line: int, severity: str, message: str) -> None:
    file = f"{name}.cu"
    expected = [Diagnostic.model_validate({"severity": severity, "message": message, "file": file, "line": line})]
    for printed in (f"{file}({line}): {severity} #7-D: {message}", f"{file}:{line}:9: {severity}: {message}"):
        assert list(parse_diagnostics(printed)) == expected


@given(st.text())
def test_any_text_is_read_without_an_exception(text: str) -> None:
    parse_diagnostics(text, text)
    parse_resources(text)


def test_each_message_is_kept_once_and_not_more_than_can_be_read() -> None:
    assert len(parse_diagnostics("k.cu(1): error: x\n" * 5)) == 1
    assert len(parse_diagnostics("".join(f"k.cu({i}): error: x\n" for i in range(1000)))) == MAX_DIAGNOSTICS
