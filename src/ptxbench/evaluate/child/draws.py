"""Secret inputs, drawn on the judge's device from one seed; computes only what backward takes from forward."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from ptxbench.evaluate.child.tensors import DTYPES, Tensors
from ptxbench.schema.problem import Problem, Workload

Recipe = Literal["normal", "spiky"]

CHECKED: tuple[Recipe, ...] = ("normal", "normal", "normal", "spiky")
"""What a workload is checked with; the order they come in is secret."""
NEIGHBOUR: tuple[Recipe, ...] = ("normal",)
"""What a neighbour workload is checked with."""

SPIKE_RATE = 0.001
SPIKE_DEVIATION = 10.0
"""N(0, 1) + N(0, 100) * Bernoulli(0.001), with 100 the variance: the outlier recipe of the FlashAttention-3 paper."""

Forward = Callable[[Tensors], Tensors]
"""O and LSE from Q, K and V."""


@dataclass(frozen=True)
class Draw:
    """One set of inputs.

    Attributes:
        workload: Whose sizes they have.
        recipe: How they were drawn.
        inputs: In the judge's own memory; no candidate ever sees these very tensors.
    """

    workload: Workload
    recipe: Recipe
    inputs: Tensors


def draw_all(
    problem: Problem, workload: Workload, recipes: tuple[Recipe, ...], source: torch.Generator, forward: Forward
) -> list[Draw]:
    """One draw for each recipe, in an order that the generator's seed decides.

    Args:
        problem: Its inputs are drawn; O and LSE of the backward operators come from `forward`.
        workload: Sizes.
        recipes: Which recipes, in any order.
        source: Generator on the device that the tensors shall lie on.
        forward: The library's or the oracle's forward pass; called for the backward operators only.
    """
    order = list(recipes)
    random.Random(source.initial_seed()).shuffle(order)  # noqa: S311  (the seed is the secret)
    return [Draw(workload, recipe, _inputs(problem, workload, recipe, source, forward)) for recipe in order]


def _inputs(problem: Problem, workload: Workload, recipe: Recipe, source: torch.Generator, forward: Forward) -> Tensors:
    dependent = {"O", "LSE"} if problem.op == "attention_backward" else set()
    drawn = {
        spec.name: _draw(problem.shape(spec, workload), recipe, source).to(DTYPES[spec.dtype])
        for spec in problem.inputs
        if spec.name not in dependent
    }
    if dependent:
        drawn |= forward(drawn)
    return {spec.name: drawn[spec.name].to(DTYPES[spec.dtype]).contiguous() for spec in problem.inputs}


def _draw(shape: tuple[int, ...], recipe: Recipe, source: torch.Generator) -> torch.Tensor:
    values = torch.randn(shape, generator=source, device=source.device)
    if recipe == "spiky":
        spikes = torch.randn(shape, generator=source, device=source.device).mul_(SPIKE_DEVIATION)
        where = torch.rand(shape, generator=source, device=source.device) < SPIKE_RATE
        values.add_(spikes.mul_(where))
    return values
