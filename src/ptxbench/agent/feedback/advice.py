"""What to do about each reason of a verdict, said to whoever writes the kernel and can run nothing; decides nothing."""

from __future__ import annotations

ADVICE = {
    "no_run": "Define `run` and export it at the end of the file with TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);",
    "forbidden_include": "Write the operation yourself; this library may not be used.",
    "forbidden_needed": "Use nothing but the CUDA runtime, the driver API and TVM-FFI.",
    "forbidden_symbol": "Write the operation yourself; this library may not be used.",
    "compile_error": "Mend the first error first; later ones often follow from it. Send the complete file again.",
    "hang": "Hold every wait against what should end it: who arrives, how often, with how many bytes, which parity.",
    "hang_at_load": "A static constructor does not return: do no work while the library loads.",
    "crashed": "The host code of `run` ended its process: check pointers, sizes and the launch code.",
    "exited": "The host code of `run` ended its process: report errors with TVM_FFI_ICHECK, and return from `run`.",
    "raised": "`run` threw this error: look at launch, shared-memory size and tensor maps, for every shape.",
    "load_failed": "The library cannot be loaded: link nothing but the CUDA runtime, and export `run`.",
    "no_symbol": "Export the entry point with TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);",
    "cuda_error": "Look at the launch (shared memory, grid, block), and for addresses out of bounds or misaligned.",
    "wrong_numbers": "Follow the failing elements back to the tile, the warp and the step along K that made them.",
    "imprecise": "Accumulate in float32, keep 16-bit operands, and round once, at the end.",
    "nan_output": "Look for shared memory or accumulators that nobody set, 0/0 or inf-inf, and missing masks.",
    "missing_output": "Nothing was ever written there: grid, epilogue or its bounds do not cover these rows.",
    "changed_input": "Inputs are read-only: write to the outputs and to a workspace of your own alone.",
    "out_of_bounds_write": "A store runs past its tensor: check the bounds of ragged tiles and of tensor maps.",
    "timed_output_wrong": "Every call must compute its outputs anew, from the inputs that it is given.",
    "foreign_kernel": "All work must be done by kernels that are compiled from this source.",
    "forged_reply": "Only the return of `run` may answer.",
    "oversized_reply": "Only the return of `run` may answer.",
    "unsupported": "Write it without this instruction or call; nothing else is known about the kernel.",
    "emulation_limit": "Look for a loop without an end, or for far more work or memory than the problem needs.",
    "emulation_failed": "This says nothing about the kernel. Sending it again unchanged is reasonable.",
    "sanitizer_unavailable": "The memory check could not be made, which is not the kernel's fault.",
    "kernels_vary": "Launch the same kernels in every call.",
    "launches_differ": "Launch the same kernels in every call.",
}
"""By code of a reason. A code that is not here has a message that says it all."""

RULES = {
    "forbidden_include": "a header of a forbidden library is included",
    "forbidden_needed": "a library is linked that is not allowed",
    "forbidden_symbol": "a forbidden library is called",
    "foreign_cubin": "GPU code is carried that was not compiled from this source",
    "static_library": "code of a forbidden library is linked in",
    "no_run": "no function `run` is exported",
    "run_time_compilation": "code is compiled at run time",
    "run_time_loading": "code is loaded at run time",
    "foreign_memory": "memory of another process is opened",
    "process_control": "processes are started or connected to, or the kernel is called by number",
    "instrument": "the instruments that measure are steered",
}
"""What a finding of the policy means."""

FAMILIES = {
    "GMMA": "wgmma",
    "TMA": "TMA (cp.async.bulk.tensor)",
    "TCGEN_MMA": "tcgen05.mma",
    "TMEM": "tcgen05.ld/st",
    "TCGEN_CONTROL": "tcgen05 control (alloc, commit, cp)",
    "OTHER_MMA": "mma.sync",
}
"""Families of machine code by the PTX that a model writes for them."""


def family(name: str) -> str:
    """PTX of a family; its own name where it has none here."""
    return FAMILIES.get(name, name)
