"""How much a rule must have seen before it judges, and the parameters that say so.

AWS counts datapoints, which is minutes at any usual interval, so that short jobs get no verdict. Here a running job
must have trained for some seconds, and a job that has ended is judged by what there is.
"""

from dataclasses import dataclass

from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.rules.contract import Parameter

# No rule judges by fewer datapoints than these.
MIN_DATAPOINTS = 10

PATIENCE = Parameter(
    "patience",
    int,
    1000,
    "How many datapoints there must be before the rule judges; 0 sets no such limit.",
    advised=0,
    at_least=0,
)
PATIENCE_S = Parameter(
    "patience_s",
    float,
    0.0,
    "For how many seconds a running job must have trained before the rule judges.",
    advised=60.0,
    at_least=0,
)
WINDOW = Parameter(
    "window", int, 500, "How many of the latest datapoints count; 0 counts all of the training.", advised=0, at_least=0
)
SCAN_INTERVAL = Parameter(
    "scan_interval_us",
    int,
    60_000_000,
    "How often AWS evaluates the rule. Accepted and without effect: the yard evaluates all rules together.",
    at_least=0,
)


@dataclass(frozen=True, slots=True)
class Patience:
    datapoints: int
    seconds: float

    def missing(
        self, profile: JobProfile, datapoints: int, *, seconds: float, what: str = "samples", steps: int = 0
    ) -> str:
        """Return a sentence that says what a rule waits for; empty if it can judge.

        A rule that looks at steps as well can judge by `steps` where there are few samples.
        """
        least = max(MIN_DATAPOINTS, self.datapoints + 1 if self.datapoints else 0)
        has_steps = not self.datapoints and steps >= MIN_DATAPOINTS
        if datapoints < least and not has_steps:
            return f"There are {datapoints} {what} of the training so far; the rule judges from {least} on."
        if profile.ended_us is None and seconds < self.seconds:
            return (
                f"The job has trained for {seconds:.0f} s so far; the rule judges a running job after "
                f"{self.seconds:.0f} s."
            )
        return ""
