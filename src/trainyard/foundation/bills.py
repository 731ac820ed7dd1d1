"""What the time of a training job comes to on its bill."""

import math
from dataclasses import dataclass
from datetime import timedelta

from trainyard.foundation.jobs import TrainingJob


@dataclass(frozen=True, slots=True)
class Bill:
    """Whole seconds: those that its instances worked in all attempts, and those of them that are billed."""

    trained_s: int
    billed_s: int


def bill_of(job: TrainingJob) -> Bill | None:
    """The bill of a job that has ended; None when its instances never worked, or still do."""
    if job.training_time is None:
        return None
    seconds = max(1, math.ceil(job.training_time / timedelta(seconds=1)))
    # From whole seconds, so that the saving that clients make of the two is that of the prices.
    billed = round(seconds * job.plan.billed_share) or min(1, math.ceil(job.plan.billed_share))
    return Bill(seconds, billed)
