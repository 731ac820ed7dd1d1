"""The figures of a report as JSON: what the page embeds for programs, and what the notebook shows without a yard."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.insight.profiling.contract import RankProfile
from trainyard.insight.profiling.report.contract import ReportedRule, ReportSource
from trainyard.insight.profiling.report.figures import (
    JobTimes,
    list_slow_steps,
    list_step_usage,
    list_usage,
    measure_times,
)
from trainyard.insight.profiling.report.json_values import to_json_value
from trainyard.insight.profiling.report.labels import METRICS, PHASES, ROLES
from trainyard.insight.profiling.report.units import moment_text
from trainyard.insight.profiling.traces.trace_profile import TraceProfile

VERSION = 1
# Of operators, kernels and findings.
MAX_ROWS = 20
# Of a name.
MAX_NAME = 300


def summarize(source: ReportSource) -> dict[str, Any]:
    """Return the figures by section. Times are seconds where their names do not say otherwise."""
    profile = source.profile
    members: dict[str, Any] = {
        "version": VERSION,
        "job": {
            "name": profile.job,
            "arn": source.job_arn,
            "region": source.region,
            "started": moment_text(profile.started_us),
            "ended": None if profile.ended_us is None else moment_text(profile.ended_us),
            "written": moment_text(source.written_us),
            **_times(measure_times(profile, source.written_us)),
        },
        "verdict": source.verdict,
        "instances": profile.instances,
        "programs": [_program(rank) for rank in profile.ranks],
        "steps": [
            {
                "worker": each.worker,
                "mode": each.mode,
                "steps": each.steps,
                "mean_s": each.mean_s,
                "max_s": each.maximum_s,
                "p99_s": each.p99_s,
                "p95_s": each.p95_s,
                "p50_s": each.p50_s,
                "min_s": each.minimum_s,
                "outliers": each.outliers,
                "phases_s": {label: each.phases_s[phase] for phase, label in PHASES.items()},
            }
            for each in list_step_usage(profile.ranks)
        ],
        "slow_steps": list_slow_steps(profile.ranks),
        "system": [
            {
                "host": each.host,
                "metric": METRICS[each.metric],
                "device": each.device,
                "unit": each.unit,
                "mean": each.mean,
                "max": each.maximum,
                "p99": each.p99,
                "p95": each.p95,
                "p90": each.p90,
                "p50": each.p50,
                "min": each.minimum,
            }
            for each in list_usage(profile)
        ],
        "rules": [_rule(each) for each in source.rules],
        "traces": {place: _trace(trace) for place, trace in source.traces.items()},
        "notes": list(profile.notes),
    }
    rounded: dict[str, Any] = _round_numbers(to_json_value(members))
    return rounded


def _times(times: JobTimes) -> dict[str, Any]:
    return {
        "duration_s": times.duration_s,
        "initialization_s": times.initialization_s,
        "training_loop_s": times.loop_s,
        "finalization_s": times.finalization_s,
    }


def _program(rank: RankProfile) -> dict[str, Any]:
    facts = to_json_value(rank.program)
    for loader in facts["loaders"]:
        # Thousands of samples; the page has them as a histogram.
        del loader["fetch_s"], loader["wait_s"]
    return {"worker": rank.name, "host": rank.host, "rank": rank.rank, **facts}


def _rule(rule: ReportedRule) -> dict[str, Any]:
    return {
        "name": rule.name,
        "rule": rule.rule,
        "status": rule.status,
        "purpose": rule.purpose,
        "recommendation": rule.recommendation,
        "triggered": len(rule.check.findings),
        "violations": rule.check.violations,
        "datapoints": rule.check.datapoints,
        "parameters": {name: str(value) for name, value in rule.parameters.items()},
        "findings": [finding.message for finding in rule.check.findings[:MAX_ROWS]],
        "undecided": rule.check.undecided,
    }


def _trace(trace: TraceProfile) -> dict[str, Any]:
    shares, means = trace.roles.shares, trace.roles.mean_s
    operators = sorted(trace.operators, key=lambda each: -(each.device_self_s or each.host_self_s))
    return {
        "steps": len(trace.windows) if trace.windows.are_steps else 0,
        "roles": {label: {"share": shares[role], "mean_s": means[role]} for role, label in ROLES.items()},
        "gpus": list(trace.gpus),
        "operators": _records(
            operators, ("name", "calls", "host_self_s", "host_total_s", "device_self_s", "device_total_s")
        ),
        "kernels": _records(
            trace.kernels, ("name", "calls", "total_s", "mean_s", "max_s", "min_s", "occupancy_percent")
        ),
        "collectives": _records(trace.collectives, ("name", "calls", "total_bytes", "total_s", "mean_s", "max_s")),
        "memory": [{"device": each.device, "peak_bytes": each.curve.peak_bytes} for each in trace.memory],
        "notes": list(trace.notes),
    }


def _records(rows: Sequence[object], members: Sequence[str]) -> list[Mapping[str, object]]:
    return [{member: getattr(row, member) for member in members} for row in rows[:MAX_ROWS]]


def _round_numbers(value: Any) -> Any:
    """Return JSON with six significant digits, and with names that can be shown."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, str):
        return _shorten_name(value)
    if isinstance(value, dict):
        return {_shorten_name(name): _round_numbers(member) for name, member in value.items()}
    return [_round_numbers(each) for each in value] if isinstance(value, list) else value


def _shorten_name(name: str) -> str:
    """Return a name without its end, if it is very long, and without halves of characters, which cannot be printed."""
    return name[:MAX_NAME].encode("utf-8", "replace").decode()
