"""Programs that take all resources or refuse to end, and a yard that must contain them."""

import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.system.trainees import Trainee
from tests.system.watching import Watch, card_of, folder_of, processes_of
from tests.system.yards import Place, trainee_of
from trainyard.testing.yard import RunningYard

# These tests reduce its memory.
SMALL = "ml.t3.medium"
MEMORY_GIB = 0.3
NEIGHBOUR = "neighbour"


@dataclass(frozen=True)
class Case:
    """A program, how its job ends, and what the failure card says; nothing if there is no card."""

    name: str
    script: str
    status: str
    kinds: Sequence[str] = ()
    words: str = ""
    limit_s: int = 60
    takes_most_s: float = 60
    # The job is stopped at this line.
    stops_at: str = ""
    # If the speed of the machine decides which of two limits is met first.
    or_status: str = ""


@contextmanager
def besieged(place: Place) -> Iterator[tuple[RunningYard, Trainee]]:
    """Provide a yard with small instances and a user whose first job runs beside all others."""
    place.change_catalog(f'["{SMALL}"]\nmemory_gib = {MEMORY_GIB}\n')
    with place.running(slots="2") as yard:
        trainee = trainee_of(yard).prepare()
        script = "import time\nprint('ready', flush=True)\ntime.sleep(3600)"
        trainee.start(NEIGHBOUR, script, StoppingCondition={"MaxRuntimeInSeconds": 3600})
        trainee.await_line(NEIGHBOUR, "ready")
        yield yard, trainee
        assert trainee.describe(NEIGHBOUR)["SecondaryStatus"] == "Training"
        trainee.sagemaker.stop_training_job(TrainingJobName=NEIGHBOUR)
        trainee.reach(NEIGHBOUR, "Stopped")


def contain(case: Case, yard: RunningYard, trainee: Trainee, *, record: Callable[[str, object], None]) -> None:
    """Run the program. It must be limited or ended and named in the card, and leave nothing behind.

    Meanwhile the yard must answer correctly about another job; its latency is recorded.
    """
    begun = time.monotonic()
    with Watch(trainee, NEIGHBOUR) as watch:
        trainee.start(case.name, textwrap.dedent(case.script), **small(case.limit_s))
        if case.stops_at:
            trainee.await_line(case.name, case.stops_at)
            trainee.sagemaker.stop_training_job(TrainingJobName=case.name)
        told = trainee.reach(case.name, "Completed", "Failed", "Stopped", within_s=case.takes_most_s)
    assert told["TrainingJobStatus"] in (case.status, case.or_status), (
        told.get("FailureReason"),
        trainee.lines(case.name)[-3:],
    )
    card = card_of(yard, case.name)
    assert (card.get("kind") in case.kinds) if case.kinds else not card, card
    assert case.words in card.get("summary", "")
    assert not (left := processes_of(yard, case.name)), left
    assert not folder_of(yard, case.name).ml.exists()
    seen = watch.statuses, watch.errors
    assert seen == ([("InProgress", "Training")], []), seen
    record("describe_p99_ms", round(watch.p99_s * 1000))
    record("took_s", round(time.monotonic() - begun, 1))


def small(limit_s: int) -> dict[str, Any]:
    return {
        "ResourceConfig": {"InstanceType": SMALL, "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": limit_s},
    }
