"""Checks a profile by a rule, with parameters as Python values."""

from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.rules.profiler.catalog import make_profiler_rule
from trainyard.insight.rules.profiler.contract import ProfilerCheck


def check(rule: str, profile: JobProfile, **parameters: object) -> ProfilerCheck:
    return make_profiler_rule(rule, {name: str(value) for name, value in parameters.items()}).check(profile)


def has_triggered(rule: str, profile: JobProfile, **parameters: object) -> bool:
    return bool(check(rule, profile, **parameters).findings)
