"""What the yard concludes from the profile of a job, as values and as notebooks show it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trainyard._sdk.connection import Api
from trainyard._sdk.profiling.conclusion import ProfileVerdict, describe_profile, verdict_of
from trainyard.foundation.notebook_html import card, table

_MAX_ADVICE = 5


@dataclass(frozen=True, slots=True)
class ProfiledJob:
    """What the profile of a job means, as of `evaluated_at`.

    Args:
        name: Name of the job.
        verdict: The bottleneck, advice, costs, and the change since earlier runs.
        rules: The profiler rules of the job, each with its status and findings, as DescribeProfile returns them.
        phases: Where the steps of each worker spend their time, in seconds.
        hardware: The latest value and the mean of each series of each instance.
        report: S3 location of the report; empty if no rule writes one.
        profiler_output: S3 location of the profiles; empty if the job has none.
        notes: What is missing from the profile, or could not be read.
        evaluated_at: When the yard concluded this.
    """

    name: str
    verdict: ProfileVerdict
    rules: Sequence[Mapping[str, Any]] = ()
    phases: Sequence[Mapping[str, Any]] = ()
    hardware: Sequence[Mapping[str, Any]] = ()
    report: str = ""
    profiler_output: str = ""
    notes: Sequence[str] = ()
    evaluated_at: datetime | None = field(default=None, repr=False)

    def __str__(self) -> str:
        advice = [f"- {each.title}: {each.reason}" for each in self.verdict.advice[:_MAX_ADVICE]]
        return "\n".join([self.verdict.summary, *advice])

    def _repr_html_(self) -> str:
        verdict = self.verdict
        bottleneck, costs = verdict.bottleneck, verdict.costs
        found = [(each.title, f"{each.share:.0%}", _factor(each.max_speedup)) for each in _bottlenecks(verdict)]
        chosen = verdict.advice[:_MAX_ADVICE]
        advice = [(each.title, each.reason, _factor(each.max_speedup)) for each in chosen]
        return card(
            f"Profile of {self.name}",
            {
                "verdict": verdict.summary,
                "evidence": " ".join(bottleneck.evidence) if bottleneck else "",
                "since earlier runs": verdict.regression.message if verdict.regression else "",
                "step": "" if costs.step_s is None else f"{costs.step_s * 1e3:.4g} ms",
                "samples per second": "" if costs.samples_per_s is None else f"{costs.samples_per_s:.4g}",
                "report": self.report,
                "notes": " ".join([*verdict.notes, *self.notes]),
            },
            table(("cause", "share", "at most"), found, title="Where the time goes"),
            table(("what to do", "why", "at most"), advice, title="Advice"),
            table(("worker", "steps", "ms", "of which"), map(_phase_row, self.phases), title="Phases of a step"),
            table(("rule", "status", "found"), map(_rule_row, self.rules), title="Rules"),
        )


def read_profile(api: Api, name: str) -> ProfiledJob:
    """Return what the yard concludes from the profile of a job, as of now."""
    known = describe_profile(api, name)
    return ProfiledJob(
        known.get("TrainingJobName", name),
        verdict_of(known),
        known.get("Rules", ()),
        known.get("Phases", ()),
        known.get("Hardware", ()),
        known.get("Report", ""),
        known.get("ProfilerOutput", ""),
        known.get("Notes", ()),
        known.get("EvaluatedAt"),
    )


def _bottlenecks(verdict: ProfileVerdict) -> list[Any]:
    return [*([verdict.bottleneck] if verdict.bottleneck else []), *verdict.others]


def _phase_row(phases: Mapping[str, Any]) -> tuple[str, ...]:
    parts = sorted(phases["PhaseSeconds"].items(), key=lambda item: -item[1])
    step_s = phases["StepSeconds"] or 1.0
    shares = (
        f"{name.replace('_', ' ')} {taken_s / step_s:.0%}" for name, taken_s in parts if taken_s >= 0.005 * step_s
    )
    return f"{phases['Instance']} {phases['Worker']}", str(phases["Steps"]), f"{step_s * 1e3:.4g}", ", ".join(shares)


def _rule_row(rule: Mapping[str, Any]) -> tuple[str, ...]:
    findings = rule.get("Findings") or ()
    said = findings[0]["Message"] if findings else rule.get("Undecided") or rule.get("Details") or ""
    return rule["Name"], rule["Status"], said


def _factor(speedup: float | None) -> str:
    return "" if speedup is None else f"{speedup:.2f} times as fast"
