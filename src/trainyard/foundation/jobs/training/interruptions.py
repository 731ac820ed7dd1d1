"""When a drill interrupts a spot job: random times from a seed. The same seed always gives the same times."""

from dataclasses import dataclass
from datetime import timedelta
from random import Random


@dataclass(frozen=True, slots=True)
class InterruptionSchedule:
    """How long each attempt of a job trains before it is interrupted.

    The times are exponentially distributed, like those of a cloud that may need its machine back at any moment. Each
    depends only on the seed and the attempt, so the order of calls does not matter.
    """

    seed: int
    mean: timedelta
    most: int | None = None  # interruptions; None means no limit

    def after(self, attempt: int) -> timedelta | None:
        """Return how long an attempt trains before it is interrupted; None if it is not. The first attempt is 1."""
        if self.most is not None and attempt > self.most:
            return None
        return self.mean * _random(self.seed, attempt).expovariate(1.0)


def share_between(seed: int, low: float, high: float) -> float:
    """Return the fraction of a run at which to interrupt it once."""
    return _random(seed, 1).uniform(low, high)


def _random(seed: int, attempt: int) -> Random:
    return Random(f"{seed}/{attempt}")
