"""Trainings that stand still."""

from collections.abc import Iterator

from trainyard.formats.tensors.contract import Mode, Step
from trainyard.insight.rules.contract import DebuggerRule, Finding, Need, Parameter, Severity
from trainyard.insight.rules.readings import Track


class StalledTrainingRule(DebuggerRule):
    """Finds trainings of which no step comes any more."""

    name = "StalledTrainingRule"
    parameters = (
        Parameter("threshold", float, 1800.0, "For how many seconds no step must have come.", at_least=0),
        Parameter("stop_training_on_fire", bool, False, "Whether the job is stopped then."),
        Parameter("training_job_name_prefix", str, None, "Has no effect here: the job that is judged is stopped."),
    )

    def __init__(self, *, threshold: float, stop_training_on_fire: bool, training_job_name_prefix: str | None) -> None:
        del stop_training_on_fire, training_job_name_prefix  # the yard makes an action of them when a job is created
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
            yield self._finding(
                step, waited_s, what=f"Step {step.number} came {waited_s:.4g} s after the one before it"
            )

    def idle(self, seconds: float) -> Iterator[Finding]:
        if seconds > self._threshold:
            yield self._finding(self._last, seconds, what=f"No step has come for {seconds:.4g} s")

    def _finding(self, step: Step | None, waited_s: float, *, what: str) -> Finding:
        return Finding(
            step.number if step else 0,
            step.mode if step else Mode.GLOBAL,
            step.worker if step else "worker_0",
            "",
            f"{what}, later than the {self._threshold:.4g} s that it may take.",
            value=waited_s,
            threshold=self._threshold,
            severity=Severity.CRITICAL,
            evidence=(self._waits.evidence("seconds between steps"),),
        )
