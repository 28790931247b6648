"""FlashInfer-Trace definitions and workloads in all dialects; what they mean to an evaluation is `suite`'s work.

Dialects: FlashInfer-Bench (with PTXBench's `Workload.outputs`), flashinfer-python (`init`, `check`, `optional`,
`param`, dtypes `uint8` and `unknown`, constants without a value, no reference) and SOL-ExecBench (axes given by
expressions, digits in shapes, custom inputs, tolerances, no `op_type`).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

from ptxbench.schema.expressions import evaluate, names_in
from ptxbench.schema.trace_base import Count, FileName, Number, Text, TraceModel

DTYPES = frozenset(
    {
        *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1"),
        *("float4_e2m1fn_x2", "int64", "int32", "int16", "int8", "uint8", "bool", "unknown"),
    }
)
"""Element types of all dialects; `unknown` is flashinfer-python's."""


class Axis(TraceModel):
    """A dimension: constant, variable (each workload gives it), or computed from other axes (SOL-ExecBench)."""

    type: Literal["const", "var", "expr"]
    value: Count | None = None
    """Of a constant; flashinfer-python may leave it out."""
    expression: StrictStr | None = None
    """Of a computed axis: integer arithmetic over the other axes."""
    description: StrictStr | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.type == "expr":
            if self.expression is None:
                raise ValueError("an axis of type 'expr' needs an 'expression'")
            names_in(self.expression)
        return self


class TensorSpec(TraceModel):
    """A tensor argument, or a Python scalar where `shape` is null."""

    shape: tuple[StrictStr, ...] | None
    """Axis names, or digits (SOL-ExecBench); `[]` is a tensor of no dimensions."""
    dtype: StrictStr
    description: StrictStr | None = None
    optional: StrictBool = False
    """flashinfer-python: the argument may be left out."""
    param: StrictStr | None = None
    """flashinfer-python: the parameter of the library's function that this argument feeds."""

    @model_validator(mode="after")
    def _known_dtype(self) -> Self:
        if self.dtype not in DTYPES:
            raise ValueError(f"unknown dtype {self.dtype!r}; known: {', '.join(sorted(DTYPES))}")
        return self


class Definition(TraceModel):
    """An operator: axes, tensors and a reference in Python, which is never executed here."""

    name: FileName
    op_type: FileName | None = None
    """Absent in SOL-ExecBench."""
    axes: dict[StrictStr, Axis]
    inputs: dict[StrictStr, TensorSpec]
    """The order of the keys is the order of the arguments."""
    outputs: dict[StrictStr, TensorSpec]
    reference: StrictStr | None = None
    """Python source with a top-level `run`; flashinfer-python may leave it out."""
    tags: tuple[StrictStr, ...] = ()
    description: StrictStr | None = None
    constraints: tuple[StrictStr, ...] = ()
    custom_inputs_entrypoint: StrictStr | None = None
    """SOL-ExecBench: a function of the reference that makes the inputs of workloads of kind `custom`."""
    hf_id: StrictStr | None = None
    init: StrictStr | None = None
    """flashinfer-python: Python source of a function that makes inputs."""
    check: StrictStr | None = None
    """flashinfer-python: Python source of a function that compares outputs."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        both = self.inputs.keys() & self.outputs.keys()
        if both:
            raise ValueError(f"{', '.join(sorted(both))}: both input and output")
        for name, tensor in {**self.inputs, **self.outputs}.items():
            unknown = [axis for axis in tensor.shape or () if axis not in self.axes and not _is_digits(axis)]
            if unknown:
                raise ValueError(f"tensor {name!r} has unknown axes: {', '.join(unknown)}")
        for axis in self.axes.values():
            unknown_names = names_in(axis.expression) - self.axes.keys() if axis.expression else ()
            if unknown_names:
                raise ValueError(f"expression {axis.expression!r} names no axis: {', '.join(sorted(unknown_names))}")
        if self.reference is not None:
            _check_reference(self.reference, self.custom_inputs_entrypoint)
        return self

    @property
    def variable_axes(self) -> tuple[str, ...]:
        """Axes that each workload gives a value."""
        return tuple(name for name, axis in self.axes.items() if axis.type == "var")

    def axis_values(self, given: Mapping[str, int]) -> dict[str, int]:
        """Every axis with its value, computed ones included.

        Raises:
            ValueError: A variable axis is not given, a constant has no value, or expressions refer to each other.
        """
        values: dict[str, int] = {}
        for name, axis in self.axes.items():
            if axis.type != "expr":
                value = axis.value if axis.type == "const" else given.get(name)
                if value is None:
                    raise ValueError(f"axis {name!r} has no value")
                values[name] = value
        waiting = {name: axis.expression for name, axis in self.axes.items() if axis.expression and name not in values}
        while waiting:
            ready = [name for name, text in waiting.items() if names_in(text) <= values.keys()]
            if not ready:
                raise ValueError(f"the expressions of {', '.join(sorted(waiting))} refer to each other")
            values.update({name: evaluate(waiting.pop(name), values) for name in ready})
        return values


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _check_reference(source: str, custom_inputs: str | None) -> None:
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ValueError(f"the reference is not Python: {error}") from None
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    for name in filter(None, ("run", custom_inputs)):
        if name not in functions:
            raise ValueError(f"the reference has no top-level function {name!r}")


class InputSpec(TraceModel):
    """How one input of a workload comes about."""

    type: Literal["random", "scalar", "safetensors", "custom"] = "random"
    value: StrictBool | StrictInt | StrictFloat | None = None
    """Of a scalar."""
    path: StrictStr | None = None
    """Of stored tensors, relative to the root of the data set."""
    tensor_key: StrictStr | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.type == "scalar" and self.value is None:
            raise ValueError("an input of type 'scalar' needs a 'value'")
        if self.type == "safetensors" and not (self.path and self.tensor_key):
            raise ValueError("an input of type 'safetensors' needs a 'path' and a 'tensor_key'")
        return self


class Tolerance(TraceModel):
    """SOL-ExecBench's rule for one workload."""

    max_atol: Number = 1e-2
    max_rtol: Number = 1e-2
    required_matched_ratio: Number = 0.99
    max_error_cap: StrictInt | StrictFloat | None = None
    allow_negative_inf: StrictBool = False


class Workload(TraceModel):
    """Concrete sizes and inputs."""

    axes: dict[StrictStr, Count]
    inputs: dict[StrictStr, InputSpec]
    uuid: Text
    outputs: dict[StrictStr, InputSpec] | None = None
    """PTXBench: stored results of the reference."""
    tolerance: Tolerance | None = None
    """SOL-ExecBench."""
