"""Who is refused by policy, by which rule, and that no honest kernel is."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from ptxbench.errors import ToolError
from ptxbench.evaluate.policy import binary_policy, general_rules, source_policy
from ptxbench.schema.candidate import Candidate, SourceFile
from ptxbench.schema.stages import Outcome, PolicyStage
from ptxbench.schema.values import Target
from ptxbench.settings import Settings
from ptxbench.suite import load_problem
from ptxbench.toolchain.build import build
from ptxbench.toolchain.toolkit import Toolkit, find_toolkit

ROOT = Path(__file__).parent.parent.parent
KERNELS = ROOT / "tests" / "kernels"
HONEST = sorted([*ROOT.glob("reference/*/sm_*.cu"), *(KERNELS / "simple").glob("*.cu")])
GEMM = load_problem("gemm_n7168_k5120")

REFUSED = {
    "attacks/dlsym_cublas.cu": "run_time_loading",
    "attacks/runtime_compile.cu": "run_time_compilation",
    "attacks/driver_jit.cu": "foreign_cubin",
    "attacks/foreign_cubin.cu": "foreign_cubin",
    "wrong/uses_cublas.cu": "forbidden_symbol",
    "wrong/dlopen_cublas.cu": "run_time_loading",
}


@dataclass(frozen=True)
class Tools:
    """A build cache of its own, and the toolkit."""

    settings: Settings
    toolkit: Toolkit


@pytest.fixture(scope="session")
def tools(pytestconfig: pytest.Config) -> Tools:
    # Builds are addressed by content, so that pytest's own cache may keep them from one run to the next.
    assert pytestconfig.cache is not None
    cache = str(pytestconfig.cache.mkdir("kernels"))
    settings = Settings.load({"PTXBENCH_CACHE": cache, "PATH": "/usr/local/bin:/usr/bin:/bin"})
    return Tools(settings, find_toolkit(settings))


def candidate(source: str) -> Candidate:
    return Candidate.from_source(source)


def by_binary(source: Path, tools: Tools) -> PolicyStage:
    what, target = candidate(source.read_text()), Target.SM_100A if "sm_100a" in source.stem else Target.SM_90A
    built = build(what, target, tools.settings)
    assert built.library is not None, built.stage.log
    return binary_policy(built.library, what, GEMM, target, tools.toolkit)


@dataclass(frozen=True)
class Linked:
    """Shared objects made from C alone: what the binary rules see does not need a kernel."""

    folder: Path
    tools: Tools

    def make(self, code: str = "", *words: str) -> Path:
        source, library = self.folder / "host.c", self.folder / "kernel.so"
        source.write_text(f"int __tvm_ffi_run(void) {{ return 0; }}\n{code}\n")
        command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), *words]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        return library

    def policy(self, code: str = "", *words: str) -> PolicyStage:
        what = candidate("void run() {}")
        return binary_policy(self.make(code, *words), what, GEMM, Target.SM_90A, self.tools.toolkit)


@pytest.fixture
def linked(tmp_path: Path, tools: Tools) -> Linked:
    return Linked(tmp_path, tools)


def rules_of(stage: PolicyStage) -> set[str]:
    return {finding.rule for finding in stage.findings}


# ---- real kernels ----


@pytest.mark.parametrize("source", HONEST, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_honest_kernel_is_never_refused(source: Path, tools: Tools) -> None:
    assert source_policy(candidate(source.read_text()), GEMM).findings == ()
    stage = by_binary(source, tools)
    assert (stage.outcome, stage.findings, stage.reason) == (Outcome.PASSED, (), None)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_kernel_that_lets_others_do_its_work_is_refused_by_its_binary(name: str, tools: Tools) -> None:
    stage = by_binary(KERNELS / name, tools)
    assert stage.outcome is Outcome.CHEATED
    assert stage.reason is not None
    assert stage.reason.code == REFUSED[name]


def test_the_attacks_show_every_rule_that_they_break(tools: Tools) -> None:
    assert rules_of(by_binary(KERNELS / "attacks/driver_jit.cu", tools)) == {"foreign_cubin", "run_time_loading"}
    assert rules_of(by_binary(KERNELS / "attacks/runtime_compile.cu", tools)) == {
        "run_time_compilation",
        "run_time_loading",
    }


def test_a_static_library_that_is_not_there_cannot_be_linked(tools: Tools) -> None:
    source = (KERNELS / "attacks/static_cublas.cu").read_text()
    assert build(candidate(source), Target.SM_90A, tools.settings).stage.outcome is Outcome.FAILED


def test_a_kernel_without_run_fails_and_has_not_cheated(tools: Tools) -> None:
    source = KERNELS / "wrong/no_run.cu"
    for stage in (source_policy(candidate(source.read_text()), GEMM), by_binary(source, tools)):
        assert stage.outcome is Outcome.FAILED
        assert stage.reason is not None
        assert stage.reason.code == "no_run"
    assert "__tvm_ffi_compute" in stage.findings[0].evidence


# ---- the source ----


@pytest.mark.parametrize(
    "header",
    ["cublas_v2.h", "cublas.h", "cublasLt.h", "cublasXt.h", "cudnn.h", "cudnn_frontend.h", "cutlass/gemm/gemm.h",
     "cute/tensor.hpp", "cusparse.h", "nvrtc.h", "nvJitLink.h", "torch/extension.h", "flashinfer/attention.cuh"],
)  # fmt: skip
def test_an_include_of_a_forbidden_library_fails_with_its_line(header: str) -> None:
    stage = source_policy(candidate(f"// first\n#include <{header}>\nvoid run() {{}}\n"), GEMM)
    assert stage.outcome is Outcome.FAILED
    (finding,) = stage.findings
    assert (finding.rule, finding.place, finding.line) == ("forbidden_include", "source", 2)
    assert stage.reason is not None
    assert header in stage.reason.message


@pytest.mark.parametrize(
    "text",
    [
        'const char* s = "faster than cublasGemmEx(); #include <cudnn.h>";',
        "// unlike cuBLAS and cudnn\n/* #include <cutlass/cutlass.h> */",
        "int cublas_time, not_cudnn;",
        "#include <cuda_bf16.h>\n#include <cuda/barrier>\n#include <cooperative_groups.h>\n#include <cub/cub.cuh>",
        "#include <dlfcn.h>\n#include <execution>",
    ],
)
def test_a_name_in_a_comment_a_string_or_a_variable_is_no_fault(text: str) -> None:
    assert source_policy(candidate(f"{text}\nvoid run() {{}}\n"), GEMM).outcome is Outcome.PASSED


def test_a_header_of_the_candidates_own_may_have_any_name() -> None:
    sources = (
        SourceFile(path="kernel.cu", content='#include "lib/cute.h"\nvoid run() {}'),
        SourceFile(path="lib/cute.h", content="#include <cublas_v2.h>\n"),
    )
    stage = source_policy(Candidate(sources=sources, entry_file="kernel.cu"), GEMM)
    assert [finding.evidence for finding in stage.findings] == ["lib/cute.h: #include cublas_v2.h"]


@pytest.mark.parametrize(
    ("source", "passes"),
    [
        ("void run() {}", True),
        ("extern int __tvm_ffi_run(void*);", True),
        ("void compute() {} // run", False),
        ('const char* s = "run";', False),
        ("void runner() {}", False),
    ],
)
def test_the_entry_point_must_be_named_in_code(source: str, passes: bool) -> None:
    assert (source_policy(candidate(source), GEMM).outcome is Outcome.PASSED) == passes


# ---- the binary ----


def test_a_plain_library_with_run_passes(linked: Linked) -> None:
    assert (
        linked.policy('const char* s = "cuTensorMapEncodeTiled"; const char* t = "faster than cublas";').findings == ()
    )


@pytest.mark.parametrize(
    ("symbol", "rule"),
    [
        ("dlopen", "run_time_loading"),
        ("dlmopen", "run_time_loading"),
        ("dlvsym", "run_time_loading"),
        ("dl_iterate_phdr", "run_time_loading"),
        ("cuModuleLoadDataEx", "run_time_loading"),
        ("cuLibraryLoadData", "run_time_loading"),
        ("cudaLibraryLoadFromFile", "run_time_loading"),
        ("cuGetExportTable", "run_time_loading"),
        ("nvrtcCompileProgram", "run_time_compilation"),
        ("nvJitLinkCreate", "run_time_compilation"),
        ("cuLinkCreate_v2", "run_time_compilation"),
        ("cublasLtMatmul", "forbidden_symbol"),
        ("cudnnBackendExecute", "forbidden_symbol"),
        ("fork", "process_control"),
        ("execve", "process_control"),
        ("posix_spawn", "process_control"),
        ("system", "process_control"),
        ("popen", "process_control"),
        ("syscall", "process_control"),
        ("socket", "process_control"),
        ("ptrace", "foreign_memory"),
        ("process_vm_readv", "foreign_memory"),
        ("cudaIpcOpenMemHandle", "foreign_memory"),
        ("cuptiSubscribe", "instrument"),
    ],
)
def test_a_forbidden_import_is_refused_by_its_rule(linked: Linked, symbol: str, rule: str) -> None:
    stage = linked.policy(f"extern int {symbol}(); int use(void) {{ return {symbol}(); }}", "-fno-builtin")
    assert stage.outcome is Outcome.CHEATED
    assert rules_of(stage) == {rule}
    assert stage.reason is not None
    assert symbol in stage.reason.message
    assert stage.reason.hint


@pytest.mark.parametrize(
    "symbol",
    ["cudaGetDriverEntryPointByVersion", "cuGetProcAddress_v2", "cuTensorMapEncodeTiled", "cudaLaunchKernelExC",
     "cudaFuncSetAttribute", "cudaMemsetAsync", "cudaMallocAsync", "memcpy", "malloc", "snprintf", "abort", "exit",
     "pthread_create", "execute", "systematic", "clones", "forkful_gemm"],
)  # fmt: skip
def test_what_honest_kernels_import_is_allowed(linked: Linked, symbol: str) -> None:
    code = f"extern int {symbol}(); int use(void) {{ return {symbol}(); }}"
    stage = linked.policy(code, "-fno-builtin")
    expected = {"forbidden_symbol"} if symbol.startswith(GEMM.policy.forbidden_symbols) else set()
    assert rules_of(stage) == expected


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("cuModuleLoadData", "run_time_loading"),
        ("cuLibraryLoadData", "run_time_loading"),
        ("cuLinkAddData_v2", "run_time_compilation"),
        ("nvrtcCreateProgram", "run_time_compilation"),
        ("cuIpcOpenMemHandle", "foreign_memory"),
    ],
)
def test_the_name_of_a_forbidden_entry_point_in_the_data_is_refused(linked: Linked, name: str, rule: str) -> None:
    stage = linked.policy(f'const char* name = "{name}"; const char* ptr(void) {{ return name; }}')
    assert rules_of(stage) == {rule}
    for text in (f"{name} failed", f"my{name}", f"9{name}"):
        assert rules_of(linked.policy(f'const char* name = "{text}";')) == set()


def test_a_linked_library_that_is_not_allowed_is_refused(linked: Linked) -> None:
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", str(linked.folder / "libcublas.so.13")],
        check=True,
        timeout=60,
    )
    stage = linked.policy("", "-Wl,--no-as-needed", f"-L{linked.folder}", "-l:libcublas.so.13", "-lm")
    assert rules_of(stage) == {"forbidden_needed"}
    assert len(stage.findings) == 1


@pytest.mark.parametrize(
    ("code", "evidence"),
    [
        ("static __attribute__((used, noinline)) int cublasGemmEx(int x) { return x; }", "cublasGemmEx"),
        ("__attribute__((visibility(\"hidden\"))) int cudnnCreate(int x) { return x; }", "cudnnCreate"),
        ("static __attribute__((used)) int k __asm__(\"_ZN7cutlass6KernelE\") = 1;", "_ZN7cutlass6KernelE"),
    ],
)  # fmt: skip
def test_code_of_a_library_that_was_linked_in_is_refused(linked: Linked, code: str, evidence: str) -> None:
    stage = linked.policy(code)
    assert [(finding.rule, finding.evidence) for finding in stage.findings] == [("static_library", evidence)]


def test_a_function_named_after_a_library_is_the_candidates_own(linked: Linked) -> None:
    code = "static __attribute__((used)) int cublas_like_gemm(void) { return 1; }"
    assert linked.policy(code).findings == ()


@pytest.mark.parametrize(
    "code",
    [
        # A cubin: an ELF file for machine 190.
        'const char blob[] = "\\x7f" "ELF\\x02\\x01\\x01\\x41\\0\\0\\0\\0\\0\\0\\0\\0\\x02\\0\\xbe\\0";',
        # A fatbin container.
        'const char blob[] = "\\x50\\xed\\x55\\xba\\x01\\0\\x10\\0";',
        'const char blob[] = ".version 8.0\\n.target sm_90a\\n.address_size 64\\n";',
        'const char blob[] = "//\\n.version 8.0\\n// comment\\n.target sm_90, texmode_independent\\n";',
        '__attribute__((section(".note.x"))) const char blob[] = "\\x7f" "ELF\\x02\\x01........  \\x02\\0\\xbe\\0";',
    ],
)
def test_gpu_code_outside_of_its_place_is_refused(linked: Linked, code: str) -> None:
    stage = linked.policy(code)
    assert rules_of(stage) == {"foreign_cubin"}
    assert stage.outcome is Outcome.CHEATED


def test_a_second_registered_container_is_refused(linked: Linked) -> None:
    code = '__attribute__((section(".nvFatBinSegment"), used)) static long wrappers[6] = {1};'
    assert rules_of(linked.policy(code)) == {"foreign_cubin"}


def test_an_ordinary_elf_file_in_the_data_is_no_gpu_code(linked: Linked) -> None:
    assert linked.policy('const char blob[] = "\\x7f" "ELF\\x02\\x01\\x01\\0........\\x03\\0\\x3e\\0";').findings == ()


def test_a_cubin_for_another_target_is_refused(tools: Tools) -> None:
    what = candidate((KERNELS / "simple/gemm_plain.cu").read_text())
    built = build(what, Target.SM_90A, tools.settings)
    assert built.library is not None
    stage = binary_policy(built.library, what, GEMM, Target.SM_100A, tools.toolkit)
    assert [finding.evidence for finding in stage.findings] == ["a cubin for sm_90a"]


def test_cheating_weighs_more_than_a_missing_run(linked: Linked) -> None:
    library = linked.make("extern int dlopen(); int use(void) { return dlopen(); }", "-D__tvm_ffi_run=other")
    stage = binary_policy(library, candidate("void run() {}"), GEMM, Target.SM_90A, linked.tools.toolkit)
    assert rules_of(stage) == {"run_time_loading", "no_run"}
    assert stage.outcome is Outcome.CHEATED
    assert stage.reason is not None
    assert stage.reason.code == "run_time_loading"


def test_a_file_that_is_no_library_is_our_fault(tmp_path: Path, tools: Tools) -> None:
    library = tmp_path / "kernel.so"
    library.write_bytes(b"\x7fELF nothing")
    with pytest.raises(ToolError):
        binary_policy(library, candidate("void run() {}"), GEMM, Target.SM_90A, tools.toolkit)


def test_every_rule_has_a_name_and_words_of_its_own() -> None:
    rules = general_rules().rules
    assert len({rule.name for rule in rules}) == len({rule.says for rule in rules}) == len(rules)
    assert all(rule.symbols for rule in rules)
