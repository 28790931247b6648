"""What turns cost: tokens, dollars and seconds, per turn and per correct kernel; prices come with the answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ptxbench.records.rows import Rule, TurnRow


@dataclass(frozen=True)
class Costs:
    """Sums over turns; a sum is None where no turn gave the figure, and says in `turns` how many did."""

    turns: int
    correct_kernels: int
    """Different correct kernels: the same source twice is one."""
    input_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    cost: float | None
    """US dollars."""
    model_seconds: float | None
    evaluation_seconds: float | None

    def per_turn(self, total: float | None) -> float | None:
        """A sum of these divided by the number of turns."""
        return total / self.turns if total is not None and self.turns else None

    def per_correct_kernel(self, total: float | None) -> float | None:
        """A sum of these divided by the number of correct kernels; None where there is none."""
        return total / self.correct_kernels if total is not None and self.correct_kernels else None


def costs(rows: Iterable[TurnRow], rule: Rule = Rule.STRICT) -> Costs:
    """Sums over all turns, the wrong ones included: they were paid for as well."""
    turns = list(rows)
    correct = {row.candidate or f"{row.run}/{row.trajectory}/{row.turn}" for row in turns if row.correct[rule]}
    return Costs(
        turns=len(turns),
        correct_kernels=len(correct),
        input_tokens=_sum([row.input_tokens for row in turns]),
        output_tokens=_sum([row.output_tokens for row in turns]),
        reasoning_tokens=_sum([row.reasoning_tokens for row in turns]),
        cost=_total([row.cost for row in turns]),
        model_seconds=_total([row.model_seconds for row in turns]),
        evaluation_seconds=_total([row.evaluation_seconds for row in turns]),
    )


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
