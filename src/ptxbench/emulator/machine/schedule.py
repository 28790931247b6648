"""Orders in which a cluster may run: late, eager, or drawn from a seed; all are ones that hardware could choose."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

_ENDLESS = 1 << 30


@dataclass
class Schedule:
    """Choices of one run.

    Attributes:
        name: `late`, `eager` or `seed N`.
        eager: Whether asynchronous work lands when it is issued.
    """

    name: str = "late"
    seed: int | None = None
    eager: bool = False
    _random: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        if self.seed is not None:
            self._random = random.Random(self.seed)  # noqa: S311  (a reproducible order, not a secret)

    def choose(self, count: int) -> int:
        """Which of `count` candidates comes next."""
        return self._random.randrange(count) if self.seed is not None and count > 1 else 0

    def quantum(self) -> int:
        """Blocks that a unit may run before another one does."""
        return self._random.randint(1, 12) if self.seed is not None else _ENDLESS

    def land_now(self) -> bool:
        """Whether some asynchronous work lands now, although something could still run."""
        return self.seed is not None and self._random.random() < 0.3

    def at_issue(self) -> bool:
        """Whether work that is issued now is done at once."""
        return self.eager or (self.seed is not None and self._random.random() < 0.25)


def late() -> Schedule:
    """Asynchronous work lands when nothing else can run."""
    return Schedule("late")


def eager() -> Schedule:
    """Asynchronous work lands when it is issued."""
    return Schedule("eager", eager=True)


def seeded(seed: int) -> Schedule:
    """Everything in an order drawn from the seed."""
    return Schedule(f"seed {seed}", seed=seed)
