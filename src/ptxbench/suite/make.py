"""Writes problem folders for chosen sizes, the suite's own five among them; reading them is `catalogue`'s work.

`python -m ptxbench.suite.make` writes the suite's folders again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ptxbench.errors import ProblemError
from ptxbench.schema.problem import Role
from ptxbench.schema.trace_files import write_document, write_lines, write_text
from ptxbench.schema.trace_problem import Definition, Workload
from ptxbench.suite.catalogue import PROBLEMS
from ptxbench.suite.operators import Operator, operator

PAPER_UUIDS = {
    "gemm_n7168_k5120": "94920358-01a8-4c5b-9209-3103fd490e94",
    "mha_with_lse_d128": "bc38b351-d595-451b-9153-8e225702e53b",
    "mha_with_lse_d128_causal": "6d2f67a7-225a-4af5-87d3-cbb99b496325",
    "mha_bwd_d128": "38c3b07c-f006-5f5e-9860-ba214c805a6b",
    "mha_bwd_d128_causal": "c119b3f0-c051-5e96-9c2a-2268d992fe1a",
}
"""The published workloads keep the uuids that the published result tables know them by."""

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:ptxbench:workload")

_GEMM_SIZES = {Role.PAPER: (8192,), Role.NEIGHBOUR: (4096, 1000, 8191), Role.SMALL: (128, 200)}
_ATTENTION_SIZES = {
    Role.PAPER: ((4, 48, 4096),),
    Role.NEIGHBOUR: ((2, 16, 2048), (1, 8, 1000), (3, 5, 640)),
    Role.SMALL: ((1, 2, 256), (1, 2, 200)),
}

_BASELINES = {
    "gemm": ("cublas",),
    "attention_forward": ("cudnn", "flashinfer"),
    "attention_backward": ("cudnn",),
}
_PUBLISHED_VERSIONS = {"cublas": "13.1.0", "cudnn": "9.20.0", "flashinfer": "0.6.14"}

_CONTRACT = {
    "published_atol": 0.01,
    "published_rtol": 0.01,
    "block_rows": 128,
    "library_factor": 2.0,
    "structured_factor": 4.0,
    "structured_steps": 16.0,
}

_POLICY = {
    "forbidden_libraries": [
        *("cublas", "cublasLt", "cudnn*", "cutlass*", "cute", "cusparse", "cusparseLt", "cutensor*", "cufft*"),
        *("nvblas", "nvrtc*", "nvJitLink", "nvptxcompiler*", "flashinfer*", "torch*", "c10*"),
    ],
    "forbidden_symbols": [
        *("cublas", "cudnn", "cusparse", "cutensor", "nvrtc", "nvJitLink", "nvPTXCompiler"),
        *("cuModuleLoad", "cuLibraryLoad", "cuLinkCreate", "cudaLibraryLoad"),
        *("dlopen", "dlmopen", "dlsym", "dlvsym"),
        *("fork", "vfork", "exec", "posix_spawn", "system", "popen", "ptrace", "process_vm_"),
    ],
    "allowed_needed": [
        *("libtvm_ffi", "libcudart", "libcuda", "libstdc++", "libm", "libgcc_s", "libc", "libpthread", "libdl"),
        *("librt", "ld-linux-x86-64", "ld-linux-aarch64"),
    ],
}

_FAMILIES = {
    "sm_90a": {"published": ["GMMA", "TMA"], "mma": ["GMMA"], "tma": ["TMA"]},
    "sm_100a": {"published": ["TCGEN_MMA", "TMEM", "TCGEN_CONTROL"], "mma": ["TCGEN_MMA"], "tma": ["TMA"]},
}

Settings = Mapping[str, object]


@dataclass(frozen=True)
class ProblemParts:
    """The three files of a problem's folder.

    Attributes:
        definition: `definition.json`.
        workloads: `workloads.jsonl`, in the order of their roles.
        settings: `problem.toml`.
    """

    definition: Definition
    workloads: tuple[Workload, ...]
    settings: Settings


def make_gemm(n: int, k: int) -> ProblemParts:
    """C [M, n] = A [M, k] B [n, k]^T in bf16 for any M.

    Raises:
        ProblemError: A size is not a multiple of 8 between 8 and 65536.
    """
    for axis, value in (("n", n), ("k", k)):
        # Tensor maps need rows whose length is a multiple of 16 bytes.
        _check_size(axis, value, 65536)
    name = f"gemm_n{n}_k{k}"
    text = f"C = A B^T, bf16 in and out, accumulated in fp32 or better; N = {n}, K = {k}, any M."
    sizes = {role: tuple({"M": m} for m in values) for role, values in _GEMM_SIZES.items()}
    return _parts(name, text, operator("gemm"), {"N": n, "K": k}, sizes)


def make_attention(head_dim: int, causal: bool = False, backward: bool = False) -> ProblemParts:
    """Multi-head attention, or its gradients, in bf16 for any batch, number of heads and length.

    Raises:
        ProblemError: `head_dim` is not a multiple of 8 between 8 and 256.
    """
    _check_size("head-dim", head_dim, 256)
    name = f"mha_{'bwd' if backward else 'with_lse'}_d{head_dim}{'_causal' if causal else ''}"
    what = "Gradients dQ, dK, dV of" if backward else "Output O and natural-log row sums LSE of"
    seen = "each query sees the keys up to its own position" if causal else "each query sees all keys"
    text = f"{what} softmax(Q K^T / sqrt({head_dim})) V per batch and head; {seen}; bf16, LSE fp32."
    sizes = {role: tuple({"B": b, "H": h, "S": s} for b, h, s in values) for role, values in _ATTENTION_SIZES.items()}
    chosen = operator("attention_backward" if backward else "attention_forward", causal)
    return _parts(name, text, chosen, {"D": head_dim}, sizes, causal)


def make_problem(op: str, options: Mapping[str, int | bool], folder: Path) -> Path:
    """Make one problem by the names of the command line and write it below `folder`.

    Args:
        op: `gemm` (options `n`, `k`) or `attention` (options `head_dim`, `causal`, `backward`).
        options: Values by option name.
        folder: Where the problem's own folder appears.

    Returns:
        The problem's folder.

    Raises:
        ProblemError: Unknown operator, unknown or missing option, or a size out of range.
    """
    known = {"gemm": ({"n", "k"}, set()), "attention": ({"head_dim"}, {"causal", "backward"})}
    if op not in known:
        raise ProblemError(f"There is no operator {op!r} to make a problem of.", f"Use one of: {', '.join(known)}.")
    needed, possible = known[op]
    given = set(options)
    if needed - given or given - needed - possible:
        wanted = ", ".join(sorted(needed)) + (f"; optional: {', '.join(sorted(possible))}" if possible else "")
        raise ProblemError(f"A problem of {op} was asked for with {sorted(given) or 'nothing'}.", f"Give: {wanted}.")
    if op == "gemm":
        parts = make_gemm(int(options["n"]), int(options["k"]))
    else:
        flags = {name: bool(options.get(name)) for name in ("causal", "backward")}
        parts = make_attention(int(options["head_dim"]), **flags)
    return write_problem(parts, folder / parts.definition.name)


def suite_parts() -> tuple[ProblemParts, ...]:
    """The suite's own five problems."""
    attention = [make_attention(128, causal, backward) for backward in (False, True) for causal in (False, True)]
    return (make_gemm(7168, 5120), *attention)


def write_problem(parts: ProblemParts, folder: Path) -> Path:
    """Write a problem's three files; equal parts give equal bytes.

    Raises:
        ProblemError: The folder cannot be written.
    """
    try:
        write_document(parts.definition, folder / "definition.json")
        write_lines(parts.workloads, folder / "workloads.jsonl")
        write_text(_toml(parts.settings), folder / "problem.toml")
    except OSError as fault:
        raise ProblemError(f"{folder} cannot be written: {fault.strerror}.", "Choose another folder.") from None
    return folder


def _check_size(name: str, value: int, largest: int) -> None:
    if not (8 <= value <= largest and value % 8 == 0):
        raise ProblemError(f"{name} is {value}.", f"Choose a multiple of 8 between 8 and {largest}.")


def _parts(
    name: str,
    text: str,
    chosen: Operator,
    constants: Mapping[str, int],
    sizes: Mapping[Role, tuple[dict[str, int], ...]],
    causal: bool = False,
) -> ProblemParts:
    by_role = {role: [_workload(name, chosen, role, axes) for axes in values] for role, values in sizes.items()}
    settings: dict[str, object] = {
        "op": chosen.op,
        "causal": causal,
        "flops": chosen.flops,
        "bytes": chosen.bytes,
        "roles": {role.value: [workload.uuid for workload in found] for role, found in by_role.items()},
        "contract": _CONTRACT,
        "policy": _POLICY,
        "baselines": {library: _PUBLISHED_VERSIONS[library] for library in _BASELINES[chosen.op]},
        "families": _FAMILIES,
    }
    workloads = tuple(workload for found in by_role.values() for workload in found)
    return ProblemParts(_definition(name, text, chosen, constants), workloads, settings)


def _definition(name: str, text: str, chosen: Operator, constants: Mapping[str, int]) -> Definition:
    axes: dict[str, object] = {axis: {"type": "var"} for axis in chosen.variable_axes}
    axes |= {axis: {"type": "const", "value": constants[axis]} for axis in chosen.constant_axes}
    document: dict[str, object] = {
        "name": name,
        "description": text,
        "op_type": "gemm" if chosen.op == "gemm" else "mha",
        "axes": axes,
        "inputs": {arg: {"shape": shape, "dtype": dtype} for arg, (shape, dtype) in chosen.inputs.items()},
        "outputs": {arg: {"shape": shape, "dtype": dtype} for arg, (shape, dtype) in chosen.outputs.items()},
        "reference": chosen.reference,
    }
    if chosen.make_inputs:
        document["custom_inputs_entrypoint"] = chosen.make_inputs
    return Definition.model_validate(document)


def _workload(name: str, chosen: Operator, role: Role, axes: dict[str, int]) -> Workload:
    sizes = ",".join(f"{axis}={value}" for axis, value in axes.items())
    made = str(uuid.uuid5(_NAMESPACE, f"{name}:{sizes}"))
    kind = "custom" if chosen.make_inputs else "random"
    return Workload.model_validate(
        {
            "uuid": PAPER_UUIDS.get(name, made) if role is Role.PAPER else made,
            "axes": axes,
            "inputs": {arg: {"type": kind} for arg in chosen.inputs},
        }
    )


def _toml(settings: Settings) -> str:
    """The settings as TOML; strings, numbers, flags and lists of strings, in tables up to two levels deep."""
    lines = ["# Written by ptxbench.suite.make.", *_toml_values(settings)]
    for name, table in settings.items():
        if isinstance(table, Mapping):
            inner = {f"{name}.{key}": value for key, value in table.items() if isinstance(value, Mapping)}
            for title, values in ({name: table} if _toml_values(table) else inner).items():
                lines += ["", f"[{title}]", *_toml_values(values)]
    return "\n".join(lines) + "\n"


def _toml_values(table: Settings) -> list[str]:
    return [f"{key} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, Mapping)]


if __name__ == "__main__":
    for made in suite_parts():
        write_problem(made, PROBLEMS / made.definition.name)
