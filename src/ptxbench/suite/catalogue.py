"""Reads problem folders into `Problem` values and picks workloads; makes no problems and computes no results."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from ptxbench.errors import ProblemError
from ptxbench.schema.expressions import ExpressionError, evaluate, names_in
from ptxbench.schema.problem import (
    Axis,
    Baseline,
    Contract,
    DType,
    Policy,
    Problem,
    Role,
    TensorSpec,
    WorkFamilies,
    Workload,
)
from ptxbench.schema.trace_files import read_definition, read_workloads
from ptxbench.schema.trace_problem import Definition
from ptxbench.schema.trace_problem import TensorSpec as TraceTensor
from ptxbench.schema.values import Frozen, Target, content_hash
from ptxbench.suite.operators import Op, operator

PROBLEMS = Path(__file__).parent / "problems"
"""The suite's own folders."""

FILES = ("definition.json", "workloads.jsonl", "problem.toml")
"""What a problem's folder holds."""


class _Families(WorkFamilies):
    published: tuple[str, ...]


class _Settings(Frozen):
    """`problem.toml`."""

    op: Op
    causal: bool
    flops: str
    bytes: str
    roles: dict[Role, tuple[str, ...]]
    contract: Contract
    policy: Policy
    baselines: dict[Literal["cublas", "cudnn", "flashinfer"], str]
    families: dict[Target, _Families]


def problem_names() -> tuple[str, ...]:
    """The suite's own problems, sorted by name."""
    return tuple(sorted(path.parent.name for path in PROBLEMS.glob("*/problem.toml")))


def load_problem(name_or_path: str | Path) -> Problem:
    """A problem of the suite by its name, or any problem by its folder.

    Raises:
        ProblemError: There is no such problem (the message names the closest), or its folder cannot be read.
    """
    if isinstance(name_or_path, str) and name_or_path in problem_names():
        return _own_problem(name_or_path)
    folder = Path(name_or_path)
    if folder.is_dir():
        return _read(folder)
    if isinstance(name_or_path, Path) or "/" in name_or_path:
        raise ProblemError(f"There is no problem folder {folder}.", f"Name a folder with {', '.join(FILES)}.")
    close = difflib.get_close_matches(name_or_path, problem_names(), n=3, cutoff=0.4)
    remedy = f"Did you mean {' or '.join(close)}?" if close else f"The suite has: {', '.join(problem_names())}."
    raise ProblemError(f"There is no problem {name_or_path!r}.", remedy)


def problem_hash(problem: Problem) -> str:
    """Content hash (hex SHA-256) of everything a problem says, workloads included."""
    return content_hash(["ptxbench.problem.v1", problem.model_dump_json()])


def required_flops(problem: Problem, workload: Workload) -> int:
    """Floating-point operations that the workload needs, two per multiply-add; causal attention counts half.

    Raises:
        ProblemError: The problem's expression has no integer value for this workload.
    """
    return _evaluated(problem, problem.flops, workload)


def compulsory_bytes(problem: Problem, workload: Workload) -> int:
    """Bytes of device memory that must be moved: each input read once, each output written once.

    Raises:
        ProblemError: The problem's expression has no integer value for this workload.
    """
    return _evaluated(problem, problem.bytes, workload)


def pick_workload(problem: Problem, which: str | None = None) -> Workload:
    """A workload by its uuid (or a unique prefix of at least 8 characters), or the first of a role.

    Args:
        problem: The problem that has it.
        which: uuid, `paper`, `neighbour` or `small`; None means `paper`, or the first there is.

    Raises:
        ProblemError: The problem has no such workload.
    """
    by_role = {workload.role.value: workload for workload in reversed(problem.workloads)}
    found = by_role.get(which or Role.PAPER.value) or (problem.workload(which) if which else problem.workloads[0])
    if found is None:
        known = "; ".join(f"{w.uuid} ({w.role.value}, {_sizes(w)})" for w in problem.workloads)
        raise ProblemError(f"{problem.name} has no workload {which!r}.", f"It has: {known}.")
    return found


def _sizes(workload: Workload) -> str:
    return " ".join(f"{axis}={value}" for axis, value in workload.axes.items())


def _evaluated(problem: Problem, expression: str, workload: Workload) -> int:
    try:
        return evaluate(expression, problem.axis_values(workload))
    except ExpressionError as fault:
        raise ProblemError(f"{problem.name}: {fault}.", "Correct problem.toml.") from None


@cache
def _own_problem(name: str) -> Problem:
    return _read(PROBLEMS / name)


def _read(folder: Path) -> Problem:
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise ProblemError(f"{folder} is no problem folder: it lacks {', '.join(missing)}.", "`suite make` writes one.")
    definition = read_definition(folder / "definition.json")
    settings = _settings(folder / "problem.toml")
    _check_operator(definition, settings, folder)
    return Problem(
        name=definition.name,
        op=settings.op,
        causal=settings.causal,
        description=definition.description or "",
        axes=tuple(Axis(name=name, value=axis.value) for name, axis in definition.axes.items()),
        inputs=_tensors(definition.inputs),
        outputs=_tensors(definition.outputs),
        reference=definition.reference or "",
        input_maker=definition.custom_inputs_entrypoint or "",
        flops=settings.flops,
        bytes=settings.bytes,
        contract=settings.contract,
        policy=settings.policy,
        baselines=tuple(Baseline(name=name, published_version=v) for name, v in settings.baselines.items()),
        families={target: families.published for target, families in settings.families.items()},
        work_families={
            target: WorkFamilies(mma=families.mma, tma=families.tma) for target, families in settings.families.items()
        },
        workloads=_workloads(folder / "workloads.jsonl", definition, settings),
    )


def _settings(path: Path) -> _Settings:
    try:
        return _Settings.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ProblemError(f"{path}: {where}: {first['msg']}.", "Correct this field.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as fault:
        raise ProblemError(f"{path}: {fault}.", "Repair the file.") from None


def _check_operator(definition: Definition, settings: _Settings, folder: Path) -> None:
    """A problem must have the arguments that its operator's oracle computes."""
    expected = operator(settings.op, settings.causal)
    for kind, tensors, wanted in (
        ("inputs", definition.inputs, expected.inputs),
        ("outputs", definition.outputs, expected.outputs),
    ):
        found = {name: (tensor.shape or (), tensor.dtype) for name, tensor in tensors.items()}
        if list(found.items()) != list(wanted.items()):
            text = ", ".join(f"{name} [{','.join(shape)}] {dtype}" for name, (shape, dtype) in wanted.items())
            raise ProblemError(
                f"{folder / 'definition.json'}: its {kind} are not those of {settings.op}.",
                f"They must be, in this order: {text}.",
            )
    for axis in (*expected.constant_axes, *expected.variable_axes):
        kind = "const" if axis in expected.constant_axes else "var"
        held = definition.axes[axis]
        if held.type != kind or (kind == "const" and not held.value):
            what = f"axis {axis} must be of type {kind!r}" + (" with a value" if kind == "const" else "")
            raise ProblemError(f"{folder / 'definition.json'}: {what}.", "Correct this axis.")
    for name in ("flops", "bytes"):
        try:
            unknown = names_in(getattr(settings, name)) - definition.axes.keys()
        except ExpressionError as fault:
            raise ProblemError(f"{folder / 'problem.toml'}: {name}: {fault}.", "Correct this expression.") from None
        if unknown:
            what = f"{folder / 'problem.toml'}: {name} names no axis: {', '.join(sorted(unknown))}."
            raise ProblemError(what, f"The axes are {', '.join(definition.axes)}.")


def _tensors(tensors: Mapping[str, TraceTensor]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name=name, shape=tensor.shape or (), dtype=DType(tensor.dtype)) for name, tensor in tensors.items()
    )


def _workloads(path: Path, definition: Definition, settings: _Settings) -> tuple[Workload, ...]:
    roles = {uuid: role for role, uuids in settings.roles.items() for uuid in uuids}
    found = read_workloads(path)
    for workload in found:
        if workload.uuid not in roles:
            what = f"{path}: problem.toml gives workload {workload.uuid} no role."
            raise ProblemError(what, "List its uuid under [roles] as paper, neighbour or small.")
        if set(workload.axes) != set(definition.variable_axes) or min(workload.axes.values(), default=0) < 1:
            what = f"{path}: workload {workload.uuid} has axes {dict(workload.axes)}."
            raise ProblemError(what, f"Give each of {', '.join(definition.variable_axes)} a size of at least 1.")
    absent = roles.keys() - {workload.uuid for workload in found}
    if absent:
        what = f"{path} lacks {', '.join(sorted(absent))}, which problem.toml lists."
        raise ProblemError(what, "Add these workloads.")
    if not found:
        raise ProblemError(f"{path} holds no workload.", "Add one.")
    return tuple(Workload(uuid=w.uuid, axes=dict(w.axes), role=roles[w.uuid]) for w in found)
