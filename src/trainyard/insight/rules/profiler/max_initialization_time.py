"""Programs that take long until their first step."""

from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.profiling.verdict.wording import percent
from trainyard.insight.rules.contract import Parameter
from trainyard.insight.rules.profiler.contract import ProfilerCheck, ProfilerFinding, ProfilerRule
from trainyard.insight.rules.profiler.patience import SCAN_INTERVAL
from trainyard.insight.rules.profiler.robust_statistics import percentile
from trainyard.insight.rules.profiler.training_samples import GPU_IN_USE_PERCENT, latest_us, training_samples

# A program whose steps are not seen may train; one that uses less of a core than this does not.
_IDLE_CORES = 0.1


class MaxInitializationTime(ProfilerRule):
    """Finds programs that take too long until their first step."""

    name = "MaxInitializationTime"
    parameters = (
        Parameter("threshold", float, 20.0, "How many minutes may pass before the first step.", at_least=0),
        SCAN_INTERVAL,
    )
    purpose = "Looks for programs that take long before their first step."
    recommendation = (
        "Start the training before all data is there: use FastFile or Pipe channels, load data lazily, install "
        "packages in the image, and write a checkpoint that a restarted job continues from."
    )

    def __init__(self, *, threshold: float, scan_interval_us: int) -> None:  # noqa: ARG002 - AWS's
        self._threshold = threshold

    def check(self, profile: JobProfile) -> ProfilerCheck:
        begun = [int(rank.steps.starts_us.min()) for rank in profile.ranks if len(rank.steps)]
        first_us = min(begun, default=None)
        until_us = latest_us(profile) if first_us is None else first_us
        minutes = max(0.0, (until_us - profile.started_us) / 60e6)
        total = max((latest_us(profile) - profile.started_us) / 60e6, minutes)
        share = minutes / total if total > 0 else 0.0
        details = {"initialization_minutes": minutes, "share_of_job": share, "has_steps": first_us is not None}
        if minutes <= self._threshold:
            undecided = "" if first_us is not None else "No step has been seen yet."
            return ProfilerCheck((), len(begun), 0, details, undecided)
        if first_us is None and not profile.ranks and not _is_idle(profile):
            return ProfilerCheck((), 0, 0, details, _UNKNOWN)
        seen = (
            f"took {minutes:.0f} minutes until the first step" if begun else f"has not begun in {minutes:.0f} minutes"
        )
        finding = ProfilerFinding(
            f"The training {seen} (limit {self._threshold:g}), {percent(share)} of the job's time so far.",
            value=minutes,
            threshold=self._threshold,
            started_us=profile.started_us,
            ended_us=until_us,
        )
        return ProfilerCheck((finding,), max(1, len(begun)), 1, details)


def _is_idle(profile: JobProfile) -> bool:
    """Whether the hardware says that a program whose steps are not seen does not train."""
    for samples in training_samples(profile):
        gpus = samples.of(HardwareMetric.GPU_PERCENT).values()
        if any(percentile(each, 95) > GPU_IN_USE_PERCENT for each in gpus):
            return False
        used = samples.job_cores
        if not gpus and (used is None or not percentile(used, 50) < _IDLE_CORES):
            return False
    return bool(profile.hardware)


_UNKNOWN = "No steps are seen, but the program uses the hardware; it may train with a framework that is not timed."
