"""The memory that candidates work in, as the judge sees it: data between guards, poison, copies; allocates nothing.

A slot is one set of pointers: one allocation per argument, large enough for every workload of a request. The data of a
workload begins behind the allocation's first guard; everything else in the allocation is guard too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from ptxbench.evaluate.child.memory import GUARD as GUARD_BYTES
from ptxbench.evaluate.child.tensors import DTYPES, Tensors, size_of
from ptxbench.evaluate.child.wire import Argument
from ptxbench.evaluate.rules import Layout
from ptxbench.schema.problem import Problem, TensorSpec, Workload

PATTERN = 0xA5
"""What guards are filled with."""
POISON = 0xFF
"""Outputs are filled with this byte before a call: a NaN in every float type, and one that no arithmetic gives."""


def largest(problem: Problem, spec: TensorSpec, workloads: Iterable[Workload]) -> int:
    """Bytes of data that one argument needs for the largest of these workloads."""
    return max(size_of(problem, spec, workload) for workload in workloads)


@dataclass(frozen=True)
class View:
    """One workload's arguments in one slot.

    Attributes:
        arguments: In the order of `run`'s parameters.
        inputs: Data of the inputs by name.
        outputs: Data of the outputs by name.
        guards: Everything else in the slot's allocations, as bytes.
    """

    arguments: tuple[Argument, ...]
    inputs: Tensors
    outputs: Tensors
    guards: tuple[torch.Tensor, ...]

    def load(self, inputs: Tensors) -> None:
        """Copy a draw's inputs in and poison the outputs."""
        for name, tensor in inputs.items():
            self.inputs[name].copy_(tensor)
        for tensor in self.outputs.values():
            as_bytes(tensor).fill_(POISON)

    def fill_guards(self) -> None:
        """Write the pattern that `guards_intact` looks for."""
        for guard in self.guards:
            guard.fill_(PATTERN)

    def guards_intact(self) -> bool:
        """Whether nothing was written outside the data."""
        return not bool(torch.stack([(guard != PATTERN).any() for guard in self.guards]).any())

    def inputs_changed(self, inputs: Tensors) -> tuple[str, ...]:
        """Names of the inputs that are no longer bit for bit what they were."""
        names = list(inputs)
        changed = [(_words(self.inputs[name]) != _words(inputs[name])).any() for name in names]
        return tuple(name for name, yes in zip(names, torch.stack(changed).tolist(), strict=True) if yes)

    def take_outputs(self) -> Tensors:
        """The outputs in memory that no candidate can reach; always before they are compared."""
        return {name: tensor.clone() for name, tensor in self.outputs.items()}


class Slot:
    """One set of pointers.

    Attributes:
        numbers: Index of each argument's allocation in the session.
        memory: Each argument's whole allocation, as bytes.
    """

    def __init__(self, numbers: dict[str, int], memory: Tensors) -> None:
        self.numbers = numbers
        self.memory = memory

    def view(self, problem: Problem, workload: Workload) -> View:
        """Lay a workload's arguments out in this slot."""
        arguments, data, guards = [], {}, []
        for spec in problem.arguments:
            memory = self.memory[spec.name]
            shape = problem.shape(spec, workload)
            end = GUARD_BYTES + size_of(problem, spec, workload)
            data[spec.name] = memory[GUARD_BYTES:end].view(DTYPES[spec.dtype]).view(shape)
            guards += [memory[:GUARD_BYTES], memory[end:]]
            arguments.append(Argument(self.numbers[spec.name], GUARD_BYTES, spec.dtype, shape))
        return View(
            arguments=tuple(arguments),
            inputs={spec.name: data[spec.name] for spec in problem.inputs},
            outputs={spec.name: data[spec.name] for spec in problem.outputs},
            guards=tuple(guards),
        )


def untouched(output: torch.Tensor) -> tuple[int, int]:
    """How many elements still hold the poison, and how many rows (of `rules.Layout`) have one that does."""
    kept = output.view(torch.int16 if output.element_size() == 2 else torch.int32) == -1
    columns = Layout.of(tuple(output.shape)).columns
    return int(kept.sum()), int(kept.reshape(-1, columns).any(dim=1).sum())


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor as uint8 [bytes]."""
    return tensor.view(-1).view(torch.uint8)


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of a contiguous tensor in the widest integers that fit its size."""
    flat = as_bytes(tensor)
    width = next(dtype for dtype in (torch.int64, torch.int32, torch.int16) if flat.numel() % dtype.itemsize == 0)
    return flat.view(width)
