"""Commit and wait groups of one thread (`cp.async`, bulk copies) or warpgroup (`wgmma`), as values; runs nothing.

PTX ISA, section Asynchronous Operations: groups complete in the order of their commits, nothing is ordered inside one,
and an empty commit makes an empty, complete group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Groups(Generic[T]):
    """Operations in flight.

    Attributes:
        open: Issued since the last commit.
        committed: Groups not yet waited for, oldest first.
    """

    open: tuple[T, ...] = ()
    committed: tuple[tuple[T, ...], ...] = ()

    def issued(self, operation: T) -> Groups[T]:
        """With one more operation in the open group."""
        return replace(self, open=(*self.open, operation))

    def commit(self) -> Groups[T]:
        """With the open group closed."""
        return Groups((), (*self.committed, self.open))

    def due(self, newest: int) -> tuple[T, ...]:
        """Operations that must be done before a wait for all but the `newest` groups returns, oldest first.

        A `.read` wait needs only their reads done, and leaves the groups as they are.
        """
        return tuple(operation for group in self._older(newest) for operation in group)

    def waited(self, newest: int) -> Groups[T]:
        """After such a wait."""
        return Groups(self.open, self.committed[len(self._older(newest)) :])

    def without(self, done: frozenset[T]) -> Groups[T]:
        """After some operations were done by themselves; the groups stay, and count."""
        kept = tuple(tuple(one for one in group if one not in done) for group in (self.open, *self.committed))
        return Groups(kept[0], kept[1:])

    @property
    def in_flight(self) -> tuple[T, ...]:
        """Every operation, committed ones first."""
        return (*self.due(0), *self.open)

    def _older(self, newest: int) -> tuple[tuple[T, ...], ...]:
        return self.committed[: max(len(self.committed) - newest, 0)]
