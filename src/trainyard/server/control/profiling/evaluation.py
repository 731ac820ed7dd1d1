"""Evaluates one profile, in the evaluation process: loads it, reads its traces, runs its rules, judges and reports."""

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from trainyard.formats.profiles.traces.cache import TraceCache
from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.foundation.plain import to_plain
from trainyard.insight.profiling.contract import InstanceFacts, JobProfile
from trainyard.insight.profiling.loading import load_profile
from trainyard.insight.profiling.overview import RankPhases, list_phases, list_series
from trainyard.insight.profiling.report.contract import ReportedRule, ReportSource
from trainyard.insight.profiling.report.rule_files import write_rule_files
from trainyard.insight.profiling.report.writer import write_report
from trainyard.insight.profiling.traces.trace_profile import TraceProfile, profile_trace
from trainyard.insight.profiling.verdict.contract import ProfileVerdict
from trainyard.insight.profiling.verdict.judge import judge_profile, summarize_run
from trainyard.insight.rules.profiler.catalog import make_profiler_rule, profiler_rule_values, report_rules
from trainyard.insight.rules.profiler.contract import ProfilerCheck, ProfilerRule
from trainyard.server.control.profiling.contract import (
    REPORT_RULE,
    EvaluationQuestion,
    OfferedType,
    ProfileConclusion,
    RuleConclusion,
    RuleQuestion,
    TraceQuestion,
)
from trainyard.server.control.profiling.run_summary import instance_source, parse_run, plain_run

MAX_FINDINGS = 20  # of a rule, in a conclusion
MAX_NOTES = 100
MAX_TEXT = 2000  # characters

Made = TypeVar("Made")


def evaluate(question: EvaluationQuestion) -> ProfileConclusion:
    """Return what the profile means. A part that fails leaves a note, and the others are there."""
    notes = list(question.notes)
    profile = load_profile(
        question.job,
        [instance_source(each) for each in question.sources],
        started_us=question.started_us,
        ended_us=question.ended_us,
    )
    traces = _read_traces(question, notes)
    earlier = [run for each in question.earlier if (run := parse_run(each)) is not None]
    verdict = _attempt(
        lambda: judge_profile(
            profile,
            traces=list(traces.values()),
            earlier=earlier,
            instance_types={each.name: _offered_facts(each) for each in question.instance_types},
        ),
        "The profile could not be judged",
        notes,
    ) or ProfileVerdict(summary="The profile could not be judged.")
    run = _attempt(lambda: summarize_run(profile), "The run could not be summarized", notes)
    checked = [_check_configured(rule, profile) for rule in question.rules]
    conclusions = [each.conclusion for each in checked]
    if question.report:
        source = ReportSource(
            profile=profile,
            verdict=verdict,
            written_us=question.now_us,
            region=question.region,
            job_arn=question.job_arn,
            traces=traces,
        )
        conclusions = _write_reports(Path(question.report), source, checked, notes)
    return ProfileConclusion(
        verdict=_plain(verdict),
        evaluated_us=question.now_us,
        rules=tuple(conclusions),
        phases=[_plain_phases(each) for each in list_phases(profile)],
        hardware=[
            {
                "instance": each.host,
                "metric": each.series.metric.value,
                "device": each.series.device,
                "at_us": each.at_us,
                "value": each.value,
                "mean": each.mean,
            }
            for each in list_series(profile)
        ],
        notes=tuple(dict.fromkeys(note[:MAX_TEXT] for note in (*profile.notes, *notes)))[:MAX_NOTES],
        run=plain_run(run) if run is not None else None,
        is_final=question.ended_us is not None,
    )


def check_trace(question: TraceQuestion) -> None:
    """Read a trace and compute its figures, which raises what they raise. They are quick the next time."""
    _read_trace(TraceCache(Path(question.cache)), question.path)


def _offered_facts(offered: OfferedType) -> InstanceFacts:
    return InstanceFacts(
        instance_type=offered.name,
        cores=offered.cores,
        memory_bytes=offered.memory_bytes,
        gpus=offered.gpus,
        price_per_hour=offered.price_per_hour,
        currency=offered.currency,
    )


def _read_traces(question: EvaluationQuestion, notes: list[str]) -> dict[str, TraceProfile]:
    cache = TraceCache(Path(question.cache))
    found: dict[str, TraceProfile] = {}
    for place in question.traces:
        read = _attempt(partial(_read_trace, cache, place.path), f"The trace {place.uri} is left out", notes)
        if read is not None:
            notes += [f"{place.uri}: {note}" for note in read.notes]
            found[place.uri] = read
    return found


def _read_trace(cache: TraceCache, path: str) -> TraceProfile:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        assert stat.S_ISREG(os.fstat(descriptor).st_mode), "the yard writes files"
        return profile_trace(cache.read(file))


@dataclass(frozen=True, slots=True)
class _CheckedRule:
    """A rule of the job after its check, with all rules that its report has. A rule that is no report has itself."""

    question: RuleQuestion
    conclusion: RuleConclusion
    reported: Sequence[ReportedRule] = field(default_factory=tuple)


def _check_configured(question: RuleQuestion, profile: JobProfile) -> _CheckedRule:
    try:
        rule = make_profiler_rule(question.rule, question.parameters)
        parameters = _plain(profiler_rule_values(question.rule, question.parameters))
        parts = report_rules(question.parameters) if rule.name == REPORT_RULE else [(question.name, rule)]
    except TrainyardError as error:
        return _CheckedRule(question, RuleConclusion(question.name, question.rule, error=error.message))
    check, error_text = _check(rule, profile)
    conclusion = RuleConclusion(
        name=question.name,
        rule=rule.name,
        findings=[_plain(finding) for finding in check.findings[:MAX_FINDINGS]],
        datapoints=check.datapoints,
        violations=check.violations,
        undecided=check.undecided,
        error=error_text,
        parameters=parameters,
    )
    return _CheckedRule(question, conclusion, [_reported(name, part, parameters, profile) for name, part in parts])


def _check(rule: ProfilerRule, profile: JobProfile) -> tuple[ProfilerCheck, str]:
    """Return the check of a rule, and why it failed if it did."""
    try:
        return rule.check(profile), ""
    except Exception as error:
        # A rule that fails is an error of that rule, and the others still judge.
        return ProfilerCheck(undecided="The rule failed."), f"The rule failed: {error!r}"[:MAX_TEXT]


def _reported(name: str, rule: ProfilerRule, parameters: Mapping[str, Any], profile: JobProfile) -> ReportedRule:
    check, error = _check(rule, profile)
    status = RuleStatus.ISSUES_FOUND if check.findings else RuleStatus.NO_ISSUES_FOUND
    return ReportedRule(
        name=name,
        rule=rule.name,
        purpose=rule.purpose,
        recommendation=rule.recommendation,
        parameters=_own_parameters(rule, parameters),
        status=RuleStatus.ERROR if error else status,
        check=check,
    )


def _own_parameters(rule: ProfilerRule, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of a rule; those of a report have the names of its rules before them."""
    own = {each.name: parameters.get(f"{rule.name}_{each.name}", parameters.get(each.name)) for each in rule.parameters}
    return {name: value for name, value in own.items() if value is not None}


def _write_reports(
    folder: Path, source: ReportSource, checked: Sequence[_CheckedRule], notes: list[str]
) -> list[RuleConclusion]:
    """Write the report of each report rule, and the JSON of each other rule, into a folder with the rule's number."""
    conclusions = []
    for number, each in enumerate(checked):
        files = _write_report(source, each, notes) if each.reported else {}
        for name, content in files.items():
            path = folder / str(number) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        conclusions.append(replace(each.conclusion, files=sorted(files)))
    return conclusions


def _write_report(source: ReportSource, checked: _CheckedRule, notes: list[str]) -> Mapping[str, bytes]:
    if checked.conclusion.rule == REPORT_RULE:
        write = partial(write_report, replace(source, rules=tuple(checked.reported)))
    else:
        write = partial(write_rule_files, checked.reported)
    return _attempt(write, f"The report of {checked.question.name} could not be written", notes) or {}


def _attempt(make: Callable[[], Made], failure: str, notes: list[str]) -> Made | None:
    """Return what `make` returns; None, and a note, if it fails."""
    try:
        return make()
    except MemoryError:
        notes.append(f"{failure}: it needs more memory than an evaluation may use.")
    except TrainyardError as error:
        notes.append(f"{failure}: {error.message}")
    except Exception as error:
        notes.append(f"{failure}: {error!r}"[:MAX_TEXT])
    return None


def _plain_phases(phases: RankPhases) -> Mapping[str, Any]:
    return {
        "worker": phases.worker,
        "instance": phases.host,
        "steps": phases.steps,
        "step_s": phases.step_s,
        "phases_s": {phase.name.lower(): seconds for phase, seconds in phases.phases_s.items()},
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON. Rules may have computed numbers of numpy."""
    return _with_plain_numbers(to_plain(value))


def _with_plain_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _with_plain_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_plain_numbers(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    number = getattr(value, "tolist", None)
    return number() if callable(number) else str(value)
