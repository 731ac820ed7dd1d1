"""When a job loses its place by chance, decided by a seed: the same seed always gives the same times. Pure."""

from dataclasses import dataclass
from datetime import timedelta
from random import Random


@dataclass(frozen=True, slots=True)
class InterruptionSchedule:
    """How long each attempt of a job trains before it is interrupted.

    The times are spread as those of a cloud that may need its machine at any moment: exponentially around their mean.
    Each depends on the seed and on its attempt alone, so it does not matter who has asked for which before.
    """

    seed: int
    mean: timedelta
    most: int | None = None  # interruptions; None is no end of them

    def after(self, attempt: int) -> timedelta | None:
        """How long the attempt, of which the first is 1, trains before it is interrupted; None if it is left alone."""
        if self.most is not None and attempt > self.most:
            return None
        return self.mean * _dice(self.seed, attempt).expovariate(1.0)


def share_between(seed: int, low: float, high: float) -> float:
    """A share of a run, at which to interrupt it once."""
    return _dice(seed, 1).uniform(low, high)


def _dice(seed: int, attempt: int) -> Random:
    return Random(f"{seed}/{attempt}")
