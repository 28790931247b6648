"""The messages before the first answer: rules, knowledge pack, problem; nothing of other sizes, inputs or seeds."""

from __future__ import annotations

from dataclasses import dataclass

from ptxbench.agent.extraction import EXPORT
from ptxbench.errors import PackError
from ptxbench.knowledge import Pack, load_pack
from ptxbench.schema.problem import DType, Problem, TensorSpec, Workload
from ptxbench.schema.turn import Message, RunPlan, SampleKey
from ptxbench.schema.values import Target

NO_PACK = "none"
"""The name of no pack: rules and the interface of a candidate alone."""
_INTERFACE = ("parameters", "common/interface.md")
"""Level and part that show how a candidate is called, with an example."""

_OWN = {
    Target.SM_90A: "wgmma for matrix products, TMA (cp.async.bulk.tensor) for moving tiles",
    Target.SM_100A: "tcgen05 with tensor memory for matrix products, TMA (cp.async.bulk.tensor) for moving tiles",
}


@dataclass(frozen=True)
class Asked:
    """What a prompt is made from.

    Attributes:
        problem: The operator.
        workload: The only sizes that the model is told.
        pack: What the model is told about the target; None for rules and interface alone.
    """

    key: SampleKey
    problem: Problem
    workload: Workload
    pack: Pack | None


def pack_for(key: SampleKey, problem: Problem) -> Pack | None:
    """The knowledge pack of a sample.

    Raises:
        PackError: There is no such pack, it is not for the problem, or it teaches a language that is not judged.
    """
    if key.pack == NO_PACK:
        return None
    pack = load_pack(key.target, key.pack, problem)
    if pack.language != "cuda":
        raise PackError(f"The pack {key.pack!r} teaches {pack.language}.", "Only CUDA is judged; name another pack.")
    return pack


def prompt(asked: Asked, plan: RunPlan, *, emulated: bool) -> tuple[Message, Message]:
    """System and user message.

    Args:
        asked: Problem, sizes and pack.
        plan: Turns and target speedup.
        emulated: Whether the emulator judges, which measures no time.
    """
    return (
        Message(role="system", content=_system(asked)),
        Message(role="user", content=_user(asked, plan, emulated)),
    )


def _system(asked: Asked) -> str:
    target = asked.key.target
    parts = [_rules(target)]
    if asked.pack is None or not any(f"{EXPORT[:-1]}" in part.text for part in asked.pack.parts):
        level, name = _INTERFACE
        parts += [part.text for part in load_pack(target, level).parts if part.name == name]
    if asked.pack is not None:
        parts.append(asked.pack.text)
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _rules(target: Target) -> str:
    return f"""You write GPU kernels for NVIDIA {target.generation} ({target.value}) in CUDA C++ with inline PTX.

# Rules

1. Every answer holds the complete source file in one block that begins with ```cuda and ends with ```. If there are
   several blocks, the last one that exports `run` counts. Changes and fragments cannot be judged.
2. The file exports `run` with `{EXPORT}`. Its arguments are the inputs, then the
   outputs, in the order that is given.
3. Use the architecture's own instructions: {_OWN[target]}.
   Whether they execute, and how much of the work they do, is counted.
4. Between your answers your kernel is compiled, run and judged, and you are told what was found. Correct what is wrong
   first; then make it faster."""


def _user(asked: Asked, plan: RunPlan, emulated: bool) -> str:
    problem, workload = asked.problem, asked.workload
    sizes = ", ".join(f"{name} = {value}" for name, value in problem.axis_values(workload).items())
    constant = ", ".join(axis.name for axis in problem.axes if axis.value is not None)
    varying = ", ".join(axis.name for axis in problem.axes if axis.value is None)
    arguments = "\n".join(_argument(tensor, problem) for tensor in problem.arguments)
    sections = [
        f"# Problem: {problem.name}\n\n{problem.description}",
        f"Arguments of `run`, in order (contiguous, row-major):\n\n{arguments}",
        f"Sizes: {sizes}.\n\nFixed by the problem: {constant or 'none'}. Known at run time only, to be read from the "
        f"tensors' shapes: {varying or 'none'}. Other values of these are checked too, some of them no multiple of any "
        "tile.",
        f"Reference (it defines the result, not how to compute it):\n\n```python\n{problem.reference.strip()}\n```",
        _correctness(problem),
        _speed(problem, plan, emulated),
        _forbidden(problem),
        _turns(plan, emulated),
    ]
    return "\n\n".join(sections) + "\n"


def _argument(tensor: TensorSpec, problem: Problem) -> str:
    kind = "input" if tensor in problem.inputs else "output"
    return f"- `{tensor.name}` [{', '.join(tensor.shape)}] {tensor.dtype.value}, {kind}"


def _correctness(problem: Problem) -> str:
    contract = problem.contract
    steps = " and ".join(
        f"{bits} bits of {name}" for name, bits in (("bfloat16", 8), ("float32", 24)) if _has(problem, name)
    )
    atol, rtol = f"{contract.published_atol:g}", f"{contract.published_rtol:g}"
    return f"""# How it is checked

- Random inputs that nobody knows before, in several draws; outputs are poisoned before a call.
- No element may miss the reference by more than max({atol}, {rtol} * |reference|); none may be NaN or infinite.
- Against an exact result, the RMS-relative error of each block of {contract.block_rows} rows may be at most the larger
  of {contract.library_factor:g} times that of the library's kernel and one rounding step ({steps}).
  So accumulate in fp32 or better, and multiply in the inputs' type.
- Inputs must stay as they are, and nothing may be written outside the outputs. Memory errors, races and hangs fail."""


def _has(problem: Problem, dtype: str) -> bool:
    return any(tensor.dtype is DType(dtype) for tensor in problem.outputs)


def _speed(problem: Problem, plan: RunPlan, emulated: bool) -> str:
    if emulated:
        return """# How it is timed

Not at all: an emulator carries out every PTX instruction on a processor. It counts instructions and the share of the
required work that the architecture's own instructions do, and it finds races and deadlocks."""
    names = {"cublas": "cuBLAS", "cudnn": "cuDNN", "flashinfer": "FlashInfer"}
    baseline = names[problem.baselines[0].name] if problem.baselines else "the library"
    known = plan.baseline_ms.get(problem.name)
    time = f" For these sizes {baseline} needs about {known:g} ms." if known is not None else ""
    return f"""# How it is timed

GPU time of all kernels of one call, from the first one's start to the last one's end, with a cold L2 cache, alternating
with {baseline}. The speedup is {baseline}'s median time divided by yours. Only a correct kernel has one.{time}"""


def _forbidden(problem: Problem) -> str:
    libraries = ", ".join(sorted({name.rstrip("*") for name in problem.policy.forbidden_libraries}))
    return f"""# What is forbidden

Libraries ({libraries}).
Loading or compiling code at run time, starting processes, keeping results from one call for the next, and doing less
than the whole computation. The CUDA runtime, the driver and TVM-FFI may be used."""


def _turns(plan: RunPlan, emulated: bool) -> str:
    goal = ""
    if plan.target_speedup and emulated:
        goal = " The first correct kernel whose work is done by the architecture's own instructions ends it."
    elif plan.target_speedup:
        goal = f" The first correct kernel with a speedup of at least {plan.target_speedup:g} ends it."
    turns = "one turn" if plan.turns == 1 else f"{plan.turns} turns"
    return f"You have {turns}.{goal} The best correct kernel counts."
