"""Trainings that have stalled."""

from collections.abc import Iterator

from trainyard.formats.tensors.contract import Mode, Step
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need, Parameter, Severity
from trainyard.insight.rules.readings import Track


class StalledTrainingRule(DebuggerRule):
    """Finds trainings that take no more steps."""

    name = "StalledTrainingRule"
    parameters = (
        Parameter("threshold", float, 1800.0, "The time in seconds without a step.", at_least=0),
        Parameter("stop_training_on_fire", bool, False, "Whether to stop the job when the rule fires."),
        Parameter("training_job_name_prefix", str, None, "Has no effect here: the job with this rule is stopped."),
    )

    def __init__(self, *, threshold: float, stop_training_on_fire: bool, training_job_name_prefix: str | None) -> None:
        # The yard turns these into an action when the job is created.
        del stop_training_on_fire, training_job_name_prefix
        self._threshold = threshold
        self._last: Step | None = None
        self._waits = Track()

    @property
    def needs(self) -> Need:
        return Need()

    def check(self, step: Step) -> Iterator[Finding]:
        before, self._last = self._last, step
        if before is None:
            return
        waited_s = (step.at_us - before.at_us) / 1e6
        self._waits.add(step.number, waited_s)
        if waited_s > self._threshold:
            yield self._finding(step, waited_s, what=f"Step {step.number} came {waited_s:.4g} s after the previous one")

    def idle(self, seconds: float) -> Iterator[Finding]:
        if seconds > self._threshold:
            yield self._finding(self._last, seconds, what=f"There was no step for {seconds:.4g} s")

    def _finding(self, step: Step | None, waited_s: float, *, what: str) -> Finding:
        return Finding(
            step.number if step else 0,
            step.mode if step else Mode.GLOBAL,
            step.worker if step else "worker_0",
            "",
            f"{what}; the limit is {self._threshold:.4g} s.",
            value=waited_s,
            threshold=self._threshold,
            severity=Severity.CRITICAL,
            evidence=(self._waits.evidence("seconds between steps"),),
        )
